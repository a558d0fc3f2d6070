"""The results of the benchmarks as one table for each section, and as one figure."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

Result = dict[str, Any]
"""What a section's JSON holds: its title, its columns, the facts of the machine, and its rows."""


def cell(row: dict[str, Any], column: dict[str, str]) -> str:
    """A value as the tables show it; nothing where a row has none."""
    value = row.get(column["key"])
    return "" if value is None else column["form"].format(value)


def table_of(result: Result) -> Table:
    table = Table(title=result["title"])
    for column in result["columns"]:
        table.add_column(column["heading"], justify="right" if column["form"] != "{}" else "left")
    for row in result["rows"]:
        table.add_row(*(cell(row, column) for column in result["columns"]))
    return table


def figure_of(results: list[Result]) -> Figure:
    """One panel of bars for each section."""
    heights = [1.5 + sum(result["drawn"] in row for row in result["rows"]) for result in results]
    figure = Figure(figsize=(8, 0.19 * sum(heights)), layout="constrained")
    grid = figure.subplots(len(results), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, result in zip(grid, results, strict=True):
        rows = [row for row in result["rows"] if row.get(result["drawn"]) is not None]
        heading = next(column["heading"] for column in result["columns"] if column["key"] == result["drawn"])
        axes.barh(range(len(rows)), [row[result["drawn"]] for row in rows], color="#4c72b0")
        axes.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=5)
        axes.invert_yaxis()
        axes.set_title(f"{result['title']} ({heading})", fontsize=7, loc="left")
        axes.tick_params(axis="x", labelsize=5)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _label(row: dict[str, Any]) -> str:
    return " ".join(str(row[key]) for key in ("model", "tokens", "what", "workers") if key in row)
