"""Norms and dimensions of the vectors inside a block, which no map shows: hidden states, values, the feed-forward."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.linear import linearised, passed_around
from normscope.chain.measure import ArrayMeasure
from normscope.chain.trace import (
    Attention,
    Expert,
    FeedForward,
    Fork,
    LayerTrace,
    Linear,
    Normalise,
    OwnFeedForward,
    Plain,
)
from normscope.decompose import decompose
from normscope.decompose.carriers import Sums
from normscope.errors import UnsupportedArchitectureError
from normscope.scopes import Scope


@dataclass(frozen=True)
class HiddenNorms(ArrayMeasure):
    """`[token]`: the norm of every block input, `||x||`."""

    def of_layer(self, trace: LayerTrace) -> np.ndarray:
        return trace.hidden.double().norm(dim=-1).cpu().numpy()


@dataclass(frozen=True)
class ValueNorms(ArrayMeasure):
    """`[head, token]`: the norm of every head's transformed vector, `||f(x)||`, of the block's first attention."""

    def of_layer(self, trace: LayerTrace) -> np.ndarray:
        attention = next(step for step in trace.steps if isinstance(step, Attention))
        if attention.factors is not None or attention.taps > 1:
            raise UnsupportedArchitectureError(
                "What this model's mixers output is gated or normalised by every query, or its values "
                "come by a convolution, so that no transformed vector f(x) belongs to a token alone."
            )
        values, output = attention.values.double(), attention.output.double()
        squares = torch.einsum("hkd,hde,hke->hk", values, output @ output.mT, values)
        return squares.clamp(min=0).sqrt().cpu().numpy()


@dataclass(frozen=True)
class FeedForwardNorms(ArrayMeasure):
    """`[2, token]`: the norm of the feed-forward's output, and of the vector that bypasses it."""

    def of_layer(self, trace: LayerTrace) -> np.ndarray:
        norms = [feed_forward_output(trace).double().norm(dim=-1), _bypass(trace).double().norm(dim=-1)]
        return torch.stack(norms).cpu().numpy()


@dataclass(frozen=True)
class FeedForwardDimensions(ArrayMeasure):
    """`[3, d]`: mean absolute value of each dimension of the FF's input and output, and gamma of the norm after it."""

    def of_layer(self, trace: LayerTrace) -> np.ndarray:
        entering = feed_forward_input(trace).double().abs().mean(0)
        leaving = feed_forward_output(trace).double().abs().mean(0)
        return torch.stack([entering, leaving, gamma_after(trace).double()]).cpu().numpy()


def gamma_after(trace: LayerTrace) -> Float[Tensor, " d"]:
    """The weight of the norm that follows the feed-forward."""
    for step in trace.steps[feed_forward_place(trace) :]:
        if isinstance(step, Normalise):
            return step.norm.weight
    raise UnsupportedArchitectureError(
        f"The block's chain ({' '.join(trace.components).upper()}) has no norm after the feed-forward, so there is no gamma "
        f"to look at: outlier-dimensions is for post-norm models such as BERT."
    )


def feed_forward_output(trace: LayerTrace) -> Float[Tensor, "query d"]:
    """What the feed-forward adds to every query: the model's own state after it, or, if it is parallel, its own sum."""
    index = feed_forward_place(trace)
    state, step = trace.states[index], trace.steps[index]
    if isinstance(step, OwnFeedForward):
        return Sums.of_tokens(step.hidden, trace.queries).feed_forward(linearised(step)).rows.sum(0)
    if state is None:
        raise UnsupportedArchitectureError("The model does not show the state after its feed-forward.")
    return state


def feed_forward_input(trace: LayerTrace) -> Float[Tensor, "query d"]:
    """The model's own state that enters the feed-forward."""
    index = feed_forward_place(trace)
    step = trace.steps[index]
    return step.hidden if isinstance(step, OwnFeedForward) else _state_before(trace, index)


def _bypass(trace: LayerTrace) -> Float[Tensor, "query d"]:
    """The state that the residual around the feed-forward adds back."""
    forks = [index for index, step in enumerate(trace.steps[: feed_forward_place(trace)]) if isinstance(step, Fork)]
    if not forks:
        return trace.hidden
    fork = trace.steps[forks[-1]]
    assert isinstance(fork, Fork)
    return passed_around(fork, _state_before(trace, forks[-1]))


def _state_before(trace: LayerTrace, index: int) -> Float[Tensor, "query d"]:
    for before in range(index - 1, -1, -1):
        state = trace.states[before]
        if state is not None:
            return state
        if not isinstance(trace.steps[before], Fork):
            break
    else:
        return trace.hidden
    raise UnsupportedArchitectureError("The model does not show the state before its feed-forward.")


def feed_forward_place(trace: LayerTrace) -> int:
    """The step of the chain that is the feed-forward."""
    return next(index for index, step in enumerate(trace.steps) if isinstance(step, FeedForward))


# ---- maps without dimensions of the feed-forward's output --------------------------------------------------------------


@dataclass(frozen=True)
class MapWithoutDimensions(ArrayMeasure):
    """`[query, key]`: the map after the feed-forward, with the dimensions of smallest gamma taken out of its output."""

    fraction: float

    def dimensions(self, trace: LayerTrace) -> Int[Tensor, " dimension"]:
        """Those that are taken out."""
        return smallest_gamma(gamma_after(trace), self.fraction)

    def of_layer(self, trace: LayerTrace) -> np.ndarray:
        removed = self.dimensions(trace)
        scope = Scope.of(trace.components[: trace.components.index(FeedForward.name) + 1])
        return decompose(_without(trace, removed), [scope]).maps[scope].cpu().numpy()


def smallest_gamma(gamma: Float[Tensor, " d"], fraction: float) -> Tensor:
    """The dimensions with the smallest gamma: a fraction of them all, at least one."""
    return gamma.argsort(stable=True)[: max(1, round(fraction * len(gamma)))]


def _without(trace: LayerTrace, removed: Tensor) -> LayerTrace:
    """The trace with these dimensions of the feed-forward's output set to zero."""
    index = feed_forward_place(trace)
    step = trace.steps[index]
    assert isinstance(step, FeedForward)
    changed = replace(step, experts=tuple(_expert_without(expert, removed) for expert in step.experts))
    return replace(trace, steps=(*trace.steps[:index], changed, *trace.steps[index + 1 :]))


def _expert_without(expert: Expert, removed: Tensor) -> Expert:
    network = expert.network
    if isinstance(network, Plain):
        return replace(expert, network=replace(network, second=_linear_without(network.second, removed)))
    return replace(expert, network=replace(network, down=_linear_without(network.down, removed)))


def _linear_without(linear: Linear, removed: Tensor) -> Linear:
    weight = linear.weight.clone()
    weight[removed] = 0
    bias = None if linear.bias is None else linear.bias.clone()
    if bias is not None:
        bias[removed] = 0
    return Linear(weight, bias)
