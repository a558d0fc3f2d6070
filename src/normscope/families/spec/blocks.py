"""Topologies: the order in which the parts of a block act, with the forks and returns of its residual branches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

from normscope.errors import SelectionError, UnsupportedArchitectureError, listing
from normscope.families.spec.components import (
    AttentionPart,
    BesideAttention,
    Config,
    FeedForwardPart,
    NormPart,
    hidden_layers,
    positions_from_zero,
)


@final
@dataclass(frozen=True)
class StretchPart:
    """Every channel is multiplied by a number of its own, which the block holds at the path `parameter`."""

    parameter: str
    component: ClassVar[str] = ""


@final
@dataclass(frozen=True)
class ForkPart:
    """The residual branch starts here. What goes around it passes through `around` on its way."""

    around: tuple[Around, ...] = ()
    component: ClassVar[str] = ""


@final
@dataclass(frozen=True)
class AbsentPart:
    """A component that other layers of the stack have, and this one has not: a branch without it adds nothing, and a norm
    that is not there changes nothing."""

    component: str


@final
@dataclass(frozen=True)
class ResidualPart:
    """The residual branch comes back here."""

    component: ClassVar[str] = "Res"


@final
@dataclass(frozen=True)
class ScalePart:
    """The branch is multiplied by a constant before it comes back. That is no component: it has no scope of its own.

    The constant is known, or a number that the block holds at a path.
    """

    factor: float | str
    component: ClassVar[str] = ""


Around = NormPart | ScalePart | StretchPart
Part = (
    ForkPart
    | AttentionPart
    | ScalePart
    | StretchPart
    | ResidualPart
    | NormPart
    | FeedForwardPart
    | BesideAttention
    | AbsentPart
)

FORK, RESIDUAL = ForkPart(), ResidualPart()
NO_ATTENTION, NO_NORM, NO_FEED_FORWARD = AbsentPart("Attn"), AbsentPart("Ln"), AbsentPart("Ff")


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

    attention: AttentionPart | AbsentPart
    feed_forward_norm: NormPart | AbsentPart
    feed_forward: FeedForwardPart | AbsentPart
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
class ChangedBypass(Topology):
    """ATTN RES LN FF RES, where what goes around the branches changes on its way: `around` the attention, and the network.

    Each branch is multiplied by its factor before its RES.
    """

    attention: AttentionPart
    feed_forward_norm: NormPart
    feed_forward: FeedForwardPart
    around: tuple[tuple[Around, ...], tuple[Around, ...]]
    factors: tuple[float, float] = (1.0, 1.0)

    def chain(self) -> tuple[Part, ...]:
        forks = [ForkPart(steps) for steps in self.around]
        scales = [ScalePart(factor) for factor in self.factors]
        attention = (forks[0], self.attention, scales[0], RESIDUAL)
        return (*attention, forks[1], self.feed_forward_norm, self.feed_forward, scales[1], RESIDUAL)


@final
@dataclass(frozen=True)
class Sandwich(Topology):
    """ATTN LN RES (LN CROSS LN RES) LN FF LN RES, each branch multiplied by `factor` before its RES where there is one."""

    attention: AttentionPart
    after_attention: NormPart | AbsentPart
    before_feed_forward: NormPart | AbsentPart
    feed_forward: FeedForwardPart
    after_feed_forward: NormPart | AbsentPart
    factor: float | None = None
    cross: tuple[NormPart, AttentionPart, NormPart] | None = None

    def without_cross(self) -> Sandwich:
        return replace(self, cross=None)

    def chain(self) -> tuple[Part, ...]:
        end = (RESIDUAL,) if self.factor is None else (ScalePart(self.factor), RESIDUAL)
        attention = (FORK, self.attention, self.after_attention, *end)
        cross = () if self.cross is None else (FORK, *self.cross, *end)
        return (*attention, *cross, FORK, self.before_feed_forward, self.feed_forward, self.after_feed_forward, *end)


@final
@dataclass(frozen=True)
class EndScaled(Topology):
    """ATTN LN RES LN FF LN RES, and what leaves the block is multiplied by a number that it holds at the path `factor`."""

    attention: AttentionPart
    after_attention: NormPart
    before_feed_forward: NormPart
    feed_forward: FeedForwardPart
    after_feed_forward: NormPart
    factor: str

    def chain(self) -> tuple[Part, ...]:
        attention = (FORK, self.attention, self.after_attention, RESIDUAL)
        scale = ScalePart(self.factor)
        network = (self.before_feed_forward, self.feed_forward, self.after_feed_forward)
        return (*attention, ForkPart((scale,)), *network, scale, RESIDUAL)


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
    feed_forward: FeedForwardPart

    def chain(self) -> tuple[Part, ...]:
        return (FORK, self.attention, BesideAttention(self.norm, self.feed_forward), RESIDUAL)


@final
@dataclass(frozen=True)
class MixerAlone(Topology):
    """ATTN RES: a block without a feed-forward."""

    attention: AttentionPart

    def chain(self) -> tuple[Part, ...]:
        return (FORK, self.attention, RESIDUAL)


# ---- Stacks of blocks, and families: an architecture as a whole.


@final
@dataclass(frozen=True)
class LayerByLayer:
    """The topology of a stack whose layers are listed one by one."""

    layers: tuple[Topology, ...]

    def __call__(self, config: Config) -> tuple[Topology, ...]:
        return self.layers


@final
@dataclass(frozen=True)
class Seams:
    """Where states enter and leave blocks that are no modules, or are not called as such: by the input of the part `first`
    and the output of the part `last`. States that lie otherwise than `[batch, token, d]` have their `axes` exchanged.
    """

    first: str
    last: str
    axes: tuple[int, int] | None = None


@final
@dataclass(frozen=True)
class Stack:
    """A stack of blocks: their path below the bare model (`*` for each index; several, for classes of one type that keep
    them in different places, are separated by `|`), their topology, and their number.

    Blocks whose parts lie in lists of their own have the paths of all these lists, joined by `&`; each part goes by the name
    of its list. Such blocks have `seams`.

    The topology is one for all, or what a function makes of the configuration: one for all, or one for every layer. The
    layers of a stack may have different parts, but have the same components, since they have the same scopes.
    `between` is the path, below the bare model, of a module that lies between two of the blocks, if there is one.
    `windows` is the path, below the block, of a module that is called with windows of the tokens instead of all of them,
    each as a sequence of its own: attention then looks at the tokens of its own window.
    `cut` is the path of a part of the block where it is cut in two, each half a layer: what this part reads leaves the first
    and enters the second. So it is where both halves mix tokens.
    """

    blocks: str
    topology: Topology | Callable[[Config], Topology | Sequence[Topology]]
    causal: bool = False
    depth: Callable[[Config], int] = hidden_layers
    between: str | None = None
    seams: Seams | None = None
    windows: str | None = None
    cut: str | None = None

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


@final
@dataclass(frozen=True)
class _WithoutCross:
    stack: Stack

    def __call__(self, config: Config) -> list[Topology]:
        return [topology.without_cross() for topology in self.stack.topologies(config)]


@final
@dataclass(frozen=True)
class Stage:
    """A stage of a pyramid: its `number` (from 1) of `count`, its blocks, and how many pixels its tokens are high and wide.

    Between two stages tokens are merged, so that each stage has tokens of its own, after `special` ones. What is `refused`
    is not analysed, for a reason.
    """

    number: int
    count: int
    stack: Stack
    pixels: int
    special: tuple[str, ...] = ()
    refused: str = ""

    def __str__(self) -> str:
        return f"stage {self.number} of {self.count}"


@final
@dataclass(frozen=True)
class Family:
    """An architecture: the stack that is analysed, the encoder that it looks at (if any), and its limits.

    `reads` is what the model takes in: `"text"`, `"image"` or `"audio"`. Sequences run `alone` if padding would
    change what a model gives for them. A `pyramid` has the stages of a model whose tokens are merged from stage to stage;
    one `stage` is analysed at a time, the last one by default, and its stack is the family's.

    Examples:
        >>> import normscope as ns
        >>> family = ns.supported_models()["bert"]
        >>> family.stack.blocks, family.stack.causal, family.reads
        ('encoder.layer.*', False, 'text')
    """

    name: str
    model_types: tuple[str, ...]
    stack: Stack
    encoder: Stack | None = None
    longest: Callable[[Config], int | None] = positions_from_zero
    reads: str = "text"
    alone: bool = False
    pyramid: Callable[[Config], Sequence[Stage]] | None = None
    stage: Stage | None = None

    def at_stage(self, config: Config, number: int | None = None) -> Family:
        """The family with one stage of its pyramid (from 1; default the last) as what is analysed.

        Examples:
            >>> from transformers import SwinConfig
            >>> stage = ns.supported_models()["swin"].at_stage(SwinConfig(), 3).stage
            >>> str(stage), stage.pixels
            ('stage 3 of 4', 16)
        """
        if self.pyramid is None:
            raise SelectionError(f"A model of the family {self.name!r} has no stages: leave out stage (--stage).")
        stages = self.pyramid(config)
        if number is not None and not 1 <= number <= len(stages):
            raise SelectionError(f"There is no stage {number}: the model has stages 1 to {len(stages)}.")
        stage = stages[-1 if number is None else number - 1]
        if stage.refused:
            raise UnsupportedArchitectureError(f"The {stage} of this model is not analysed: {stage.refused}.")
        return replace(self, stack=stage.stack, stage=stage)

    def __repr__(self) -> str:
        return f"Family({self.name!r}, for {listing(self.model_types)})"
