"""The parts after the attentions of a block as vectors, one tile of queries after another, never all n x n of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.fold import Point, fold
from normscope.chain.trace import Attention, LayerTrace, Normalise, Residual
from normscope.decompose.carriers import Carrier, CarrierRules, Sums
from normscope.decompose.dense import TILE_VECTORS, Dense
from normscope.decompose.factored import Factored
from normscope.scopes import ATTENTIONS


def components_to_attentions(components: Sequence[str]) -> int:
    """How many components of a whole chain reach through the last attention, its residual, and a norm of both after that.

    A block whose chain ends with a norm has its norms after the residuals; any other has them inside the branches.
    """
    last = max(place for place, component in enumerate(components) if component in ATTENTIONS)
    residual = components.index("Res", last)
    return residual + (2 if components[-1] == "Ln" else 1)


def place_after_attentions(trace: LayerTrace) -> int:
    """The same as a number of steps of a trace, which may have been captured no further."""
    last = max(place for place, step in enumerate(trace.steps) if isinstance(step, Attention))
    residual = next(place for place in range(last, len(trace.steps)) if isinstance(trace.steps[place], Residual))
    has_norm = residual + 1 < len(trace.steps) and isinstance(trace.steps[residual + 1], Normalise)
    return residual + (2 if has_norm else 1)


def place_of(trace: LayerTrace, components: int) -> int:
    """The number of steps that end with some number of components."""
    named = [index + 1 for index, step in enumerate(trace.steps) if step.name]
    return named[components - 1]


def carried(trace: LayerTrace, end: int) -> Factored:
    """The decomposition after the first `end` steps, none of which is a feed-forward of what attention brought."""
    start = Point[Carrier](Factored.of_tokens(trace))
    carrier = fold(trace.steps[:end], CarrierRules(causal=trace.causal), start).value
    assert isinstance(carrier, Factored)
    return carrier


def tiles(carrier: Factored) -> Iterator[tuple[slice, Dense]]:
    """All parts as vectors, tile by tile."""
    count = len(carrier.sums.queries)
    height = max(1, TILE_VECTORS // max(1, sum(len(group.weights) for group in carrier.groups)))
    for start in range(0, count, height):
        rows = slice(start, min(start + height, count))
        yield rows, _expanded(carrier.select(rows))


def _expanded(carrier: Factored) -> Dense:
    sums = carrier.sums
    visible = [group.visible() for group in carrier.groups]
    ends = list(accumulate(visible, initial=0))
    extents = {group.kind: slice(*ends[index : index + 2]) for index, group in enumerate(carrier.groups)}
    parts = sums.rows.new_zeros(ends[-1], *sums.rows.shape[1:])
    nothing = Sums(torch.zeros_like(sums.rows), sums.queries)
    return Dense(sums=nothing, parts=parts, extents=extents).add(carrier)


def relative_error(value: Float[Tensor, "query d"], truth: Float[Tensor, "query d"]) -> Float[Tensor, " query"]:
    """How far a state is from the model's own, relative to its norm."""
    return (value - truth).norm(dim=-1) / truth.norm(dim=-1)
