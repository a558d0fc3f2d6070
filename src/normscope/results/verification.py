"""An explanation next to cuts in the real model: what it predicts of its strongest edges, and what was observed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from normscope.errors import SelectionError
from normscope.explain.cutting import Edge, EdgeCuts
from normscope.options import whole_number
from normscope.results.views import view

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Explained:
    """What an explanation says of edges, and its rule for attention weights. Where they are constants, a cut is predicted to
    take just these shares away; where they are counted, shares are a part of what it takes."""

    shares: tuple[float, ...]
    weights: str

    @property
    def counts_weights(self) -> bool:
        """Whether weights have a share of their own."""
        return self.weights != "constant"


@dataclass(frozen=True)
class Verification:
    """The change of one explained value when edges are cut in the real model, one by one and all together.

    `predicted` and `observed` have a number for every edge; `together` has both for all edges at once. `tokens` are those of
    the keys, the encoder's after the others. Predicted is with attention weights, deviations of norms and slopes of
    activations as they were, by whichever rule the explanation counts weights; observed is with what they become.
    """

    target: str
    value: float
    tokens: tuple[str, ...]
    edges: tuple[Edge, ...]
    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    together: tuple[float, float]
    explained: Explained

    @property
    def correlation(self) -> float:
        """Pearson's correlation of predicted and observed changes; NaN for fewer than three edges."""
        if len(self.edges) < 3:
            return float("nan")
        return float(np.corrcoef(self.predicted, self.observed)[0, 1])

    def to_pandas(self) -> pd.DataFrame:
        """One row for every edge, with its tokens."""
        return view("results.frames:cut_frame")(self)

    def __repr__(self) -> str:
        predicted, observed = self.together
        return (
            f"Verification({self.target!r}: {len(self.edges)} edges, correlation {self.correlation:.2f}, together "
            f"{predicted:+.3g} predicted, {observed:+.3g} observed)"
        )


def strongest_edges(edges: Float[np.ndarray, "layer query key"], layers: Sequence[int], count: int) -> list[Edge]:
    """Those with the largest numbers, for or against, between different tokens."""
    count = whole_number(count, "The number of edges to cut (k)")
    sizes = np.abs(np.nan_to_num(edges))
    own = np.arange(edges.shape[1])
    sizes[:, own, own] = 0
    order = np.argsort(-sizes, axis=None, kind="stable")[: max(count, 0)]
    places = zip(*np.unravel_index(order, sizes.shape), sizes.ravel()[order], strict=True)
    chosen = [Edge(int(layers[layer]), int(query), int(key)) for layer, query, key, size in places if size > 0]
    if not chosen:
        raise SelectionError(
            "There is no edge to cut: nothing flows from one token to another, or none was requested (k)."
        )
    return chosen


def named_edges(
    edges: Sequence[tuple[int, int, int]], numbers: Float[np.ndarray, "layer query key"], layers: Sequence[int]
) -> list[Edge]:
    """Edges that a user names, which have to be there and be those of two tokens."""
    _, queries, keys = numbers.shape
    for layer, query, key in edges:
        if layer not in layers or not 0 <= query < queries or not 0 <= key < keys or query == key:
            raise SelectionError(
                f"There is no edge {(layer, query, key)} (layer, query, key) between two tokens: layers go from "
                f"{min(layers)} to {max(layers)}, queries from 0 to {queries - 1}, keys from 0 to {keys - 1}."
            )
    if not edges:
        raise SelectionError("No edge was named.")
    return [Edge(*(int(number) for number in each)) for each in edges]


def verification(
    cuts: EdgeCuts,
    edges: Sequence[Edge],
    explained: Explained,
    target: int,
    tokens: Sequence[str],
    on_progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Cut edges one by one and together, next to what an explanation says of them."""
    values, predicted, observed = cuts.values, cuts.predicted(edges), list[float]()
    for done, edge in enumerate(edges, start=1):
        observed.append(float(cuts.observed([edge])[target]))
        if on_progress is not None:
            on_progress(done, len(edges) + 1)
    together = (float(predicted.together[target]), float(cuts.observed(edges)[target]))
    alone = tuple(float(change) for change in predicted.alone[:, target])
    name, value = values.answers[target].name, float(values.own[target])
    return Verification(name, value, tuple(tokens), tuple(edges), alone, tuple(observed), together, explained)
