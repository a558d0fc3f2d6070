"""Mixing ratios as a heat map of layers by tokens: how much of each state comes from other tokens."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import xarray as xr
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from normscope.errors import SelectionError
from normscope.plots.heat import add_colour_bar, draw_cells, label_columns, label_rows
from normscope.plots.picture import Picture
from normscope.plots.style import SEQUENTIAL, add_caption, colour_map, publication, scale_for
from normscope.results.tokens import labels
from normscope.scopes import WHOLE_LAYER, described, resolve

if TYPE_CHECKING:
    from normscope.results.analysis import Analysis

_SIDES = (3.0, 14.0)


def plot_mixing_ratio(
    ratios: Analysis | xr.DataArray,
    scope: str | None = None,
    *,
    colours: str | Colormap = SEQUENTIAL,
    limit: float = 1.0,
    title: str | None = None,
) -> Figure:
    """A heat map of layers (the first at the bottom) by tokens, from 0 (none from others) to 1 (all).

    Args:
        ratios: an analysis, or what `Analyzer.mixing_ratios` gives.
        scope: the scope (default: the whole layer, as far as there are ratios of it).
        colours: a matplotlib colour map or its name.
        limit: the ratio of the darkest colour.
        title: the title (default: the scope).

    Examples:
        >>> from normscope.plots import plot_mixing_ratio
        >>> plot_mixing_ratio(analysis, "AttnRes").savefig("mixing.svg")
    """
    values, name = ratios_at(ratios, scope)
    if not values.size:
        raise SelectionError("There is nothing to draw: the selection has no tokens.")
    cells = values.transpose("layer", "query").values[::-1]
    tokens = labels(values["query_token"].values)
    scale = scale_for(cells.shape[1], *_SIDES)
    palette, norm = colour_map(colours), Normalize(0, limit)
    with publication():
        size = scale.side(cells.shape[1]) + 1.5, scale.side(len(cells)) + scale.room(tokens) + 0.6
        figure = Picture(figsize=size, layout="constrained")
        axes = figure.subplots()
        draw_cells(axes, cells, palette, norm)
        label_rows(axes, [str(layer) for layer in values["layer"].values[::-1]], scale)
        label_columns(axes, tokens, scale)
        axes.set_ylabel("layer")
        default = f"Mixing ratio, {described(name, ratios.attrs.get(WHOLE_LAYER, ''))} ({name})"
        axes.set_title(fill(default, int(10 * size[0])) if title is None else title, parse_math=False)
        add_colour_bar(figure, [axes], palette, norm, "from other tokens", cells, beside=scale.side(cells.shape[1]))
        add_caption(figure, ratios.attrs)
    return figure


def ratios_at(ratios: Analysis | xr.DataArray, scope: str | None) -> tuple[xr.DataArray, str]:
    """`[layer, query]` at a scope, and the scope's name."""
    if not isinstance(ratios, xr.DataArray):
        values = ratios.mixing_ratio(scope)
        return values, str(values.name)
    if "scope" not in ratios.dims:
        return ratios, str(ratios.coords["scope"].item()) if "scope" in ratios.coords else (scope or str(ratios.name))
    scopes = [str(name) for name in ratios["scope"].values]
    name = scopes[-1] if scope is None else resolve(scope, scopes)
    return ratios.sel(scope=name), name
