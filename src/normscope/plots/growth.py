"""The growth of a map: one layer, scope after scope, as a strip that reads like the layer's chain of components."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from normscope.options import also_spelled
from normscope.plots.maps import Panels, panel_figure
from normscope.plots.style import SEQUENTIAL, sequential_norm, typical_largest
from normscope.results.select import check_layers, check_scopes, select_map
from normscope.scopes import added

if TYPE_CHECKING:
    from normscope.results.analysis import Analysis

_LONGEST_ROW = 4
"""The most panels side by side: more could not be read on a page."""

_LONGEST_LINE = 22
"""The longest line of a panel's title."""


@also_spelled(normalize="normalise")
def plot_growth(
    analysis: Analysis,
    layer: int,
    scopes: Sequence[str] | None = None,
    *,
    normalise: str = "row",
    colours: str | Colormap = SEQUENTIAL,
    colour_scale: str = "sqrt",
    limit: float | None = None,
    title: str | None = None,
) -> Figure:
    """The map of one layer at each scope in order (default all): the effect of every component.

    Args:
        analysis: what to show.
        layer: the layer.
        scopes: the scopes (default: all that were analysed).
        normalise: `"row"` or `"column"` shows shares, which are comparable between scopes; norms (`"none"`) are not, as
            norms and feed-forwards rescale them, so that then every panel is shown relative to its own typical largest.
        colours: a matplotlib colour map or its name.
        colour_scale: `"sqrt"` or `"linear"`.
        limit: the value of the darkest colour.
        title: the title (default: the layer and the text).

    Examples:
        >>> from normscope.plots import plot_growth
        >>> plot_growth(analysis, 3).savefig("growth.svg")
    """
    shown = check_scopes(analysis, scopes)
    selections = [select_map(analysis, scope, layer, normalised=normalise) for scope in shown]
    maps = [selection.of_layer(layer) for selection in selections]
    quantity = selections[-1].meaning
    if normalise == "none":
        maps = [values / typical_largest(values.values) for values in maps]
        quantity = "relative to the panel's largest"
    norm = sequential_norm(np.stack([values.values for values in maps]), limit, colour_scale)
    panels = Panels(dict(zip(steps(shown), maps, strict=True)), colours, norm, quantity, each=True)
    heading = f"How the map grows, layer {layer}" if title is None else title
    return panel_figure(panels, heading, min(len(shown), _LONGEST_ROW), about=analysis.attrs)


@also_spelled(normalize="normalise")
def plot_grid(
    analysis: Analysis,
    layers: Sequence[int] | None = None,
    scopes: Sequence[str] | None = None,
    *,
    normalise: str = "row",
    colours: str | Colormap = SEQUENTIAL,
    colour_scale: str = "sqrt",
    title: str | None = None,
) -> Figure:
    """All maps: layers from top to bottom, scopes from left to right. Arguments are those of `plot_growth`.

    Examples:
        >>> from normscope.plots import plot_grid
        >>> plot_grid(analysis, scopes=["Attn", "AttnRes"]).savefig("grid.png")
    """
    shown, numbers = check_scopes(analysis, scopes), check_layers(analysis, layers)
    maps = {
        f"{scope}, layer {number}": select_map(analysis, scope, number, normalised=normalise).of_layer(number)
        for number in numbers
        for scope in shown
    }
    norm = sequential_norm(np.stack([values.values for values in maps.values()]), None, colour_scale)
    quantity = select_map(analysis, shown[-1], numbers[0], normalised=normalise).meaning
    heading = "Layers (down) by scopes (across)" if title is None else title
    return panel_figure(Panels(maps, colours, norm, quantity), heading, len(shown), about=analysis.attrs)


def steps(scopes: Sequence[str]) -> list[str]:
    """What each scope adds to the one before it, above its name: `+ residual` above `AttnRes`."""
    names = [textwrap.wrap(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", scope), _LONGEST_LINE) for scope in scopes]
    lines = max(map(len, names))
    steps = [added(before, scope) for before, scope in zip(["", *scopes], scopes, strict=False)]
    return [
        "\n".join([*[""] * (lines - len(name)), step, *(line.replace(" ", "") for line in name)])
        for step, name in zip(steps, names, strict=True)
    ]
