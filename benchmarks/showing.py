"""The results of the benchmarks as one table for each section, and as one figure."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

Result = dict[str, Any]
"""What a section's JSON holds: its title, its columns, the facts of the machine, and its rows."""

_TITLE_WIDTH = 48


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
    """One panel of bars for each section, in two columns of about the same height."""
    columns = _halves(results)
    tallest = max(sum(map(_height, column)) for column in columns)
    figure = Figure(figsize=(12, 0.19 * tallest), layout="constrained")
    for part, column in zip(figure.subfigures(1, len(columns), squeeze=False)[0], columns, strict=True):
        heights = [_height(result) for result in column]
        grid = part.subplots(len(column), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, result in zip(grid, column, strict=True):
            _draw(axes, result)
    return figure


def _draw(axes: Axes, result: Result) -> None:
    rows = _drawn(result)
    axes.barh(range(len(rows)), [row[result["drawn"]] for row in rows], color="#4c72b0")
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=6)
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_title(_title(result), fontsize=8, loc="left")
    axes.tick_params(axis="x", labelsize=6)
    axes.spines[["top", "right"]].set_visible(False)


def _drawn(result: Result) -> list[dict[str, Any]]:
    return [row for row in result["rows"] if row.get(result["drawn"]) is not None]


def _height(result: Result) -> float:
    """In rows of bars, with room for the title and the axis."""
    return 2.5 + _title(result).count("\n") + len(_drawn(result))


def _title(result: Result) -> str:
    """What a panel shows, in lines that are not wider than it."""
    heading = next(column["heading"] for column in result["columns"] if column["key"] == result["drawn"])
    return fill(f"{result['title']} ({heading})", _TITLE_WIDTH)


def _halves(results: list[Result]) -> list[list[Result]]:
    """The results in two columns, in their order."""
    ends = range(1, len(results))
    if not ends:
        return [results]
    end = min(ends, key=lambda end: max(sum(map(_height, part)) for part in (results[:end], results[end:])))
    return [results[:end], results[end:]]


def _label(row: dict[str, Any]) -> str:
    return " ".join(str(row[key]) for key in ("model", "tokens", "what", "workers") if key in row)
