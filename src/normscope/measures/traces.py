"""The traces themselves, kept for what looks at all layers at once."""

from __future__ import annotations

from dataclasses import dataclass

from normscope.measures.base import LayerMeasure
from normscope.trace import LayerTrace


@dataclass(frozen=True)
class KeptTraces(LayerMeasure[LayerTrace]):
    """The trace of every layer, down to what its values are made of."""

    def of_layer(self, trace: LayerTrace) -> LayerTrace:
        return trace
