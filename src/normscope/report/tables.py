"""Tables as a report shows them: the beginning of a long one, and the same table of several runs as one."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from matplotlib.figure import Figure

from normscope.errors import InputError
from normscope.experiments import figures
from normscope.experiments.tables import Column, Row, Schema, Table
from normscope.report.run import Run

_MOST_ROWS = 400
_LABELS = ("layer", "head", "rank", "distance", "dimension")


@dataclass(frozen=True)
class ShownTable:
    """The first rows of a table, and how many more it has, without columns that have nothing in any row."""

    title: str
    names: list[str]
    rows: list[list[object]]
    more: int

    @classmethod
    def of(cls, title: str, table: Table) -> ShownTable:
        names = [name for name in table.column_names if table.num_rows == 0 or _says_something(table[name])]
        rows = [list(row.values()) for row in table.select(names).slice(0, _MOST_ROWS).to_pylist()]
        return cls(title, names, rows, max(0, table.num_rows - _MOST_ROWS))


def _says_something(column: Column) -> bool:
    return any(value not in (None, "") for value in column.unique().to_pylist())


def label_columns(schema: Schema) -> list[str]:
    """The columns that label a row: texts, and numbers such as the layer."""
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
    rows: dict[tuple[object, ...], Row] = {}
    for name, table in tables:
        for row in table.to_pylist():
            key = tuple(row[label] for label in labels)
            rows.setdefault(key, dict(zip(labels, key, strict=True)))[name] = row[values[0]]
    names = [name for name, _ in tables]
    columns = {label: pa.array([row[label] for row in rows.values()]) for label in labels}
    columns |= {f"{values[0]}: {n}": pa.array([row.get(n) for row in rows.values()], pa.float64()) for n in names}
    return pa.table(columns)


# ---- Several runs as one: every table with the mean and the deviation over the runs, such as seeds or models of one
# kind.
#
# Rows belong together that have the same labels (texts, layers, heads, ranks). Deviations are those of a sample (n -
# 1).

_OF_EXTREMES = {"maximum": max, "minimum": min}
"""Columns that are extremes over all runs, not means of extremes (as in the tables of the papers)."""

_MOST_LINES = 8


def pooled_tables(runs: Sequence[Run], experiment: str) -> dict[str, Table]:
    """The tables of an experiment over all runs: those whose labels identify rows."""
    _check_options(runs, experiment)
    tables: dict[str, Table] = {}
    for name in runs[0].experiments[experiment]["tables"]:
        if all(name in run.experiments[experiment]["tables"] for run in runs):
            table = pooled([run.table(name) for run in runs])
            if table is not None:
                tables[name] = table
    return tables


def _check_options(runs: Sequence[Run], experiment: str) -> None:
    first, *others = (run.manifest["settings"]["experiments"][experiment] for run in runs)
    for run, options in zip(runs[1:], others, strict=True):
        names = sorted(name for name in {*first, *options} if first.get(name) != options.get(name))
        if names:
            raise InputError(
                f"{str(runs[0].folder)!r} and {str(run.folder)!r} ran {experiment} with other options ({', '.join(names)}): "
                f"a mean over them would mean nothing. Run one of them again with the same options."
            )


def pooled(tables: Sequence[Table]) -> Table | None:
    """One row for all rows with the same labels; `None` where labels do not identify rows, or there are no numbers."""
    schema: Schema = tables[0].schema
    labels = label_columns(schema)
    numbers = [field.name for field in schema if pa.types.is_floating(field.type) and field.name not in labels]
    if not numbers or any(table.schema.names != schema.names for table in tables):
        return None
    groups: dict[tuple[object, ...], list[Row]] = {}
    for table in tables:
        rows = {tuple(row[label] for label in labels): row for row in table.to_pylist()}
        if len(rows) < table.num_rows:
            return None
        for key, row in rows.items():
            groups.setdefault(key, []).append(row)
    records = [
        {**dict(zip(labels, key, strict=True)), "runs": len(rows), **_summary(numbers, rows)}
        for key, rows in groups.items()
    ]
    names = (
        list(_summary(numbers, [])) if not records else [name for name in records[0] if name not in (*labels, "runs")]
    )
    types = {label: schema.field(label).type for label in labels} | {"runs": pa.int64()}
    return pa.Table.from_pylist(records, schema=pa.schema(types | dict.fromkeys(names, pa.float64())))


def _summary(numbers: Iterable[str], rows: list[Row]) -> dict[str, float | None]:
    summary: dict[str, float | None] = {}
    for name in numbers:
        values = [row[name] for row in rows if row[name] is not None]
        if name.startswith("published"):
            summary[name] = values[0] if len(set(values)) == 1 else None
        elif name in _OF_EXTREMES:
            summary[name] = _OF_EXTREMES[name](values) if values else None
        else:
            summary[name] = statistics.fmean(values) if values else None
            summary[f"{name} ±"] = statistics.stdev(values) if len(values) > 1 else None
    return summary


def drawn(name: str, table: Table) -> Figure | None:
    """Means with deviations over the layers, where a table has layers and few enough lines."""
    schema: Schema = table.schema
    if "layer" not in schema.names:
        return None
    labels = [label for label in label_columns(schema) if label != "layer"]
    value = next(field.name for field in schema if pa.types.is_floating(field.type))
    lines: dict[str, list[Row]] = {}
    for row in table.to_pylist():
        if row["layer"] is not None and row[value] is not None:
            lines.setdefault(", ".join(str(row[label]) for label in labels), []).append(row)
    if not 0 < len(lines) <= _MOST_LINES:
        return None
    figure, (axes,) = figures.panels(1, width=5.6, height=3.6)
    for index, (label, rows) in enumerate(lines.items()):
        error = [row[f"{value} ±"] or 0.0 for row in rows] if f"{value} ±" in schema.names else None
        colour = figures.PALETTE[index % len(figures.PALETTE)]
        layers = [row["layer"] for row in rows]
        axes.errorbar(
            layers, [row[value] for row in rows], error, c=colour, marker="o", ms=3, lw=1.3, capsize=2, label=label
        )
    axes.set(xlabel="layer", ylabel=value, title=name)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if any(lines):
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
