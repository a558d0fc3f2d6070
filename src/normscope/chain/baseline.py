"""Where the integrated gradients of feed-forwards start, if not at zero: at the state that no token has put anything into.

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

from normscope.chain.linear import deviation, scale_, shift, sloped
from normscope.chain.trace import (
    Attention,
    Expert,
    FeedForward,
    Fork,
    Gated,
    LayerTrace,
    Linear,
    Normalise,
    OwnFeedForward,
    Residual,
    Scale,
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
        current, bypasses, steps = torch.zeros_like(trace.hidden), list[Tensor](), list[Step]()
        for step in trace.steps:
            match step:
                case Fork():
                    bypasses.append(current)
                case Attention():
                    current = self._brought(step)
                case Residual():
                    current = current + bypasses.pop()
                case Scale():
                    current = current * step.factor
                case Normalise():
                    current = _normalised(step, current)
                case OwnFeedForward():
                    read = self._read(step)
                    begun = _starting(step, read)
                    steps.append(begun)
                    current = current + _through(begun, read)
                    continue
                case FeedForward():
                    begun = _starting(step, current)
                    steps.append(begun)
                    current = _through(begun, current)
                    continue
            steps.append(step)
        return replace(trace, steps=tuple(steps))

    def _brought(self, step: Attention) -> Bias:
        """What an attention brings to every query of no token."""
        output = step.output.flatten(0, 1)
        bias = output.new_zeros(step.weights.shape[1], output.shape[-1])
        if step.bias is not None:
            bias = bias + step.bias
        values = self._values(step)
        if values is not None:
            context = step.weights.sum(-1, keepdim=True) * values if values.shape[1] == 1 else step.weights @ values
            bias = bias + context.transpose(0, 1).flatten(1) @ output
        return bias

    def _values(self, step: Attention) -> Float[Tensor, "head constant d_head"] | None:
        """The share of the values that belongs to no token: one for all keys, or one for each."""
        if self.counted == "token":
            return None
        if self.counted == "bias":
            return None if step.value_bias is None else step.value_bias[:, None]
        assert step.source is not None
        return constant_values(step.source)

    def _read(self, step: OwnFeedForward) -> Bias:
        """What a feed-forward beside the attention reads of no token: all of it is the token's, but for a norm's shift where
        states are what counts."""
        bias = torch.zeros_like(step.hidden)
        constant = None if step.norm is None or self.counted != "states" else shift(step.norm.norm)
        return bias if constant is None else bias + constant


def baseline(asked: FeedForwardBaseline, counted: Counted) -> BiasBaseline | None:
    """The baseline by name; nothing for zero."""
    return BiasBaseline(counted) if ff_baseline_of(asked) == "bias" else None


def _normalised(step: Normalise, bias: Bias) -> Bias:
    scaled, constant = scale_(step.norm, bias / deviation(step.norm, step.state_before)[:, None]), shift(step.norm)
    return scaled if constant is None else scaled + constant


def _starting(step: FeedForward, bias: Bias) -> FeedForward:
    """The step with what enters its activations of no token."""
    return replace(step, experts=tuple(replace(each, baselines=_entering(each, bias)) for each in step.experts))


def _entering(expert: Expert, bias: Bias) -> tuple[Float[Tensor, "row f"], ...]:
    network = expert.network
    linears = (network.gate, network.up) if isinstance(network, Gated) else (network.first,)
    return tuple(_affine(linear, bias[expert.rows]) for linear in linears)


def _affine(linear: Linear, vectors: Float[Tensor, "row d"]) -> Float[Tensor, "row f"]:
    return vectors @ linear.weight.T if linear.bias is None else vectors @ linear.weight.T + linear.bias


def _through(step: FeedForward, bias: Bias) -> Bias:
    """What a feed-forward makes of the bias."""
    made = torch.zeros_like(bias)
    for network in sloped(step):
        hidden = network.hidden(bias[None, network.rows]) + network.hidden_bias
        made.index_add_(0, network.rows, network.out(hidden, bias=0)[0])
    return made
