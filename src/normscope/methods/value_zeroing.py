"""Value Zeroing (Mohebbi et al. 2023): how far a block's output turns when the value vector of one token is zero.

`c[i, j] = 1 - cos(y_i, y_i without v_j)`, rows adding up to 1. Attention weights (and routers) are kept; everything after
the attention is computed again, with its real norms and activations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from normscope.chain.fold import Point, fold, forward
from normscope.chain.measure import AnyMeasure
from normscope.chain.trace import Attention, CrossAttention, LayerTrace
from normscope.decompose.dense import TILE_VECTORS
from normscope.decompose.key_groups import SELF, SOURCE, KeyGroup
from normscope.decompose.replay import Replay
from normscope.methods import declared
from normscope.methods.layer import LayerMethod, MapRequest, refuse_options
from normscope.methods.maps import KeyMap, LayerMaps, MapMeasure, relative_error, scope_through, state_after


@dataclass(frozen=True)
class ValueZeroing(MapMeasure):
    """Value Zeroing of every layer, from the block's input to its output."""

    quantity: ClassVar[str] = declared.ValueZeroingMethod.quantity

    def of_layer(self, trace: LayerTrace) -> LayerMaps:
        scope, key_map = scope_through(trace.components, len(trace.components)), KeyMap(trace)
        replay, point, attended = Replay(), Point(trace.hidden), dict[int, Point[Tensor]]()
        for index, step in enumerate(trace.steps):
            point = forward(point, step, replay)
            if isinstance(step, Attention):
                attended[index] = point
        plain = point.value
        for index, point in attended.items():
            step = trace.steps[index]
            assert isinstance(step, Attention)
            kind = SOURCE if isinstance(step, CrossAttention) else SELF
            for rows, removed in _removals(step, trace, causal=trace.causal and kind == SELF):
                changed = Point(point.value[rows] - removed, tuple(bypass[rows] for bypass in point.bypasses))
                later = trace.select(rows, after=index).steps[index + 1 :]
                key_map.write(kind, rows, _turned(plain[rows], fold(later, replay, changed).value).T)
        errors = relative_error(plain, state_after(trace, len(trace.steps)))
        return LayerMaps({scope: key_map.shares()}, errors={scope: errors})


def _removals(
    step: Attention, trace: LayerTrace, *, causal: bool
) -> Iterator[tuple[slice, Float[Tensor, "key row d"]]]:
    """What leaves the attention's output with every single value vector, one tile of queries after another."""
    group = KeyGroup.of(step, trace.queries, causal=causal)
    count = len(trace.queries)
    height = max(1, TILE_VECTORS // len(group.weights))
    for start in range(0, count, height):
        rows = slice(start, min(start + height, count))
        tile = group.select(rows)
        removed = step.output.new_zeros(tile.visible(), len(trace.queries[rows]), step.output.shape[-1])
        tile.add_to(removed)
        yield rows, removed


def _turned(plain: Float[Tensor, "row d"], changed: Float[Tensor, "key row d"]) -> Float[Tensor, "key row"]:
    """`1 - cos` as half the squared distance of the unit vectors, which keeps its digits where they are almost the same."""
    before = plain / plain.norm(dim=-1, keepdim=True)
    after = changed / changed.norm(dim=-1, keepdim=True)
    return (after - before).square().sum(-1) / 2


@dataclass(frozen=True)
class ValueZeroingMethod(declared.ValueZeroingMethod, LayerMethod):
    def measures(self, request: MapRequest) -> list[AnyMeasure]:
        refuse_options(self, request)
        return [ValueZeroing()]
