"""What feed-forwards do to words and entities, across models: the effects of `word-split` and `entities` by depth.

Models have different numbers of layers, so that a layer's place is its depth: its number by that of all layers.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from normscope.experiments.published import CONLL, WIKIPEDIA, Paper
from normscope.experiments.published_values import SHAPES, TITLES
from normscope.report.across import differing, having_table, names_of
from normscope.report.finished import FinishedRun

KINDS = {"ff": "the feed-forward alone", "group": "with its norms and residual"}
"""The kinds of amplification, in words."""

_CORPORA = {"word-split": WIKIPEDIA, "entities": CONLL}
"""The experiments, and the corpus that each has in the paper."""

_NEEDED = {"kind", "layer", "effect", "low", "high", "significant"}
"""The columns of a table that can be drawn; those of other versions may lack some."""


@dataclass(frozen=True)
class Point:
    """A layer: its depth, the effect, the ends of its band (the bootstrap interval or, of several runs, one deviation to
    both sides), and whether it is significant (`None`: not known, or not so in all runs alike)."""

    depth: float
    effect: float
    low: float | None
    high: float | None
    significant: bool | None


@dataclass(frozen=True)
class Effects:
    """The effects of one experiment by kind and by model, and where a paper's models have significant ones, as depths."""

    experiment: str
    lines: dict[str, dict[str, list[Point]]]
    published: dict[str, list[float]]
    together: bool
    note: str = ""


def effects_across(runs: Sequence[FinishedRun], *, together: bool = False) -> list[Effects]:
    """Those of every experiment on groups that at least two runs have."""
    return [
        effects
        for experiment in _CORPORA
        if (effects := _effects(experiment, having_table(runs, experiment), together=together))
    ]


def _effects(experiment: str, runs: Sequence[FinishedRun], *, together: bool) -> Effects | None:
    names = names_of(runs, together=together)
    rows = [[row for row in run.table(experiment).to_pylist() if row.keys() >= _NEEDED] for run in runs]
    lines: dict[str, dict[str, list[Point]]] = {}
    for kind in KINDS:
        for name in dict.fromkeys(names):
            own = [each for each, of in zip(rows, names, strict=True) if of == name]
            points = _points([[row for row in each if row["kind"] == kind] for each in own])
            if points:
                lines.setdefault(kind, {})[name] = points
    if len(runs) < 2 or not lines:
        return None
    return Effects(experiment, lines, _published(experiment), together, differing(runs, experiment))


def _points(seeds: Sequence[Sequence[dict[str, Any]]]) -> list[Point]:
    """The layers of one model that have an effect, over one run or several."""
    by_layer: dict[int, list[dict[str, Any]]] = {}
    for row in (row for each in seeds for row in each):
        by_layer.setdefault(row["layer"], []).append(row)
    depth = max(by_layer, default=1)
    known = {layer: [row for row in rows if row["effect"] is not None] for layer, rows in by_layer.items()}
    return [_point(layer / depth, rows) for layer, rows in sorted(known.items()) if rows]


def _point(depth: float, rows: Sequence[dict[str, Any]]) -> Point:
    if len(rows) == 1:
        (row,) = rows
        return Point(depth, row["effect"], row["low"], row["high"], row["significant"])
    effects = [row["effect"] for row in rows]
    mean, deviation = statistics.fmean(effects), statistics.stdev(effects)
    verdicts = {row["significant"] for row in rows}
    return Point(depth, mean, mean - deviation, mean + deviation, verdicts.pop() if len(verdicts) == 1 else None)


def _published(experiment: str) -> dict[str, list[float]]:
    """The depths at which the paper found the feed-forward to amplify the group, by the paper's model."""
    found: dict[str, list[float]] = {}
    for model, title in TITLES.items():
        paper, layers = Paper(model, _CORPORA[experiment]), SHAPES[model][1]
        depths = [layer / layers for layer in range(1, layers + 1) if paper.significant(experiment, layer)]
        if depths:
            found[f"paper: {title}"] = depths
    return found
