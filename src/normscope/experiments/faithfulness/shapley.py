"""shapley: do the integrated gradients of the feed-forward maps agree with Shapley values?

The 2024 paper leaves this open. Per layer and query, the keys are ranked by the length of their vectors after the
feed-forward, by both methods, and the rankings compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial as bind
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from scipy import stats

from normscope.corpora.item import Item
from normscope.errors import InputError
from normscope.experiments import declared, figures, statistics, tables
from normscope.experiments.base import ModelFacts, Outcome, RunFacts, check_choice
from normscope.experiments.faithfulness.base import CONFIDENCE, RESAMPLES, Trial
from normscope.experiments.faithfulness.shapley_values import BIAS_ROLES, FEWEST, QueryValues, ShapleyMaps
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.tables import Row
from normscope.methods.resolve import measure_layers

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_MEASURES = ("spearman", "cosine", "difference", "standard_error", "completeness")
_KEPT_CELLS = 2
"""How many cells of every query are kept for the list of the largest disagreements."""


@dataclass(frozen=True)
class Shapley(declared.Shapley, Trial):
    unit: ClassVar[str] = "coalitions"
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1; empty for the mean over layers",
        "bias": "present: what belongs to no token is in every coalition; player: it is one more player",
        "measure": "spearman: rank correlation of the keys' norms; cosine: of a key's two vectors, mean over keys; "
        "difference: length of the vectors' differences by that of the Shapley vectors; standard_error: of the sampled "
        "vectors, by their length (0: exact); completeness: error of the sum of all Shapley vectors",
        "mean": "mean over texts (of a text: over its queries)",
        "low": "lower end of the 95 % bootstrap interval over texts",
        "high": "its upper end",
        "sequences": "number of texts",
        "exact_share": "share of the queries whose coalitions were all counted",
        "sequence": "index of the text in the corpus, from 0",
        "query": "position of the query, from 0",
        "query_token": "its token",
        "key": "position of the key, from 0",
        "key_token": "its token",
        "integrated": "the key's share of the row by integrated gradients",
        "shapley": "the key's share of the row by Shapley values",
        "gap": "integrated minus shapley",
    }
    captions: ClassVar[dict[str, str]] = {
        "shapley-layers": "Agreement of maps by integrated gradients with those by Shapley values, by layer; bands: "
        "95 % intervals.",
    }

    def __post_init__(self) -> None:
        check_choice(self.name, "bias", self.bias, (*BIAS_ROLES, "both"))
        if not 1 <= self.exact <= 16:
            raise InputError(f"{self.name}: exact is from 1 to 16 tokens (2 ** 16 coalitions), not {self.exact}.")
        if min(self.pairs, self.queries) < 2 or self.cells < 0:
            raise InputError(f"{self.name}: pairs and queries are at least 2, and cells at least 0.")

    def calls(self, model: ModelFacts, length: int) -> int:
        coalitions = 2**length if length <= self.exact else 2 * self.pairs * (length + 1)
        return len(model.layers) * self.queries * len(self._biases) * coalitions

    @property
    def _biases(self) -> tuple[Any, ...]:
        return BIAS_ROLES if self.bias == "both" else (self.bias,)

    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        if item.length < FEWEST:
            return Partial()
        measure = ShapleyMaps(self.exact, self.pairs, self.queries, self._biases, seed)
        (measured,) = measure_layers(analyzer, [item.sequence], [measure])
        rows: list[Row] = []
        cells: list[Row] = []
        for layer, queries in measured.main[measure].items():
            for values in queries:
                label = {"sequence": item.number, "layer": layer, "bias": values.bias, "query": values.query}
                rows.append({**label, **_compared(values)})
                cells += [{**label, **cell} for cell in _largest(values, item.sequence.tokens)]
        return Partial(
            rows={
                "rows": Rows((pa.Table.from_pylist(rows, schema=_ROWS),)),
                "cells": Rows((pa.Table.from_pylist(cells, schema=_CELLS),)),
            }
        )

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        if "rows" not in partial.rows:
            raise InputError(f"{self.name}: no text has {FEWEST} tokens.")
        table = partial.rows["rows"].select("SELECT * FROM rows ORDER BY sequence, layer, bias, query")
        rows = table.to_pylist()
        interval = bind(statistics.mean_with_interval, resamples=RESAMPLES, confidence=CONFIDENCE, seed=facts.seed)
        records = [
            record
            for layer in (None, *facts.model.layers)
            for bias in self._biases
            for record in _records(
                [r for r in rows if r["bias"] == bias and layer in (None, r["layer"])], layer, interval
            )
        ]
        order = f"ORDER BY abs(gap) DESC, sequence, layer, bias, query, key LIMIT {int(self.cells)}"
        results = {
            "shapley": tables.from_records(records, _MEANS),
            "shapley-cells": partial.rows["cells"].select(f"SELECT * FROM rows {order}"),
            "shapley-queries": table,
        }
        return Outcome(results, {"shapley-layers": bind(_figure, records, facts.model)})

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        row = next(row for row in rows if row["layer"] is None and row["measure"] == "spearman")
        return (
            f"Maps by integrated gradients and by Shapley values have a rank correlation of {row['mean']:.2f} "
            f"({row['low']:.2f} to {row['high']:.2f})."
        )


_ROWS = pa.schema(
    {"sequence": pa.int64(), "layer": pa.int64(), "bias": pa.string(), "query": pa.int64()}
    | {name: pa.float64() for name in _MEASURES}
    | {"is_exact": pa.bool_()}
)
_CELLS = pa.schema(
    {"sequence": pa.int64(), "layer": pa.int64(), "bias": pa.string(), "query": pa.int64(), "query_token": pa.string()}
    | {"key": pa.int64(), "key_token": pa.string()}
    | {name: pa.float64() for name in ("integrated", "shapley", "gap", "standard_error")}
)
_MEANS = pa.schema(
    {"layer": pa.int64(), "bias": pa.string(), "measure": pa.string()}
    | {name: pa.float64() for name in ("mean", "low", "high")}
    | {"sequences": pa.int64(), "exact_share": pa.float64()}
)


def _compared(values: QueryValues) -> dict[str, object]:
    rho: object = stats.spearmanr(values.integrated, values.shapley)
    return {
        "spearman": float(rho.statistic),
        "cosine": values.cosine,
        "difference": values.difference,
        "standard_error": float(values.standard_error.sum() / values.shapley.sum()),
        "completeness": values.completeness,
        "is_exact": values.is_exact,
    }


def _largest(values: QueryValues, tokens: list[str]) -> list[Row]:
    """The cells of a query in which the two methods differ most, as shares of their rows."""
    first, second = values.integrated / values.integrated.sum(), values.shapley / values.shapley.sum()
    gap = first - second
    return [
        {"query_token": tokens[values.query], "key": key, "key_token": tokens[key], "integrated": float(first[key])}
        | {"shapley": float(second[key]), "gap": float(gap[key])}
        | {"standard_error": float(values.standard_error[key] / values.shapley.sum())}
        for key in (int(index) for index in np.argsort(-np.abs(gap), kind="stable")[:_KEPT_CELLS])
    ]


def _records(rows: list[Row], layer: int | None, interval: statistics.Interval) -> list[Row]:
    """The means of every measure over the texts."""
    records: list[Row] = []
    for name in _MEASURES if rows else ():
        texts: dict[int, list[float]] = {}
        for row in rows:
            if row[name] is not None and np.isfinite(row[name]):
                texts.setdefault(row["sequence"], []).append(row[name])
        mean, low, high = interval(np.array([np.mean(values) for _, values in sorted(texts.items())]))
        records.append(
            {"layer": layer, "bias": rows[0]["bias"], "measure": name, "mean": mean, "low": low, "high": high}
            | {"sequences": len(texts), "exact_share": float(np.mean([row["is_exact"] for row in rows]))}
        )
    return records


def _figure(records: list[Row], model: ModelFacts) -> Figure:
    figure, (axes,) = figures.panels(1, width=5.2, height=3.4)
    wanted = [r for r in records if r["measure"] == "spearman" and r["layer"] is not None]
    biases = dict.fromkeys(r["bias"] for r in wanted)
    mean, low, high = (
        {f"bias {bias}": np.array([r[column] for r in wanted if r["bias"] == bias], dtype=float) for bias in biases}
        for column in ("mean", "low", "high")
    )
    bands = {name: (low[name], high[name]) for name in mean}
    title = "integrated gradients against Shapley values"
    figures.lines(axes, model.layers, mean, label=f"Spearman's {figures.RHO}", title=title, bands=bands)
    axes.set_ylim(top=1.01)
    return figure
