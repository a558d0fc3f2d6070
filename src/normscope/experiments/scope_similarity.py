"""scope-similarity (2024, Table 1, Figures 5, 9 and 12): how much the map changes from one scope to another.

Per layer and sequence, two maps are flattened as they are and compared by Pearson's r; mean over sequences, then over
layers. The paper's text says Spearman's, but its numbers are Pearson's (docs/method.md says how that is known). Rank
correlation, and maps scaled by row or column, are options.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial as bind
from itertools import combinations
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table as TextTable

from normscope.errors import ScopeError
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
from normscope.experiments.tables import DIM, ERROR, PaperTable, Row, Table
from normscope.methods.norms import Decomposition
from normscope.scopes import Scope, component_words


@dataclass(frozen=True)
class ScopeSimilarity(declared.ScopeSimilarity, Experiment):
    columns: ClassVar[dict[str, str]] = {
        **COLUMNS,
        "first": "the earlier scope",
        "second": "the later scope",
        "relation": "adjacent scopes, against_ff_input (the scope that enters the feed-forward), or other",
        "layer": "layer, from 1",
        "similarity": "the correlation of the two maps: mean over sequences (and, in the summary, over layers)",
        "change": "1 - similarity",
        "standard_error": "that of the similarity, over sequences",
        "deviation": "standard deviation over sequences",
        "sequences": "number of sequences",
        "published": "the paper's value for Pearson's r of maps as they are, where model, corpus and masking are the "
        "paper's (a note says why not)",
    }
    captions: ClassVar[dict[str, str]] = {
        "scope-similarity-adjacent": "How much each component changes the map, 1 - r, by layer; lines: standard error.",
        "scope-similarity-ff-input": "Correlation of each map with the one that the feed-forward gets; bands: "
        "standard error.",
        "scope-similarity-pairs": "Correlation of the maps at any two scopes, mean over layers.",
    }
    across_caption: ClassVar[str] = (
        "Correlation of the maps before and after each component, mean over layers; components are counted along "
        "the chain of the block. Published: 2024, Table 1."
    )

    def __post_init__(self) -> None:
        _ = self.comparisons

    @property
    def comparisons(self) -> tuple[MapComparison, ...]:
        """All ways in which maps are compared."""
        return map_comparisons(self.name, self.correlations, self.normalisations)

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=model.scopes),), masked=self.masked)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        maps = observation.analysis.dataset["map"].transpose("layer", "scope", "query", "key")
        found = similarities(maps, self.comparisons)[..., *np.triu_indices(len(model.scopes), 1)]
        there = np.isfinite(found)
        over_layers = np.where(there, found, 0).sum(1) / np.where(there.any(1), there.sum(1), np.nan)
        return Partial(moments={"layers": Moments.once(found), "mean": Moments.once(over_layers)})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        model = facts.model
        found = _Found(self.comparisons, model, partial.moments["layers"], partial.moments["mean"].standard_error())
        paper = published.paper_of(facts, self.name, masked=True)
        return Outcome(
            {"scope-similarity": found.summary(paper), "scope-similarity-layers": found.by_layer(paper)},
            {
                "scope-similarity-adjacent": found.adjacent,
                "scope-similarity-ff-input": found.against_ff_input,
                "scope-similarity-pairs": found.all_pairs,
            },
            paper.notes,
            bind(found.printed, facts),
        )

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        first = tables.rows_with(first_comparison(rows), "similarity")
        adjacent = [row for row in first if row["relation"] == "adjacent"]
        whole = [row for row in adjacent if row.get("layer") is None] or adjacent
        least = min(whole, key=lambda row: row["similarity"])
        error = f" ± {least['standard_error']:.2g}" if least.get("standard_error") else ""
        sentence = (
            f"A map changes most on the way from {least['first']} to {least['second']}: there the {correlation_name(least)} "
            f"is {least['similarity']:.2f}{error}."
        )
        around = _around_feed_forward(first)
        if around is None:
            return sentence
        return (
            f"{sentence} Of {around['first']} and {around['second']}, the feed-forward and its norms between them, it is "
            f"{around['similarity']:.2f}."
        )


@dataclass(frozen=True)
class _Found:
    """The correlations `[way, layer, pair]` of all sequences, and the standard errors `[way, pair]` of their means over
    layers: as tables, and drawn in the forms of the paper's figures."""

    comparisons: tuple[MapComparison, ...]
    model: ModelFacts
    layers: Moments
    error: np.ndarray

    @property
    def pairs(self) -> list[tuple[Scope, Scope]]:
        return list(combinations(self.model.scopes, 2))

    # ---- tables --------------------------------------------------------------------------------------------------------

    def by_layer(self, paper: published.Paper) -> Table:
        mean, error, deviation = self.layers.mean(), self.layers.standard_error(), self.layers.deviation()
        return tables.from_records(
            [
                self._labels(comparison, pair)
                | {
                    "layer": layer,
                    "similarity": float(mean[w, k, p]),
                    "change": 1 - float(mean[w, k, p]),
                    "standard_error": float(error[w, k, p]),
                    "deviation": float(deviation[w, k, p]),
                    "sequences": int(self.layers.count[w, k, p]),
                    "published": _published(paper, comparison, pair, layer),
                }
                for w, comparison in enumerate(self.comparisons)
                for p, pair in enumerate(self.pairs)
                for k, layer in enumerate(self.model.layers)
            ]
        )

    def summary(self, paper: published.Paper) -> Table:
        mean = self.layers.mean().mean(1)
        return tables.from_records(
            [
                self._labels(comparison, pair)
                | {
                    "similarity": float(mean[w, p]),
                    "change": 1 - float(mean[w, p]),
                    "standard_error": float(self.error[w, p]),
                    "sequences": int(self.layers.count[w, 0, p]),
                    "published": _published(paper, comparison, pair),
                }
                for w, comparison in enumerate(self.comparisons)
                for p, pair in enumerate(self.pairs)
            ]
        )

    def _labels(self, comparison: MapComparison, pair: tuple[Scope, Scope]) -> dict[str, object]:
        return {**comparison._asdict(), "first": pair[0], "second": pair[1], "relation": _relation(self.model, pair)}

    def printed(self, facts: RunFacts) -> TextTable:
        """Table 1 of the paper: how alike the maps before and after each component are."""
        steps, mean = chain.steps(self.model.scopes), self.layers.mean().mean(1)
        places = [self.pairs.index(pair) for pair in steps.values()]
        table = PaperTable(_TITLE, ("model",), steps)
        for w, comparison in enumerate(self.comparisons):
            label = facts.model_label
            table.add([label if comparison == PUBLISHED else f"{label}: {comparison.title}"], mean[w, places], "{:.3f}")
            table.add([f"  {ERROR}"], self.error[w, places], "{:.3f}", DIM)
        paper = published.nearest_paper(facts, ScopeSimilarity.name)
        if paper is not None and PUBLISHED in self.comparisons:
            known = [published_similarity(paper, *pair) for pair in steps.values()]
            table.add([f"{ScopeSimilarity.paper}: {paper.model}, {paper.corpus}"], known, "{:.2f}", DIM)
        return table.text

    # ---- figures -------------------------------------------------------------------------------------------------------

    def adjacent(self) -> Figure:
        """The change by each component, a panel each, as a bar for each layer; a block of panels for each way."""
        steps = chain.steps(self.model.scopes)
        places = [self.pairs.index(pair) for pair in steps.values()]
        change, error = 1 - self.layers.mean()[..., places], self.layers.standard_error()[..., places]
        figure, blocks = figures.blocks(len(self.comparisons), len(steps), width=2.9, height=2.1)
        for w, ((block, grid), comparison) in enumerate(zip(blocks, self.comparisons, strict=True)):
            block.suptitle(f"change by each component: 1 - {comparison.title}", fontsize=10)
            top = 1.08 * float(np.nanmax(change[w] + np.nan_to_num(error[w]), initial=0.1))
            grid[0].set_ylabel(f"1 - {comparison.symbol}")
            for p, (axes, name) in enumerate(zip(grid, steps, strict=True)):
                figures.bars(
                    axes,
                    self.model.layers,
                    change[w, :, p],
                    title=f"{component_words(name)} ({name})",
                    errors=error[w, :, p],
                )
            grid[0].set_ylim(0, top)
        return figure

    def against_ff_input(self) -> Figure:
        anchor = chain.feed_forward(self.model.scopes)[0]
        later = self.model.scopes[self.model.scopes.index(anchor) + 1 :]
        return self._lines([(anchor, scope) for scope in later])

    def _lines(self, chosen: Sequence[tuple[Scope, Scope]]) -> Figure:
        places = [self.pairs.index(pair) for pair in chosen]
        mean, error = (values[..., places] for values in (self.layers.mean(), self.layers.standard_error()))
        figure, grid = figures.panels(len(self.comparisons), width=4.4, height=3.6)
        for w, (axes, comparison) in enumerate(zip(grid, self.comparisons, strict=True)):
            names = [f"{first} → {second}" for first, second in chosen]
            series = {name: mean[w, :, p] for p, name in enumerate(names)}
            bands = {name: figures.error_band(mean[w, :, p], error[w, :, p]) for p, name in enumerate(names)}
            figures.lines(
                axes,
                self.model.layers,
                series,
                label=comparison.label,
                title=comparison.title,
                bands=bands,
                legend=False,
            )
            axes.set_ylim(_tenth_below(mean) - 0.02, 1.02)
        figures.legend_below(figure, grid[0], columns=1)
        return figure

    def all_pairs(self) -> Figure:
        scopes, mean = self.model.scopes, self.layers.mean().mean(1)
        figure, grid = figures.panels(len(self.comparisons), width=5.2, height=4.6)
        for w, (axes, comparison) in enumerate(zip(grid, self.comparisons, strict=True)):
            matrix = np.eye(len(scopes))
            above, right = np.triu_indices(len(scopes), 1)
            matrix[above, right] = matrix[right, above] = mean[w]
            image = figures.heat(axes, matrix, scopes, scopes, title=comparison.title, limits=(_tenth_below(mean), 1.0))
            axes.set_xticks(range(len(scopes)), scopes, rotation=55, ha="right", rotation_mode="anchor")
            if w == len(self.comparisons) - 1:
                figure.colorbar(image, ax=grid, label="correlation, mean over layers", pad=0.01)
        return figure


_TITLE = "Correlation of the maps before and after each component, mean over sequences and layers"


def _around_feed_forward(rows: list[Row]) -> Row | None:
    """The row of the scopes around the feed-forward with its norms and residual: AttnRes and the whole layer in a BERT."""
    scopes = [Scope(name) for name in dict.fromkeys(row[name] for name in ("first", "second") for row in rows)]
    try:
        pair = chain.feed_forward_group(scopes)
    except ScopeError:
        return None
    return next((row for row in rows if (row["first"], row["second"]) == pair), None)


def published_similarity(paper: published.Paper, first: str, second: str, layer: int | None = None) -> float | None:
    """The paper's similarity of the maps at two scopes: mean over layers, or of one."""
    return paper.value(ScopeSimilarity.name, "similarity", f"{first}-{second}", layer)


def _published(
    paper: published.Paper, comparison: MapComparison, pair: tuple[Scope, Scope], layer: int | None = None
) -> float | None:
    return published_similarity(paper, *pair, layer) if comparison == PUBLISHED else None


def _relation(model: ModelFacts, pair: tuple[Scope, Scope]) -> str:
    first, second = (model.scopes.index(scope) for scope in pair)
    if second == first + 1:
        return "adjacent"
    return "against_ff_input" if chain.feed_forward(model.scopes)[0] in pair else "other"


def _tenth_below(values: np.ndarray) -> float:
    return math.floor(10 * float(np.nanmin(values))) / 10 if np.isfinite(values).any() else 0.0
