"""Contribution weights: attention weight x size of the transformed value x its alignment with the attention's output.

`c[h, i, j] = a[h, i, j] ||f_h(x_j)|| cos(f_h(x_j), o_i)`, with `o_i` the model's own output of the attention (all heads and
the output bias). The map is the sum over heads: signed; with the bias' share `<b, o_i> / ||o_i||` it adds up to `||o_i||`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.measure import AnyMeasure, CaptureDepth
from normscope.chain.trace import Attention, CrossAttention, LayerTrace
from normscope.decompose.key_groups import SELF, SOURCE
from normscope.methods import declared
from normscope.methods.layer import LayerMethod, MapRequest, refuse_options
from normscope.methods.maps import KeyMap, LayerMaps, MapMeasure, place_of, state_after
from normscope.scopes import ATTENTIONS, Scope, scopes_of


@dataclass(frozen=True)
class ContributionWeights(MapMeasure):
    """Contribution weights of every attention, and, if requested, of every head."""

    heads: bool = False
    quantity: ClassVar[str] = declared.ContributionWeightsMethod.quantity

    def reach(self, components: Sequence[str]) -> CaptureDepth:
        return CaptureDepth(1 + max(index for index, component in enumerate(components) if component in ATTENTIONS))

    def of_layer(self, trace: LayerTrace) -> LayerMaps:
        maps = LayerMaps()
        for number, scope in enumerate(scopes_of(trace.components, weights=False), start=1):
            index = place_of(trace, number)
            step = trace.steps[index - 1]
            if isinstance(step, Attention):
                self._note(maps, scope, step, state_after(trace, index), trace)
        return maps

    def _note(self, maps: LayerMaps, scope: Scope, step: Attention, state: Tensor, trace: LayerTrace) -> None:
        size = state.norm(dim=-1, keepdim=True)
        by_head = _scores(step, state / size)
        kind = SOURCE if isinstance(step, CrossAttention) else SELF
        maps.maps[scope] = _over_all_keys(kind, by_head.sum(0), trace)
        bias = 0 if step.bias is None else (state @ step.bias) / size[:, 0]
        maps.errors[scope] = (by_head.sum((0, 2)) + bias - size[:, 0]).abs() / size[:, 0]
        if self.heads:
            maps.heads[scope] = torch.stack([_over_all_keys(kind, scores, trace) for scores in by_head])


def _scores(step: Attention, direction: Float[Tensor, "query d"]) -> Float[Tensor, "head query key"]:
    covector = step.back_from_output(direction[None])[0]
    return step.summed_taps((covector @ step.values.mT).mul_(step.weights))


def _over_all_keys(
    kind: int, scores: Float[Tensor, "query key"], trace: LayerTrace
) -> Float[Tensor, "query every_key"]:
    key_map = KeyMap(trace)
    key_map.write(kind, slice(None), scores)
    return key_map.values


@dataclass(frozen=True)
class ContributionWeightsMethod(declared.ContributionWeightsMethod, LayerMethod):
    @property
    def scope(self) -> Scope:
        return Scope("Attn")

    def measures(self, request: MapRequest) -> list[AnyMeasure]:
        refuse_options(self, request, takes=("heads",))
        return [ContributionWeights(request.heads)]
