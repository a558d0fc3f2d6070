"""The traces themselves, kept for what looks at all layers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from normscope.measures.base import LayerMeasure, Reach
from normscope.trace import LayerTrace


@dataclass(frozen=True)
class KeptTraces(LayerMeasure[LayerTrace]):
    """The trace of every layer, down to what its values are made of if asked."""

    below_attention: bool = False

    def reach(self, components: Sequence[str]) -> Reach:
        return Reach(below_attention=self.below_attention)

    def of_layer(self, trace: LayerTrace) -> LayerTrace:
        return trace
