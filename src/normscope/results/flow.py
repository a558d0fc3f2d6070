"""The flow graph of an explanation: tokens at every depth, and the few edges that carry most of what flows.

Every layer's edges add up, with its biases, to the relevance after it; a graph keeps the largest of them, layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from normscope.errors import InputError
from normscope.options import is_share
from normscope.results.views import view

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Edge(NamedTuple):
    """What flows from a token before a layer (from 1) to a token after it, by their indices among keys and queries."""

    layer: int
    key: int
    query: int
    value: float


@dataclass(frozen=True)
class Flow:
    """The smallest set of edges that carries a share of the flow of every layer.

    `edges` are in order of layer, then of size; `relevance[depth, token]` is that of the nodes; `carried[layer]` is the
    share of all flow (by absolute value) that the edges kept really carry.

    Examples:
        >>> flow = explanation.flow(share=0.5)
        >>> edge = max(flow, key=lambda edge: edge.value)
        >>> flow.key_tokens[edge.key], flow.tokens[edge.query]
        ('singer', 'singer')
    """

    share: float
    tokens: list[str]
    key_tokens: list[str]
    relevance: np.ndarray
    edges: list[Edge]
    carried: np.ndarray

    def __iter__(self) -> Iterator[Edge]:
        return iter(self.edges)

    def __len__(self) -> int:
        return len(self.edges)

    def __repr__(self) -> str:
        least = f"at least {self.carried.min():.0%} of" if len(self.carried) else "none of"
        return f"Flow({len(self)} edges that carry {least} what flows through each of {self.layers} layers)"

    @property
    def layers(self) -> int:
        """How many layers the value flows through."""
        return len(self.carried)

    def plot(self, **options: object) -> Figure:
        """The graph as a picture; options are those of `plots.plot_flow`.

        Examples:
            >>> explanation.flow(share=0.5).plot().savefig("flow.svg")
        """
        return view("plots:plot_flow")(self, **options)

    def top(self, k: int = 10) -> pd.DataFrame:
        """The `k` strongest edges, for or against, strongest first.

        Examples:
            >>> explanation.flow(share=0.5).top(1)[["layer", "key_token", "query_token"]].values.tolist()
            [[6, 'singer', 'singer']]
        """
        return view("results.frames:top_edges")(self, k)

    def to_pandas(self) -> pd.DataFrame:
        """The edges as a tidy table, in their order: layer, key, query and value.

        Examples:
            >>> flow = explanation.flow(share=0.5)
            >>> len(flow.to_pandas()) == len(flow)
            True
        """
        return view("results.frames:edge_frame")(self)

    def nodes(self) -> set[tuple[int, int]]:
        """The tokens that an edge touches, as (depth, place); depth 0 is before the first layer.

        Examples:
            >>> sorted(explanation.flow(share=0.5).nodes())[0]
            (0, 3)
        """
        length = len(self.tokens)
        below = {(edge.layer - 1, edge.key) for edge in self.edges if edge.key < length}
        return below | {(edge.layer, edge.query) for edge in self.edges}


def flow_of(edges: np.ndarray, relevance: np.ndarray, tokens: list[str], key_tokens: list[str], share: float) -> Flow:
    """The flow graph of `edges[layer, query, key]`: in each layer the fewest edges that make up a share of the flow."""
    if not is_share(share) or share == 0:
        raise InputError(f"The share of the flow is above 0 and at most 1, not {share!r:.60}.")
    kept: list[Edge] = []
    carried = np.zeros(len(edges))
    for index, values in enumerate(edges):
        sizes = np.abs(values).ravel()
        order = np.argsort(-sizes, kind="stable")
        sums = np.cumsum(sizes[order])
        count = min(len(order), 1 + int(np.searchsorted(sums, share * sums[-1] * (1 - 1e-9))))
        largest = [place for place in order[:count] if sizes[place] > 0]
        rows, columns = np.unravel_index(np.array(largest, dtype=int), values.shape)
        kept += [
            Edge(index + 1, int(column), int(row), float(values[row, column]))
            for row, column in zip(rows, columns, strict=True)
        ]
        carried[index] = sums[count - 1] / sums[-1] if sums[-1] > 0 else 1.0
    return Flow(share, tokens, key_tokens, relevance, kept, carried)
