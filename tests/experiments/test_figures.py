"""Figures of experiments, drawn as a run draws them: what they are about is named, and what they say can be read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from support.tiny_models import tiny, token_ids

from experiments.made import random_analysis
from normscope.experiments import Observation, figures
from normscope.experiments.base import ModelFacts, RunFacts
from normscope.experiments.dispersion import Dispersion
from normscope.methods.vectors import HiddenNorms, ValueNorms
from normscope.plots.style import publication
from normscope.runs import run

LAYERS = 15
NAMES = [
    "dispersion",
    "categories",
    "weight-vs-norm",
    "frequency",
    "mixing-ratio",
    "mixing-frequency",
    "expansion-rate",
    "scope-similarity",
    "ff-norms",
]
MANY_PANELS = ["word-split", "outlier-dimensions"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _outcomes(NAMES, tmp_path_factory.mktemp("corpus"))


def _outcomes(names: list[str], folder: Path) -> dict[str, Any]:
    """Experiments that need no labels, on a model of many layers."""
    path = folder / "ids.jsonl"
    rows = [
        f'{{"input_ids": {ids}, "word_ids": {[place // 2 for place in range(len(ids))]}}}' for ids in token_ids(9, 8)
    ]
    path.write_text("\n".join(rows * 2))
    model = tiny("bert", num_hidden_layers=LAYERS)
    return run(names, model=model, corpus=str(path), options={"word-split": {"resamples": 99}}).outcomes


def _drawn(draw: Any) -> Figure:
    with publication():
        figure = draw()
        FigureCanvasAgg(figure).draw()
    return figure


def _overlaps(axis: Axis) -> list[tuple[str, str]]:
    """Labels of neighbouring ticks that cover each other."""
    shown = [label for label in axis.get_ticklabels() if label.get_text() and label.get_visible()]
    boxes = [(label.get_text(), label.get_window_extent()) for label in shown if not label.get_rotation()]
    return [(first, second) for (first, a), (second, b) in pairwise(boxes) if a.overlaps(b)]


def test_every_figure_names_model_and_corpus_and_its_labels_do_not_overlap(outcomes: dict[str, Any]) -> None:
    _check(outcomes)


@pytest.mark.slow
def test_so_do_figures_with_a_panel_for_every_layer(tmp_path: Path) -> None:
    _check(_outcomes(MANY_PANELS, tmp_path))


def _check(outcomes: dict[str, Any]) -> None:
    for outcome in outcomes.values():
        for name, draw in outcome.figures.items():
            figure = _drawn(draw)
            heading = figure.get_suptitle()
            assert "BertModel" in heading and ("ids.jsonl (4 sequences)" in heading or name == "expansion-rate"), name
            for axes in figure.axes:
                for axis in (axes.xaxis, axes.yaxis):
                    assert not _overlaps(axis), name
                    assert not any("$" in label.get_text() for label in axis.get_ticklabels()), name


def test_the_first_layer_is_on_the_left_or_at_the_top(outcomes: dict[str, Any]) -> None:
    axes = _drawn(outcomes["ff-norms"].figures["ff-norms"]).axes[0]
    ticks = axes.get_xticks()
    assert ticks[0] == 1 and len(ticks) <= 13 and axes.get_xlim()[0] < axes.get_xlim()[1]
    heat = _drawn(outcomes["mixing-ratio"].figures["mixing-ratio"]).axes[0]
    assert heat.get_yticklabels()[0].get_text() == "1" and heat.get_ylim()[0] > heat.get_ylim()[1]


def test_the_line_in_a_box_is_the_median() -> None:
    chance = np.random.default_rng(3)
    hidden, values = chance.random((2, 7)) + 1, chance.random((2, 3, 7)) + 1
    results = {HiddenNorms(): hidden, ValueNorms(): values}
    outcome = Dispersion().over([Observation(random_analysis(0, list("abcdefg")), results=results)])
    for axes, norms in zip(_drawn(outcome.figures["dispersion"]).axes, (hidden, values), strict=True):
        heights = [line.get_ydata() for line in axes.lines if len(set(line.get_ydata())) == 1]
        for layer in range(2):
            median = np.median(norms[layer])
            assert any(height[0] == pytest.approx(median, rel=1e-3) for height in heights)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.0, "1"), (0.01, "0.01"), (1e4, "10,000"), (1e-7, "10⁻⁷"), (1e6, "10⁶"), (3.0, ""), (0.0, "")],
)
def test_powers_of_ten_are_written_plainly(value: float, shown: str) -> None:
    assert figures.power_of_ten(value) == shown


def test_a_caption_names_no_folders() -> None:
    model = ModelFacts("/home/me/models/opus-mt", (1,), (), stack="encoder")
    facts = RunFacts(model, sequences=1200, masked=frozenset({"mixing-ratio"}), source=str(Path("/data/wiki.txt")))
    assert facts.caption("mixing-ratio") == "opus-mt (encoder) on wiki.txt (1,200 sequences), 12 % of tokens masked"
    assert facts.caption("frequency") == "opus-mt (encoder) on wiki.txt (1,200 sequences)"


def test_a_heading_is_as_wide_as_its_figure_at_the_most() -> None:
    results = {HiddenNorms(): np.ones((2, 7)), ValueNorms(): np.ones((2, 3, 7))}
    observation = Observation(random_analysis(0, list("abcdefg")), results=results)
    outcome = Dispersion().over([observation], corpus="a corpus with a long name " * 9)
    figure = _drawn(outcome.figures["dispersion"])
    (heading,) = (text for text in figure.texts if text.get_text() == figure.get_suptitle())
    box = heading.get_window_extent()
    assert figure.bbox.x0 <= box.x0
    assert box.x1 <= figure.bbox.x1


def test_an_axis_with_both_signs_is_written_plainly() -> None:
    figure, (axes,) = figures.panels(1)
    axes.plot([-1.0, 0.0, 10.0])
    figures.signed_log_scale(axes, threshold=0.01)
    FigureCanvasAgg(figure).draw()
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert {"-1", "0", "10"} <= set(shown)
    assert not any("$" in text for text in shown)
