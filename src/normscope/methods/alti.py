"""ALTI (Ferrando et al. 2022): how much closer a part brings a state, by the L1 distance.

`c[i, j] = max(0, ||y_i||_1 - ||y_i - part[i, j]||_1)`, rows adding up to 1, with parts and states after the attention and
its residual, and after the norm that follows in post-norm blocks. ALTI-Logit (Ferrando et al. 2023) follows what attention
puts into a logit directly, along the residual stream past all later layers, to the inputs by these maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from normscope.chain.fold import Point, Rules, fold_back
from normscope.chain.measure import AnyMeasure, CaptureDepth
from normscope.chain.trace import Attention, FeedForward, LayerTrace, Normalise, OwnFeedForward
from normscope.explain.task import Asked, Attributed, read_off
from normscope.methods import declared
from normscope.methods.across_layers import maps_by
from normscope.methods.layer import LayerMethod, MapRequest, refuse_options
from normscope.methods.maps import (
    KeyMap,
    LayerMaps,
    MapMeasure,
    carried,
    components_to_attentions,
    place_after_attentions,
    state_after,
    tiles,
)
from normscope.methods.prediction import SharesOnly
from normscope.methods.rollout import rolled_out, to_inputs
from normscope.pullback.block import Covector, PulledAttention, constant_values, pull_back_norm
from normscope.scopes import Scope


@dataclass(frozen=True)
class AltiMaps(MapMeasure):
    """ALTI's contributions of every layer."""

    quantity: ClassVar[str] = declared.Alti.quantity

    def reach(self, components: Sequence[str]) -> CaptureDepth:
        return CaptureDepth(components_to_attentions(components))

    def of_layer(self, trace: LayerTrace) -> LayerMaps:
        index = place_after_attentions(trace)
        scope = Scope.of(step.name for step in trace.steps[:index])
        carrier, state = carried(trace, index), state_after(trace, index)
        key_map = KeyMap(trace)
        for rows, tile in tiles(carrier):
            size = state[rows].abs().sum(-1)
            closer = (size - (state[rows] - tile.parts).abs_().sum(-1)).clamp_(min=0)
            for kind, keys in tile.extents.items():
                key_map.write(kind, rows, closer[keys].T)
        return LayerMaps({scope: key_map.shares()}, errors={scope: carrier.sums.error_against(state)})


@dataclass(frozen=True)
class Alti(declared.Alti, LayerMethod):
    def measures(self, request: MapRequest) -> list[AnyMeasure]:
        refuse_options(self, request)
        return [AltiMaps()]


# ---- ALTI-Logit --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AltiLogit(declared.AltiLogit, SharesOnly):
    """What every layer's attention adds to the logit directly, followed to the inputs by ALTI's rollout of the layers below.

    As in the paper, what feed-forwards and the token's own embedding add is left out, so that shares do not add up.
    """

    def attribute(self, asked: Asked) -> Attributed:
        played, recording = read_off(asked)
        request = asked.request
        analysis = maps_by(asked.model, asked.sequence, Alti(), None, request.dtype, request.tell)
        rolled = rolled_out(analysis)
        length = rolled.shape[1]
        shares, covector = np.zeros((len(played.answers), rolled.shape[-1])), played.pulled.covector
        for layer, trace in recording.back():
            brought, covector = direct_attention(trace, covector)
            values = brought.double().cpu().numpy()
            shares[:, length:] += values[:, length:]
            shares += values[:, :length] @ (_identity(rolled) if layer == 1 else rolled[layer - 2])
        main, encoder = to_inputs(shares, analysis)
        return Attributed(played.answers, played.head.logits, played.values, main, encoder)


def _identity(rolled: np.ndarray) -> np.ndarray:
    """Before the first layer every state is its own token's."""
    return np.eye(rolled.shape[1], rolled.shape[2])


def direct_attention(trace: LayerTrace, covector: Covector) -> tuple[Float[Tensor, "target every_key"], Covector]:
    """What each key of a layer's attentions puts into the values, and the covectors at the layer's input.

    Keys are the sequence's own tokens, then the encoder's. Only what is linear in a token's state counts.
    """
    covector = covector.to(trace.hidden.device)
    rules = _Direct(trace, covector.new_zeros(len(covector), trace.length + trace.source_length))
    return rules.by_key, fold_back(trace.steps, rules, Point(covector)).value


@dataclass(frozen=True)
class _Direct(Rules[Tensor]):
    """Covectors that go back through norms and residuals alone; at attentions, what they meet there is added to `by_key`."""

    trace: LayerTrace
    by_key: Float[Tensor, "target every_key"]

    def attention(self, step: Attention, value: Covector) -> Covector:
        self.by_key[:, step.keys(self.trace)] += _by_key(step, value)
        return value.new_zeros(value.shape)

    def normalise(self, step: Normalise, value: Covector) -> Covector:
        return pull_back_norm(step, value)

    def feed_forward(self, step: FeedForward, value: Covector) -> Covector:
        return value.new_zeros(value.shape)

    def own_feed_forward(self, step: OwnFeedForward, value: Covector) -> Covector:
        return value


def _by_key(step: Attention, covector: Covector) -> Float[Tensor, "target key"]:
    constant = constant_values(step.linear_source)
    values = step.values if constant is None else step.values - constant
    return PulledAttention.of(step, covector).edges(values).sum(1)
