"""One panel of a heat map: cells, token labels, blank cells where a key does not exist, a line between groups of keys.

Figures consist of these panels, and decide which maps they show, and at what size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from normscope.plots.style import Scale
from normscope.results.tokens import labels

_RASTER_FROM = 120
"""From this many cells on a side, vector files hold the cells as one image; the text stays text."""

_BAR_WIDTH = 0.11
"""The width of a colour bar and its distance from the panel, in inches."""


def draw_cells(axes: Axes, values: np.ndarray, colours: Colormap, norm: Normalize) -> QuadMesh:
    """`[row, column]` as coloured squares, the first row on top; NaN is blank."""
    rows, columns = values.shape
    mesh = axes.pcolormesh(
        np.arange(columns + 1),
        np.arange(rows + 1),
        np.ma.masked_invalid(values),
        cmap=colours,
        norm=norm,
        edgecolors="face",  # no hairlines between the cells of a vector file
        linewidth=0.1,
        rasterized=max(rows, columns) >= _RASTER_FROM,
    )
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
    _outline(axes, np.isfinite(values))
    return mesh


def _outline(axes: Axes, existing: np.ndarray) -> None:
    """A line around the cells that exist, if some do not, so that a blank is not mistaken for a small value."""
    down = np.nonzero(existing[1:] != existing[:-1])
    right = np.nonzero(existing[:, 1:] != existing[:, :-1])
    horizontal = [((column, row + 1), (column + 1, row + 1)) for row, column in zip(*down, strict=True)]
    vertical = [((column + 1, row), (column + 1, row + 1)) for row, column in zip(*right, strict=True)]
    if horizontal or vertical:
        axes.add_collection(LineCollection([*horizontal, *vertical], colors="0.55", linewidths=0.5), autolim=False)


def draw_map(
    axes: Axes, values: xr.DataArray, colours: Colormap, norm: Normalize, scale: Scale, *, queries: bool, keys: bool
) -> QuadMesh:
    """A map `[query, key]`, with or without the labels of its rows and columns."""
    mesh = draw_cells(axes, values.transpose("query", "key").values, colours, norm)
    label_rows(axes, labels(values["query_token"].values) if queries else [], scale)
    label_columns(axes, labels(values["key_token"].values) if keys else [], scale)
    separate_groups(axes, values)
    return mesh


def label_rows(axes: Axes, names: Sequence[str], scale: Scale) -> None:
    indices = range(0, len(names), scale.step)
    axes.set_yticks([index + 0.5 for index in indices], [names[index] for index in indices])
    for text in axes.get_yticklabels():
        text.set(fontsize=scale.font, parse_math=False)


def label_columns(axes: Axes, names: Sequence[str], scale: Scale) -> None:
    indices = range(0, len(names), scale.step)
    axes.set_xticks([index + 0.5 for index in indices], [names[index] for index in indices], rotation=90)
    for text in axes.get_xticklabels():
        text.set(fontsize=scale.font, parse_math=False)


def separate_groups(axes: Axes, values: xr.DataArray) -> None:
    """A line between groups of keys, if there is more than one, and the groups' names above."""
    groups = key_groups(values)
    for name, start, end in groups if len(groups) > 1 else []:
        if start:
            axes.axvline(start, color="black", linewidth=1.2)
        axes.annotate(
            name,
            ((start + end) / 2, 0),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=6.5,
            color="0.3",
            parse_math=False,
        )


def key_groups(values: xr.DataArray) -> list[tuple[str, int, int]]:
    """The name, start and end of every group of keys."""
    names = [str(name) for name in values["key_group"].values]
    changes = (index for index, (left, right) in enumerate(pairwise(names), 1) if left != right)
    edges = [0, *changes, len(names)]
    return [(names[start], start, end) for start, end in pairwise(edges)]


def add_colour_bar(
    figure: Figure,
    axes: Sequence[Axes],
    colours: Colormap,
    norm: Normalize,
    name: str,
    values: np.ndarray,
    *,
    beside: float | None = None,
) -> None:
    """One colour bar for all panels, with what it measures written along it, and an arrow where values go beyond.

    With `beside`, the width of the last panel in inches, the bar is exactly as high as that panel.
    """
    above, below = bool(np.nanmax(values) > norm.vmax), bool(np.nanmin(values) < norm.vmin)
    extend = {(False, False): "neither", (True, False): "max", (False, True): "min", (True, True): "both"}[above, below]
    mappable = ScalarMappable(norm, colours)
    if beside is None:
        bar = figure.colorbar(
            mappable, ax=list(axes), extend=extend, extendfrac=0.02, fraction=0.04, pad=0.02, aspect=30, shrink=0.6
        )
    else:
        bar_axes = axes[-1].inset_axes((1 + _BAR_WIDTH / beside, 0, _BAR_WIDTH / beside, 1))
        bar = figure.colorbar(mappable, cax=bar_axes, extend=extend, extendfrac=0.03)
    bar.set_label(name, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_linewidth(0.6)
