"""The few kinds of figure that the papers use, drawn with matplotlib's object interface (no global state, no display)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from normscope.plots.style import SEQUENTIAL

ALPHA, GAMMA, RHO = "\u03b1", "\u03b3", "\u03c1"

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#F0E442")
"""Okabe and Ito's colours, which people with colour-blindness can tell apart."""


def panels(count: int, *, columns: int = 3, width: float = 3.4, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of panels; the last row may be short."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, list(grid[:count])


def lines(axes: Axes, layers: Sequence[int], series: Mapping[str, np.ndarray], *, label: str, title: str = "") -> None:
    """One line per series over the layers."""
    for place, (name, values) in enumerate(series.items()):
        axes.plot(layers, values, marker="o", markersize=3.5, linewidth=1.4, color=PALETTE[place % 8], label=name)
    axes.set(xlabel="layer", ylabel=label, title=title, xticks=list(layers))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        axes.legend(fontsize=7, frameon=False)


def heat(
    axes: Axes,
    values: np.ndarray,
    rows: Sequence[object],
    columns: Sequence[object],
    *,
    title: str = "",
    limits: tuple[float | None, float | None] = (None, None),
    form: str = "{:.2f}",
    colours: Colormap = SEQUENTIAL,
) -> None:
    """A heat map `[row, column]` with the numbers written in."""
    image = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto")
    axes.set_xticks(range(len(columns)), [str(column) for column in columns])
    axes.set_yticks(range(len(rows)), [str(row) for row in rows])
    axes.tick_params(length=0, labelsize=8)
    axes.set_title(title, fontsize=10)
    for row, column in np.ndindex(values.shape):
        value = values[row, column]
        if np.isfinite(value):
            red, green, blue, _ = image.to_rgba(np.array([value]))[0]
            colour = "w" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "k"
            axes.text(column, row, form.format(value), ha="center", va="center", fontsize=7, color=colour)


def density(axes: Axes, x: np.ndarray, y: np.ndarray, *, title: str, xlabel: str, ylabel: str) -> None:
    """Many points as hexagons, darker where there are more of them; the horizontal axis is logarithmic."""
    axes.hexbin(x, y, gridsize=45, bins="log", xscale="log", cmap="Greys", mincnt=1, linewidths=0)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, fontsize=10)
