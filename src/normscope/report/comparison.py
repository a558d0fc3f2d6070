"""Tables as a report shows them: the beginning of a long one, and the same table of several runs as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from normscope.experiments.arrow import Column, Schema, Table

_MOST_ROWS = 400
_LABELS = ("layer", "head", "rank", "distance", "dimension")


@dataclass(frozen=True)
class ShownTable:
    """The first rows of a table, and how many more it has, without columns that have nothing in any row."""

    title: str
    names: list[str]
    rows: list[list[Any]]
    more: int

    @classmethod
    def of(cls, title: str, table: Table) -> ShownTable:
        names = [name for name in table.column_names if table.num_rows == 0 or _says_something(table[name])]
        rows = [list(row.values()) for row in table.select(names).slice(0, _MOST_ROWS).to_pylist()]
        return cls(title, names, rows, max(0, table.num_rows - _MOST_ROWS))


def _says_something(column: Column) -> bool:
    return any(value not in (None, "") for value in column.unique().to_pylist())


def label_columns(schema: Schema) -> list[str]:
    """The columns that say what a row is about: texts, and numbers such as the layer."""
    return [
        field.name
        for field in schema
        if field.name in _LABELS or (pa.types.is_string(field.type) and not field.name.startswith("published"))
    ]


def comparison(tables: Sequence[tuple[str, Table]]) -> Table | None:
    """The first number of each table by the labels they share; `None` where they have none to compare."""
    first = tables[0][1]
    labels = label_columns(first.schema)
    values = [field.name for field in first.schema if pa.types.is_floating(field.type) and field.name not in labels]
    if not labels or not values or any(table.schema.names != first.schema.names for _, table in tables):
        return None
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, table in tables:
        for row in table.to_pylist():
            key = tuple(row[label] for label in labels)
            rows.setdefault(key, dict(zip(labels, key, strict=True)))[name] = row[values[0]]
    names = [name for name, _ in tables]
    columns = {label: pa.array([row[label] for row in rows.values()]) for label in labels}
    columns |= {f"{values[0]}: {n}": pa.array([row.get(n) for row in rows.values()], pa.float64()) for n in names}
    return pa.table(columns)
