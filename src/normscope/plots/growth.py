"""The growth of a map: one layer, scope after scope, as a strip that reads like the layer's chain of components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from normscope.plots.panels import Panels, panel_figure
from normscope.plots.style import SEQUENTIAL, sequential_norm, typical_largest
from normscope.scopes import weights_scope
from normscope.selection import check_scopes, select_map

if TYPE_CHECKING:
    from normscope.analysis import Analysis

_ONE_ROW_UP_TO = 16
"""Up to so many tokens the strip is one row; panels of more tokens are larger, and go into rows of four."""


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
    """The map of one layer at each scope in order (default all): what every component does to it.

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
    """
    chosen = check_scopes(analysis, scopes)
    selections = [select_map(analysis, scope, layer, normalised=normalise) for scope in chosen]
    maps = [selection.of_layer(layer) for selection in selections]
    quantity = selections[-1].quantity
    if normalise == "none":
        maps = [values / typical_largest(values.values) for values in maps]
        quantity = "relative to the panel's largest"
    norm = sequential_norm(np.stack([values.values for values in maps]), limit, colour_scale)
    panels = Panels(dict(zip(steps(chosen), maps, strict=True)), colours, norm, quantity)
    columns = len(chosen) if max(panels.shape) <= _ONE_ROW_UP_TO else min(4, len(chosen))
    return panel_figure(panels, f"How the map grows, layer {layer}" if title is None else title, columns)


def steps(scopes: Sequence[str]) -> list[str]:
    """What each scope adds to the one before it, above its name: `+ Res` above `AttnRes`."""
    return [f"{_step(before, scope)}\n{scope}" for before, scope in zip(["", *scopes], scopes, strict=False)]


def _step(before: str, scope: str) -> str:
    if scope.endswith("W"):
        return "weights alone"
    if before == weights_scope(scope):
        return "+ vectors"
    return f"+ {scope.removeprefix(before)}" if before and scope.startswith(before) else ""
