"""weight-vs-norm (2020): attention weights against the norms of the vectors that they weigh, over all heads and pairs.

Billions of pairs are counted in a joint histogram with fine bins, which also bounds the error of its rank correlation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from normscope.experiments import declared, figures, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.statistics import LogBins, binned_spearman
from normscope.experiments.tables import Row
from normscope.experiments.tokens import categories, categories_of
from normscope.methods.norms import Decomposition
from normscope.methods.vectors import ValueNorms
from normscope.plots.style import SEQUENTIAL
from normscope.scopes import ATTENTION_WEIGHTS

_NORMS = LogBins(-6, 6, 400)
_WEIGHTS = LogBins(-16, 0, 320)
_OUTSIDE = 0.01
"""The share of a category's pairs that may lie beyond either end of an axis of the figure."""

_SHOWN = 8
"""How many bins of weights and norms the figure shows as one."""


@dataclass(frozen=True)
class WeightVersusNorm(declared.WeightVersusNorm, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "category": "category of the key, or all",
        "spearman": "rank correlation of weight and ||f(x)||, from a joint histogram (bins 0.7 and 0.6 % wide)",
        "error": "how far it may be from the exact value, at most (it is far closer as a rule)",
        "pairs": "number of (layer, head, query, key)",
    }
    captions: ClassVar[dict[str, str]] = {
        "weight-vs-norm": "Attention weight against norm for every pair of tokens; colours count pairs.",
    }

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=(ATTENTION_WEIGHTS,), heads=True), ValueNorms()))

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        weights = observation.attention_weights()
        # Category and norm are those of the key, whatever the query: their bins are looked up once for all queries.
        of_key = categories(observation, model) * _WEIGHTS.size * _NORMS.size
        of_key = (of_key + _NORMS.places(observation.result(ValueNorms()))).astype(np.int32)
        cells = _WEIGHTS.places(weights).astype(np.int32) * np.int32(_NORMS.size) + of_key[:, :, None]
        cells, counts = np.unique(cells[np.isfinite(weights)], return_counts=True)
        table = pa.table({"cell": cells.astype(np.int64), "count": counts.astype(np.int64)})
        return Partial(rows={"joint": Rows((table,), keys=("cell",))})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        table = partial.rows["joint"].select(
            "SELECT cell, sum(count)::BIGINT AS count FROM rows GROUP BY cell ORDER BY cell"
        )
        joint = _Joint.of_cells(table["cell"].to_numpy(), table["count"].to_numpy(), categories_of(facts.model))
        records = [
            {"category": name, **dict(zip(("spearman", "error"), part.spearman(), strict=True)), "pairs": part.pairs}
            for name, part in joint.items()
        ]
        return Outcome(
            {"weight-vs-norm": tables.from_records(records)}, {"weight-vs-norm": lambda: _joint_figure(joint)}
        )

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        return tables.correlation_sentence("attention weight and norm", rows)


@dataclass(frozen=True)
class _Joint:
    """The joint histogram of weights and norms of a category: bins and counts."""

    weights: np.ndarray
    norms: np.ndarray
    counts: np.ndarray

    @classmethod
    def of_cells(cls, cells: np.ndarray, counts: np.ndarray, names: tuple[str, ...]) -> dict[str, _Joint]:
        category, rest = np.divmod(cells, _WEIGHTS.size * _NORMS.size)
        weights, norms = np.divmod(rest, _NORMS.size)
        chosen = {"all": np.ones(len(cells), bool)} | {name: category == k for k, name in enumerate(names)}
        return {name: cls(weights[rows], norms[rows], counts[rows]) for name, rows in chosen.items()}

    @property
    def pairs(self) -> int:
        return int(self.counts.sum())

    def spearman(self) -> tuple[float, float]:
        return binned_spearman(self.weights, self.norms, self.counts)


def _joint_figure(joint: dict[str, _Joint]) -> Figure:
    figure, grid = figures.panels(len(joint), width=3.6, height=3.2)
    edges = [10.0 ** (bins.low + np.arange(0, bins.size + 1, _SHOWN) / bins.per_decade) for bins in (_WEIGHTS, _NORMS)]
    whole = joint["all"]
    scale = LogNorm(1, _largest(whole))
    ends = [_limits(edges[1], part.norms, part.counts) for part in joint.values() if part.pairs]
    for axes, (name, part) in zip(grid, joint.items(), strict=True):
        counts = np.zeros([len(bin_edges) - 1 for bin_edges in edges])
        np.add.at(counts, (part.weights // _SHOWN, part.norms // _SHOWN), part.counts)
        shade = np.where(counts > 0, counts, np.nan)
        mesh = axes.pcolormesh(edges[1], edges[0], shade, cmap=SEQUENTIAL, norm=scale, rasterized=True)
        figures.log_scale(axes, "x")
        figures.log_scale(axes, "y")
        axes.set(xlabel="‖f(x)‖", ylabel=figures.ALPHA)
        axes.set_xlim(min(low for low, _ in ends), max(high for _, high in ends))
        axes.set_ylim(_limits(edges[0], whole.weights, whole.counts)[0], 1)
        axes.set_title(f"{name} ({figures.RHO} = {part.spearman()[0]:.2f}, {part.pairs:,} pairs)", fontsize=9)
        if axes is grid[-1]:
            figures.count_bar(mesh, grid, "number of pairs")
    return figure


def _largest(part: _Joint) -> int:
    """The largest count of a bin of the figure."""
    cells = (part.weights // _SHOWN) * _NORMS.size + part.norms // _SHOWN
    return int(np.bincount(np.unique(cells, return_inverse=True)[1].reshape(-1), weights=part.counts).max(initial=2))


def _limits(edges: np.ndarray, places: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """The ends of the bins outside which one in a hundred pairs lies on either side."""
    order = np.argsort(places)
    share = counts[order].cumsum() / counts.sum()
    low, high = (int(places[order][np.searchsorted(share, end)]) for end in (_OUTSIDE, 1 - _OUTSIDE))
    return float(edges[low // _SHOWN]), float(edges[high // _SHOWN + 1])
