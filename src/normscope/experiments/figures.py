"""The few kinds of figure that the papers use, drawn with matplotlib's object interface (no global state, no display)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from normscope.experiments.tables import Row
from normscope.plots.picture import Picture
from normscope.plots.style import SEQUENTIAL

_MOST_TICKS = 13
"""How many layers have a number on an axis."""

ALPHA, GAMMA, RHO, TIMES = "\u03b1", "\u03b3", "\u03c1", "\u00d7"

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#F0E442")
"""Okabe and Ito's colours, which people with colour-blindness can tell apart."""


def panels(count: int, *, columns: int = 3, width: float = 3.4, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of panels; the last row may be short."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = Picture(figsize=(columns * width, rows * height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, list(grid[:count])


def blocks(
    count: int, size: int, *, columns: int = 3, width: float = 3.4, height: float = 2.6
) -> tuple[Figure, list[tuple[SubFigure, list[Axes]]]]:
    """A figure of blocks, one below the other, each with its own title and a grid of `size` panels that share their axes."""
    columns = min(columns, size)
    rows = -(-size // columns)
    figure = Picture(figsize=(columns * width, count * (rows * height + 0.3)), layout="constrained")
    grids: list[tuple[SubFigure, list[Axes]]] = []
    for block in figure.subfigures(count, 1, squeeze=False).reshape(-1):
        grid = block.subplots(rows, columns, squeeze=False, sharey=True).reshape(-1)
        for axes in grid[size:]:
            axes.set_visible(False)
        grids.append((block, list(grid[:size])))
    return figure, grids


def layer_ticks(axes: Axes, layers: Sequence[int]) -> None:
    """The layers along the horizontal axis, the first on the left: all of them, or as many as there is room for."""
    step = -(-len(layers) // _MOST_TICKS)
    axes.set_xticks(list(layers)[::step], [str(layer) for layer in layers[::step]])
    axes.set_xlabel("layer")


def log_scale(axes: Axes, direction: Literal["x", "y"]) -> None:
    """A logarithmic axis with powers of ten in plain characters (in figures a dollar sign is no mathematics)."""
    axes.set(**{f"{direction}scale": "log"})
    axis = axes.xaxis if direction == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(10, numticks=7))
    axis.set_major_formatter(FuncFormatter(_plainly))

    def between(value: float, _place: object = None) -> str:
        low, high = axis.get_view_interval()
        mantissa = value / 10.0 ** math.floor(math.log10(value))
        return f"{value:g}" if high < 30 * low and any(abs(mantissa - number) < 1e-6 for number in (2, 5)) else ""

    axis.set_minor_formatter(FuncFormatter(between))


def signed_log_scale(axes: Axes, *, threshold: float) -> None:
    """A vertical axis that is logarithmic on both sides of zero, beyond a threshold."""
    axes.set_yscale("symlog", linthresh=threshold)
    axes.yaxis.set_major_formatter(FuncFormatter(_signed))
    if axes.dataLim.ymin >= 0:
        axes.set_ylim(bottom=0)


def power_of_ten(value: float) -> str:
    """As a plain number near 1, as a power otherwise."""
    exponent = round(math.log10(value)) if value > 0 else 0
    if value <= 0 or abs(math.log10(value) - exponent) > 1e-6:
        return ""
    if -2 <= exponent <= 4:
        return f"{value:,.{max(0, -exponent)}f}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _plainly(value: float, _place: object = None) -> str:
    return power_of_ten(value)


def _signed(value: float, _place: object = None) -> str:
    return "0" if value == 0 else ("-" if value < 0 else "") + power_of_ten(abs(value))


def count_bar(colours: ScalarMappable, axes: Axes | Sequence[Axes], label: str) -> None:
    """A colour bar of counts, which are coloured by their logarithm."""
    panels = [axes] if isinstance(axes, Axes) else list(axes)
    figure = panels[0].figure
    assert isinstance(figure, Figure)
    bar = figure.colorbar(colours, ax=panels, label=label, pad=0.02)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(_plainly))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())


def legend_below(figure: Figure, axes: Axes, *, columns: int = 4) -> None:
    """What the marks of a panel mean, for all panels, where it covers none of them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        fontsize=7,
        frameon=False,
        markerscale=2,
        handlelength=2.6,
    )


Band = tuple[np.ndarray, np.ndarray]
"""The lower and the upper edge of what a line may be."""


def error_band(mean: np.ndarray, error: np.ndarray) -> Band:
    """One standard error to both sides."""
    return mean - error, mean + error


def lines(
    axes: Axes,
    layers: Sequence[int],
    series: Mapping[str, np.ndarray],
    *,
    label: str,
    title: str = "",
    bands: Mapping[str, Band] | None = None,
    legend: bool = True,
) -> None:
    """One line per series over the layers, each in its band where bands are given: that of its error, or its interval."""
    for index, (name, values) in enumerate(series.items()):
        colour = PALETTE[index % len(PALETTE)]
        axes.plot(layers, values, marker="o", markersize=3.5, linewidth=1.4, color=colour, label=name)
        if bands is not None and np.isfinite(bands[name]).any():
            low, high = bands[name]
            axes.fill_between(list(layers), low, high, color=colour, alpha=0.18, linewidth=0)
    axes.set(ylabel=label)
    axes.set_title(title, fontsize=10)
    layer_ticks(axes, layers)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if legend and len(series) > 1:
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def bars(axes: Axes, layers: Sequence[int], values: np.ndarray, *, title: str, errors: np.ndarray) -> None:
    """A bar for each layer, with a line of one standard error to both sides where it is known."""
    axes.bar(list(layers), values, width=0.8, color=PALETTE[0])
    known = np.isfinite(errors) & np.isfinite(values)
    axes.errorbar(np.array(layers)[known], values[known], errors[known], fmt="none", ecolor="0.2", elinewidth=0.8)
    axes.set_title(title, fontsize=10)
    layer_ticks(axes, layers)
    axes.grid(axis="y", alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


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
) -> AxesImage:
    """A heat map `[row, column]` with the numbers written in; the first row is at the top."""
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
    return image


def density(axes: Axes, x: np.ndarray, y: np.ndarray, chosen: np.ndarray, *, xlabel: str, ylabel: str) -> None:
    """The chosen points as hexagons, darker where there are more of them, on axes that have room for all points; the
    horizontal axis is logarithmic."""
    low, high = float(y.min()), float(y.max())
    room = 0.04 * (high - low) or 0.5
    ends = 0.8, 1.3 * float(x.max())
    extent = (math.log10(ends[0]), math.log10(ends[1]), low - room, high + room)
    hexagons = axes.hexbin(
        x[chosen], y[chosen], gridsize=36, bins="log", xscale="log", cmap="Greys", mincnt=1, linewidths=0, extent=extent
    )
    log_scale(axes, "x")
    axes.set(xlabel=xlabel, ylabel=ylabel, xlim=ends, ylim=extent[2:])
    if chosen.any():
        count_bar(hexagons, axes, "tokens")


def method_bars(records: Sequence[Row], panel: str, *, label: str, limits: tuple[float, float] | None = None) -> Figure:
    """One panel for each value of a column; methods from the highest mean down, with the ends of their intervals."""
    names = list(dict.fromkeys(record[panel] for record in records))
    most = max((sum(record[panel] == name for record in records) for name in names), default=1)
    figure, grid = panels(max(1, len(names)), width=4.2, height=0.9 + 0.24 * most)
    for axes, name in zip(grid, names, strict=False):
        several = sorted((record for record in records if record[panel] == name), key=lambda record: record["mean"])
        means = np.array([record["mean"] for record in several])
        ends = np.array([[_end(record, "low"), _end(record, "high")] for record in several]).reshape(-1, 2)
        spread = np.abs(ends.T - means)
        axes.barh(range(len(several)), means, xerr=spread, color=PALETTE[0], height=0.7, ecolor="0.3", capsize=2)
        axes.set_yticks(range(len(several)), [record["method"] for record in several], fontsize=7)
        axes.set_title(f"{name} ({several[0]['sequences']} texts)", fontsize=9)
        axes.set_xlabel(label, fontsize=8)
        axes.axvline(0, color="0.3", linewidth=0.8)
        if limits is not None:
            axes.set_xlim(*limits)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _end(record: Row, name: str) -> float:
    value = record[name]
    return record["mean"] if value is None or not np.isfinite(value) else float(value)
