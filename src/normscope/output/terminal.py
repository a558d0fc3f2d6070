"""Maps, mixing ratios and completeness as coloured tables for a terminal.

Makes rich renderables and prints nothing. Tokens go in as plain text, so that `[CLS]` is never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.colors import Normalize
from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from normscope.output.colours import number_style
from normscope.plots.style import sequential_norm
from normscope.results.select import MapSelection
from normscope.results.tokens import label

_LONGEST_NAME = 14

_MOST_QUERIES = 64
"""A map with more queries than this is shown by its strongest cells."""

_STRONGEST = 40


def map_table(selection: MapSelection, layer: int, width: int) -> Group:
    """The map of one layer: every cell if that fits into `width` columns, else the strongest keys of every query.

    For a very large map, only the strongest cells.
    """
    values = selection.of_layer(layer)
    title = f"{selection.name}, layer {layer}: {selection.meaning}, queries by keys"
    if values.sizes["query"] > _MOST_QUERIES:
        size = f"{values.sizes['query']} queries by {values.sizes['key']} keys"
        return _titled(f"{title} (the strongest {_STRONGEST} cells of {size})", _strongest_table(values))
    if full_width(values) <= width:
        return _titled(title, _full_table(values))
    table, count = _top_table(values, width)
    return _titled(f"{title} (the strongest {count} of {values.sizes['key']} keys)", table)


def full_width(values: xr.DataArray) -> int:
    """The width of the table of all cells of a map `[query, key]`, in columns."""
    keys = _key_widths(values)
    return _longest(_names(values, "query")) + 1 + sum(width + 1 for width in keys)


def _full_table(values: xr.DataArray) -> Table:
    table = _table()
    table.add_column("", no_wrap=True)
    for name, width in zip(_names(values, "key"), _key_widths(values), strict=True):
        table.add_column(Text(name), justify="right", no_wrap=True, min_width=width)
    norm, decimals = _norm(values), _decimals(values)
    for query, row in zip(_names(values, "query"), _rows(values, "query", "key"), strict=True):
        table.add_row(Text(query), *(_cell(value, norm, decimals) for value in row))
    return table


def _top_table(values: xr.DataArray, width: int) -> tuple[Table, int]:
    """For every query its strongest keys, as many as fit, and how many those are."""
    queries, keys = _names(values, "query"), _names(values, "key")
    decimals, norm = _decimals(values), _norm(values)
    column_width = _longest(keys) + 2 + max(len(f"{value:.{decimals}f}") for value in values.values.ravel())
    count = min(len(keys), max(1, (width - _longest(queries) - 2) // column_width))
    table = _table()
    table.add_column("", no_wrap=True)
    for index in range(count):
        table.add_column("strongest keys" if index == 0 else "", no_wrap=True)
    for query, row in zip(queries, _rows(values, "query", "key"), strict=True):
        order = sorted((key for key, value in enumerate(row) if np.isfinite(value)), key=lambda key: -row[key])
        cells = [Text.assemble(keys[key], " ", _cell(row[key], norm, decimals)) for key in order[:count]]
        table.add_row(Text(query), *cells)
    return table, count


def _strongest_table(values: xr.DataArray) -> Table:
    """The strongest cells between different tokens, with the positions of both: a token's own part is always the largest."""
    cells = values.transpose("query", "key")
    same = cells["query"].values[:, None] == cells["key"].values
    same &= (cells["key_group"].values == cells["key_group"].values[0])[None, :]
    others = np.where(same | ~np.isfinite(cells.values), -np.inf, cells.values)
    largest = np.argpartition(others, -_STRONGEST, axis=None)[-_STRONGEST:]
    order = largest[np.argsort(-others.ravel()[largest], kind="stable")]
    queries, keys = _names(cells, "query"), _names(cells, "key")
    norm, decimals = _norm(values), _decimals(values)
    table = _table()
    for heading in ("query", "", "key", "", "value"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "value" else "left")
    for row, column in zip(*np.unravel_index(order, others.shape), strict=True):
        positions = str(cells["query"].values[row]), str(cells["key"].values[column])
        value = _cell(float(others[row, column]), norm, decimals)
        table.add_row(positions[0], Text(queries[row]), positions[1], Text(keys[column]), value)
    return table


def mixing_table(ratios: xr.DataArray, scope: str) -> Group:
    """Mixing ratios `[layer, query]` as a table of tokens by layers."""
    table = _table()
    table.add_column("", no_wrap=True)
    for layer in ratios["layer"].values:
        table.add_column(str(layer), justify="right", no_wrap=True)
    norm = Normalize(0, 1)
    for name, row in zip(_names(ratios, "query"), _rows(ratios, "query", "layer"), strict=True):
        table.add_row(Text(name), *(_cell(value, norm, 2) for value in row))
    means: list[float] = ratios.mean("query").values.tolist()
    table.add_section()
    table.add_row(Text("mean", style="bold"), *(_cell(value, norm, 2) for value in means))
    return _titled(f"{scope}: mixing ratio (how much comes from other tokens), tokens by layers", table)


def completeness_table(dataset: xr.Dataset, tolerance: float) -> Group:
    """The completeness error after every component, by layer: green within the tolerance, red above."""
    errors = dataset["component_error"]
    title = f"Completeness: relative error of parts + bias against the model's own state (tolerance {tolerance:.0e})"
    table = _table()
    table.add_column("layer", justify="right")
    for component in errors["checked_scope"].values:
        table.add_column(str(component), justify="right", overflow="fold")
    for layer, row in zip(errors["layer"].values, _rows(errors, "layer", "checked_scope"), strict=True):
        table.add_row(str(layer), *(_error(value, tolerance) for value in row))
    return _titled(title, table)


def plain_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """A table of plain text."""
    table = _table()
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return _titled(title, table)


# ---- parts of tables -----------------------------------------------------------------------------------------------------


def _table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)


def _titled(title: str, table: Table) -> Group:
    """A table below its title, which may be wider."""
    return Group(Text(title, style="bold"), table)


def _cell(value: float, norm: Normalize, decimals: int) -> Text:
    """A number on its colour; nothing if the key does not exist."""
    if not np.isfinite(value):
        return Text("")
    return Text(f"{value:.{decimals}f}", style=number_style(norm(value), signed=False))


def _error(value: float, tolerance: float) -> Text:
    return Text(f"{value:.1e}", style="green" if value <= tolerance else "bold red")


def _norm(values: xr.DataArray) -> Normalize:
    return sequential_norm(values.values, None, "sqrt")


def _decimals(values: xr.DataArray) -> int:
    """The number of decimals that shows about three digits of the largest value."""
    largest = float(np.nanmax(values.values))
    return 0 if largest >= 1000 else 1 if largest >= 100 else 2


def _rows(values: xr.DataArray, rows: str, columns: str) -> list[list[float]]:
    return values.transpose(rows, columns).values.tolist()


def _names(values: xr.DataArray, dimension: str) -> list[str]:
    return [label(str(token), _LONGEST_NAME) for token in values[f"{dimension}_token"].values]


def _longest(names: Sequence[str]) -> int:
    return max(cell_len(name) for name in names)


def _key_widths(values: xr.DataArray) -> list[int]:
    decimals = _decimals(values)
    return [
        max(cell_len(name), *(len(f"{value:.{decimals}f}") for value in column))
        for name, column in zip(_names(values, "key"), _rows(values, "key", "query"), strict=True)
    ]
