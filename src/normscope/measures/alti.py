"""ALTI (Ferrando et al. 2022): how much closer a part brings a state, by the L1 distance.

`c[i, j] = max(0, ||y_i||_1 - ||y_i - part[i, j]||_1)`, rows adding up to 1, with parts and states after the attention and
its residual, and after the norm that follows in post-norm blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from normscope.chain.measure import CaptureDepth
from normscope.chain.trace import LayerTrace
from normscope.measures.maps import KeyMap, LayerMaps, MapMeasure
from normscope.measures.parts import carried, components_to_attentions, place_after_attentions, tiles
from normscope.measures.projection import state_after
from normscope.scopes import Scope


@dataclass(frozen=True)
class AltiMaps(MapMeasure):
    """ALTI's contributions of every layer."""

    quantity: ClassVar[str] = "contribution"

    def reach(self, components: Sequence[str]) -> CaptureDepth:
        return CaptureDepth(components_to_attentions(components))

    def of_layer(self, trace: LayerTrace) -> LayerMaps:
        place = place_after_attentions(trace)
        scope = Scope.of(step.name for step in trace.steps[:place])
        carrier, state = carried(trace, place), state_after(trace, place)
        key_map = KeyMap(trace)
        for rows, tile in tiles(carrier):
            size = state[rows].abs().sum(-1)
            closer = (size - (state[rows] - tile.parts).abs_().sum(-1)).clamp_(min=0)
            for kind, keys in tile.extents.items():
                key_map.write(kind, rows, closer[keys].T)
        return LayerMaps({scope: key_map.shares()}, errors={scope: carrier.sums.error_against(state)})
