"""Maps of vision models, drawn over the image: the part of every patch in the state of one query, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from normscope.errors import InputError, SelectionError
from normscope.options import also_spelled
from normscope.plots.picture import Picture
from normscope.plots.style import SEQUENTIAL, colour_map, publication, sequential_norm
from normscope.results import schema
from normscope.results.select import MapSelection, select_map

if TYPE_CHECKING:
    from normscope.results.analysis import Analysis

_PANEL = 2.1
_COLUMNS = 4


@also_spelled(normalize="normalise")
def plot_image_map(
    analysis: Analysis,
    scope: str | None = None,
    layer: int | Sequence[int] | None = None,
    *,
    query: int = 0,
    normalise: str = "none",
    colours: str | Colormap = SEQUENTIAL,
    opacity: float = 0.65,
    title: str | None = None,
) -> Figure:
    """The row of one query over the image, one panel per layer.

    Args:
        analysis: an analysis of an image.
        scope: the scope of the map (default: the whole layer).
        layer: a layer, several, or all of them.
        query: the position of the query among the tokens (default 0, which is the class token in models that have one).
        normalise: `"row"` or `"column"` shows shares that sum to 1 along it, `"none"` the norms.
        colours: a matplotlib colour map or its name.
        opacity: how much of the image the map covers, from 0 to 1.
        title: the title (default: scope and query).

    Examples:
        >>> import torch
        >>> from normscope.plots import plot_image_map
        >>> from transformers import ViTConfig, ViTModel
        >>> sizes = dict(image_size=12, patch_size=4, hidden_size=12, num_hidden_layers=1, num_attention_heads=3)
        >>> vit = ns.load(ViTModel(ViTConfig(intermediate_size=16, **sizes)))
        >>> patches = vit.analyze({"pixel_values": torch.rand(1, 3, 12, 12)})
        >>> plot_image_map(patches, vit.scopes[-1], 1).savefig("patches.png")
    """
    if "key_row" not in analysis.dataset.coords:
        raise InputError("There are no patches here: this analysis is not one of an image.")
    if query not in analysis.dataset["query"].values:
        raise SelectionError(f"There is no query {query} here.")
    selection = select_map(analysis, scope, layer, normalised=normalise)
    grids = {layer: _grid(selection, layer, query) for layer in selection.layers}
    norm = sequential_norm(np.stack(list(grids.values())), None, "linear")
    columns = min(_COLUMNS, len(grids))
    rows = ceil(len(grids) / columns)
    with publication():
        figure = Picture(figsize=(_PANEL * columns + 0.6, (_PANEL + 0.25) * rows + 0.35), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flatten()
        overlay = None
        for index, (number, grid) in enumerate(grids.items()):
            height, width = _draw_image(analysis, axes[index], grid.shape)
            extent = (0, width, height, 0)
            overlay = axes[index].imshow(
                grid, colour_map(colours), norm, alpha=opacity, extent=extent, interpolation="nearest"
            )
            axes[index].set_title(f"layer {number}")
        for axis in axes:
            axis.set_axis_off()
        if overlay is not None:
            figure.colorbar(overlay, ax=list(axes), label=selection.meaning, shrink=0.8)
        token = str(analysis.dataset["query_token"].sel(query=query).values)
        figure.suptitle(f"{selection.name}, query {token}" if title is None else title)
    return figure


def _grid(selection: MapSelection, layer: int, query: int) -> np.ndarray:
    """One query's row as rows and columns of patches."""
    values = selection.of_layer(layer).sel(query=query)
    rows, columns = values["key_row"].values, values["key_column"].values
    patches = rows >= 0
    grid = np.full((rows.max() + 1, columns.max() + 1), np.nan)
    grid[rows[patches], columns[patches]] = values.values[patches]
    return grid


def _draw_image(analysis: Analysis, axis: Axes, grid: tuple[int, ...]) -> tuple[int, int]:
    """The image, if the analysis has it, in grey, so that only the map has colours; returns its height and width."""
    if schema.IMAGE not in analysis.dataset:
        return grid[0], grid[1]
    image = analysis.dataset[schema.IMAGE].values
    grey = np.repeat(image.mean(-1, keepdims=True), 3, axis=-1).astype(np.uint8)
    axis.imshow(grey, extent=(0, image.shape[1], image.shape[0], 0))
    return image.shape[0], image.shape[1]
