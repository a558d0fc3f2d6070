"""Several maps in one figure: a grid of panels with one scale of colours, and token labels at its left and bottom only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from normscope.errors import SelectionError
from normscope.plots.heat import add_colour_bar, draw_map, key_groups
from normscope.plots.picture import Picture
from normscope.plots.style import Scale, colour_map, publication, scale_for
from normscope.results.tokens import labels

_SINGLE = (3.0, 14.0)
"""The smallest and the largest side of a panel that is alone, in inches."""

_ONE_OF_MANY = (1.6, 4.0)
_MARGIN = (1.6, 0.55)
"""Room for titles and colour bar around the panels and their labels, in inches."""


@dataclass(frozen=True)
class Panels:
    """Maps `[query, key]` by title, which all have the same tokens, and what their colours mean."""

    maps: Mapping[str, xr.DataArray]
    colours: str | Colormap
    norm: Normalize
    quantity: str

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries and of keys."""
        first = next(iter(self.maps.values()))
        if not first.size:
            raise SelectionError("There is nothing to draw: the selection has no tokens.")
        return first.sizes["query"], first.sizes["key"]


def panel_figure(panels: Panels, title: str, columns: int | None = None) -> Figure:
    """The panels in a grid, in reading order."""
    (queries, keys), count = panels.shape, len(panels.maps)
    columns = columns or _columns(count)
    rows = ceil(count / columns)
    scale = scale_for(max(queries, keys), *(_SINGLE if count == 1 else _ONE_OF_MANY))
    with publication():
        figure = Picture(figsize=_size(panels, rows, columns, scale), layout="constrained")
        axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).ravel())
        _draw(axes, panels, columns, scale)
        values = np.stack([panel.values for panel in panels.maps.values()])
        beside = scale.side(keys) if rows == 1 else None
        add_colour_bar(figure, axes, colour_map(panels.colours), panels.norm, panels.quantity, values, beside=beside)
        if count == 1:
            axes[0].set_title(title, parse_math=False, pad=_title_pad(panels))
        else:
            figure.suptitle(title, parse_math=False, fontsize=10)
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
    return (
        (scale.side(keys) + 0.1) * columns + scale.room(labels(first["query_token"].values)) + _MARGIN[0],
        (scale.side(queries) + titles) * rows + below + _MARGIN[1],
    )


def _title_pad(panels: Panels) -> float:
    """The distance of a panel's title, in points: further away where groups of keys are named below it."""
    return 13.0 if len(key_groups(next(iter(panels.maps.values())))) > 1 else 5.0


def _draw(axes: list[Axes], panels: Panels, columns: int, scale: Scale) -> None:
    colours, count = colour_map(panels.colours), len(panels.maps)
    for place, (name, values) in enumerate(panels.maps.items()):
        panel, left, bottom = axes[place], place % columns == 0, place + columns >= count
        draw_map(panel, values, colours, panels.norm, scale, queries=left, keys=bottom)
        panel.set_title(name, parse_math=False, pad=_title_pad(panels))
        if left:
            panel.set_ylabel("query")
        if bottom:
            panel.set_xlabel("key")
    for panel in axes[count:]:
        panel.set_axis_off()
