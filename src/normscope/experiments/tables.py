"""Tidy tables from labelled arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from normscope.experiments.arrow import Column, Schema, Table


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
