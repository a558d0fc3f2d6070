"""Make the pictures of the documentation again, from real runs: figures, screenshots, and what the notebooks output.

    python tools/docs_assets.py                                          (with the embedded model alone)
    python tools/docs_assets.py --materials FOLDER                       (everything)
    python tools/docs_assets.py --only findings --materials FOLDER --runs deletion agreement

Models and corpora that normscope does not have are read from the folder, under the names that docs/findings.md lists. What
needs one that is not there is left as it is, and named at the end. Runs are written to FOLDER/runs; one that is finished is
not run again, so remove what is to be made afresh.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from documented_runs import DOCS, Left, commands, made
from nbclient import NotebookClient

import normscope as ns
from normscope.corpora import bundled
from normscope.experiments import EXPERIMENTS
from normscope.explorer import write_page
from normscope.output.export import write_figure
from normscope.plots import plot_amplification, plot_explanation, plot_flow, plot_growth, plot_map, plot_mixing_ratio
from normscope.plots.style import publication
from normscope.report.across import across_models
from normscope.report.across_figures import drawn_across, drawn_effects, effects_across
from normscope.report.run import Run
from normscope.runs import run

IMAGES = DOCS / "images"
SENTENCE = "The opera singer caught a soap bubble."
LONG = "The chef who the critics loved finally opened a restaurant in Lyon, and it was unbelievably good."
CAUSAL = "Friends Juana and Kristi found a mango at the bar. Kristi gave it to"
PAIR = "A man is playing a guitar on stage.", "Someone performs live music with a guitar."
LAYER = 3
CAUSAL_MODEL = "SmolLM2-135M"
DOCUMENTS = {
    "notes.txt": "Tomas works as a surgeon. Oskar lives in Oslo.\n\nMarta moved to Lisbon in 2019. She likes tea.",
    "more.md": "Dr. Rossi lives in Rome. He has a dog. Marta's brother lives in Porto.",
}
QUESTION = "Where does Marta live?"
CHOSEN = "Lisbon"
"""What the sentence has that is chosen on the page of the answer."""
NOT_PLAIN = ("alignment", "entities", "shapley", "redundancy")
"""Experiments of the papers that need a corpus with labels, or short texts."""

SHORT = {"shapley": 9, "redundancy": 16}
"""Experiments that are run on short texts, and of how many tokens at the most."""


SPANNED = ("minilm", "roberta", "smollm")
"""Runs of the findings whose models are shown across."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(PARTS), help="one part alone")
    parser.add_argument("--tutorial", default="", help="the beginning of a notebook's name, to run that alone")
    parser.add_argument(
        "--materials", type=Path, default=Path(), help="the folder with models and corpora (default: this one)"
    )
    parser.add_argument(
        "--runs", nargs="+", default=(), choices=tuple(commands()), help="some of the findings' runs alone"
    )
    asked = parser.parse_args()
    left: list[Left] = []
    for name, part in PARTS.items():
        if asked.only in (None, name):
            for item in part(asked):
                if isinstance(item, Left):
                    left.append(item)
                else:
                    print(item.relative_to(DOCS), flush=True)
    for item in left:
        print(f"Left as it was: {', '.join(item.pictures)}: {item.reason}")


def figures(asked: argparse.Namespace) -> Iterator[Path | Left]:
    """The figures of the guide."""
    analyzer = ns.load()
    analysis = analyzer.analyze(SENTENCE)
    whole = str(analyzer.scopes[-1])
    yield write_figure(plot_growth(analysis, LAYER), IMAGES / "growth.png")
    yield write_figure(plot_map(analysis, "AttnResLnFf", LAYER), IMAGES / "map.png")
    yield write_figure(plot_map(analysis, whole, normalise="row"), IMAGES / "layers.png")
    yield write_figure(plot_mixing_ratio(analysis, whole), IMAGES / "mixing.png")
    yield write_figure(plot_amplification(analysis, "AttnResLn", "AttnResLnFf", LAYER), IMAGES / "amplification.png")
    yield write_figure(analyzer.similarity(*PAIR).plot(), IMAGES / "similarity-figure.png")
    words = analyzer.analyze("The soap bubble was unbelievably beautiful.").words()
    yield write_figure(plot_map(words, whole, LAYER, normalise="row"), IMAGES / "words.png")
    if (asked.materials / CAUSAL_MODEL).exists():
        yield from causal_figures(ns.load(asked.materials / CAUSAL_MODEL))
    else:
        names = ("images/causal", "images/explanation", "images/flow", "images/answer")
        yield Left(names, f"{CAUSAL_MODEL} not in {asked.materials}")


def causal_figures(analyzer: ns.Analyzer) -> Iterator[Path]:
    count = len(analyzer.layers)
    shown = sorted({1, count // 3, 2 * count // 3, count})
    analysis = analyzer.analyze(SENTENCE, scopes=["AttnW", analyzer.scopes[-1]], layers=shown)
    yield write_figure(plot_map(analysis, str(analyzer.scopes[-1]), normalise="row"), IMAGES / "causal.png")
    explanation = analyzer.explain(CAUSAL, target=" Juana", against=" Kristi")
    yield write_figure(plot_explanation(explanation), IMAGES / "explanation.png")
    yield write_figure(
        plot_flow(explanation.flow(0.7), name="Juana - Kristi", about=explanation.attrs), IMAGES / "flow.png"
    )
    answer = analyzer.explain_answer(context=DOCUMENTS, question=QUESTION, max_new_tokens=20)
    yield write_figure(answer.plot(), IMAGES / "answer.png")


def screenshot(asked: argparse.Namespace) -> Iterator[Path | Left]:
    """The explorer in a browser."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (only here)

    chromium = shutil.which("chromium")
    if chromium is None:
        yield Left(("images/explorer", "images/similarity", "images/answer-page"), "no chromium here")
        return
    analyzer = ns.load()
    shown: dict[str, tuple[Any, int, str]] = {
        "explorer.png": (analyzer.analyze(LONG, heads=True), 860, ".heatmap"),
        "similarity.png": (analyzer.similarity(*PAIR), 680, ".heatmap"),
    }
    if (asked.materials / CAUSAL_MODEL).exists():
        model = ns.load(asked.materials / CAUSAL_MODEL)
        answer = model.explain_answer(context=DOCUMENTS, question=QUESTION, max_new_tokens=20)
        shown["answer-page.png"] = (answer, 680, ".piece")
    else:
        yield Left(("images/answer-page",), f"{CAUSAL_MODEL} not in {asked.materials}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (result, height, drawn) in shown.items():
            page_file = write_page(result, path=Path(folder) / "page.html")
            page = browser.new_page(viewport={"width": 1360, "height": height}, device_scale_factor=1.5)
            page.goto(page_file.as_uri())
            page.locator(drawn).first.wait_for(state="attached")
            page.wait_for_timeout(1500)
            if isinstance(result, ns.Answer):  # a sentence is chosen
                page.get_by_role("button", name=CHOSEN).first.click()
                page.wait_for_timeout(500)
            page.screenshot(path=IMAGES / name)
        browser.close()
    yield from (IMAGES / name for name in shown)


def plain_experiments() -> list[str]:
    """The experiments of the papers that any text will do for."""
    return [name for name, kind in EXPERIMENTS.items() if "Kobayashi" in kind.paper and name not in NOT_PLAIN]


def experiments(asked: argparse.Namespace) -> Iterator[Path]:
    """The figures of the experiments: the embedded model on the text that comes with normscope."""
    yield from figures_of(plain_experiments(), corpus=bundled(), unit="packed", max_tokens=64)
    for name, longest in SHORT.items():
        yield from figures_of([name], corpus=bundled(), max_tokens=longest)


def figures_of(names: list[str], **options: Any) -> Iterator[Path]:
    """Run experiments and keep those of their figures that the pages show."""
    pages = "".join((DOCS / "experiments" / f"{name}.md").read_text(encoding="utf-8") for name in names)
    with tempfile.TemporaryDirectory() as folder:
        run(names, out=Path(folder) / "run", **options)
        for figure in sorted((Path(folder) / "run" / "figures").glob("*.png")):
            if f"images/{figure.name}" in pages:
                yield Path(shutil.copy(figure, DOCS / "experiments" / "images" / figure.name))


def findings(asked: argparse.Namespace) -> Iterator[Path | Left]:
    """The figures of the page of findings, and those that experiments have from there: its commands are run."""
    yield from made(asked.materials.resolve(), asked.runs)


def across(asked: argparse.Namespace) -> Iterator[Path | Left]:
    """What a report shows across models, from finished runs of the findings."""
    folders = [asked.materials / "runs" / name for name in SPANNED]
    absent = [str(folder) for folder in folders if not (folder / "manifest.json").exists()]
    if absent:
        yield Left(("images/across-mixing", "images/across-word-split"), f"{', '.join(absent)} not finished")
        return
    runs = [Run.open(folder) for folder in folders]
    (mixing,) = (table for table in across_models(runs) if table.experiment == "mixing-ratio")
    (effects,) = (found for found in effects_across(runs) if found.experiment == "word-split")
    with publication():
        yield write_figure(drawn_across(mixing), IMAGES / "across-mixing.png")
        yield write_figure(drawn_effects(effects), IMAGES / "across-word-split.png")


def tutorials(asked: argparse.Namespace) -> Iterator[Path]:
    """Run every notebook and keep what it output."""
    for path in sorted((DOCS / "tutorials").glob(f"{asked.tutorial}*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times of the run, which differ each time
            if cell.cell_type == "code":  # what other libraries say about their progress
                cell.outputs = [output for output in cell.outputs if not _is_progress(output)]
        notebook.metadata.pop("widgets", None)
        nbformat.write(notebook, path)
        yield path


def _is_progress(output: Any) -> bool:
    """Whether an output is a warning or a progress bar."""
    return output.get("name") == "stderr" or "application/vnd.jupyter.widget-view+json" in output.get("data", {})


PARTS = {
    "figures": figures,
    "screenshot": screenshot,
    "experiments": experiments,
    "findings": findings,
    "across": across,
    "tutorials": tutorials,
}
"""What `--only` names."""


if __name__ == "__main__":
    main()
