"""The flow graph of an explanation: tokens from top to bottom, layers from left to right, edges as wide as their values.

Positive edges are in one colour, negative ones in the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from normscope.errors import SelectionError
from normscope.plots.picture import Picture
from normscope.plots.style import DIVERGING, add_caption, publication
from normscope.results.tokens import labels

if TYPE_CHECKING:
    from normscope.results.flow import Edge, Flow

FOR, AGAINST = to_hex(DIVERGING(0.86)), to_hex(DIVERGING(0.14))
"""The colours of positive and of negative edges."""

_ROW, _WIDEST, _LARGEST = 0.2, 9.0, 90.0
"""The height of a token's row in inches, the width of the largest edge in points, the area of the largest node."""

_EVERY_TOKEN_UP_TO = 30
"""Up to this many tokens, tokens without edges have a row, too."""

_LAYER = 0.35
"""The room that the number of a layer needs, in inches."""

_POINTS = 24


def plot_flow(
    flow: Flow,
    *,
    name: str = "",
    width: float | None = None,
    title: str | None = None,
    about: Mapping[Any, Any] | None = None,
) -> Figure:
    """The graph that `Explanation.flow` returns.

    Args:
        flow: the graph.
        name: what is explained, written where the flow ends.
        width: the width of the graph, in inches (default: by the number of layers).
        title: the title (default: which share of the flow is shown).
        about: attributes of the explanation, of which model and text are named below.

    Examples:
        >>> from normscope.plots import plot_flow
        >>> plot_flow(explanation.flow(share=0.5), name="singer").savefig("flow.svg")
    """
    if not flow.edges:
        raise SelectionError("There is nothing to draw: nothing flows here.")
    rows = _rows(flow)
    breadth = max(4.0, 0.42 * flow.layers) if width is None else width
    height = max(1.6, _ROW * len(rows))
    with publication():
        figure = Picture(figsize=(breadth + 2.0, height + 1.1), layout="constrained")
        axes = figure.subplots()
        _draw_edges(axes, flow, rows)
        _draw_nodes(axes, flow, rows)
        _label(axes, flow, rows, name, breadth)
        default = f"Edges that carry {flow.share:.0%} of what flows through every layer"
        axes.set_title(default if title is None else title, parse_math=False, loc="left")
        _legend(figure, ends=bool(_loose_ends(flow)))
        add_caption(figure, about or {})
    return figure


def _rows(flow: Flow) -> dict[int, int]:
    """The rows of tokens, by their indices among the keys."""
    touched = {edge.key for edge in flow} | {edge.query for edge in flow}
    every = range(len(flow.key_tokens))
    drawn = list(every) if len(every) <= _EVERY_TOKEN_UP_TO else sorted(touched)
    gap = len(flow.tokens)
    return {index: row + (1 if index >= gap else 0) for row, index in enumerate(drawn)}


def _draw_edges(axes: Axes, flow: Flow, rows: dict[int, int]) -> None:
    """Small edges first, so that they do not hide large ones."""
    largest = max(abs(edge.value) for edge in flow)
    edges = sorted(flow, key=lambda edge: abs(edge.value))
    lines = LineCollection(
        [_curve(edge, rows) for edge in edges],
        linewidths=[max(0.25, _WIDEST * abs(edge.value) / largest) for edge in edges],
        colors=[FOR if edge.value > 0 else AGAINST for edge in edges],
        alpha=0.55,
        capstyle="butt",
        zorder=1,
    )
    axes.add_collection(lines)


def _curve(edge: Edge, rows: dict[int, int]) -> np.ndarray:
    """From the token before the layer to the token after it, level at both ends."""
    along = np.linspace(0, 1, _POINTS)
    start, end = rows[edge.key], rows[edge.query]
    return np.stack([edge.layer - 1 + along, start + (end - start) * along**2 * (3 - 2 * along)], axis=1)


def _draw_nodes(axes: Axes, flow: Flow, rows: dict[int, int]) -> None:
    nodes = sorted(flow.nodes())
    values = np.array([flow.relevance[depth, index] for depth, index in nodes])
    sizes = 3 + _LARGEST * np.abs(values) / np.abs(values).max()
    ends, colours = _loose_ends(flow), [FOR if value > 0 else AGAINST for value in values]
    axes.scatter(
        [depth for depth, _ in nodes],
        [rows[index] for _, index in nodes],
        s=sizes,
        c=["white" if node in ends else colour for node, colour in zip(nodes, colours, strict=True)],
        edgecolors=[colour if node in ends else "white" for node, colour in zip(nodes, colours, strict=True)],
        linewidths=[0.9 if node in ends else 0.6 for node in nodes],
        zorder=2,
    )


def _loose_ends(flow: Flow) -> set[tuple[int, int]]:
    """Nodes at which drawn edges begin or end although something flows on: through edges that are too small to be drawn."""
    entered = {(edge.layer, edge.query) for edge in flow}
    left = {(edge.layer - 1, edge.key) for edge in flow}
    own = len(flow.tokens)
    return {
        (depth, index)
        for depth, index in flow.nodes()
        if index < own
        and ((depth > 0 and (depth, index) not in entered) or (depth < flow.layers and (depth, index) not in left))
    }


def _label(axes: Axes, flow: Flow, rows: dict[int, int], name: str, breadth: float) -> None:
    names = labels(flow.key_tokens)
    axes.set_yticks(list(rows.values()), [names[index] for index in rows])
    for text in axes.get_yticklabels():
        text.set(parse_math=False)
    axes.set(xlim=(-0.25, flow.layers + 0.25), ylim=(max(rows.values()) + 0.7, -0.7))
    step = ceil(_LAYER * flow.layers / breadth)
    axes.set_xticks([0, *range(step, flow.layers + 1, step)], ["input", *map(str, range(step, flow.layers + 1, step))])
    axes.set_xlabel("after layer")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for depth in range(flow.layers + 1):
        axes.axvline(depth, color="0.92", linewidth=0.6, zorder=0)
    of_source = [row for index, row in rows.items() if index >= len(flow.tokens)]
    if of_source:  # empty if all edges are between the decoder's own tokens
        axes.axhline(min(of_source) - 1, color="0.6", linewidth=0.6)
    if name:
        _name_end(axes, flow, rows, name)


def _name_end(axes: Axes, flow: Flow, rows: dict[int, int], name: str) -> None:
    last = [edge for edge in flow if edge.layer == flow.layers]
    row = rows[max(last, key=lambda edge: abs(flow.relevance[-1, edge.query])).query]
    axes.annotate(
        name,
        (flow.layers, row),
        xytext=(9, 0),
        textcoords="offset points",
        va="center",
        fontweight="bold",
        annotation_clip=False,
        parse_math=False,
    )


def _legend(figure: Figure, *, ends: bool) -> None:
    handles = [
        Line2D([], [], color=FOR, linewidth=4, alpha=0.7, label="for"),
        Line2D([], [], color=AGAINST, linewidth=4, alpha=0.7, label="against"),
    ]
    if ends:
        goes_on = Line2D([], [], linestyle="", marker="o", markerfacecolor="white", markeredgecolor="0.4", markersize=5)
        goes_on.set_label("goes on in edges too small to be drawn")
        handles.append(goes_on)
    figure.legend(handles=handles, loc="outside upper right", ncols=3, frameon=False, fontsize=7)
