"""Statistics of a block that a map does not show: norms of vectors, dimensions of the feed-forward, maps without some.

Each is computed from a trace while the layer's tensors are alive, in the one forward pass that the maps come from too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from normscope.decompose import decompose
from normscope.errors import UnsupportedArchitectureError
from normscope.experiments.chain import feed_forward
from normscope.scopes import scopes_of
from normscope.trace import Attention, Expert, FeedForward, Fork, LayerTrace, Linear, Normalise, OwnFeedForward, Plain


@dataclass(frozen=True)
class Statistic(ABC):
    """Something to compute from every layer's trace. Equal statistics are computed once for all experiments."""

    @abstractmethod
    def compute(self, trace: LayerTrace) -> np.ndarray:
        """The array of one layer of one sequence."""


@dataclass(frozen=True)
class HiddenNorms(Statistic):
    """`[token]`: the norm of every block input, `||x||`."""

    def compute(self, trace: LayerTrace) -> np.ndarray:
        return trace.hidden.double().norm(dim=-1).cpu().numpy()


@dataclass(frozen=True)
class ValueNorms(Statistic):
    """`[head, token]`: the norm of every head's transformed vector, `||f(x)||`, of the block's first attention."""

    def compute(self, trace: LayerTrace) -> np.ndarray:
        attention = next(step for step in trace.steps if isinstance(step, Attention))
        values, output = attention.values.double(), attention.output.double()
        squares = torch.einsum("hkd,hde,hke->hk", values, output @ output.mT, values)
        return squares.clamp(min=0).sqrt().cpu().numpy()


@dataclass(frozen=True)
class FeedForwardNorms(Statistic):
    """`[2, token]`: the norm of the feed-forward's output, and of the vector that bypasses it."""

    def compute(self, trace: LayerTrace) -> np.ndarray:
        norms = [feed_forward_output(trace).norm(dim=-1), _bypass(trace).double().norm(dim=-1)]
        return torch.stack(norms).cpu().numpy()


@dataclass(frozen=True)
class FeedForwardDimensions(Statistic):
    """`[3, d]`: mean absolute value of each dimension of the FF's input and output, and gamma of the norm after it."""

    def compute(self, trace: LayerTrace) -> np.ndarray:
        entering = feed_forward_input(trace).double().abs().mean(0)
        leaving = feed_forward_output(trace).abs().mean(0)
        return torch.stack([entering, leaving, gamma_after(trace).double()]).cpu().numpy()


@dataclass(frozen=True)
class MapWithoutDimensions(Statistic):
    """`[query, key]`: the map after the feed-forward, with the dimensions of smallest gamma taken out of its output."""

    fraction: float

    def compute(self, trace: LayerTrace) -> np.ndarray:
        removed = smallest_gamma(gamma_after(trace), self.fraction)
        scope = feed_forward(scopes_of(trace.components))[1]
        return decompose(_without(trace, removed), [scope]).maps[scope].cpu().numpy()


def smallest_gamma(gamma: Float[Tensor, " d"], fraction: float) -> Tensor:
    """The dimensions with the smallest gamma: a fraction of them all, at least one."""
    return gamma.argsort(stable=True)[: max(1, round(fraction * len(gamma)))]


def gamma_after(trace: LayerTrace) -> Float[Tensor, " d"]:
    """The weight of the norm that follows the feed-forward."""
    for step in trace.steps[_feed_forward_place(trace) :]:
        if isinstance(step, Normalise):
            return step.norm.weight
    raise UnsupportedArchitectureError(
        f"The block's chain ({' '.join(trace.components).upper()}) has no norm after the feed-forward, so there is no gamma "
        f"to look at: outlier-dimensions is for post-norm models such as BERT."
    )


def feed_forward_output(trace: LayerTrace) -> Float[Tensor, "query d"]:
    """What the feed-forward adds to every query, in float64."""
    step = trace.steps[_feed_forward_place(trace)]
    assert isinstance(step, FeedForward)
    total = torch.zeros_like(trace.hidden, dtype=torch.float64)
    for expert in step.experts:
        total[expert.rows] += expert.weights.double()[:, None] * _network_output(expert)
    return total


def _network_output(expert: Expert) -> Float[Tensor, "row d"]:
    network = expert.network
    pre = [tensor.double() for tensor in expert.pre_activations]
    if isinstance(network, Plain):
        return _apply(network.second, network.activation.function(pre[0]))
    return _apply(network.down, network.activation.function(pre[0]) * pre[1])


def _apply(linear: Linear, x: Tensor) -> Tensor:
    product = x @ linear.weight.double().T
    return product if linear.bias is None else product + linear.bias.double()


def feed_forward_input(trace: LayerTrace) -> Float[Tensor, "query d"]:
    """The model's own state that enters the feed-forward."""
    place = _feed_forward_place(trace)
    step = trace.steps[place]
    return step.hidden if isinstance(step, OwnFeedForward) else _state_before(trace, place)


def _bypass(trace: LayerTrace) -> Float[Tensor, "query d"]:
    """The state that the residual around the feed-forward adds back."""
    forks = [place for place, step in enumerate(trace.steps[: _feed_forward_place(trace)]) if isinstance(step, Fork)]
    return _state_before(trace, forks[-1]) if forks else trace.hidden


def _state_before(trace: LayerTrace, place: int) -> Float[Tensor, "query d"]:
    for before in range(place - 1, -1, -1):
        state = trace.states[before]
        if state is not None:
            return state
        if not isinstance(trace.steps[before], Fork):
            break
    else:
        return trace.hidden
    raise UnsupportedArchitectureError("The model does not show the state before its feed-forward.")


def _feed_forward_place(trace: LayerTrace) -> int:
    return next(place for place, step in enumerate(trace.steps) if isinstance(step, FeedForward))


def _without(trace: LayerTrace, removed: Tensor) -> LayerTrace:
    """The trace with some dimensions of the feed-forward's output set to zero."""
    place = _feed_forward_place(trace)
    step = trace.steps[place]
    assert isinstance(step, FeedForward)
    changed = replace(step, experts=tuple(_expert_without(expert, removed) for expert in step.experts))
    return replace(trace, steps=(*trace.steps[:place], changed, *trace.steps[place + 1 :]))


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
