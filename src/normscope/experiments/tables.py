"""Tables: tidy ones from labelled arrays, their rows for sentences, and text tables as the papers print them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from rich import box
from rich.table import Table as TextTable
from rich.text import Text

Table = Any
"""A `pyarrow.Table`: pyarrow declares no types itself."""

Column = Any
"""A `pyarrow.Array`."""

Schema = Any
"""A `pyarrow.Schema`."""

Row = dict[str, Any]
"""A row of a table, by column."""


def tidy(axes: Mapping[str, Sequence[object]], values: Mapping[str, np.ndarray]) -> Table:
    """One row per cell of arrays `[axis, ...]`: the labels of its axes, then its values."""
    shape = tuple(len(labels) for labels in axes.values())
    columns: dict[str, Column] = {}
    for place, (name, labels) in enumerate(axes.items()):
        index = np.arange(len(labels)).reshape([-1 if axis == place else 1 for axis in range(len(shape))])
        chosen = np.broadcast_to(index, shape).reshape(-1)
        columns[name] = pa.array(list(labels)).take(pa.array(chosen))
    for name, array in values.items():
        columns[name] = numbers(np.broadcast_to(array, shape).reshape(-1))
    return pa.table(columns)


def numbers(values: np.ndarray) -> Column:
    """An Arrow column in which a missing number (NaN) is null."""
    return pa.array(values, from_pandas=True)


def from_records(records: Sequence[Mapping[str, object]], schema: Schema | None = None) -> Table:
    """A table from rows given as dictionaries; a missing number is null."""
    cleaned = [
        {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in record.items()}
        for record in records
    ]
    table = pa.Table.from_pylist(cleaned, schema=schema)
    for place, column in enumerate(table.schema):
        if pa.types.is_null(column.type):
            table = table.set_column(place, column.name, table[column.name].cast(pa.float64()))
    return table


def present(table: Table, column: str) -> Table:
    """The rows that have a value."""
    return table.filter(table[column].is_valid())


def finite_rows(table: Table) -> list[Row]:
    """The rows of a table, with `None` for NaN and infinite numbers."""
    return [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        for row in table.to_pylist()
    ]


def rows_with(rows: Sequence[Row], *names: str) -> list[Row]:
    """The rows that have a value in each of these columns; raises `ValueError` where there are none."""
    known = [row for row in rows if all(row[name] is not None for name in names)]
    if not known:
        raise ValueError(f"no row has {names}")
    return known


ERROR = "standard error"
DIM = "dim"


def correlation_sentence(quantities: str, rows: Sequence[Row]) -> str:
    """The sentence about the rank correlation in the first row."""
    row = rows[0]
    about = row.get("quantity") or row.get("category")
    return f"Rank correlation of {quantities}: {row['spearman']:.2f} ({about})."


class PaperTable:
    """A table that rows are added to."""

    def __init__(self, title: str, labels: Sequence[str], columns: Iterable[str]) -> None:
        self.text = TextTable(box=box.SIMPLE, pad_edge=False, title=Text(title), title_justify="left")
        for label in labels:
            self.text.add_column(label, overflow="fold")
        for column in columns:
            self.text.add_column(Text(column), justify="right", no_wrap=True)

    def add(self, labels: Sequence[str], numbers: Iterable[float | None], form: str, style: str = "") -> None:
        """A row: its labels, and its numbers as `form` has them; one that is missing is an empty cell."""
        cells = ["" if number is None or np.isnan(number) else form.format(number) for number in numbers]
        self.text.add_row(*(Text(cell) for cell in (*labels, *cells)), style=style)
