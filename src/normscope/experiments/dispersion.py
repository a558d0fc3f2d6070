"""dispersion (2020): how much the norms of input vectors and of each head's transformed vectors vary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from normscope.experiments import declared, figures, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.partial import Moments, Partial, Rows
from normscope.experiments.statistics import LogBins
from normscope.experiments.tables import Row, Table
from normscope.methods.vectors import HiddenNorms, ValueNorms

_VECTORS = LogBins(-6, 6, 1200)
_QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


@dataclass(frozen=True)
class Dispersion(declared.Dispersion, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "quantity": "x: norm of the block's input vectors; f(x): norm of a head's transformed vectors",
        "layer": "layer, from 1",
        "head": "head, from 1; empty where heads do not apply or are pooled",
        "mean": "mean over all tokens",
        "deviation": "standard deviation",
        "cv": "coefficient of variation: deviation / mean",
        "minimum": "smallest norm",
        "maximum": "largest norm",
        "median": "median (this and the other quantiles to 0.1 %, from a histogram with bins of that half-width)",
        "q05": "5 % quantile",
        "q25": "25 % quantile",
        "q75": "75 % quantile",
        "q95": "95 % quantile",
        "count": "number of vectors",
    }
    captions: ClassVar[dict[str, str]] = {
        "dispersion": "How much the norms of input vectors and of transformed vectors vary, by layer.",
    }

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((HiddenNorms(), ValueNorms()))

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        hidden, values = observation.result(HiddenNorms()), observation.result(ValueNorms())
        return Partial(
            moments={"x": Moments.of(hidden.T), "f": Moments.of(np.moveaxis(values, -1, 0))},
            rows={"x": _histogram(hidden[:, None]), "f": _histogram(values)},
        )

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        x, f = partial.moments["x"], partial.moments["f"]
        of_x, of_f = (_Histograms.read(partial.rows[name]) for name in ("x", "f"))
        pooled = f.over(1)
        records: list[dict[str, object]] = []
        for index, layer in enumerate(facts.model.layers):
            for quantity, moments, histograms in (("x", x, of_x), ("f(x)", pooled, of_f)):
                labels = {"quantity": quantity, "layer": layer, "head": None}
                records.append(_spread(moments, (index,), labels) | histograms.quantiles(index))
            for head in range(f.count.shape[1]):
                labels = {"quantity": "f(x)", "layer": layer, "head": head + 1}
                records.append(_spread(f, (index, head), labels) | of_f.quantiles(index, head))
        schema = pa.schema({"quantity": pa.string(), "layer": pa.int64(), "head": pa.int64()} | _SPREAD_TYPES)
        table = tables.from_records(records, schema)
        return Outcome({"dispersion": table}, {"dispersion": lambda: _dispersion_figure(table, facts.model)})

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        known = tables.rows_with(rows, "cv")
        x, f = (median(row["cv"] for row in known if row["quantity"] == quantity) for quantity in ("x", "f(x)"))
        return (
            f"Norms vary by {x:.0%} of their mean for input vectors and by {f:.0%} for transformed ones (median over layers "
            "and heads)."
        )


_SPREAD_TYPES = {
    **dict.fromkeys(("mean", "deviation", "cv", "minimum", "maximum", *_QUANTILES), pa.float64()),
    "count": pa.int64(),
}


def _histogram(values: np.ndarray) -> Rows:
    """`[layer, head, token]` to rows of layer, head, bin and count."""
    layer, head, _ = (index.reshape(-1) for index in np.indices(values.shape))
    columns = {"layer": layer, "head": head, "bin": _VECTORS.places(values).reshape(-1)}
    keys = tuple(columns)
    return Rows((Rows((pa.table({**columns, "count": np.ones(len(layer), np.int64)}),), keys).compacted(),), keys)


@dataclass(frozen=True)
class _Histograms:
    """The columns of all rows."""

    layer: np.ndarray
    head: np.ndarray
    places: np.ndarray
    counts: np.ndarray

    @classmethod
    def read(cls, rows: Rows) -> _Histograms:
        table = rows.select("SELECT layer, head, bin, sum(count)::BIGINT AS count FROM rows GROUP BY layer, head, bin")
        return cls(*(table[name].to_numpy() for name in ("layer", "head", "bin", "count")))

    def quantiles(self, layer: int, head: int | None = None) -> dict[str, object]:
        """Those of a head, or of all heads of a layer."""
        chosen = (self.layer == layer) & (True if head is None else self.head == head)
        places, counts = self.places[chosen], self.counts[chosen]
        return {name: _VECTORS.quantile(places, counts, share) for name, share in _QUANTILES.items()}


def _spread(moments: Moments, index: tuple[int, ...], labels: Mapping[str, object]) -> dict[str, object]:
    mean, deviation = float(moments.mean()[index]), float(moments.deviation()[index])
    return {
        **labels,
        "mean": mean,
        "deviation": deviation,
        "cv": deviation / mean if mean else float("nan"),
        "minimum": float(moments.minimum()[index]),
        "maximum": float(moments.maximum()[index]),
        "count": int(moments.count[index]),
    }


def _dispersion_figure(table: Table, model: ModelFacts) -> Figure:
    figure, grid = figures.panels(2, columns=2, width=4.4, height=3.4)
    rows = [row for row in table.to_pylist() if row["head"] is None]
    for axes, quantity in zip(grid, ("x", "f(x)"), strict=True):
        chosen = [row for row in rows if row["quantity"] == quantity]
        boxes = [
            {"med": r["median"], "q1": r["q25"], "q3": r["q75"], "whislo": r["q05"], "whishi": r["q95"], "fliers": []}
            for r in chosen
        ]
        axes.bxp(
            boxes, positions=list(model.layers), showfliers=False, patch_artist=True, boxprops={"facecolor": "#9ecae1"}
        )
        axes.set(ylabel="norm", title=f"‖{quantity}‖ (5, 25, 50, 75, 95 %)", ylim=(0, None))
        figures.layer_ticks(axes, model.layers)
    return figure
