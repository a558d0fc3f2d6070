"""scope-similarity (2024, Table 1, Figures 5, 9 and 12): how much the map changes from one scope to another.

Per layer and sequence, two maps are flattened and compared by Spearman's rank correlation; mean over sequences, then over
layers. Plain flattening cannot give the published numbers (the documentation has the arithmetic), so the tables carry maps
as they are, normalised by row, and normalised by column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure

from normscope.analysis import normalise
from normscope.choices import NormaliseAxis
from normscope.experiments import chain, figures, published, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts, check_choice
from normscope.experiments.exact import Moments
from normscope.experiments.partial import Partial
from normscope.experiments.ranks import spearman_matrix
from normscope.measures import Decomposition


@dataclass(frozen=True)
class ScopeSimilarity(Experiment):
    """Options: `normalisations`, those of none, row and column to compute; `masked`, whether tokens are masked first."""

    normalisations: tuple[NormaliseAxis, ...] = ("none", "row", "column")
    masked: bool = True

    name: ClassVar[str] = "scope-similarity"
    ranks_only: ClassVar[bool] = True
    paper: ClassVar[str] = "Kobayashi et al. 2024"
    shows: ClassVar[str] = "Table 1, Figures 5, 9, 12"
    summary: ClassVar[str] = "rank correlation of the maps at two scopes: adjacent, against the FF input, all pairs"
    columns: ClassVar[dict[str, str]] = {
        "normalisation": "how maps were scaled before comparing: none, row (query) sums to 1, column (key) sums to 1",
        "first": "the earlier scope",
        "second": "the later scope",
        "relation": "adjacent scopes, against_ff_input (the scope that enters the feed-forward), or other",
        "layer": "layer, from 1",
        "similarity": "Spearman's rho: mean over sequences (and, in the summary, over layers)",
        "change": "1 - similarity",
        "deviation": "standard deviation over sequences",
        "sequences": "number of sequences",
        "published": "the paper's value, where model, corpus and masking are the paper's (a note says why not)",
        "published_normalisation": "inferred: the paper does not say how it scaled maps; its values stand beside column",
    }

    def __post_init__(self) -> None:
        for axis in self.normalisations:
            check_choice(self.name, "normalisations", axis, ("none", "row", "column"))

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=model.scopes),), masked=self.masked)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        maps = observation.analysis.dataset["map"].transpose("layer", "scope", "query", "key")
        batches = [normalise(maps, axis).values.reshape(*maps.shape[:2], -1) for axis in self.normalisations]
        rho = spearman_matrix(np.concatenate(batches))
        upper = np.triu_indices(len(model.scopes), 1)
        by_axis = rho.reshape(len(self.normalisations), len(model.layers), *rho.shape[1:])
        return Partial(moments={"rho": Moments.once(by_axis[..., upper[0], upper[1]])})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        rho = partial.moments["rho"]
        model = facts.model
        pairs = [
            (model.scopes[i], model.scopes[j]) for i, j in zip(*np.triu_indices(len(model.scopes), 1), strict=True)
        ]
        mean, deviation = rho.mean(), rho.deviation()
        paper = published.paper_of(facts, self.name, masked=True)
        layered = tables.from_records(
            [
                self._record(facts, axis, pair)
                | {
                    "layer": layer,
                    "similarity": float(mean[a, k, p]),
                    "change": 1 - float(mean[a, k, p]),
                    "deviation": float(deviation[a, k, p]),
                    "sequences": int(rho.count[a, k, p]),
                }
                | _published(paper.similarity_of_layer(*pair, layer), axis)
                for a, axis in enumerate(self.normalisations)
                for p, pair in enumerate(pairs)
                for k, layer in enumerate(model.layers)
            ]
        )
        summary = tables.from_records(
            [
                self._record(facts, axis, pair)
                | {
                    "similarity": float(mean[a, :, p].mean()),
                    "change": 1 - float(mean[a, :, p].mean()),
                    "sequences": int(rho.count[a, 0, p]),
                }
                | _published(paper.similarity(*pair), axis)
                for a, axis in enumerate(self.normalisations)
                for p, pair in enumerate(pairs)
            ]
        )
        grid = _Grid(self.normalisations, model, pairs, mean)
        return Outcome(
            {"scope-similarity": summary, "scope-similarity-layers": layered},
            {
                "scope-similarity-adjacent": grid.adjacent,
                "scope-similarity-ff-input": grid.against_ff_input,
                "scope-similarity-pairs": grid.all_pairs,
            },
            paper.notes,
        )

    @staticmethod
    def _record(facts: RunFacts, axis: str, pair: tuple[str, str]) -> dict[str, object]:
        return {"normalisation": axis, "first": pair[0], "second": pair[1], "relation": _relation(facts.model, pair)}


def _published(value: float | None, axis: str) -> dict[str, object]:
    if axis != "column" or value is None:
        return {"published": float("nan"), "published_normalisation": ""}
    return {"published": value, "published_normalisation": published.INFERRED}


def _relation(model: ModelFacts, pair: tuple[str, str]) -> str:
    first, second = (model.scopes.index(scope) for scope in pair)
    if second == first + 1:
        return "adjacent"
    return "against_ff_input" if chain.feed_forward(model.scopes)[0] in pair else "other"


@dataclass(frozen=True)
class _Grid:
    """The mean correlations `[normalisation, layer, pair]`, drawn in the forms of the paper's figures."""

    normalisations: tuple[str, ...]
    model: ModelFacts
    pairs: Sequence[tuple[str, str]]
    mean: np.ndarray

    def adjacent(self) -> Figure:
        scopes = self.model.scopes
        return self._lines(list(pairwise(scopes)))

    def against_ff_input(self) -> Figure:
        anchor = chain.feed_forward(self.model.scopes)[0]
        later = self.model.scopes[self.model.scopes.index(anchor) + 1 :]
        return self._lines([(anchor, scope) for scope in later])

    def _lines(self, chosen: list[tuple[str, str]]) -> Figure:
        figure, grid = figures.panels(len(self.normalisations), width=4.4, height=3.6)
        for place, (axes, axis) in enumerate(zip(grid, self.normalisations, strict=True)):
            series = {f"{a} → {b}": self.mean[place][:, self.pairs.index((a, b))] for a, b in chosen}
            figures.lines(
                axes, self.model.layers, series, label=f"Spearman's {figures.RHO}", title=f"normalised: {axis}"
            )
            axes.set_ylim(self._floor([self.pairs.index(pair) for pair in chosen]) - 0.02, 1.02)
        return figure

    def all_pairs(self) -> Figure:
        scopes = self.model.scopes
        figure, grid = figures.panels(len(self.normalisations), width=5.2, height=4.6)
        for place, (axes, axis) in enumerate(zip(grid, self.normalisations, strict=True)):
            matrix = np.eye(len(scopes))
            for pair, value in zip(self.pairs, self.mean[place].mean(0), strict=True):
                first, second = (scopes.index(scope) for scope in pair)
                matrix[first, second] = matrix[second, first] = value
            limits = self._floor(range(len(self.pairs))), 1.0
            image = figures.heat(axes, matrix, scopes, scopes, title=f"normalised: {axis}", limits=limits)
            axes.set_xticks(range(len(scopes)), scopes, rotation=55, ha="right", rotation_mode="anchor")
            if place == len(self.normalisations) - 1:
                figure.colorbar(image, ax=grid, label=f"Spearman's {figures.RHO}, mean over layers", pad=0.01)
        return figure

    def _floor(self, pairs: Sequence[int]) -> float:
        """The tenth below all values of these pairs."""
        return math.floor(10 * float(np.nanmin(self.mean[..., list(pairs)]))) / 10
