"""ff-norms (2024, Figure 10): the norm of the feed-forward's output next to that of the vector that bypasses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure

from normscope.experiments import declared, figures, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.partial import Moments, Partial
from normscope.experiments.tables import Row
from normscope.methods.vectors import FeedForwardNorms

_VECTORS = ("ff_output", "bypass")


@dataclass(frozen=True)
class FeedForwardNormsExperiment(declared.FeedForwardNormsExperiment, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1",
        "vector": "ff_output, or bypass: the vector that the residual adds back",
        "mean": "mean L2 norm over all tokens",
        "deviation": "standard deviation",
        "count": "number of tokens",
    }
    captions: ClassVar[dict[str, str]] = {
        "ff-norms": "Mean norm of the feed-forward's output and of the vector that bypasses it, by layer.",
    }

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((FeedForwardNorms(),), masked=self.masked)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        return Partial(moments={"norms": Moments.of(np.moveaxis(observation.result(FeedForwardNorms()), -1, 0))})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        norms = partial.moments["norms"]
        values = {"mean": norms.mean(), "deviation": norms.deviation(), "count": norms.count}
        table = tables.tidy({"layer": facts.model.layers, "vector": _VECTORS}, values)
        return Outcome({"ff-norms": table}, {"ff-norms": lambda: _norms_figure(norms.mean(), facts.model)})

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        means = {(row["layer"], row["vector"]): row["mean"] for row in tables.rows_with(rows, "mean")}
        layers = {layer for layer, _ in means}
        larger = sum(means[layer, "ff_output"] > means[layer, "bypass"] for layer in layers)
        return f"The feed-forward's output is longer than what bypasses it in {larger} of {len(layers)} layers."


def _norms_figure(mean: np.ndarray, model: ModelFacts) -> Figure:
    figure, (axes,) = figures.panels(1, width=4.6, height=3.4)
    series = {"feed-forward output": mean[:, 0], "bypassed by the residual": mean[:, 1]}
    figures.lines(axes, model.layers, series, label="mean L2 norm")
    axes.set_ylim(bottom=0)
    return figure
