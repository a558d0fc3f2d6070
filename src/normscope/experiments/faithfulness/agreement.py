"""agreement: how far methods rank the same tokens first, to a prediction and in the maps of every layer.

Leave-one-out is one of the methods, so its row shows how far each method agrees with the effect of removing a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial as bind
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from normscope.corpora.item import Item
from normscope.errors import InputError, UnsupportedArchitectureError
from normscope.experiments import declared, figures, statistics, tables
from normscope.experiments.base import ModelFacts, Outcome, RunFacts, check_choice
from normscope.experiments.faithfulness.base import (
    ALL,
    CONFIDENCE,
    PREDICTIONS,
    RESAMPLES,
    MethodTrial,
    case_of,
    named_method,
    notes_of,
    shares_by,
    unavailable,
)
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.tables import Row
from normscope.methods.across_layers import maps_by
from normscope.plots.style import SEQUENTIAL
from normscope.results.analysis import Analysis
from normscope.scopes import HALF_ATTENTION_WEIGHTS, basis

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_FEWEST = 3
"""With fewer tokens two rankings cannot be compared."""

PREDICTION = 0
"""Stands in the place of a layer for attributions of the prediction."""


@dataclass(frozen=True)
class Agreement(declared.Agreement, MethodTrial):
    tasks: ClassVar[tuple[str, ...]] = ("none", *PREDICTIONS)
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1; empty for the attribution of the prediction (of the last state, if there is no head)",
        "first": "one method",
        "second": "the other",
        "spearman": "rank correlation of the tokens' shares (in maps: mean over queries), mean over texts",
        "low": "lower end of the 95 % bootstrap interval over texts",
        "high": "its upper end",
        "sequences": "number of texts",
    }
    captions: ClassVar[dict[str, str]] = {
        "agreement": "Rank correlation of any two methods in what they call important for the prediction.",
        "agreement-layers": "Rank correlation of the maps of any two methods, mean over layers.",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.name, "level", self.level, ("prediction", "layers", "both"))

    @property
    def layer_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if named_method(name).gives == "layer maps")

    def calls(self, model: ModelFacts, length: int) -> int:
        names = (self.names if self.level != "layers" else ()) + (
            self.layer_names if self.level != "prediction" else ()
        )
        return sum(named_method(name).calls(length) for name in names)

    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        case = case_of(analyzer, item, seed)
        if len(case.candidates) < _FEWEST:
            return Partial()
        rows: list[Row] = []
        refused: dict[str, str] = {}
        strict = ALL not in self.methods
        if self.level != "layers":
            found = shares_by(analyzer, case.sequence, case.question, self.names, strict=strict)
            places = list(case.candidates)
            compared = {name: values[0, places][None, None] for name, values in found.values.items()}
            refused |= found.refused
            rows += _pairs(compared, item.number, [PREDICTION])
        if self.level != "prediction":
            maps = self._maps(analyzer, item, refused, strict=strict)
            rows += _pairs(maps, item.number, analyzer.layers)
        partial = Partial(rows={"rows": Rows((pa.Table.from_pylist(rows, schema=_ROWS),))})
        return partial.merge(unavailable(refused))

    def _maps(self, analyzer: Analyzer, item: Item, refused: dict[str, str], *, strict: bool) -> dict[str, np.ndarray]:
        """`[layer, query, key]` by method, missing where there is no key, or where it is the query's own."""
        maps: dict[str, np.ndarray] = {}
        for name in self.layer_names:
            method: Any = named_method(name, "layer maps")
            scopes = [*analyzer.scopes[-1:]] if method.name in ("norms", "projections") else None
            try:
                analysis = maps_by(analyzer, item.sequence, method, scopes)
            except (UnsupportedArchitectureError, InputError) as error:
                if strict:
                    raise
                refused[name] = str(error)
                continue
            values = _map(analysis)
            if not self.own:
                length = values.shape[-1]
                values = np.where(np.eye(length, dtype=bool), np.nan, values)
            maps[name] = values
        return maps

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        if "rows" not in partial.rows:
            raise InputError(f"{self.name}: no text has {_FEWEST} tokens that can be ranked.")
        rows = partial.rows["rows"].select("SELECT * FROM rows ORDER BY layer, first, second, sequence").to_pylist()
        by = ("layer", "first", "second")
        interval = bind(statistics.mean_with_interval, resamples=RESAMPLES, confidence=CONFIDENCE, seed=facts.seed)
        groups = statistics.grouped([{**row, "method": "spearman"} for row in rows], by, "spearman")
        records = [
            {name: record[name] for name in (*by, "low", "high", "sequences")} | {"spearman": record["mean"]}
            for record in statistics.means(groups, by, interval)
        ]
        to_prediction = [record | {"layer": None} for record in records if record["layer"] == PREDICTION]
        of_layers = [record for record in records if record["layer"] != PREDICTION]
        results: dict[str, object] = {}
        drawn: dict[str, Callable[[], Figure]] = {}
        if to_prediction:
            results["agreement"] = tables.from_records(to_prediction, _PAIRS)
            drawn["agreement"] = bind(_figure, to_prediction, self.names, "to the prediction")
        if of_layers:
            results["agreement-layers"] = tables.from_records(of_layers, _PAIRS)
            drawn["agreement-layers"] = bind(_figure, of_layers, self.layer_names, "maps, mean over layers")
        return Outcome(results, drawn, notes_of(partial))

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        known = [row for row in tables.rows_with(rows, "spearman") if "random" not in (row["first"], row["second"])]
        low, high = (choose(known, key=lambda row: row["spearman"]) for choose in (min, max))
        return (
            f"{high['first']} and {high['second']} agree most (rank correlation {high['spearman']:.2f}), {low['first']} and "
            f"{low['second']} least ({low['spearman']:.2f})."
        )


_ROWS = pa.schema(
    {"sequence": pa.int64(), "layer": pa.int64(), "first": pa.string(), "second": pa.string(), "spearman": pa.float64()}
)
_PAIRS = pa.schema(
    {"layer": pa.int64(), "first": pa.string(), "second": pa.string()}
    | {name: pa.float64() for name in ("spearman", "low", "high")}
    | {"sequences": pa.int64()}
)


def _map(analysis: Analysis) -> np.ndarray:
    """`[layer, query, key]` of the scope that stands for a method: its own, or the last there is."""
    scope = analysis.attrs.get("scope")
    if scope == HALF_ATTENTION_WEIGHTS:
        scope = basis(HALF_ATTENTION_WEIGHTS)
    values = analysis.map(str(scope if scope is not None else analysis.scopes[-1]))
    return values.transpose("layer", "query", "key").values.astype(np.float64)


def _pairs(maps: dict[str, np.ndarray], sequence: int, layers: list[int]) -> list[Row]:
    """The correlation of every two methods in every layer, mean over the rows in which there is one."""
    rows: list[Row] = []
    for first, second in combinations(maps, 2):
        for index, layer in enumerate(layers):
            found = [statistics.spearman(a, b) for a, b in zip(maps[first][index], maps[second][index], strict=True)]
            known = [value for value in found if np.isfinite(value)]
            label = {"sequence": sequence, "layer": layer, "first": first, "second": second}
            rows.append({**label, "spearman": float(np.mean(known)) if known else float("nan")})
    return rows


def _figure(records: list[Row], names: tuple[str, ...], title: str) -> Figure:
    there = [name for name in names if any(name in (record["first"], record["second"]) for record in records)]
    matrix = np.eye(len(there))
    for a, b in combinations(range(len(there)), 2):
        pair = {there[a], there[b]}
        values = [record["spearman"] for record in records if {record["first"], record["second"]} == pair]
        matrix[a, b] = matrix[b, a] = np.mean(values) if values else np.nan
    size = 2.2 + 0.42 * len(there)
    figure, (axes,) = figures.panels(1, width=size, height=size)
    figures.heat(axes, matrix, there, there, title=title, limits=(-0.2, 1.0), colours=SEQUENTIAL)
    axes.tick_params(axis="x", rotation=75)
    return figure
