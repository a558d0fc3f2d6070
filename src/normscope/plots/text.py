"""A text with its tokens highlighted: the parts of one query's state, in reading order.

Lays out tokens in lines by measuring them; subwords of one word stay together.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from normscope.options import also_spelled
from normscope.plots.heat import add_colour_bar
from normscope.plots.picture import Picture
from normscope.plots.style import SEQUENTIAL, add_caption, colour_map, ink_on, publication, sequential_norm
from normscope.results.find import find_query
from normscope.results.select import select_map
from normscope.results.tokens import label, labels

if TYPE_CHECKING:
    from normscope.results.analysis import Analysis

_FONT = 11.0
LINE_HEIGHT = 0.34
_GAP, _PADDING = 0.06, 0.05
"""The space between words and around tokens, in inches."""


@dataclass(frozen=True)
class Placed:
    """The position of a token: its left edge and width in inches, and its line, counted from the top."""

    name: str
    left: float
    width: float
    line: int


@also_spelled(normalize="normalise")
def plot_tokens(
    analysis: Analysis,
    scope: str | None,
    layer: int,
    query: int | str,
    *,
    head: int | None = None,
    normalise: str = "row",
    colours: str | Colormap = SEQUENTIAL,
    colour_scale: str = "sqrt",
    limit: float | None = None,
    width: float = 6.5,
    title: str | None = None,
) -> Figure:
    """The text with every token coloured by its part in the state of one query, which has a frame.

    Args:
        analysis: what to show.
        scope: the scope of the map (`None`: the whole layer).
        layer: the layer.
        query: the query, by its position (from 0, negative from the end) or by its token.
        head: a head, at the scopes where heads are separate.
        normalise: `"row"` (shares of the query's row), `"column"` or `"none"`.
        colours: a matplotlib colour map or its name.
        colour_scale: `"sqrt"` or `"linear"`.
        limit: the value of the darkest colour (default: the largest of this query).
        width: the width of a line, in inches.
        title: the title (default: query, scope and layer).

    Examples:
        >>> from normscope.plots import plot_tokens
        >>> plot_tokens(analysis, "AttnRes", 3, "bubble").savefig("row.svg")
    """
    selection = select_map(analysis, scope, layer, head=head, normalised=normalise).without_missing_keys()
    values = selection.of_layer(layer)
    row = values.isel(query=find_query(values, query))
    norm = sequential_norm(row.values[None], limit, colour_scale)
    with publication():
        placed = _layout(row, width)
        lines = 1 + max(token.line for token in placed)
        figure = Picture(figsize=(width + 1.3, lines * LINE_HEIGHT + 0.75), layout="constrained")
        axes = figure.subplots()
        axes.set(xlim=(0, width), ylim=(lines * LINE_HEIGHT, 0), aspect="equal")
        axes.set_axis_off()
        _draw(axes, placed, row, colour_map(colours), norm)
        add_colour_bar(figure, [axes], colour_map(colours), norm, selection.meaning, row.values, beside=width)
        heading = f"{label(str(row['query_token'].item()))}: {selection.name}, layer {layer}"
        axes.set_title(heading if title is None else title, parse_math=False, loc="left")
        add_caption(figure, {"model": analysis.attrs.get("model", "")})
    return figure


def _layout(row: xr.DataArray, width: float) -> list[Placed]:
    """Tokens in lines no wider than `width`; words break between lines only if they are longer than one."""
    names = labels(row["key_token"].values)
    widths = widths_of(names)
    placed: list[Placed] = []
    left, line = 0.0, 0
    for word in _words(row):
        needed = sum(widths[index] for index in word)
        new_group = bool(placed) and _group(row, word[0]) != _group(row, word[0] - 1)
        if left and (left + needed > width or new_group):
            left, line = 0.0, line + 1
        for index in word:
            if left and left + widths[index] > width:
                left, line = 0.0, line + 1
            placed.append(Placed(names[index], left, widths[index], line))
            left += widths[index]
        left += _GAP
    return placed


def _words(row: xr.DataArray) -> list[list[int]]:
    """The indices of the tokens of each word, in order; a token without a word is alone."""
    words = row["key_word"].values
    together: list[list[int]] = []
    for index, word in enumerate(words):
        if index and word >= 0 and word == words[index - 1] and _group(row, index) == _group(row, index - 1):
            together[-1].append(index)
        else:
            together.append([index])
    return together


def _group(row: xr.DataArray, index: int) -> str:
    return str(row["key_group"].values[index])


def widths_of(names: list[str]) -> list[float]:
    """The width of each name with its padding, in inches."""
    figure = Figure(dpi=100)
    renderer = cast(Any, FigureCanvasAgg(figure)).get_renderer()
    texts = [figure.text(0, 0, name, fontsize=_FONT, parse_math=False) for name in names]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # drawing warns about it
        return [text.get_window_extent(renderer).width / 100 + 2 * _PADDING for text in texts]


def _draw(axes: Axes, placed: list[Placed], row: xr.DataArray, colours: Colormap, norm: Normalize) -> None:
    itself = int(row["query"].item())
    for token, key, value in zip(placed, row["key"].values, row.values, strict=True):
        colour = colours(norm(value)) if np.isfinite(value) else None
        draw_token(axes, token, colour, frame="#c2410c" if int(key) == itself else None)


def draw_token(axes: Axes, token: Placed, colour: tuple[float, ...] | None, frame: str | None = None) -> None:
    """A token in its place, on its colour (faint where it has none), perhaps with a frame."""
    top, height = token.line * LINE_HEIGHT + 0.03, LINE_HEIGHT - 0.06
    axes.add_patch(
        FancyBboxPatch(
            (token.left + 0.01, top),
            token.width - 0.02,
            height,
            boxstyle="round,pad=0,rounding_size=0.04",
            facecolor="none" if colour is None else colour,
            edgecolor=frame or "none",
            linewidth=1.8,
        )
    )
    axes.text(
        token.left + token.width / 2,
        top + height / 2,
        token.name,
        fontsize=_FONT,
        color="0.6" if colour is None else ink_on(colour),
        ha="center",
        va="center_baseline",
        parse_math=False,
    )
