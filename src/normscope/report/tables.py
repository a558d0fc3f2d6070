"""Arrow tables as HTML, and the same table of several runs as one."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import pyarrow as pa

from normscope.experiments.arrow import Table

_MOST_ROWS = 400
_LABELS = ("layer", "head", "rank", "distance", "dimension")


def html_table(table: Table) -> str:
    """A table that scrolls; of a long one, the beginning."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
    rows = "".join(_row(row.values()) for row in table.slice(0, _MOST_ROWS).to_pylist())
    more = table.num_rows - _MOST_ROWS
    rest = f"<p>… and {more} more rows, in the run's tables.</p>" if more > 0 else ""
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{rest}"


def _row(values: Any) -> str:
    return "<tr>" + "".join(_cell(value) for value in values) + "</tr>"


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, float):
        return f"<td class='number'>{value:.4g}</td>"
    kind = " class='number'" if isinstance(value, int) and not isinstance(value, bool) else ""
    return f"<td{kind}>{escape(str(value))}</td>"


def comparison(tables: Sequence[tuple[str, Table]]) -> Table | None:
    """The first number of each table by the labels they share; `None` where there is none to compare."""
    first = tables[0][1]
    labels = [field.name for field in first.schema if pa.types.is_string(field.type) or field.name in _LABELS]
    values = [field.name for field in first.schema if pa.types.is_floating(field.type) and field.name not in labels]
    if not labels or not values or any(table.schema.names != first.schema.names for _, table in tables):
        return None
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, table in tables:
        for row in table.to_pylist():
            key = tuple(row[label] for label in labels)
            found.setdefault(key, dict(zip(labels, key, strict=True)))[name] = row[values[0]]
    names = [name for name, _ in tables]
    columns = {label: pa.array([row[label] for row in found.values()]) for label in labels}
    columns |= {f"{values[0]}: {n}": pa.array([row.get(n) for row in found.values()], pa.float64()) for n in names}
    return pa.table(columns)
