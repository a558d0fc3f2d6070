"""Maps after the feed-forward without the dimensions of its output that have the smallest gamma in the norm after it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.measure import ArrayMeasure
from normscope.chain.trace import Expert, FeedForward, LayerTrace, Linear, Plain
from normscope.decompose import decompose
from normscope.measures.vectors import feed_forward_place, gamma_after
from normscope.scopes import Scope


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
    place = feed_forward_place(trace)
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
