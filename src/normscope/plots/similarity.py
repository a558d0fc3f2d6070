"""The table of a similarity as a heat map, with the margins and the constant at its edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from normscope.plots.heat import add_colour_bar, draw_cells, label_columns, label_rows
from normscope.plots.picture import Picture
from normscope.plots.style import DIVERGING, colour_map, diverging_norm, publication, scale_for
from normscope.results.tokens import labels

if TYPE_CHECKING:
    from normscope.results.similarity import Similarity

_SIDE = (2.4, 12.0)
"""The smallest and the largest side of the table, in inches."""

_ROOM = (1.6, 0.6)
"""Room for the colour bar and the title, in inches."""


def plot_similarity(
    similarity: Similarity,
    *,
    margins: bool = True,
    colours: str | Colormap = DIVERGING,
    colour_scale: str = "sqrt",
    limit: float | None = None,
    title: str | None = None,
) -> Figure:
    """The table of two texts: rows are tokens of the first, columns of the second.

    Args:
        similarity: what to show.
        margins: also draw the margins, as a last row and column, and the constant in the corner.
        colours: a matplotlib colour map or its name.
        colour_scale: `"sqrt"` keeps small values apart beside strong ones, `"linear"` does not.
        limit: the value of the darkest colours.
        title: the title (default: the value).

    Examples:
        >>> from normscope.plots import plot_similarity
        >>> plot_similarity(similarity, margins=False).savefig("similarity.svg")
    """
    frame = similarity.to_pandas()
    frame = frame if margins else frame.iloc[:-1, :-1]
    cells, names, others = frame.to_numpy(), labels(frame.index), labels(frame.columns)
    scale = scale_for(max(cells.shape), *_SIDE)
    norm = diverging_norm(cells, limit, colour_scale)
    size = (
        scale.side(len(others)) + scale.room(names) + _ROOM[0],
        scale.side(len(names)) + scale.room(others) + _ROOM[1],
    )
    with publication():
        figure = Picture(figsize=size, layout="constrained")
        axes = figure.subplots()
        draw_cells(axes, cells, colour_map(colours), norm)
        label_rows(axes, names, scale)
        label_columns(axes, others, scale)
        if margins:
            axes.axhline(len(names) - 1, color="black", linewidth=0.8)
            axes.axvline(len(others) - 1, color="black", linewidth=0.8)
        name, beside = f"share of the {similarity.measure}", scale.side(len(others))
        add_colour_bar(figure, [axes], colour_map(colours), norm, name, cells, beside=beside)
        axes.set_title(f"{similarity.measure} {similarity.value:.3f}" if title is None else title, parse_math=False)
    return figure
