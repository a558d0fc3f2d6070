"""A similarity as a figure: both texts with ribbons between their tokens, or an image, and the table with margins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from normscope.errors import InputError, listing
from normscope.plots.heat import add_colour_bar, draw_cells, label_columns, label_rows
from normscope.plots.patches import WithImage
from normscope.plots.picture import Picture
from normscope.plots.ribbons import draw_texts, lay_out
from normscope.plots.style import DIVERGING, colour_map, diverging_norm, publication, scale_for
from normscope.results.similarity_schema import SIDES
from normscope.results.tokens import labels

if TYPE_CHECKING:
    from normscope.results.similarity import Similarity

_SIDE = (2.4, 12.0)
"""The smallest and the largest side of the table, in inches."""

_ROOM = (1.6, 0.6)
"""Room for the colour bar and the title, in inches."""

_PARTS = ("both", "texts", "table")


def plot_similarity(
    similarity: Similarity,
    *,
    part: str = "both",
    share: float = 0.5,
    margins: bool = True,
    colours: str | Colormap = DIVERGING,
    colour_scale: str = "sqrt",
    limit: float | None = None,
    width: float = 6.5,
    title: str | None = None,
) -> Figure:
    """Both texts with ribbons between their tokens, and the table: rows are tokens of the first text, columns of the second.

    Args:
        similarity: what to show. An image is coloured by the shares of its patches, in total and with the strongest tokens
            of the text, which is below it.
        part: `"both"`, or `"texts"` or `"table"` alone. For an image, `"both"` leaves out the table, which is large.
        share: how much of the table is drawn as ribbons: as few pairs as possible that have this share of the sum of all
            absolute values.
        margins: also draw the margins, as a last row and column of the table, and the constant in the corner.
        colours: a matplotlib colour map with two sides, or its name.
        colour_scale: `"sqrt"` keeps small values distinct next to strong ones, `"linear"` does not.
        limit: the value of the darkest colours of the table (default: the largest of all pairs).
        width: the width of a line of text, in inches.
        title: the title (default: the value and the model).

    Examples:
        >>> from normscope.plots import plot_similarity
        >>> plot_similarity(similarity, part="texts", share=0.7).savefig("similarity.svg")
    """
    if part not in _PARTS:
        raise InputError(f"A figure of a similarity shows {listing(map(repr, _PARTS))}, not {part!r}.")
    if not 0 < share <= 1:
        raise InputError(f"The share of the table that is drawn is above 0 and at most 1, not {share}.")
    heading = f"{similarity.measure} {similarity.value:.3f} ({similarity.attrs['model']})" if title is None else title
    with publication():
        has_image = any(similarity.patches(side) is not None for side in SIDES)
        texts = (WithImage if has_image else _Texts)(similarity, share, width)
        table = _Table(similarity, margins, colour_scale, limit)
        drawn = [each for each in (texts, table) if part in ("both", each.name)]
        if part == "both" and texts.has_image:
            drawn = [texts]
        size = max(each.size[0] for each in drawn), sum(each.size[1] for each in drawn)
        figure = Picture(figsize=size, layout="constrained")
        ratios = [each.size[1] for each in drawn]
        panels = np.atleast_1d(figure.subplots(len(drawn), 1, height_ratios=ratios))
        for each, axes in zip(drawn, panels, strict=True):
            each.draw(figure, axes, colour_map(colours))
        panels[0].set_title(heading, parse_math=False)
    return figure


class _Texts:
    """The panel of both texts."""

    name = "texts"
    has_image = False

    def __init__(self, similarity: Similarity, share: float, width: float) -> None:
        self._similarity, self._share, self._width = similarity, share, width
        self._placed = lay_out(similarity, width)
        self.size = width + 0.3, self._placed.height + 0.5

    def draw(self, _: Figure, axes: Axes, colours: Colormap) -> None:
        shares = np.concatenate([self._similarity.first.values, self._similarity.second.values])
        axes.set(xlim=(0, self._width), ylim=(self._placed.height, 0), aspect="equal")
        axes.set_axis_off()
        norm = diverging_norm(shares[None], float(np.abs(shares).max()), "sqrt")
        draw_texts(axes, self._similarity, self._placed, colours, norm, self._share)


class _Table:
    """The panel of the table."""

    name = "table"
    has_image = False

    def __init__(self, similarity: Similarity, margins: bool, colour_scale: str, limit: float | None) -> None:
        frame = similarity.to_pandas()
        frame = frame if margins else frame.iloc[:-1, :-1]
        self._margins, self._measure = margins, similarity.measure
        self._cells, self._rows, self._columns = frame.to_numpy(), labels(frame.index), labels(frame.columns)
        self._scale = scale_for(max(self._cells.shape), *_SIDE)
        largest = float(np.abs(similarity.table.values).max())  # biases may be larger than anything between tokens
        self._norm = diverging_norm(self._cells, limit or largest or None, colour_scale)
        self._beside = self._scale.side(len(self._columns))
        self.size = (
            self._beside + self._scale.room(self._rows) + _ROOM[0],
            self._scale.side(len(self._rows)) + self._scale.room(self._columns) + _ROOM[1],
        )

    def draw(self, figure: Figure, axes: Axes, colours: Colormap) -> None:
        draw_cells(axes, self._cells, colours, self._norm)
        label_rows(axes, self._rows, self._scale)
        label_columns(axes, self._columns, self._scale)
        if self._margins:
            axes.axhline(len(self._rows) - 1, color="black", linewidth=0.8)
            axes.axvline(len(self._columns) - 1, color="black", linewidth=0.8)
        name = f"share of the {self._measure}"
        add_colour_bar(figure, [axes], colours, self._norm, name, self._cells, beside=self._beside)
