"""Value Zeroing (Mohebbi et al. 2023): how far a block's output turns when the value vector of one token is zero.

`c[i, j] = 1 - cos(y_i, y_i without v_j)`, rows adding up to 1. Attention weights (and routers) are kept; everything after
the attention is computed again, with its real norms and activations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.linear import deviation, scale_, shift
from normscope.chain.trace import (
    Attention,
    CrossAttention,
    Expert,
    FeedForward,
    Fork,
    Gated,
    LayerTrace,
    Linear,
    Norm,
    Normalise,
    OwnFeedForward,
    Plain,
    Residual,
    Scale,
)
from normscope.decompose.carriers import SELF, SOURCE
from normscope.decompose.dense import TILE_VECTORS
from normscope.measures.maps import LayerMaps, MapMeasure, MapSheet, scope_through
from normscope.measures.parts import relative_error
from normscope.measures.projection import state_after


@dataclass(frozen=True)
class ValueZeroing(MapMeasure):
    """Value Zeroing of every layer, from the block's input to its output."""

    quantity: ClassVar[str] = "cosine distance"

    def of_layer(self, trace: LayerTrace) -> LayerMaps:
        scope, sheet = scope_through(trace.components, len(trace.components)), MapSheet(trace)
        replay = _Replay(trace)
        plain = replay.run(slice(None))
        for place, step in enumerate(trace.steps):
            if isinstance(step, Attention):
                kind = SOURCE if isinstance(step, CrossAttention) else SELF
                for rows, removed in _removals(step, trace, causal=trace.causal and kind == SELF):
                    changed = replay.run(rows, place, removed)
                    sheet.write(kind, rows, _turned(plain[rows], changed).T)
        errors = relative_error(plain, state_after(trace, len(trace.steps)))
        return LayerMaps({scope: sheet.shares()}, errors={scope: errors})


def _removals(
    step: Attention, trace: LayerTrace, *, causal: bool
) -> Iterator[tuple[slice, Float[Tensor, "key row d"]]]:
    """What leaves the attention's output with every single value vector, one tile of queries after another."""
    factors = torch.bmm(step.values, step.output).transpose(0, 1)
    count = len(trace.queries)
    height = max(1, TILE_VECTORS // len(factors))
    for start in range(0, count, height):
        rows = slice(start, min(start + height, count))
        keys = int(trace.queries[rows].max()) + 1 if causal else len(factors)
        yield rows, torch.bmm(step.weights[:, rows, :keys].permute(2, 1, 0), factors[:keys])


def _turned(plain: Float[Tensor, "row d"], changed: Float[Tensor, "key row d"]) -> Float[Tensor, "key row"]:
    """`1 - cos` as half the squared distance of the unit vectors, which keeps its digits where they are almost the same."""
    before = plain / plain.norm(dim=-1, keepdim=True)
    after = changed / changed.norm(dim=-1, keepdim=True)
    return (after - before).square().sum(-1) / 2


class _Replay:
    """A block computed again from its trace, with the attention weights (and routers) of the model's own pass."""

    def __init__(self, trace: LayerTrace) -> None:
        self.trace = trace
        self.attended = {
            place: attention_output(step) for place, step in enumerate(trace.steps) if isinstance(step, Attention)
        }
        self.beside = {
            place: feed_forward(step, step.hidden, range(len(step.hidden)))
            for place, step in enumerate(trace.steps)
            if isinstance(step, OwnFeedForward)
        }

    def run(
        self, rows: slice, place: int | None = None, removed: Float[Tensor, "key row d"] | None = None
    ) -> Float[Tensor, "*key row d"]:
        """The block's output for some queries; with something removed from the attention at `place`, once for each key."""
        numbers = range(*rows.indices(len(self.trace.queries)))
        current, bypasses = self.trace.hidden[rows], list[Tensor]()
        for index, step in enumerate(self.trace.steps):
            match step:
                case Fork():
                    bypasses.append(current)
                case Attention():
                    current = self.attended[index][rows]
                    if index == place and removed is not None:
                        current = current - removed
                case Residual():
                    current = current + bypasses.pop()
                case Scale():
                    current = current * step.factor
                case Normalise():
                    current = normalise(step.norm, current)
                case OwnFeedForward():
                    current = current + self.beside[index][rows]
                case FeedForward():
                    current = feed_forward(step, current, numbers)
        return current


def attention_output(step: Attention) -> Float[Tensor, "query d"]:
    output = (step.weights @ step.values).transpose(0, 1).flatten(1) @ step.output.flatten(0, 1)
    return output if step.bias is None else output + step.bias


def normalise(norm: Norm, states: Float[Tensor, "*key row d"]) -> Float[Tensor, "*key row d"]:
    scaled = scale_(norm, states / deviation(norm, states)[..., None])
    constant = shift(norm)
    return scaled if constant is None else scaled.add_(constant)


def feed_forward(
    step: FeedForward, states: Float[Tensor, "*key row d"], numbers: Sequence[int]
) -> Float[Tensor, "*key row d"]:
    """Every expert for the rows that it serves, with its weight; `numbers` are those of the rows among all queries."""
    output = torch.zeros_like(states)
    for expert in step.experts:
        served = (expert.rows >= numbers[0]) & (expert.rows <= numbers[-1])
        rows = expert.rows[served] - numbers[0]
        if len(rows):
            output[..., rows, :] += expert.weights[served, None] * _network(expert, states[..., rows, :])
    return output


def _network(expert: Expert, states: Float[Tensor, "*key row d"]) -> Float[Tensor, "*key row d"]:
    match network := expert.network:
        case Plain():
            return _affine(network.second, network.activation.function(_affine(network.first, states)))
        case Gated():
            gate, up = _affine(network.gate, states), _affine(network.up, states)
            up = up.clamp(-network.up_limit, network.up_limit) + network.up_offset
            return _affine(network.down, network.activation.function(gate) * up)


def _affine(linear: Linear, states: Float[Tensor, "*key row inputs"]) -> Float[Tensor, "*key row outputs"]:
    return torch.nn.functional.linear(states, linear.weight, linear.bias)
