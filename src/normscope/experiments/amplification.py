"""ff-amplification (2024, Tables 2 and 3): which pairs of subwords the feed-forward brings together.

Every map is scaled so that its columns sum to 1; the map after the feed-forward minus the map before it is the
amplification of each (query, key) pair, averaged over all occurrences of the two subword types. The same for the whole
group of norm, feed-forward, residual and norm, and for the norm after the feed-forward; the lists mark pairs that they
share. A corpus has hundreds of millions of pairs, so sums are whole numbers in Parquet rows that DuckDB adds up
out of core.

The papers sort their top pairs by hand. Here a pair of types is of the first kind of `CATEGORIES` that most of its
occurrences are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial as bind
from typing import ClassVar

import duckdb
import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.table import Table as TextTable
from rich.text import Text

from normscope.errors import InputError
from normscope.experiments import chain, declared, figures, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts, check_choice
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.tables import Row, Table
from normscope.experiments.tokens import type_ids
from normscope.methods.norms import Decomposition
from normscope.options import NormaliseAxis
from normscope.results.rollout import normalise
from normscope.scopes import Scope

KINDS = ("ff", "group")
"""The feed-forward alone, and with the norms and the residual around it."""

UNIT = 2.0**36
"""Amplifications are added up in steps of 2**-36, as whole numbers: exactly."""


LN = "ln"
"""The norm after the feed-forward, where the model has one."""


def ends_of(model: ModelFacts, kinds: Sequence[str]) -> dict[str, tuple[Scope, Scope]]:
    """The scopes between which each kind of change lies, for those that the model has."""
    ends = {"ff": chain.feed_forward(model.scopes), "group": chain.feed_forward_group(model.scopes)}
    norm = chain.norm_after_feed_forward(model.scopes)
    if norm is not None:
        ends[LN] = norm
    return {kind: ends[kind] for kind in kinds if kind in ends}


def changes(
    observation: Observation, model: ModelFacts, axis: NormaliseAxis, kinds: Sequence[str] = KINDS
) -> np.ndarray:
    """`[kind, layer, query, key]`: how the map changes; missing where a key does not exist."""
    ends = tuple(ends_of(model, kinds).values())
    analysis = observation.analysis
    cache = {scope: normalise(analysis.map(scope), axis).values.astype(np.float64) for pair in ends for scope in pair}
    return np.stack([cache[after] - cache[before] for before, after in ends])


def scopes_needed(model: ModelFacts, kinds: Sequence[str] = KINDS) -> tuple[Scope, ...]:
    return tuple(dict.fromkeys(scope for ends in ends_of(model, kinds).values() for scope in ends))


SAME_TYPE, OTHER = "same type", "other"
COUNTED = {"same word": "in_word", "same entity": "in_entity", "adjacent": "adjacent"}
"""The kinds that occurrences decide on, and the columns that count those."""
CATEGORIES = ("same word", SAME_TYPE, "same entity", "adjacent", OTHER)

_NAMES = {
    "ff": "the feed-forward",
    "group": "norm, feed-forward, residual and norm",
    LN: "the norm after the feed-forward",
}


@dataclass(frozen=True)
class FeedForwardAmplification(declared.FeedForwardAmplification, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "kind": "ff: the feed-forward alone; group: norm, feed-forward, residual and norm (as far as the model has them); "
        "ln: the norm after the feed-forward",
        "layer": "layer, from 1",
        "rank": "rank in the layer, from 1",
        "key_type": "the subword whose contribution grows",
        "query_type": "the subword in whose state it grows",
        "amplification": "mean change of the scaled map over all occurrences",
        "occurrences": "number of (query, key) pairs of these two types",
        "category": "the first of same word, same type, same entity, adjacent and other that most of its occurrences are; "
        "in the table of categories, that of the counted pairs",
        "also_in": "the other kinds whose list of this layer has the pair, too",
        "pairs": "number of pairs of positions; in the table of categories, of listed pairs",
        "types_of_pairs": "number of ordered pairs of types",
        "seen_once": "ordered pairs of types that were seen once, and are left out unless minimum_count is 1",
    }
    captions: ClassVar[dict[str, str]] = {
        "ff-amplification": "The pairs of subword types (key, query) that are brought together most, by layer.",
    }

    def __post_init__(self) -> None:
        check_choice(self.name, "axis", self.axis, ("none", "row", "column"))
        for kind in self.kinds:
            check_choice(self.name, "kinds", kind, (*KINDS, LN))
        if self.top < 1:
            raise InputError(f"{self.name}: top is the number of pairs to list, at least 1, not {self.top}.")
        if self.minimum_count < 1:
            raise InputError(
                f"{self.name}: minimum_count is how often a pair has to occur, at least 1, not {self.minimum_count}."
            )

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=scopes_needed(model, self.kinds)),))

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        change = changes(observation, model, self.axis, self.kinds)
        pairs = ~np.eye(change.shape[2], dtype=bool) & np.asarray(np.isfinite(change).all((0, 1)))[:, : change.shape[2]]
        if not self.special_tokens:
            pairs &= ~observation.special[:, None] & ~observation.special[None, :]
        query, key = np.nonzero(pairs)
        types = type_ids(observation)
        columns = {"query": types[query], "key": types[key], "occurrences": np.ones(len(query), np.int64)}
        columns |= _counted(observation, query, key)
        units = np.rint(change[..., query, key] * UNIT).astype(np.int64)
        for kind, name in enumerate(ends_of(model, self.kinds)):
            columns |= {f"{name}_{layer}": units[kind, index] for index, layer in enumerate(model.layers)}
        vocabulary = pa.table(
            {"type": types, "token": observation.tokens, "occurrences": np.ones(len(types), np.int64)}
        )
        return Partial(
            rows={
                "pairs": Rows((pa.table(columns),), keys=("query", "key")),
                "vocabulary": Rows((vocabulary,), keys=("type", "token")),
            }
        )

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        names = partial.rows["vocabulary"].select("SELECT DISTINCT type, token FROM rows ORDER BY type, token")
        tokens = dict(zip(names["type"].to_pylist(), names["token"].to_pylist(), strict=True))
        records: list[dict[str, object]] = []
        with partial.rows["pairs"].database() as connection:
            kinds = list(ends_of(facts.model, self.kinds))
            count = _sum_up(connection, kinds, facts.model.layers)
            for kind in kinds:
                for layer in facts.model.layers:
                    records += self._top(connection, kind, layer, tokens)
        table = tables.from_records(_marked(records), _SCHEMA)
        totals = tables.from_records([{"pairs": count[0], "types_of_pairs": count[1], "seen_once": count[2]}])
        found = {
            "ff-amplification": table,
            "ff-amplification-categories": tables.from_records(_totals(records), _CATEGORIES),
            "ff-amplification-totals": totals,
        }
        drawn = {f"ff-amplification-{kind}": bind(_figure, table, kind, facts.model) for kind in kinds}
        return Outcome(found, drawn, printed=bind(_text_table, table))

    def _top(
        self, connection: duckdb.DuckDBPyConnection, kind: str, layer: int, tokens: dict[int, str]
    ) -> list[dict[str, object]]:
        """The pairs of a layer that are amplified most."""
        counted = list(COUNTED.values())
        wanted = "" if self.same_type else " AND key <> query"
        found = connection.execute(
            f"SELECT key, query, {kind}_{layer}::DOUBLE / {UNIT} / occurrences AS amplification, occurrences, "
            f"{', '.join(counted)} FROM sums WHERE occurrences >= {self.minimum_count}{wanted} "
            f"ORDER BY amplification DESC, key, query LIMIT {self.top}"
        ).fetchall()
        return [
            {
                "kind": kind,
                "layer": layer,
                "rank": rank,
                "key_type": tokens[key],
                "query_type": tokens[query],
                "amplification": amplification,
                "occurrences": occurrences,
                "category": _category(occurrences, dict(zip(counted, counts, strict=True)), same_type=key == query),
            }
            for rank, (key, query, amplification, occurrences, *counts) in enumerate(found, 1)
        ]

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        top = max(
            (row for row in tables.rows_with(rows, "amplification") if row["kind"] == "ff"),
            key=lambda row: row["amplification"],
        )
        return (
            f"The feed-forward of layer {top['layer']} strengthens {top['key_type']!r} in {top['query_type']!r} most "
            f"(by {top['amplification']:.2g})."
        )


_SCHEMA = pa.schema(
    {
        "kind": pa.string(),
        "layer": pa.int64(),
        "rank": pa.int64(),
        "key_type": pa.string(),
        "query_type": pa.string(),
        "amplification": pa.float64(),
        "occurrences": pa.int64(),
        "category": pa.string(),
        "also_in": pa.string(),
    }
)

_CATEGORIES = pa.schema({"kind": pa.string(), "layer": pa.int64(), "category": pa.string(), "pairs": pa.int64()})


def _marked(records: list[dict[str, object]]) -> list[dict[str, object]]:
    """The lists, each pair with the other lists of its layer that have it."""
    holders: dict[tuple[object, ...], list[str]] = {}
    for record in records:
        holders.setdefault(_pair(record), []).append(str(record["kind"]))
    return [
        record | {"also_in": ", ".join(kind for kind in holders[_pair(record)] if kind != record["kind"])}
        for record in records
    ]


def _pair(record: dict[str, object]) -> tuple[object, ...]:
    return record["layer"], record["key_type"], record["query_type"]


def _sum_up(
    connection: duckdb.DuckDBPyConnection, kinds: Sequence[str], layers: tuple[int, ...]
) -> tuple[int, int, int]:
    """Add up all rows of each pair of types; the numbers of pairs, of pairs of types, and of those seen once."""
    summed = [*COUNTED.values(), *(f"{kind}_{layer}" for kind in kinds for layer in layers)]
    sums = ", ".join(f"sum({name}) AS {name}" for name in summed)
    connection.execute(
        f"CREATE TABLE sums AS SELECT query, key, sum(occurrences)::BIGINT AS occurrences, {sums} "
        f"FROM rows GROUP BY query, key"
    )
    row = connection.execute(
        "SELECT coalesce(sum(occurrences), 0)::BIGINT, count(*), count(*) FILTER (occurrences = 1) FROM sums"
    ).fetchone()
    return row or (0, 0, 0)


def _counted(observation: Observation, query: np.ndarray, key: np.ndarray) -> dict[str, np.ndarray]:
    """For every pair of positions, 1 or 0: in one word, in one entity (where the corpus has labels), side by side."""
    nothing = np.full(len(observation.tokens), -1)
    words = np.where(observation.special, -1, observation.words)
    entities = nothing if observation.entities is None else observation.entities
    found = [(owner[query] == owner[key]) & (owner[query] >= 0) for owner in (words, entities)]
    return {
        name: values.astype(np.int64)
        for name, values in zip(COUNTED.values(), (*found, np.abs(query - key) == 1), strict=True)
    }


def _category(occurrences: int, counts: Mapping[str, int], *, same_type: bool) -> str:
    """The kind of a pair of types, from the kinds of its occurrences."""
    for name in CATEGORIES[:-1]:
        if same_type if name == SAME_TYPE else 2 * counts[COUNTED[name]] > occurrences:
            return name
    return OTHER


def _totals(records: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """How many pairs of each list are of each kind."""
    found = Counter((record["kind"], record["layer"], record["category"]) for record in records)
    lists = dict.fromkeys((record["kind"], record["layer"]) for record in records)
    return [
        {"kind": kind, "layer": layer, "category": name, "pairs": found[kind, layer, name]}
        for kind, layer in lists
        for name in CATEGORIES
    ]


def _text_table(table: Table) -> TextTable:
    """The lists as the papers print them: a row for each layer and component, pairs that another list has, too, in bold."""
    text = TextTable(box=box.SIMPLE, pad_edge=False, title="Top pairs (key, query); bold: also in another list")
    for heading in ("layer", "component", "pairs, the most amplified first", "of them"):
        text.add_column(heading, overflow="fold")
    lists: dict[tuple[int, str], list[Row]] = {}
    for record in table.to_pylist():
        lists.setdefault((record["layer"], record["kind"]), []).append(record)
    for (layer, kind), records in sorted(lists.items(), key=lambda item: item[0][0]):
        pairs = [
            Text(f"({record['key_type']}, {record['query_type']})", style="bold" if record["also_in"] else "")
            for record in records
        ]
        found = Counter(record["category"] for record in records)
        kinds = ", ".join(f"{found[name]} {name}" for name in CATEGORIES if found[name])
        text.add_row(str(layer), _NAMES[kind], Text(" ").join(pairs), kinds)
    return text


def _figure(table: Table, kind: str, model: ModelFacts) -> Figure:
    """The top pairs of every layer, as bars: those that another list has, too, in another colour."""
    figure, grid = figures.panels(len(model.layers), width=3.8, height=2.9)
    rows = [row for row in table.to_pylist() if row["kind"] == kind]
    for axes, layer in zip(grid, model.layers, strict=True):
        chosen = [row for row in rows if row["layer"] == layer][::-1]
        labels = [
            f"{row['key_type']} \u2192 {row['query_type']}   {figures.TIMES}{row['occurrences']}" for row in chosen
        ]
        colours = [figures.PALETTE[1 if row["also_in"] else 0] for row in chosen]
        axes.barh(range(len(chosen)), [row["amplification"] for row in chosen], color=colours)
        for bar, row in enumerate(chosen):
            if row["also_in"]:
                axes.text(0, bar, f" {row['also_in']}", va="center", fontsize=5.5, color="w")
        axes.set_yticks(range(len(chosen)), labels, fontsize=7, parse_math=False)
        axes.set_title(f"layer {layer}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="x", labelsize=7)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    figure.suptitle(
        f"mean amplification of key \u2192 query {figures.TIMES}number by {_NAMES[kind]}; orange: also in the list named",
        fontsize=9,
    )
    return figure
