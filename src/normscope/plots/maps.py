"""Heat maps of queries by keys: one layer, all layers as small multiples, and how components change the map.

Cells are drawn by `heat`; panels are put together by `panels`; sizes and colours come from `style`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from normscope.options import normalise_axis
from normscope.plots.panels import Panels, panel_figure
from normscope.plots.style import DIVERGING, SEQUENTIAL, diverging_norm, sequential_norm
from normscope.results.select import check_layers, select_map
from normscope.scopes import resolve

if TYPE_CHECKING:
    from normscope.results.analysis import Analysis

_CHANGES = {
    "none": "change of the norm",
    "row": "change of the share of the row",
    "column": "change of the share of the column",
}


def plot_map(
    analysis: Analysis,
    scope: str,
    layer: int | Sequence[int] | None = None,
    *,
    head: int | None = None,
    normalise: str = "none",
    colours: str | Colormap = SEQUENTIAL,
    colour_scale: str = "sqrt",
    limit: float | None = None,
    title: str | None = None,
) -> Figure:
    """A heat map of queries (rows) by keys (columns); of several layers, or all (`None`), as small multiples.

    Args:
        analysis: what to show.
        scope: the scope of the map.
        layer: a layer, several, or all of them.
        head: a head, at the scopes where heads are separate.
        normalise: `"row"` or `"column"` shows shares that sum to 1 along it, `"none"` the norms.
        colours: a matplotlib colour map or its name.
        colour_scale: `"sqrt"` keeps small values apart beside a strong diagonal, `"linear"` does not.
        limit: the value of the darkest colour (default: the largest but for outliers). All panels share it.
        title: the title (default: scope and layer).

    Examples:
        >>> from normscope.plots import plot_map
        >>> plot_map(analysis, "AttnResLnFf", 3, normalise="row").savefig("map.svg")
    """
    selection = select_map(analysis, scope, layer, head=head, normalised=normalise).without_missing_keys()
    norm = sequential_norm(selection.values.values, limit, colour_scale)
    maps = {layer: selection.of_layer(layer) for layer in selection.layers}
    panels = Panels({f"layer {layer}": values for layer, values in maps.items()}, colours, norm, selection.meaning)
    return panel_figure(panels, _heading(selection.name, selection.layers) if title is None else title)


def plot_amplification(
    analysis: Analysis,
    before: str,
    after: str,
    layer: int | Sequence[int] | None = None,
    *,
    normalise: str = "column",
    colours: str | Colormap = DIVERGING,
    colour_scale: str = "sqrt",
    limit: float | None = None,
    title: str | None = None,
) -> Figure:
    """How the components between two scopes change the map: more in one colour, less in the other, none in white.

    Examples:
        >>> from normscope.plots import plot_amplification
        >>> plot_amplification(analysis, "AttnResLn", "AttnResLnFf", 3).savefig("change.svg")
    """
    axis = normalise_axis(normalise)
    layers = check_layers(analysis, layer)
    change = analysis.amplification(before, after, axis=axis).sel(layer=layers)
    panels = Panels(
        {f"layer {layer}": change.sel(layer=layer) for layer in layers},
        colours,
        diverging_norm(change.values, limit, colour_scale),
        _CHANGES[axis],
    )
    name = f"{resolve(before, analysis.scopes)} \u2192 {resolve(after, analysis.scopes)}"
    return panel_figure(panels, _heading(name, layers) if title is None else title)


def _heading(name: str, layers: Sequence[int]) -> str:
    return f"{name}, layer {layers[0]}" if len(layers) == 1 else name
