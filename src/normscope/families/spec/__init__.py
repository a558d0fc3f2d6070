"""The words in which an architecture is described: where a block keeps its parts, and in what order they act.

A family is data. Paths are dotted names of submodules, those of parts relative to the block. The capture reads these
descriptions; nothing here touches a tensor. A difference between architectures is a type of part, never a flag.
"""

from normscope.families.spec.attentions import (
    AttentionPart,
    DispatchedAttention,
    DispatchedCrossAttention,
    HookedAttention,
    all_heads,
)
from normscope.families.spec.config import (
    Config,
    hidden_layers,
    positions_after_padding,
    positions_from_zero,
    unlimited,
)
from normscope.families.spec.family import Family, Stack
from normscope.families.spec.feed_forwards import (
    BesideAttention,
    ClampedExpertsPart,
    ExpertsPart,
    FeedForwardPart,
    FusedGatedPart,
    GatedPart,
    PlainPart,
    SharedExpertsPart,
)
from normscope.families.spec.norms import FixedLayerNormPart, LayerNormPart, NormPart, RmsNormPart, UnitRmsNormPart
from normscope.families.spec.topologies import (
    FORK,
    RESIDUAL,
    BranchNorm,
    ForkPart,
    Parallel,
    Part,
    PostNorm,
    PreNorm,
    ResidualPart,
    Sandwich,
    ScaledPreNorm,
    ScalePart,
    Topology,
)
from normscope.families.spec.values import (
    FusedPerHead,
    FusedPerHeadWithBias,
    FusedTail,
    LatentPerHead,
    SplitHeads,
    Value,
)

__all__ = [
    "FORK",
    "RESIDUAL",
    "AttentionPart",
    "BesideAttention",
    "BranchNorm",
    "ClampedExpertsPart",
    "Config",
    "DispatchedAttention",
    "DispatchedCrossAttention",
    "ExpertsPart",
    "Family",
    "FeedForwardPart",
    "FixedLayerNormPart",
    "ForkPart",
    "FusedGatedPart",
    "FusedPerHead",
    "FusedPerHeadWithBias",
    "FusedTail",
    "GatedPart",
    "HookedAttention",
    "LatentPerHead",
    "LayerNormPart",
    "NormPart",
    "Parallel",
    "Part",
    "PlainPart",
    "PostNorm",
    "PreNorm",
    "ResidualPart",
    "RmsNormPart",
    "Sandwich",
    "ScalePart",
    "ScaledPreNorm",
    "SharedExpertsPart",
    "SplitHeads",
    "Stack",
    "Topology",
    "UnitRmsNormPart",
    "Value",
    "all_heads",
    "hidden_layers",
    "positions_after_padding",
    "positions_from_zero",
    "unlimited",
]
