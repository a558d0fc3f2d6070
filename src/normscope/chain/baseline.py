"""The baseline of the integrated gradients of feed-forwards, if it is not zero: the state without the contribution of
any token.

That is the bias which the decomposition has reached at the feed-forward. It is one vector for each query, carried along the
chain here, and written into the trace as what enters the activations without any token. All that computes slopes from a
trace then starts there: maps, projections, pull-back, propagated parts. Tensors, and no models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.fold import Point, Rules, forward
from normscope.chain.linear import constant_context, deviation, linearised, scale_, shift
from normscope.chain.trace import (
    Attention,
    Expert,
    FeedForward,
    Gated,
    LayerTrace,
    Linear,
    Normalise,
    OwnFeedForward,
    Step,
)
from normscope.options import FeedForwardBaseline, ff_baseline_of
from normscope.pullback.block import constant_values

Counted = Literal["token", "bias", "states"]
"""What belongs to no token: without the bias of the value projection, with it, or all that is not linear in the states that
enter the block, as a pull-back counts."""

Bias = Float[Tensor, "query d"]


@dataclass(frozen=True)
class BiasBaseline:
    """Integrated gradients start from the bias, as it is counted."""

    counted: Counted = "token"

    def applied(self, trace: LayerTrace) -> LayerTrace:
        """The trace with the baselines of its feed-forwards."""
        rules, point, steps = _BiasRules(self.counted), Point(torch.zeros_like(trace.hidden)), list[Step]()
        for step in trace.steps:
            steps.append(rules.starting(step, point.value) if isinstance(step, FeedForward) else step)
            point = forward(point, steps[-1], rules)
        return replace(trace, steps=tuple(steps))


@dataclass(frozen=True)
class _BiasRules(Rules[Tensor]):
    """The rules by which every component transforms the bias of each query."""

    counted: Counted

    def starting(self, step: FeedForward, bias: Bias) -> FeedForward:
        """The step with the baseline of its activations, given the `bias` at this point of the chain."""
        read = self._read(step) if isinstance(step, OwnFeedForward) else bias
        return replace(step, experts=tuple(replace(each, baselines=_entering(each, read)) for each in step.experts))

    def attention(self, step: Attention, value: Bias) -> Bias:
        bias = step.output.new_zeros(step.weights.shape[1], step.output.shape[-1])
        if step.bias is not None:
            bias = bias + step.bias
        values = self._values(step)
        if values is not None:
            bias = bias + step.through_output(constant_context(step.weights, values))
        return bias

    def normalise(self, step: Normalise, value: Bias) -> Bias:
        scaled = scale_(step.norm, value / deviation(step.norm, step.state_before)[:, None])
        constant = shift(step.norm)
        return scaled if constant is None else scaled + constant

    def feed_forward(self, step: FeedForward, value: Bias) -> Bias:
        output = torch.zeros_like(value)
        for network in linearised(step):
            hidden = network.hidden(value[None, network.rows]) + network.hidden_bias
            output.index_add_(0, network.rows, network.out(hidden, bias=0)[0])
        return output

    def own_feed_forward(self, step: OwnFeedForward, value: Bias) -> Bias:
        return value + self.feed_forward(step, self._read(step))

    def _values(self, step: Attention) -> Float[Tensor, "head constant d_head"] | None:
        """The share of the values that belongs to no token: one for all keys, or one for each."""
        if self.counted == "token":
            return None
        if self.counted == "bias":
            return step.value_bias
        assert step.source is not None
        return constant_values(step.source)

    def _read(self, step: OwnFeedForward) -> Bias:
        """The part of a parallel feed-forward's input that belongs to no token: if states count, the shift of its norm;
        else nothing."""
        bias = torch.zeros_like(step.hidden)
        constant = None if step.norm is None or self.counted != "states" else shift(step.norm.norm)
        return bias if constant is None else bias + constant


def baseline(asked: FeedForwardBaseline, counted: Counted) -> BiasBaseline | None:
    """The baseline by name; nothing for zero."""
    return BiasBaseline(counted) if ff_baseline_of(asked) == "bias" else None


def _entering(expert: Expert, bias: Bias) -> tuple[Float[Tensor, "row f"], ...]:
    network = expert.network
    linears = (network.gate, network.up) if isinstance(network, Gated) else (network.first,)
    rows = bias[expert.rows] if expert.scales is None else bias[expert.rows] * expert.scales[:, None]
    return tuple(_affine(linear, rows) for linear in linears)


def _affine(linear: Linear, vectors: Float[Tensor, "row d"]) -> Float[Tensor, "row f"]:
    return vectors @ linear.weight.T if linear.bias is None else vectors @ linear.weight.T + linear.bias
