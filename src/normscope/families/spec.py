"""The words in which an architecture is described: where a block keeps its parts, and in what order they act.

A family is data. Paths are dotted names of submodules, those of parts relative to the block. The capture reads these
descriptions; nothing here touches a tensor. A difference between architectures is a type of part, never a flag.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from normscope.errors import UnsupportedArchitectureError

Config = Any
"""A Hugging Face configuration: its attributes depend on the architecture, so it stays untyped."""

# ---- value projections -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitHeads:
    """A value projection of its own, the (possibly grouped) heads side by side."""

    module: str


@dataclass(frozen=True)
class FusedTail:
    """A projection to all queries, then all keys, then all values: the values are its last outputs."""

    module: str


@dataclass(frozen=True)
class FusedPerHead:
    """A projection head by head (or group by group), in each of which the value comes last."""

    module: str


@dataclass(frozen=True)
class FusedPerHeadWithBias:
    """The same without a bias, which is a parameter of its own."""

    module: str
    bias: str


@dataclass(frozen=True)
class LatentPerHead:
    """Values made of a narrow latent state: the first outputs of `down`, normalised, go through `module` to every head's key
    and value, of which the value comes last (DeepSeek)."""

    module: str
    down: str
    norm: NormPart


Value = SplitHeads | FusedTail | FusedPerHead | FusedPerHeadWithBias | LatentPerHead

# ---- attentions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DispatchedAttention:
    """Attention that goes through the attention interface of transformers, which shows its weights and values.

    `norm` is the one between the block's input and what the attention reads, where there is one.
    """

    module: str
    value: Value
    output: str
    norm: NormPart | None = None
    component: ClassVar[str] = "Attn"


@dataclass(frozen=True)
class DispatchedCrossAttention(DispatchedAttention):
    """The same from a decoder to the encoder's tokens, whose values are read off the encoder's output without a norm."""

    component: ClassVar[str] = "Cross"


def all_heads(config: Config) -> int:
    """As many value heads as attention heads."""
    return config.num_attention_heads


@dataclass(frozen=True)
class HookedAttention:
    """Attention that computes by itself: `weights` names the module that gives out its weights (its dropout, or the
    attention module as the second of its outputs), and the values are read off their projection.

    `zeroed` names an argument of the module `weights` that eager attention counts twice and other attention once.
    """

    weights: str
    value: Value
    output: str
    norm: NormPart | None = None
    value_heads: Callable[[Config], int] = all_heads
    zeroed: str | None = None
    component: ClassVar[str] = "Attn"


AttentionPart = DispatchedAttention | HookedAttention

# ---- norms -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerNormPart:
    """Centres and scales; with or without weight and bias."""

    module: str
    component: ClassVar[str] = "Ln"


@dataclass(frozen=True)
class FixedLayerNormPart(LayerNormPart):
    """Centres and scales with neither weight nor bias, by an epsilon that its module does not tell."""

    epsilon: float


@dataclass(frozen=True)
class RmsNormPart:
    """Scales by the root of the mean square."""

    module: str
    component: ClassVar[str] = "Ln"


@dataclass(frozen=True)
class UnitRmsNormPart(RmsNormPart):
    """The same with a weight that counts from one: `1 + w` (Gemma)."""


NormPart = LayerNormPart | RmsNormPart

# ---- feed-forwards ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlainPart:
    """`second(activation(first(x)))`."""

    first: str
    activation: str
    second: str
    component: ClassVar[str] = "Ff"


@dataclass(frozen=True)
class GatedPart:
    """`down(activation(gate(x)) * up(x))`."""

    gate: str
    up: str
    activation: str
    down: str
    component: ClassVar[str] = "Ff"


@dataclass(frozen=True)
class FusedGatedPart:
    """The same with one projection for both, the activated half first."""

    gate_and_up: str
    activation: str
    down: str
    component: ClassVar[str] = "Ff"


@dataclass(frozen=True)
class ExpertsPart:
    """A few experts for each token, chosen and weighed by a router; their weights are stacked, `[expert, out, in]`.

    `module` gives the output; `experts` is called with the states, the choices and the weights.
    """

    module: str
    experts: str
    activation: str
    component: ClassVar[str] = "Ff"


@dataclass(frozen=True)
class ClampedExpertsPart:
    """The experts of GPT-OSS: weights `[expert, in, out]`, gate and up interleaved, both clamped, one added to up."""

    module: str
    experts: str
    component: ClassVar[str] = "Ff"


@dataclass(frozen=True)
class SharedExpertsPart:
    """Experts beside a network that serves every token, its weight one or the sigmoid of what `gate` gives out."""

    routed: ExpertsPart
    shared: GatedPart
    gate: str | None = None
    component: ClassVar[str] = "Ff"


FeedForwardPart = PlainPart | GatedPart | FusedGatedPart | ExpertsPart | ClampedExpertsPart | SharedExpertsPart


@dataclass(frozen=True)
class BesideAttention:
    """A feed-forward that reads the query's own token, through `norm`, while attention reads all of them."""

    norm: NormPart
    feed_forward: PlainPart | GatedPart | FusedGatedPart
    component: ClassVar[str] = "Ff"


# ---- topologies ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForkPart:
    """The residual branch starts here."""

    component: ClassVar[str] = ""


@dataclass(frozen=True)
class ResidualPart:
    """The residual branch comes back here."""

    component: ClassVar[str] = "Res"


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
        """The same where nothing is there to look at by a cross-attention."""
        return self

    def components(self) -> list[str]:
        """The names of the components, in chain order."""
        return [part.component for part in self.chain() if part.component]


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


@dataclass(frozen=True)
class Parallel(Topology):
    """ATTN and FF side by side, then RES. The feed-forward reads what `norm` makes of the block's input."""

    attention: AttentionPart
    norm: NormPart
    feed_forward: PlainPart | GatedPart | FusedGatedPart

    def chain(self) -> tuple[Part, ...]:
        return (FORK, self.attention, BesideAttention(self.norm, self.feed_forward), RESIDUAL)


# ---- families --------------------------------------------------------------------------------------------------------


def positions_from_zero(config: Config) -> int | None:
    """The longest input of a model with a table of positions."""
    return getattr(config, "max_position_embeddings", None)


def positions_after_padding(config: Config) -> int | None:
    """As RoBERTa counts: positions start after the padding index."""
    return config.max_position_embeddings - config.pad_token_id - 1


def unlimited(_: Config) -> None:
    """Positions are relative or computed, so that no table limits the input."""


def hidden_layers(config: Config) -> int:
    """The number of blocks a forward pass goes through."""
    return config.num_hidden_layers


@dataclass(frozen=True)
class Stack:
    """A stack of blocks: their path below the bare model (`*` for each index), their topology, and their number.

    The topology is one for all, or what a function makes of the configuration: one for all, or one for every layer. The
    layers of a stack may have different parts, but have the same components, since they have the same scopes.
    `between` is the path, below the bare model, of a module that some models have between two of the blocks.
    """

    blocks: str
    topology: Topology | Callable[[Config], Topology | Sequence[Topology]]
    causal: bool = False
    depth: Callable[[Config], int] = hidden_layers
    between: str | None = None

    def topologies(self, config: Config) -> tuple[Topology, ...]:
        """The topology of every layer of a model."""
        depth = self.depth(config)
        described = self.topology if isinstance(self.topology, Topology) else self.topology(config)
        topologies = (described,) * depth if isinstance(described, Topology) else tuple(described)
        if len(topologies) != depth:
            raise UnsupportedArchitectureError(
                f"The family describes {len(topologies)} layers at {self.blocks!r}, but the model has {depth}."
            )
        chains = sorted({" ".join(topology.components()) for topology in topologies})
        if len(chains) > 1:
            raise UnsupportedArchitectureError(
                f"The layers at {self.blocks!r} differ in their components ({' / '.join(chains)}), so that they have no "
                f"scopes in common. Only what a component is made of may differ from layer to layer."
            )
        return topologies

    def topology_of(self, config: Config, layer: int = 1) -> Topology:
        """The topology of a layer, from 1."""
        return self.topologies(config)[layer - 1]

    def components(self, config: Config) -> list[str]:
        """The names of the components of every layer, in chain order."""
        return self.topology_of(config).components()

    def without_cross(self) -> Stack:
        """The same blocks without their cross-attention, as in a decoder that has no encoder."""
        return replace(self, topology=_WithoutCross(self))


@dataclass(frozen=True)
class _WithoutCross:
    stack: Stack

    def __call__(self, config: Config) -> list[Topology]:
        return [topology.without_cross() for topology in self.stack.topologies(config)]


@dataclass(frozen=True)
class Family:
    """An architecture: the stack that is analysed, the encoder that it looks at (if any), and its limits.

    `reads` is what the model takes in: `"text"` or `"image"`.
    """

    name: str
    model_types: tuple[str, ...]
    stack: Stack
    encoder: Stack | None = None
    longest: Callable[[Config], int | None] = positions_from_zero
    reads: str = "text"
