"""Topologies: the order in which the parts of a block act, with the forks and returns of its residual branches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, final

from normscope.families.spec.attentions import AttentionPart
from normscope.families.spec.feed_forwards import BesideAttention, FeedForwardPart, FusedGatedPart, GatedPart, PlainPart
from normscope.families.spec.norms import NormPart


@final
@dataclass(frozen=True)
class ForkPart:
    """The residual branch starts here."""

    component: ClassVar[str] = ""


@final
@dataclass(frozen=True)
class ResidualPart:
    """The residual branch comes back here."""

    component: ClassVar[str] = "Res"


@final
@dataclass(frozen=True)
class ScalePart:
    """The branch is multiplied by a constant before it comes back. That is no component: it has no scope of its own."""

    factor: float
    component: ClassVar[str] = ""


Part = ForkPart | AttentionPart | ScalePart | ResidualPart | NormPart | FeedForwardPart | BesideAttention

FORK, RESIDUAL = ForkPart(), ResidualPart()


class Topology(ABC):
    """The order in which the parts of a block act."""

    @abstractmethod
    def chain(self) -> tuple[Part, ...]:
        """The parts in order, with the forks and returns of the residual branches."""

    def without_cross(self) -> Topology:
        """The same without a cross-attention, as in a decoder that has no encoder."""
        return self

    def components(self) -> list[str]:
        """The names of the components, in chain order."""
        return [part.component for part in self.chain() if part.component]


@final
@dataclass(frozen=True)
class PostNorm(Topology):
    """ATTN RES LN (CROSS RES LN) FF RES LN."""

    attention: AttentionPart
    attention_norm: NormPart
    feed_forward: FeedForwardPart
    feed_forward_norm: NormPart
    cross: tuple[AttentionPart, NormPart] | None = None

    def chain(self) -> tuple[Part, ...]:
        attention = (FORK, self.attention, RESIDUAL, self.attention_norm)
        cross = () if self.cross is None else (FORK, self.cross[0], RESIDUAL, self.cross[1])
        return (*attention, *cross, FORK, self.feed_forward, RESIDUAL, self.feed_forward_norm)

    def without_cross(self) -> PostNorm:
        return replace(self, cross=None)


@final
@dataclass(frozen=True)
class PreNorm(Topology):
    """ATTN RES (LN CROSS RES) LN FF RES, the first norm being inside what attention reads (its `norm`)."""

    attention: AttentionPart
    feed_forward_norm: NormPart
    feed_forward: FeedForwardPart
    cross: tuple[NormPart, AttentionPart] | None = None

    def chain(self) -> tuple[Part, ...]:
        attention = (FORK, self.attention, RESIDUAL)
        cross = () if self.cross is None else (FORK, *self.cross, RESIDUAL)
        return (*attention, *cross, FORK, self.feed_forward_norm, self.feed_forward, RESIDUAL)

    def without_cross(self) -> PreNorm:
        return replace(self, cross=None)


@final
@dataclass(frozen=True)
class ScaledPreNorm(Topology):
    """ATTN RES LN FF RES, each branch multiplied by `factor` before its RES."""

    attention: AttentionPart
    feed_forward_norm: NormPart
    feed_forward: FeedForwardPart
    factor: float

    def chain(self) -> tuple[Part, ...]:
        scale = ScalePart(self.factor)
        attention = (FORK, self.attention, scale, RESIDUAL)
        return (*attention, FORK, self.feed_forward_norm, self.feed_forward, scale, RESIDUAL)


@final
@dataclass(frozen=True)
class Sandwich(Topology):
    """ATTN LN RES LN FF LN RES."""

    attention: AttentionPart
    after_attention: NormPart
    before_feed_forward: NormPart
    feed_forward: FeedForwardPart
    after_feed_forward: NormPart

    def chain(self) -> tuple[Part, ...]:
        attention = (FORK, self.attention, self.after_attention, RESIDUAL)
        return (*attention, FORK, self.before_feed_forward, self.feed_forward, self.after_feed_forward, RESIDUAL)


@final
@dataclass(frozen=True)
class BranchNorm(Topology):
    """ATTN LN RES FF LN RES."""

    attention: AttentionPart
    after_attention: NormPart
    feed_forward: FeedForwardPart
    after_feed_forward: NormPart

    def chain(self) -> tuple[Part, ...]:
        attention = (FORK, self.attention, self.after_attention, RESIDUAL)
        return (*attention, FORK, self.feed_forward, self.after_feed_forward, RESIDUAL)


@final
@dataclass(frozen=True)
class Parallel(Topology):
    """ATTN and FF side by side, then RES. The feed-forward reads what `norm` makes of the block's input."""

    attention: AttentionPart
    norm: NormPart
    feed_forward: PlainPart | GatedPart | FusedGatedPart

    def chain(self) -> tuple[Part, ...]:
        return (FORK, self.attention, BesideAttention(self.norm, self.feed_forward), RESIDUAL)
