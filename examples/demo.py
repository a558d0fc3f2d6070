"""The demonstration: a few sentences analysed at every scope with the embedded model, and what there is to see in them.

Prints how much tokens are mixed from scope to scope, what special tokens get, and how exact the decomposition is; then why
two texts are similar, and why a language model says what it says, if one is installed. Writes pictures, pages and maps to a
folder. Everything is made with the public names of normscope.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported: the reader of GGUF files would show its bar

import transformers
from rich.console import Console
from sentences import SENTENCES

import normscope as ns
from normscope.explorer import write_page
from normscope.output.explanation_terminal import explanation_view
from normscope.output.export import export_map, write_figure
from normscope.output.terminal import completeness_table, map_table, plain_table
from normscope.plots import plot_amplification, plot_growth, plot_map, plot_mixing_ratio, plot_tokens
from normscope.results.select import select_map

LAYER = 3
"""The layer that is shown closely."""

PAIR = "A man is playing a guitar on stage.", "Someone performs live music with a guitar."
LANGUAGE_MODEL = "smollm2"
PROMPT, SAID, AGAINST = "When Anna and Peter met at the station, Anna gave the book to", " Peter", " Anna"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="the folder to write to")
    parser.add_argument("--model", default=None, help="a folder or hub name (default: the embedded model)")
    arguments = parser.parse_args()
    try:
        run(arguments.out, arguments.model)
    except ns.NormscopeError as error:
        sys.exit(f"Error: {error}")


def run(folder: Path, model: str | None) -> None:
    console = Console(highlight=False)
    start = perf_counter()
    transformers.utils.logging.disable_progress_bar()
    analyzer = ns.load(model)
    console.print(f"Loaded {analyzer.name} ({len(analyzer.layers)} layers) in {perf_counter() - start:.1f} s.\n")
    analyses: dict[str, ns.Analysis] = {}
    seconds: dict[str, float] = {}
    for name, text in SENTENCES.items():
        start = perf_counter()
        analyses[name] = analyzer.analyze(text, heads=True)
        seconds[name] = perf_counter() - start

    summarise(console, analyses, seconds)
    show_first(console, next(iter(analyses.values())), analyzer.tolerance)
    start = perf_counter()
    written = [*write(folder, analyses), *show_similarity(console, folder), *show_prediction(console, folder)]
    size = sum(path.stat().st_size for path in written) / 1e6
    console.print(
        f"\nWrote {len(written)} files ({size:.1f} MB) to {folder.resolve()} in {perf_counter() - start:.1f} s. "
        f"Look first at {written[0]} and {folder / 'similarity.html'} in a browser.",
        soft_wrap=True,
    )


def summarise(console: Console, analyses: dict[str, ns.Analysis], seconds: dict[str, float]) -> None:
    """One column for each sentence, one row for each thing to know about it."""
    first = next(iter(analyses.values()))
    headings = ["", *analyses]
    for name, text in SENTENCES.items():
        console.print(f"  {name:12}{text}", markup=False)
    mixing = [
        [scope, *(f"{float(analysis.mixing_ratio(scope).mean()):.2f}" for analysis in analyses.values())]
        for scope in first.scopes
    ]
    console.print()
    console.print(plain_table("Mixing ratio: how much of a state comes from other tokens (mean)", headings, mixing))
    special = [[scope, *(f"{special_share(a, scope):.0%}" for a in analyses.values())] for scope in first.scopes]
    console.print()
    console.print(plain_table("Of what comes from other tokens: from special tokens (mean)", headings, special))
    facts = [
        ["tokens", *(str(len(analysis.tokens)) for analysis in analyses.values())],
        ["completeness error", *(f"{float(a.dataset['component_error'].max()):.0e}" for a in analyses.values())],
        ["seconds", *(f"{seconds[name]:.2f}" for name in analyses)],
    ]
    console.print()
    console.print(plain_table("All scopes, layers and heads", headings, facts))


def special_share(analysis: ns.Analysis, scope: str) -> float:
    """How much of what ordinary queries get from other tokens comes from special ones, by the map at a scope."""
    maps = analysis.map(scope)
    maps = maps.where(maps["query"] != maps["key"], 0.0).isel(query=~maps["query_special"].values)
    special = maps.isel(key=maps["key_special"].values)
    return float((special.sum("key") / maps.sum("key")).mean())


def show_first(console: Console, analysis: ns.Analysis, tolerance: float) -> None:
    """One layer of one sentence, by attention weights and by all that the layer does, and the proof."""
    layer = shown_layer(analysis)
    for scope in (analysis.scopes[0], str(analysis.dataset["scope"].values[-1])):
        selection = select_map(analysis, scope, layer, normalised="row")
        console.print()
        console.print(map_table(selection, layer, console.width))
    console.print()
    console.print(completeness_table(analysis.dataset, tolerance))


def show_similarity(console: Console, folder: Path) -> Iterator[Path]:
    """Why the embedded sentence encoder finds two texts similar: the strongest pairs of tokens, a page and a figure."""
    similarity = ns.load().similarity(*PAIR)
    parts = float(similarity.table.sum()), float(similarity.first_margin.sum()) + float(similarity.second_margin.sum())
    rows = [[cell.first, cell.second, f"{cell.value:+.3f}"] for cell in similarity.top(5)]
    console.print(f'\nWhy are "{PAIR[0]}" and "{PAIR[1]}" similar?\n', markup=False, soft_wrap=True)
    console.print(plain_table("The strongest pairs of tokens", ["first", "second", similarity.measure], rows))
    console.print(
        f"All pairs {parts[0]:+.3f}, with biases {parts[1]:+.3f}, biases alone {similarity.constant:+.3f}: "
        f"{similarity.measure} {similarity.value:.3f}, exact to {similarity.completeness:.0e}.",
        markup=False,
        soft_wrap=True,
    )
    yield similarity.save(folder / "similarity.html")
    yield similarity.save(folder / "similarity.png")


def show_prediction(console: Console, folder: Path) -> Iterator[Path]:
    """Why a language model says this word and not that one, and its page; a sentence if no such model is installed."""
    try:
        analyzer = ns.load(LANGUAGE_MODEL)
    except ns.ModelError as error:
        console.print(f"\nNo prediction is explained. {str(error).splitlines()[0]}", markup=False, soft_wrap=True)
        return
    explanation = analyzer.explain(PROMPT, target=SAID, against=AGAINST)
    console.print(f"\nWhy does {analyzer.name} say{SAID}, and not{AGAINST}?\n", markup=False)
    console.print(explanation_view(explanation))
    yield explanation.save(folder / "prediction.html")


def shown_layer(analysis: ns.Analysis) -> int:
    return min(LAYER, analysis.layers[-1])


def write(folder: Path, analyses: dict[str, ns.Analysis]) -> Iterator[Path]:
    """Pictures of every sentence, and its maps as netCDF (all there is) and as a table."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, analysis in analyses.items():
        layer, whole = shown_layer(analysis), str(analysis.dataset["scope"].values[-1])
        before, after = around_feed_forward(analysis)
        yield write_page(analysis, path=folder / f"{name}-explorer.html")
        yield write_figure(plot_growth(analysis, layer), folder / f"{name}-growth.png")
        yield write_figure(plot_map(analysis, whole, normalise="row"), folder / f"{name}-layers.png")
        yield write_figure(plot_map(analysis.words(), whole, layer, normalise="row"), folder / f"{name}-words.svg")
        yield write_figure(plot_mixing_ratio(analysis, whole), folder / f"{name}-mixing.png")
        yield write_figure(plot_amplification(analysis, before, after, layer), folder / f"{name}-feed-forward.png")
        yield write_figure(plot_tokens(analysis, whole, layer, -3), folder / f"{name}-tokens.png")
        yield analysis.save(folder / f"{name}.nc")
        yield export_map(analysis, folder / f"{name}.csv")


def around_feed_forward(analysis: ns.Analysis) -> tuple[str, str]:
    """The scopes just before and just after the feed-forward."""
    scopes = [str(scope) for scope in analysis.dataset["scope"].values]
    after = next(scope for scope in scopes if scope.endswith("Ff"))
    return scopes[scopes.index(after) - 1], after


if __name__ == "__main__":
    main()
