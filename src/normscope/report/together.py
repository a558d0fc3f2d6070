"""Several runs as one: every table with the mean and the deviation over the runs, such as seeds or models of one kind.

Rows belong together that have the same labels (texts, layers, heads, ranks). Deviations are those of a sample (n - 1).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from matplotlib.figure import Figure

from normscope.errors import InputError
from normscope.experiments import figures
from normscope.experiments.arrow import Schema, Table
from normscope.report.comparison import label_columns
from normscope.report.finished import FinishedRun

_OF_EXTREMES = {"maximum": max, "minimum": min}
"""Columns that are extremes over all runs, not means of extremes (as in the tables of the papers)."""

_MOST_LINES = 8


def together(runs: Sequence[FinishedRun], experiment: str) -> dict[str, Table]:
    """The tables of an experiment over all runs: those with labels by which rows can be told apart."""
    _check_options(runs, experiment)
    made: dict[str, Table] = {}
    for name in runs[0].experiments[experiment]["tables"]:
        if all(name in run.experiments[experiment]["tables"] for run in runs):
            table = pooled([run.table(name) for run in runs])
            if table is not None:
                made[name] = table
    return made


def _check_options(runs: Sequence[FinishedRun], experiment: str) -> None:
    first, *others = (run.manifest["settings"]["experiments"][experiment] for run in runs)
    for run, options in zip(runs[1:], others, strict=True):
        names = sorted(name for name in {*first, *options} if first.get(name) != options.get(name))
        if names:
            raise InputError(
                f"{str(runs[0].folder)!r} and {str(run.folder)!r} ran {experiment} with other options ({', '.join(names)}): "
                f"a mean over them would mean nothing. Run one of them again with the same options."
            )


def pooled(tables: Sequence[Table]) -> Table | None:
    """One row for all rows with the same labels; `None` where labels do not tell rows apart, or there are no numbers."""
    schema: Schema = tables[0].schema
    labels = label_columns(schema)
    numbers = [field.name for field in schema if pa.types.is_floating(field.type) and field.name not in labels]
    if not numbers or any(table.schema.names != schema.names for table in tables):
        return None
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
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


def _summary(numbers: Iterable[str], rows: list[dict[str, Any]]) -> dict[str, float | None]:
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
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["layer"] is not None and row[value] is not None:
            lines.setdefault(", ".join(str(row[label]) for label in labels), []).append(row)
    if not 0 < len(lines) <= _MOST_LINES:
        return None
    figure, (axes,) = figures.panels(1, width=5.6, height=3.6)
    for place, (label, rows) in enumerate(lines.items()):
        error = [row[f"{value} ±"] or 0.0 for row in rows] if f"{value} ±" in schema.names else None
        colour = figures.PALETTE[place % len(figures.PALETTE)]
        layers = [row["layer"] for row in rows]
        axes.errorbar(
            layers, [row[value] for row in rows], error, c=colour, marker="o", ms=3, lw=1.3, capsize=2, label=label
        )
    axes.set(xlabel="layer", ylabel=value, title=name)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if any(lines):
        axes.legend(fontsize=7, frameon=False)
    return figure
