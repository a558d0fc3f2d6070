"""Make the pictures of the documentation again, from real runs: figures, screenshots, and what the notebooks give out.

    python tools/docs_assets.py                                          (with the embedded model alone)
    python tools/docs_assets.py --causal gpt2 --conll eng.testa --translation MODEL --pairs FILE --gold FILE
    python tools/docs_assets.py --only findings --runs runs              (after the commands of docs/findings.md)

What needs a model or a corpus that normscope does not have is left as it is, unless it is named.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

import normscope as ns
from normscope.corpora import bundled
from normscope.experiments import EXPERIMENTS, run
from normscope.explorer import write_page
from normscope.export import write_figure
from normscope.plots import plot_amplification, plot_explanation, plot_flow, plot_growth, plot_map, plot_mixing_ratio

DOCS = Path(__file__).parents[1] / "docs"
IMAGES = DOCS / "images"
SENTENCE = "The opera singer caught a soap bubble."
LONG = "The chef who the critics loved finally opened a restaurant in Lyon, and it was unbelievably good."
CAUSAL = "Friends Juana and Kristi found a mango at the bar. Kristi gave it to"
LAYER = 3
OTHERWISE = ("alignment", "entities", "shapley", "redundancy")
"""Experiments of the papers that need a corpus with labels, or short texts."""

FINDINGS = {
    "alignment-awi": "align/figures/alignment-awi-argmax",
    "alignment-layers": "align/figures/alignment-layers",
    "classifier-agreement": "agreement/figures/agreement",
    "classifier-deletion-srg": "deletion/figures/deletion-srg",
    "minilm-entities-ff": "minilm-entities/figures/entities-ff",
    "roberta-shapley-layers": "shapley-roberta/figures/shapley-layers",
    **{
        f"minilm-{name}": f"minilm/figures/{name}"
        for name in (
            "categories",
            "ff-amplification-ff",
            "mixing-frequency",
            "mixing-ratio",
            "outlier-dimensions",
            "outlier-dimensions-removal",
            "scope-similarity-adjacent",
            "weight-vs-norm",
        )
    },
}
"""The figures of the page of findings, and where the runs that it describes have them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(PARTS), help="one part alone")
    parser.add_argument("--tutorial", default="", help="the beginning of a notebook's name, to run that alone")
    parser.add_argument("--causal", help="a causal language model")
    parser.add_argument("--conll", help="a corpus with entity labels")
    parser.add_argument("--translation", help="an encoder-decoder model")
    parser.add_argument("--pairs", help="sentence pairs for it")
    parser.add_argument("--gold", help="their alignments")
    parser.add_argument("--classifier", help="a classifier")
    parser.add_argument("--sentences", help="sentences for it")
    parser.add_argument("--evidence", help="rows with known evidence, for the causal language model")
    parser.add_argument("--runs", type=Path, help="the folder with the runs of docs/findings.md")
    asked = parser.parse_args()
    for name, part in PARTS.items():
        if asked.only in (None, name):
            for path in part(asked):
                print(path.relative_to(DOCS))


def figures(asked: argparse.Namespace) -> Iterator[Path]:
    """The figures of the guide."""
    analyzer = ns.load()
    analysis = analyzer.analyze(SENTENCE)
    whole = str(analyzer.scopes[-1])
    yield write_figure(plot_growth(analysis, LAYER), IMAGES / "growth.png")
    yield write_figure(plot_map(analysis, "AttnResLnFf", LAYER), IMAGES / "map.png")
    yield write_figure(plot_map(analysis, whole, normalise="row"), IMAGES / "layers.png")
    yield write_figure(plot_mixing_ratio(analysis, whole), IMAGES / "mixing.png")
    yield write_figure(plot_amplification(analysis, "AttnResLn", "AttnResLnFf", LAYER), IMAGES / "amplification.png")
    words = analyzer.analyze("The soap bubble was unbelievably beautiful.").words()
    yield write_figure(plot_map(words, whole, LAYER, normalise="row"), IMAGES / "words.png")
    if asked.causal:
        yield from causal_figures(ns.load(asked.causal))


def causal_figures(analyzer: ns.Analyzer) -> Iterator[Path]:
    count = len(analyzer.layers)
    shown = sorted({1, count // 3, 2 * count // 3, count})
    analysis = analyzer.analyze(SENTENCE, scopes=["AttnW", analyzer.scopes[-1]], layers=shown)
    yield write_figure(plot_map(analysis, str(analyzer.scopes[-1]), normalise="row"), IMAGES / "causal.png")
    explanation = analyzer.explain(CAUSAL, target=" Juana", against=" Kristi")
    yield write_figure(plot_explanation(explanation), IMAGES / "explanation.png")
    yield write_figure(plot_flow(explanation.flow(0.7), name="Juana - Kristi"), IMAGES / "flow.png")


def screenshot(asked: argparse.Namespace) -> Iterator[Path]:
    """The explorer in a browser."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (only here)

    path = IMAGES / "explorer.png"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = write_page(ns.load().analyze(LONG, heads=True), path=Path(folder) / "explorer.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 860}, device_scale_factor=1.5)
        page.goto(page_file.as_uri())
        page.locator(".heatmap").wait_for()
        page.wait_for_timeout(1500)
        page.screenshot(path=path)
        browser.close()
    yield path


def experiments(asked: argparse.Namespace) -> Iterator[Path]:
    """The figures of the experiments: the embedded model on the text that comes with normscope."""
    names = [name for name, kind in EXPERIMENTS.items() if "Kobayashi" in kind.paper and name not in OTHERWISE]
    yield from figures_of(names, corpus=bundled(), unit="packed", max_tokens=64)
    yield from figures_of(["shapley"], corpus=bundled(), max_tokens=9)
    yield from figures_of(["redundancy"], corpus=bundled(), max_tokens=16)
    if asked.conll:
        yield from figures_of(["entities"], corpus=asked.conll, limit=200)
    if asked.translation:
        options: dict[str, Any] = {"gold": asked.gold, "format": "pairs", "max_tokens": 96, "limit": 150}
        yield from figures_of(["alignment"], corpus=asked.pairs, model=asked.translation, **options)
    if asked.classifier:
        sentences: dict[str, Any] = {
            "corpus": asked.sentences,
            "model": asked.classifier,
            "max_tokens": 24,
            "shuffle": True,
        }
        yield from figures_of(["deletion"], limit=40, **sentences)
        yield from figures_of(["agreement"], limit=20, shard_size=2, **sentences)
    if asked.evidence:
        yield from figures_of(["evidence"], corpus=asked.evidence, format="evidence", model=asked.causal, limit=100)


def figures_of(names: list[str], **options: Any) -> Iterator[Path]:
    """Run experiments and keep those of their figures that the pages show."""
    pages = "".join((DOCS / "experiments" / f"{name}.md").read_text(encoding="utf-8") for name in names)
    with tempfile.TemporaryDirectory() as folder:
        run(names, out=Path(folder) / "run", **options)
        for figure in sorted((Path(folder) / "run" / "figures").glob("*.png")):
            if f"images/{figure.name}" in pages:
                yield Path(shutil.copy(figure, DOCS / "experiments" / "images" / figure.name))


def findings(asked: argparse.Namespace) -> Iterator[Path]:
    """The figures of the page of findings, from the runs of its commands."""
    if asked.runs:
        for picture, figure in FINDINGS.items():
            yield Path(shutil.copy(asked.runs / f"{figure}.png", DOCS / "findings" / f"{picture}.png"))


def tutorials(asked: argparse.Namespace) -> Iterator[Path]:
    """Run every notebook and keep what it gave out."""
    for path in sorted((DOCS / "tutorials").glob(f"{asked.tutorial}*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times of the run, which differ each time
            if cell.cell_type == "code":  # what other libraries say about their progress
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        nbformat.write(notebook, path)
        yield path


PARTS = {
    "figures": figures,
    "screenshot": screenshot,
    "experiments": experiments,
    "findings": findings,
    "tutorials": tutorials,
}
"""What `--only` names."""


if __name__ == "__main__":
    main()
