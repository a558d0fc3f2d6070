"""Pull-back: from a logit back to the tokens, as covectors. With weights, deviations and slopes fixed every step is linear.

Pure mathematics on the plain data of traces; knows no models.
"""

from normscope.pullback.block import pull_back_block
from normscope.pullback.flows import FlowPullBack
from normscope.pullback.head import PulledHead, pull_back_end, pull_back_head, pull_back_rows, sizes_of, values_of
from normscope.pullback.layers import (
    LayerFlow,
    PulledLayer,
    PulledStates,
    StatesPullBack,
    pull_back_layer,
    pull_back_states,
)

__all__ = [
    "FlowPullBack",
    "LayerFlow",
    "PulledHead",
    "PulledLayer",
    "PulledStates",
    "StatesPullBack",
    "pull_back_block",
    "pull_back_end",
    "pull_back_head",
    "pull_back_layer",
    "pull_back_rows",
    "pull_back_states",
    "sizes_of",
    "values_of",
]
