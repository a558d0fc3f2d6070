"""Value projections: where the values of an attention lie among the outputs of the module that makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from normscope.families.spec.norms import NormPart


@final
@dataclass(frozen=True)
class SplitHeads:
    """A value projection of its own, the (possibly grouped) heads side by side."""

    module: str


@final
@dataclass(frozen=True)
class FusedTail:
    """A projection to all queries, then all keys, then all values: the values are its last outputs."""

    module: str


@final
@dataclass(frozen=True)
class FusedPerHead:
    """A projection head by head (or group by group), in each of which the value comes last."""

    module: str


@final
@dataclass(frozen=True)
class FusedPerHeadWithBias:
    """The same without a bias, which is a parameter of its own."""

    module: str
    bias: str


@final
@dataclass(frozen=True)
class LatentPerHead:
    """Values made of a narrow latent state: the first outputs of `down`, normalised, go through `module` to every head's key
    and value, of which the value comes last (DeepSeek)."""

    module: str
    down: str
    norm: NormPart


Value = SplitHeads | FusedTail | FusedPerHead | FusedPerHeadWithBias | LatentPerHead
