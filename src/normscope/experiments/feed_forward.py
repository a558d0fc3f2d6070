"""ff-norms and outlier-dimensions (2024, Figures 10 and 11): what the feed-forward puts out beside what bypasses it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial as bind
from typing import ClassVar

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from normscope.analysis import normalise
from normscope.choices import NormaliseAxis
from normscope.errors import InputError
from normscope.experiments import chain, figures, published, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.exact import Moments
from normscope.experiments.partial import Partial
from normscope.experiments.ranks import spearman_matrix
from normscope.measures import Decomposition
from normscope.measures.removal import MapWithoutDimensions
from normscope.measures.vectors import FeedForwardDimensions, FeedForwardNorms

_VECTORS = ("ff_output", "bypass")
_AXES: tuple[NormaliseAxis, ...] = ("none", "row", "column")


@dataclass(frozen=True)
class FeedForwardNormsExperiment(Experiment):
    """Option `masked`: whether tokens are masked first."""

    masked: bool = True

    name: ClassVar[str] = "ff-norms"
    paper: ClassVar[str] = "Kobayashi et al. 2024"
    shows: ClassVar[str] = "Figure 10"
    summary: ClassVar[str] = "norm of the feed-forward's output beside the norm of what bypasses it"
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1",
        "vector": "ff_output, or bypass: the vector that the residual adds back",
        "mean": "mean L2 norm over all tokens",
        "deviation": "standard deviation",
        "count": "number of tokens",
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


def _norms_figure(mean: np.ndarray, model: ModelFacts) -> Figure:
    figure, (axes,) = figures.panels(1, width=4.6, height=3.4)
    series = {"feed-forward output": mean[:, 0], "bypassed by the residual": mean[:, 1]}
    figures.lines(axes, model.layers, series, label="mean L2 norm")
    axes.set_ylim(bottom=0)
    return figure


@dataclass(frozen=True)
class OutlierDimensions(Experiment):
    """Options: `fraction`, the share of dimensions with the smallest gamma to remove; `masked`."""

    fraction: float = 0.01
    masked: bool = True

    name: ClassVar[str] = "outlier-dimensions"
    paper: ClassVar[str] = "Kobayashi et al. 2024"
    shows: ClassVar[str] = "Figure 11, removal"
    summary: ClassVar[str] = (
        "dimensions of the feed-forward beside the gamma of the norm after it, and the map without the outliers"
    )
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1",
        "dimension": "dimension of the hidden state, from 0",
        "input": "mean absolute value of the feed-forward's input, over all tokens",
        "output": "mean absolute value of the feed-forward's output, over all tokens",
        "gamma": "weight of the norm after the feed-forward",
        "removed": "whether the dimension is among those of smallest gamma that are removed",
        "normalisation": "how maps were scaled before comparing",
        "before": "Spearman's rho of the maps before and after the feed-forward; mean over sequences",
        "after": "the same with the removed dimensions taken out of the feed-forward's output",
        "sequences": "number of sequences",
        "published_before": "the paper's value, where model, corpus and masking are the paper's (a note says why not)",
        "published_after": "the paper's value; beside column alone, since the paper does not say how it scaled maps",
    }

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise InputError(f"{self.name}: fraction is between 0 and 1, not {self.fraction}.")

    def needs(self, model: ModelFacts) -> Needs:
        maps = Decomposition(maps=chain.feed_forward(model.scopes))
        return Needs((maps, FeedForwardDimensions(), MapWithoutDimensions(self.fraction)), masked=self.masked)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        before, after = (observation.analysis.map(scope) for scope in chain.feed_forward(model.scopes))
        removed = after.copy(data=observation.result(MapWithoutDimensions(self.fraction)))
        maps = xr.concat([before, after, removed], "which", coords="minimal", compat="override")
        maps = maps.transpose("layer", "which", "query", "key")
        stacked = np.concatenate([normalise(maps, axis).values.reshape(*maps.shape[:2], -1) for axis in _AXES])
        rho = spearman_matrix(stacked)[:, 0, 1:].reshape(len(_AXES), len(model.layers), 2)
        dimensions, tokens = observation.result(FeedForwardDimensions()), len(observation.tokens)
        return Partial(
            moments={
                "rho": Moments.once(rho),
                "sums": Moments.once(tokens * dimensions[:, :2]),
                "gamma": Moments.once(dimensions[:, 2:]),
            },
            counts={"tokens": np.array([tokens])},
        )

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        model, rho = facts.model, partial.moments["rho"]
        values = partial.moments["sums"].total.value() / partial.counts["tokens"]
        dimensions = np.concatenate([values, partial.moments["gamma"].mean()], 1)
        paper = published.paper_of(facts, self.name, masked=True)
        known = np.full((len(_AXES), len(model.layers), 2), np.nan)
        known[_AXES.index("column")] = [
            [np.nan if value is None else value for value in paper.outlier_removal(layer)] for layer in model.layers
        ]
        similarity = tables.tidy(
            {"normalisation": _AXES, "layer": model.layers},
            {
                "before": rho.mean()[..., 0],
                "after": rho.mean()[..., 1],
                "sequences": rho.count[..., 0],
                "published_before": known[..., 0],
                "published_after": known[..., 1],
            },
        )
        count = max(1, round(self.fraction * dimensions.shape[-1]))
        removed = dimensions[:, 2].argsort(-1, kind="stable").argsort(-1, kind="stable") < count
        by_dimension = tables.tidy(
            {"layer": model.layers, "dimension": range(dimensions.shape[-1])},
            {"input": dimensions[:, 0], "output": dimensions[:, 1], "gamma": dimensions[:, 2], "removed": removed},
        )
        return Outcome(
            {"outlier-dimensions": similarity, "outlier-dimensions-values": by_dimension},
            {
                "outlier-dimensions": bind(_dimensions_figure, dimensions, removed, model),
                "outlier-dimensions-removal": bind(_removal_figure, rho.mean(), model),
            },
            paper.notes,
        )


def _dimensions_figure(dimensions: np.ndarray, removed: np.ndarray, model: ModelFacts) -> Figure:
    figure, grid = figures.panels(len(model.layers), width=3.4, height=2.7)
    for place, (axes, layer) in enumerate(zip(grid, model.layers, strict=True)):
        for row, name in enumerate(("FF input", "FF output")):
            axes.plot(dimensions[place, 2], dimensions[place, row], ".", ms=3, color=figures.PALETTE[row], label=name)
        worst = removed[place]
        axes.plot(
            dimensions[place, 2, worst], dimensions[place, 1, worst], "o", ms=6, mfc="none", color="k", label="removed"
        )
        axes.set(xlabel=f"{figures.GAMMA} of the norm after FF", ylabel="mean |value|")
        figures.log_scale(axes, "y")
        axes.set_title(f"layer {layer}", fontsize=10)
    figures.legend_below(figure, grid[0])
    return figure


def _removal_figure(rho: np.ndarray, model: ModelFacts) -> Figure:
    figure, grid = figures.panels(len(_AXES), width=3.8, height=3.2)
    low = np.floor(10 * float(np.nanmin(rho))) / 10
    for place, (axes, name) in enumerate(zip(grid, _AXES, strict=True)):
        series = {"all dimensions": rho[place, :, 0], "without outliers": rho[place, :, 1]}
        figures.lines(
            axes, model.layers, series, label=f"{figures.RHO} of the maps around FF", title=f"normalised: {name}"
        )
        axes.set_ylim(low - 0.02, 1.02)
    return figure
