"""outlier-dimensions (2024, Figure 11): dimensions of the feed-forward and the gamma of the norm after it.

The dimensions with the smallest gamma are removed from the feed-forward's output, and the maps before and after the
feed-forward compared with and without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial as bind
from statistics import fmean
from typing import ClassVar

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from normscope.errors import InputError
from normscope.experiments import chain, declared, figures, published, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.partial import Moments, Partial
from normscope.experiments.similarity import (
    COLUMNS,
    PUBLISHED,
    MapComparison,
    correlation_name,
    first_comparison,
    map_comparisons,
    similarities,
)
from normscope.experiments.tables import Row, Table
from normscope.methods.norms import Decomposition
from normscope.methods.vectors import FeedForwardDimensions, MapWithoutDimensions


@dataclass(frozen=True)
class OutlierDimensions(declared.OutlierDimensions, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1",
        "dimension": "dimension of the hidden state, from 0",
        "input": "mean absolute value of the feed-forward's input, over all tokens",
        "output": "mean absolute value of the feed-forward's output, over all tokens",
        "gamma": "weight of the norm after the feed-forward",
        "removed": "whether the dimension is among those of smallest gamma that are removed",
        **COLUMNS,
        "before": "correlation of the maps before and after the feed-forward; mean over sequences",
        "after": "the same with the removed dimensions taken out of the feed-forward's output",
        "before_error": "standard error of before, over sequences",
        "after_error": "standard error of after, over sequences",
        "sequences": "number of sequences",
        "published_before": "the paper's value for Pearson's r of maps as they are, where model, corpus and masking are "
        "the paper's (a note says why not)",
        "published_after": "the paper's value without the removed dimensions",
    }
    captions: ClassVar[dict[str, str]] = {
        "outlier-dimensions": "Mean absolute value of every dimension of the feed-forward, by the gamma of the norm "
        "after it.",
        "outlier-dimensions-removal": "Correlation of the maps around the feed-forward, with and without its outliers.",
    }

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise InputError(f"{self.name}: fraction is between 0 and 1, not {self.fraction}.")
        _ = self.comparisons

    @property
    def comparisons(self) -> tuple[MapComparison, ...]:
        """All ways in which maps are compared."""
        return map_comparisons(self.name, self.correlations, self.normalisations)

    def needs(self, model: ModelFacts) -> Needs:
        maps = Decomposition(maps=chain.feed_forward(model.scopes))
        return Needs((maps, FeedForwardDimensions(), MapWithoutDimensions(self.fraction)), masked=self.masked)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        before, after = (observation.analysis.map(scope) for scope in chain.feed_forward(model.scopes))
        removed = after.copy(data=observation.result(MapWithoutDimensions(self.fraction)))
        maps = xr.concat([before, after, removed], "which", coords="minimal", compat="override")
        found = similarities(maps, self.comparisons)[:, :, 0, 1:]
        dimensions, tokens = observation.result(FeedForwardDimensions()), len(observation.tokens)
        return Partial(
            moments={
                "similarity": Moments.once(found),
                "sums": Moments.once(tokens * dimensions[:, :2]),
                "gamma": Moments.once(dimensions[:, 2:]),
            },
            counts={"tokens": np.array([tokens])},
        )

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        model, found = facts.model, partial.moments["similarity"]
        values = partial.moments["sums"].total.value() / partial.counts["tokens"]
        dimensions = np.concatenate([values, partial.moments["gamma"].mean()], 1)
        paper = published.paper_of(facts, self.name, masked=True)
        removal = np.array(
            [[paper.value(self.name, which, layer=layer) for which in ("before", "after")] for layer in model.layers],
            np.float64,
        )
        known = np.stack(
            [removal if comparison == PUBLISHED else np.full_like(removal, np.nan) for comparison in self.comparisons]
        )
        similarity = self._table(model, found, known)
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
                "outlier-dimensions-removal": bind(_removal_figure, self.comparisons, found, model),
            },
            paper.notes,
        )

    def _table(self, model: ModelFacts, found: Moments, known: np.ndarray) -> Table:
        """From the similarities and the published ones `[way, layer, before or after]`."""
        mean, error, shape = found.mean(), found.standard_error(), (len(self.comparisons), len(model.layers))
        table = tables.tidy(
            {"way": range(shape[0]), "layer": model.layers},
            {
                "before": mean[..., 0],
                "after": mean[..., 1],
                "before_error": error[..., 0],
                "after_error": error[..., 1],
                "sequences": found.count[..., 0],
                "published_before": known[..., 0],
                "published_after": known[..., 1],
            },
        ).drop_columns("way")
        for index, label in enumerate(MapComparison._fields):
            names = [comparison[index] for comparison in self.comparisons for _ in model.layers]
            table = table.add_column(index, label, [names])
        return table

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        first = tables.rows_with(first_comparison(rows), "before", "after")
        before, after = (fmean(row[name] for row in first) for name in ("before", "after"))
        return (
            f"The maps before and after the feed-forward have a {correlation_name(first[0])} of {before:.2f}, and of "
            f"{after:.2f} without its outlier dimensions (mean over layers)."
        )


def _dimensions_figure(dimensions: np.ndarray, removed: np.ndarray, model: ModelFacts) -> Figure:
    figure, grid = figures.panels(len(model.layers), width=3.4, height=2.7)
    for index, (axes, layer) in enumerate(zip(grid, model.layers, strict=True)):
        for row, name in enumerate(("FF input", "FF output")):
            axes.plot(dimensions[index, 2], dimensions[index, row], ".", ms=3, color=figures.PALETTE[row], label=name)
        worst = removed[index]
        axes.plot(
            dimensions[index, 2, worst], dimensions[index, 1, worst], "o", ms=6, mfc="none", color="k", label="removed"
        )
        axes.set(xlabel=f"{figures.GAMMA} of the norm after FF", ylabel="mean |value|")
        figures.log_scale(axes, "y")
        axes.set_title(f"layer {layer}", fontsize=10)
    figures.legend_below(figure, grid[0])
    return figure


def _removal_figure(comparisons: tuple[MapComparison, ...], found: Moments, model: ModelFacts) -> Figure:
    figure, grid = figures.panels(len(comparisons), width=4.2, height=3.2)
    names, mean, error = ("all dimensions", "without outliers"), found.mean(), found.standard_error()
    low = np.floor(10 * float(np.nanmin(mean))) / 10
    for index, (axes, comparison) in enumerate(zip(grid, comparisons, strict=True)):
        series = dict(zip(names, mean[index].T, strict=True))
        bands = dict(zip(names, map(figures.error_band, mean[index].T, error[index].T), strict=True))
        label = f"{comparison.symbol} of the maps around FF"
        figures.lines(axes, model.layers, series, label=label, title=comparison.title, bands=bands)
        axes.set_ylim(low - 0.02, 1.02)
    return figure
