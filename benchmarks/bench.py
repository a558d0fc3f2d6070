"""All benchmarks in one run: one table, one figure, and JSON with the facts of the machine, under `benchmarks/results`.

    python benchmarks/bench.py [--sections planner approximate corpus start-up] [--threads 1] [--long]

Times are seconds of CPU, which a busy machine hardly changes, and ratios are of times measured one after the other.
`benchmarks/engine.py` and `benchmarks/explain.py` measure engine and explanations at more lengths and beside other tools.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

import normscope as ns
from normscope.corpora import Corpus, Problems, bundled
from normscope.decompose import Approximation
from normscope.experiments import EXPERIMENTS, ModelFacts, experiment
from normscope.experiments import observer as seam
from normscope.files import replacing

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results"
OF_TEXT = (
    *("dispersion", "categories", "weight-vs-norm", "frequency", "mixing-ratio", "mixing-frequency"),
    *("scope-similarity", "ff-amplification", "word-split", "ff-norms", "outlier-dimensions"),
)
"""The experiments that plain text is enough for."""

WIDE = dict(vocab_size=30522, hidden_size=768, num_attention_heads=12)


def models(layers: int = 2, positions: int = 1024) -> dict[str, Callable[[], ns.Analyzer]]:
    """The models of the grid: the embedded one, and others of BERT-base width with a few random layers."""
    bert = BertConfig(**WIDE, num_hidden_layers=layers, max_position_embeddings=positions)
    llama = LlamaConfig(**WIDE, intermediate_size=2048, num_hidden_layers=layers, num_key_value_heads=4)
    return {
        "MiniLM": ns.load,
        "BERT-base width": lambda: ns.load(BertModel(bert, add_pooling_layer=False).eval()),
        "GPT-2 width": lambda: ns.load(GPT2Model(GPT2Config(n_layer=layers)).eval()),
        "Llama-like": lambda: ns.load(LlamaModel(llama).eval()),
    }


def ids(length: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"input_ids": torch.randint(1000, 30000, (1, length))}


def spent(task: Callable[[], Any], repeats: int = 2) -> float:
    """The smallest CPU time of a few runs; what takes long is run once."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        task()
        best = min(best, time.process_time() - started)
        if best > 10:
            break
    return best


# ---- sections --------------------------------------------------------------------------------------------------------


def planner(_: argparse.Namespace) -> Iterator[Row]:
    """What the planner foretells beside what is measured."""
    for name, make in models().items():
        torch.manual_seed(0)
        analyzer = make()
        attention = [scope for scope in analyzer.scopes if "Ff" not in scope]
        for length in (32, 128):
            kinds: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
                "all maps": ({}, lambda a=analyzer, n=length: a.analyze(ids(n))),
                "attention maps": (
                    {"scopes": attention},
                    lambda a=analyzer, n=length, s=attention: a.analyze(ids(n), scopes=s),
                ),
                "mixing ratios": ({"maps": False}, lambda a=analyzer, n=length: a.mixing_ratios(ids(n))),
            }
            for kind, (options, task) in kinds.items():
                foretold = analyzer.estimate(length, clock=time.process_time, **options)
                measured = spent(task)
                assert foretold.seconds is not None
                yield {
                    **dict(model=name, tokens=length, what=kind, measured=measured, foretold=foretold.seconds),
                    "ratio": foretold.seconds / measured,
                }


def approximate(options: argparse.Namespace) -> Iterator[Row]:
    """Approximate maps beside exact ones: time on BERT-base width, and what is reached on the embedded model."""
    torch.manual_seed(0)
    wide = models(layers=1)["BERT-base width"]()
    for length in (128, 1024) if options.long else (128,):
        exact = spent(lambda n=length: wide.analyze(ids(n)))
        for near in (Approximation(0.2), Approximation(1.0, 64), Approximation(0.2, 64), Approximation(0.2, 128)):
            seconds = spent(lambda n=length, near=near: wide.analyze(ids(n), approximate=near))
            what = f"{near.name} (neurons {near.neurons:g}, directions {near.directions or 'all'})"
            yield dict(model="BERT-base width", tokens=length, what=what, measured=seconds, ratio=exact / seconds)
    small = ns.load()
    text = Path(bundled()).read_text()[:600]
    exact = spent(lambda: small.analyze(text, truncate=True))
    for name in ("slopes", "sketch", "both", "fast"):
        seconds = spent(lambda name=name: small.analyze(text, truncate=True, approximate=name))
        facts = small.analyze(text, truncate=True, approximate=name).attrs
        reached = {name: facts[name] for name in ("approximate_spearman", "approximate_error")}
        length = len(small.analyze(text, truncate=True, scopes="AttnW").tokens)
        yield dict(model="MiniLM", tokens=length, what=name, measured=seconds, ratio=exact / seconds, **reached)


def corpus(_: argparse.Namespace) -> Iterator[Row]:
    """All experiments that an encoder has on packed sequences, beside the full maps of the same sequences."""
    analyzer = ns.load()
    names = [name for name in OF_TEXT if name in EXPERIMENTS]
    chosen = tuple(experiment(name) for name in names)
    items = list(Corpus(str(bundled()), unit="packed", max_tokens=128, limit=4).items(analyzer.tokenizer, Problems()))
    plan = seam.Plan(chosen, ModelFacts.of_analyzer(analyzer), analyzer.tokenizer.mask_token_id, "[MASK]", 0)
    maps = spent(lambda: analyzer.measure([item.sequence for item in items], [ns_maps(analyzer)]))
    everything = spent(lambda: seam.observe(analyzer, plan, items))
    forms = len(list(plan.forms()))
    what = f"{len(names)} experiments, {forms} forms of the text"
    yield dict(model="MiniLM", tokens=128, what="full maps, one form", measured=maps, ratio=1.0)
    yield dict(model="MiniLM", tokens=128, what=what, measured=everything, ratio=everything / maps)
    yield dict(
        model="MiniLM", tokens=128, what="... per form", measured=everything / forms, ratio=everything / maps / forms
    )


def ns_maps(analyzer: ns.Analyzer) -> Any:
    from normscope.measures import Decomposition  # noqa: PLC0415

    return Decomposition(maps=tuple(analyzer.scopes))


def start_up(_: argparse.Namespace) -> Iterator[Row]:
    """Seconds of CPU until a command line has answered."""
    for what in (["--version"], ["--help"], ["map", "--help"]):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "normscope.cli", *what], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield dict(what="normscope " + " ".join(what), measured=seconds)


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "planner": planner,
    "approximate": approximate,
    "corpus": corpus,
    "start-up": start_up,
}


# ---- showing ---------------------------------------------------------------------------------------------------------


def machine(threads: int) -> Row:
    """What the numbers depend on."""
    names = ("torch", "transformers", "numpy")
    left, right = torch.randn(2048, 3072), torch.randn(3072, 768)
    seconds = min(spent(lambda: left @ right, repeats=1) for _ in range(5))
    return {
        **dict(processor=platform.processor() or platform.machine(), cores=os.cpu_count(), threads=threads),
        **dict(load=os.getloadavg()[0], python=platform.python_version(), system=platform.system()),
        "gigaflops": 2 * 2048 * 3072 * 768 / seconds / 1e9,
        **{name: version(name) for name in names},
    }


def table_of(results: dict[str, list[Row]]) -> Table:
    table = Table(title="Seconds of CPU")
    for column in ("section", "model", "n", "what", "seconds", "ratio", "Spearman"):
        table.add_column(column, justify="right" if column in ("n", "seconds", "ratio", "Spearman") else "left")
    for section, rows in results.items():
        for row in rows:
            reached = row.get("approximate_spearman")
            table.add_row(
                *(section, row.get("model", ""), str(row.get("tokens", "")), row["what"], f"{row['measured']:.3f}"),
                *(f"{row['ratio']:.2f}" if "ratio" in row else "", "" if reached is None else f"{reached:.4f}"),
            )
    return table


def figure_of(results: dict[str, list[Row]]) -> Figure:
    """One panel for each section with ratios."""
    shown = {name: rows for name, rows in results.items() if any("ratio" in row for row in rows)}
    figure = Figure(figsize=(7, 1.5 + 0.22 * sum(map(len, shown.values()))), layout="constrained")
    heights = [1 + len(rows) for rows in shown.values()]
    grid = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0] if shown else []
    for axes, (name, rows) in zip(grid, shown.items(), strict=True):
        labels = [f"{row.get('model', '')} {row.get('tokens', '')} {row['what']}" for row in rows]
        axes.barh(range(len(rows)), [row.get("ratio", 0) for row in rows])
        axes.set_yticks(range(len(rows)), labels, fontsize=6)
        axes.axvline(1, color="k", lw=0.6)
        axes.invert_yaxis()
        axes.set_title(
            {"planner": "foretold / measured", "approximate": "times faster than exact"}.get(name, name), fontsize=8
        )
        axes.tick_params(axis="x", labelsize=6)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--long", action="store_true", help="also 1024 tokens, which takes minutes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    facts, results = machine(options.threads), {}
    for name in options.sections:
        results[name] = list(SECTIONS[name](options))
        with replacing(options.out / "bench.json") as temporary:
            temporary.write_text(json.dumps({"machine": facts, **results}, indent=1) + "\n")
    with replacing(options.out / "bench.svg") as temporary:
        figure_of(results).savefig(temporary, format="svg")
    console = Console(width=150)
    console.print(facts)
    console.print(table_of(results))


if __name__ == "__main__":
    main()
