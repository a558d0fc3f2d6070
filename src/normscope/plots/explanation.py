"""Pictures of an explanation: the text coloured by the share of each token, a heat map of several values, an image.
Positive shares are in one colour, negative ones in the other; shares without signs go from light to dark.
"""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from normscope.errors import InputError, SelectionError
from normscope.plots.heat import add_colour_bar, draw_cells, label_columns, label_rows
from normscope.plots.picture import Picture
from normscope.plots.style import (
    DIVERGING,
    SEQUENTIAL,
    Scale,
    add_caption,
    caption_of,
    colour_map,
    diverging_norm,
    publication,
    scale_for,
    sequential_norm,
)
from normscope.plots.text import LINE_HEIGHT, Placed, draw_token, widths_of
from normscope.results import schema
from normscope.results.explanation_words import SINK, beginnings, heading, meaning, token_names, without_sinks
from normscope.results.tokens import labels, pieces

if TYPE_CHECKING:
    from normscope.results.explanation import Explanation

_SPACE, _BEFORE_BIAS = 0.06, 0.22
"""Room between words, and before the bias, in inches."""

_CHARACTERS_PER_INCH = 12.5
"""Of a title."""

_SIDES = (3.0, 14.0)
_IMAGE_SIDE = 3.2
_BIAS = "bias"


def plot_explanation(
    explanation: Explanation,
    *,
    target: int | None = None,
    colours: str | Colormap | None = None,
    colour_scale: str = "linear",
    limit: float | None = None,
    width: float = 6.5,
    opacity: float = 0.65,
    title: str | None = None,
) -> Figure:
    """The text with every token coloured by its share, or, for several values, a heat map of values by tokens.

    Args:
        explanation: what to show. For an image, the shares are drawn over it.
        target: one of several values, by its index: its text instead of the heat map of all.
        colours: a matplotlib colour map or its name (default: two-sided for signed shares, otherwise one-sided).
        colour_scale: `"linear"`, or `"sqrt"` to distinguish small shares.
        limit: the share of the darkest colour (default: the largest).
        width: the width of a line of text, in inches.
        opacity: how much of an image the shares cover, from 0 to 1.
        title: the title (default: what is explained, and how it adds up).

    Examples:
        >>> from normscope.plots import plot_explanation
        >>> plot_explanation(explanation).savefig("why.svg")
    """
    shares = _shares(explanation, target)
    palette = colour_map((DIVERGING if explanation.signed else SEQUENTIAL) if colours is None else colours)
    ranges = diverging_norm if explanation.signed else sequential_norm
    norm = ranges(np.nan_to_num(without_sinks(explanation, shares.values)), limit, colour_scale)
    look = _Look(palette, norm, meaning(explanation))
    with publication():
        if "token_row" in shares.coords:
            return _image_figure(explanation, shares, look, opacity, title)
        if shares.sizes["target"] > 1:
            return _heat_figure(explanation, shares, look, title)
        return _text_figure(explanation, shares.isel(target=0), look, width, title)


class _Look:
    """The meaning of colours."""

    def __init__(self, colours: Colormap, norm: Normalize, meaning: str) -> None:
        self.colours, self.norm, self.meaning = colours, norm, meaning


def _shares(explanation: Explanation, target: int | None) -> xr.DataArray:
    """`[target, token]`, for all values or for one."""
    shares = explanation.shares
    if not shares.size:
        raise SelectionError("There is nothing to draw: the selection has no tokens.")
    count = shares.sizes["target"]
    if target is None:
        return shares
    if not 0 <= target < count:
        raise SelectionError(f"There is no target {target} here: there are {count}, from 0 to {count - 1}.")
    return shares.isel(target=[target])


# ---- text ----------------------------------------------------------------------------------------------------------------


def _text_figure(
    explanation: Explanation, shares: xr.DataArray, look: _Look, width: float, title: str | None
) -> Figure:
    target = int(shares["target"].item())
    placed = _layout(shares, width, bias=explanation.adds_up)
    lines = 1 + max(token.line for token in placed)
    text_height = lines * LINE_HEIGHT
    said = fill(heading(explanation, target), int(width * _CHARACTERS_PER_INCH)) if title is None else title
    margins = (0.1, 0.34 + 0.18 * said.count("\n"), 0.56)
    """At the sides, above and below the text, in inches."""
    size = width + 2 * margins[0], text_height + margins[1] + margins[2]
    figure = Picture(figsize=size)
    axes = figure.add_axes((margins[0] / size[0], margins[2] / size[1], width / size[0], text_height / size[1]))
    axes.set(xlim=(0, width), ylim=(text_height, 0))
    axes.set_axis_off()
    sinks = set(explanation.sinks)
    for index, (token, value) in enumerate(zip(placed, shares.values, strict=False)):
        if index in sinks:
            draw_token(axes, token, None, frame="0.4")
        else:
            draw_token(axes, token, look.colours(look.norm(value)) if np.isfinite(value) else None)
    if explanation.adds_up:
        draw_token(axes, placed[-1], look.colours(look.norm(explanation.biases[target])), frame="0.6")
    axes.set_title(said, parse_math=False, loc="left")
    model = caption_of({"model": explanation.attrs.get("model", "")}, width)
    figure.text(
        1 - margins[0] / size[0], 0.02, model, ha="right", va="bottom", fontsize=6.5, color="0.4", parse_math=False
    )
    bar_width = min(2.6, width / 2)
    bar = figure.add_axes((margins[0] / size[0], 0.34 / size[1], bar_width / size[0], 0.09 / size[1]))
    parked = float(np.nansum(shares.values[explanation.sinks]))
    _bar(figure, bar, look, f"; framed: {SINK}, {parked:+.2f}" if sinks else "")
    return figure


def _bar(figure: Figure, axes: Axes, look: _Look, note: str) -> None:
    bar = figure.colorbar(ScalarMappable(look.norm, look.colours), cax=axes, orientation="horizontal")
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_linewidth(0.4)
    axes.text(1.03, 0.5, look.meaning + note, transform=axes.transAxes, va="center", fontsize=8)


def _layout(shares: xr.DataArray, width: float, *, bias: bool) -> list[Placed]:
    """Tokens as running text in lines no wider than `width`; the bias comes last."""
    starts = beginnings(shares)
    words = pieces(shares["token_token"].values.tolist(), shares["token_special"].values.tolist())
    names = [piece.text for piece in words] + ([_BIAS] if bias else [])
    gaps = [_SPACE if piece.spaced else -0.02 for piece in words] + ([_BEFORE_BIAS] if bias else [])
    placed: list[Placed] = []
    left, line = 0.0, 0
    for index, (name, needed) in enumerate(zip(names, widths_of(names), strict=True)):
        left += gaps[index] if left else 0.0
        new_text = index in starts
        if left and (left + needed > width or new_text):
            left, line = 0.0, line + (2 if new_text else 1)
        placed.append(Placed(name, left, needed, line))
        left += needed
    return placed


# ---- several values ------------------------------------------------------------------------------------------------------


def _heat_figure(explanation: Explanation, shares: xr.DataArray, look: _Look, title: str | None) -> Figure:
    """Values (rows) by tokens (columns)."""
    cells = shares.values
    columns, rows = token_names(explanation), labels(explanation.targets)
    scale = scale_for(max(cells.shape), *_SIDES)
    figure = Picture(figsize=_heat_size(scale, rows, columns), layout="constrained")
    axes = figure.subplots()
    draw_cells(axes, cells, look.colours, look.norm)
    label_rows(axes, rows, scale)
    label_columns(axes, columns, scale)
    axes.set(xlabel="token", ylabel="explained")
    for border in beginnings(shares):
        axes.axvline(border, color="black", linewidth=1.2)
    default = f"What each token puts into each value ({explanation.method})"
    axes.set_title(default if title is None else title, parse_math=False)
    add_caption(figure, explanation.attrs)
    add_colour_bar(
        figure, [axes], look.colours, look.norm, look.meaning, shares.values, beside=scale.side(len(columns))
    )
    return figure


def _heat_size(scale: Scale, rows: list[str], columns: list[str]) -> tuple[float, float]:
    return scale.side(len(columns)) + scale.room(rows) + 1.7, scale.side(len(rows)) + scale.room(columns) + 0.9


# ---- images --------------------------------------------------------------------------------------------------------------


def _image_figure(
    explanation: Explanation, shares: xr.DataArray, look: _Look, opacity: float, title: str | None
) -> Figure:
    if shares.sizes["target"] > 1:
        raise InputError("An image is shown for one value: choose one with target=...")
    target = int(shares["target"].item())
    grid = _grid(shares.isel(target=0))
    height, width = grid.shape
    figure = Picture(figsize=(2 * _IMAGE_SIDE + 0.9, _IMAGE_SIDE * height / width + 0.6), layout="constrained")
    axes: list[Axes] = list(figure.subplots(1, 2))
    extent = (0, width, height, 0)
    if schema.IMAGE in explanation.dataset:
        image = explanation.dataset[schema.IMAGE].values
        grey = np.repeat(image.mean(-1, keepdims=True), 3, axis=-1).astype(np.uint8)
        axes[0].imshow(image.astype(np.uint8), extent=extent)
        axes[1].imshow(grey, extent=extent)
    overlay = axes[1].imshow(grid, look.colours, look.norm, alpha=opacity, extent=extent, interpolation="nearest")
    for panel in axes:
        panel.set_axis_off()
    bar = figure.colorbar(ScalarMappable(overlay.norm, look.colours), ax=axes, shrink=0.8, pad=0.02)
    bar.set_label(look.meaning, fontsize=8)
    figure.suptitle(fill(heading(explanation, target), 90) if title is None else title, parse_math=False, fontsize=9)
    add_caption(figure, {"model": explanation.attrs.get("model", "")})
    return figure


def _grid(shares: xr.DataArray) -> np.ndarray:
    """The shares as rows and columns of patches."""
    rows, columns = shares["token_row"].values, shares["token_column"].values
    patches = rows >= 0
    grid = np.full((rows.max() + 1, columns.max() + 1), np.nan)
    grid[rows[patches], columns[patches]] = shares.values[patches]
    return grid
