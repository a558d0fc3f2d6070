"""Heat maps of queries by keys: one layer, all layers as small multiples, and how components change the map.

Cells are drawn by `heat`, several maps in one figure as panels; sizes and colours come from `style`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from normscope.errors import SelectionError
from normscope.options import also_spelled, normalise_axis
from normscope.plots.heat import add_colour_bar, draw_map, key_groups
from normscope.plots.picture import Picture
from normscope.plots.style import (
    DIVERGING,
    SEQUENTIAL,
    Scale,
    add_caption,
    colour_map,
    diverging_norm,
    publication,
    scale_for,
    sequential_norm,
)
from normscope.results.select import check_layers, select_map
from normscope.results.tokens import labels
from normscope.scopes import WHOLE_LAYER, added, described, resolve

if TYPE_CHECKING:
    from normscope.results.analysis import Analysis

_CHANGES = {
    "none": "change of the norm",
    "row": "change of the share of the row",
    "column": "change of the share of the column",
}


@also_spelled(normalize="normalise")
def plot_map(
    analysis: Analysis,
    scope: str | None = None,
    layer: int | Sequence[int] | None = None,
    *,
    head: int | None = None,
    normalise: str = "none",
    colours: str | Colormap = SEQUENTIAL,
    colour_scale: str = "sqrt",
    limit: float | None = None,
    title: str | None = None,
) -> Figure:
    """A heat map of queries (rows) by keys (columns); of several layers, or all (`None`), as small multiples.

    Args:
        analysis: what to show.
        scope: the scope of the map (default: the whole layer).
        layer: a layer, several, or all of them.
        head: a head, at the scopes where heads are separate.
        normalise: `"row"` or `"column"` shows shares that sum to 1 along it, `"none"` the norms.
        colours: a matplotlib colour map or its name. By default, maps with negative values (`AttnW` of mixers without
            softmax) are drawn in two colours, with white for zero.
        colour_scale: `"sqrt"` keeps small values distinct next to a strong diagonal, `"linear"` does not.
        limit: the value of the darkest colour (default: the largest apart from outliers). All panels share it.
        title: the title (default: scope and layer).

    Examples:
        >>> from normscope.plots import plot_map
        >>> plot_map(analysis, "AttnResLnFf", 3, normalise="row").savefig("map.svg")
    """
    selection = select_map(analysis, scope, layer, head=head, normalised=normalise).without_missing_keys()
    signed = bool((selection.values.values < 0).any())  # weights of a linear mixer
    norm = (diverging_norm if signed else sequential_norm)(selection.values.values, limit, colour_scale)
    colours = DIVERGING if signed and colours == SEQUENTIAL else colours
    maps = {layer: selection.of_layer(layer) for layer in selection.layers}
    panels = Panels({f"layer {layer}": values for layer, values in maps.items()}, colours, norm, selection.meaning)
    name = _named(described(selection.scope, analysis.attrs.get(WHOLE_LAYER, "")), selection.scope, head=head)
    heading = _heading(name, selection.layers) if title is None else title
    return panel_figure(panels, heading, about=analysis.attrs)


@also_spelled(normalize="normalise")
def plot_amplification(
    analysis: Analysis,
    before: str,
    after: str,
    layer: int | Sequence[int] | None = None,
    *,
    normalise: str = "column",
    colours: str | Colormap = DIVERGING,
    colour_scale: str = "sqrt",
    limit: float | None = None,
    title: str | None = None,
) -> Figure:
    """How the components between two scopes change the map: more in one colour, less in the other, none in white.

    Examples:
        >>> from normscope.plots import plot_amplification
        >>> plot_amplification(analysis, "AttnResLn", "AttnResLnFf", 3).savefig("change.svg")
    """
    axis = normalise_axis(normalise)
    layers = check_layers(analysis, layer)
    change = analysis.amplification(before, after, axis=axis).sel(layer=layers)
    panels = Panels(
        {f"layer {layer}": change.sel(layer=layer) for layer in layers},
        colours,
        diverging_norm(change.values, limit, colour_scale),
        _CHANGES[axis],
    )
    first, last = (resolve(scope, analysis.scopes) for scope in (before, after))
    name = _named(added(first, last), f"{first} \u2192 {last}")
    return panel_figure(panels, _heading(name, layers) if title is None else title, about=analysis.attrs)


def _named(words: str, code: str, *, head: int | None = None) -> str:
    """What a figure shows, in words first."""
    return f"{words} ({code})" if head is None else f"{words}, head {head} ({code})"


def _heading(name: str, layers: Sequence[int]) -> str:
    return f"Layer {layers[0]}, {name}" if len(layers) == 1 else f"{name[:1].upper()}{name[1:]}"


# ---- panels: one scale of colours, and token labels at the left and bottom only --------------------------------------


_SINGLE = (3.0, 14.0)
"""The smallest and the largest side of a panel that is alone, in inches."""

_ONE_OF_MANY = (1.6, 4.0)
_CHARACTERS_PER_INCH = 11
"""Of a title."""

_MARGIN = (1.6, 1.0)
"""Room for titles and colour bar around the panels and their labels, in inches."""


@dataclass(frozen=True)
class Panels:
    """Maps `[query, key]` by title, which all have the same tokens, and what their colours mean.

    With `each`, every panel names its tokens, not only those at the left and at the bottom.
    """

    maps: Mapping[str, xr.DataArray]
    colours: str | Colormap
    norm: Normalize
    quantity: str
    each: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries and of keys."""
        first = next(iter(self.maps.values()))
        if not first.size:
            raise SelectionError("There is nothing to draw: the selection has no tokens.")
        return first.sizes["query"], first.sizes["key"]


def panel_figure(
    panels: Panels, title: str, columns: int | None = None, *, about: Mapping[Any, Any] | None = None
) -> Figure:
    """The panels in a grid, in reading order, with the model and the text of the attributes of a result."""
    (queries, keys), count = panels.shape, len(panels.maps)
    columns = columns or _columns(count)
    rows = ceil(count / columns)
    scale = scale_for(max(queries, keys), *(_SINGLE if count == 1 else _ONE_OF_MANY))
    with publication():
        figure = Picture(figsize=_size(panels, rows, columns, scale), layout="compressed")
        axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).ravel())
        _draw(axes, panels, columns, scale)
        values = np.stack([panel.values for panel in panels.maps.values()])
        beside = scale.side(keys) if rows == 1 else None
        add_colour_bar(figure, axes, colour_map(panels.colours), panels.norm, panels.quantity, values, beside=beside)
        title = fill(title, int(figure.get_figwidth() * _CHARACTERS_PER_INCH))
        if count == 1:
            axes[0].set_title(title, parse_math=False, pad=_title_pad(panels))
        else:
            figure.suptitle(title, parse_math=False, fontsize=10)
        add_caption(figure, about or {})
    return figure


def _columns(count: int) -> int:
    """How many panels stand side by side: a little more than below each other, and as few places empty as can be."""
    best = sqrt(count * 1.5)
    return min(range(ceil(sqrt(count)), ceil(best) + 2), key=lambda columns: (-count % columns, abs(columns - best)))


def _size(panels: Panels, rows: int, columns: int, scale: Scale) -> tuple[float, float]:
    """The width and height of the figure, in inches."""
    queries, keys = panels.shape
    first = next(iter(panels.maps.values()))
    full = len(panels.maps) == rows * columns
    below = scale.room(labels(first["key_token"].values)) * (
        1 if full else 2
    )  # an unfilled last row leaves labels above
    titles = 0.14 * (1 + max(name.count("\n") for name in panels.maps)) + 0.1
    beside = scale.room(labels(first["query_token"].values))
    across, down = (columns, rows) if panels.each else (1, 1)
    return (
        (scale.side(keys) + 0.1) * columns + beside * across + _MARGIN[0],
        (scale.side(queries) + titles) * rows + below * down + _MARGIN[1],
    )


def _title_pad(panels: Panels) -> float:
    """The distance of a panel's title, in points: further away where groups of keys are named below it."""
    return 13.0 if len(key_groups(next(iter(panels.maps.values())))) > 1 else 5.0


def _draw(axes: list[Axes], panels: Panels, columns: int, scale: Scale) -> None:
    colours, count = colour_map(panels.colours), len(panels.maps)
    for index, (name, values) in enumerate(panels.maps.items()):
        panel, left, bottom = axes[index], index % columns == 0, index + columns >= count
        each = panels.each
        draw_map(panel, values, colours, panels.norm, scale, queries=left or each, keys=bottom or each)
        panel.set_title(name, parse_math=False, pad=_title_pad(panels))
        if left:
            panel.set_ylabel("query")
        if bottom:
            panel.set_xlabel("key")
    for panel in axes[count:]:
        panel.set_axis_off()
