"""The words in which an architecture is described: where a block keeps its parts, and in what order they act.

A family is data. Paths are dotted names of submodules, those of parts relative to the block. The capture reads these
descriptions; nothing here touches a tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

Config = Any
"""A Hugging Face configuration: its attributes depend on the architecture, so it stays untyped."""


@dataclass(frozen=True)
class DispatchedAttention:
    """Attention that goes through the attention interface of transformers, which shows its weights and values."""

    module: str
    value: str
    output: str
    component: ClassVar[str] = "Attn"


@dataclass(frozen=True)
class HookedAttention:
    """Attention that computes by itself: the weights come out of `weights` (its dropout), the values out of `value`."""

    weights: str
    value: SplitHeads | FusedPerHead
    output: str
    component: ClassVar[str] = "Attn"


@dataclass(frozen=True)
class SplitHeads:
    """A value projection with the heads side by side: `[..., head * d_head]`."""

    module: str


@dataclass(frozen=True)
class FusedPerHead:
    """Query, key and value of each head side by side, head after head, with the value's bias a parameter of its own."""

    module: str
    bias: str


@dataclass(frozen=True)
class PlainPart:
    """`second(activation(first(x)))`."""

    first: str
    activation: str
    second: str
    component: ClassVar[str] = "Ff"


AttentionPart = DispatchedAttention | HookedAttention
FeedForwardPart = PlainPart


@dataclass(frozen=True)
class ForkPart:
    """The residual branch starts here."""

    component: ClassVar[str] = ""


@dataclass(frozen=True)
class ResidualPart:
    """The residual branch comes back here."""

    component: ClassVar[str] = "Res"


@dataclass(frozen=True)
class NormPart:
    """A norm on the main line or on a branch."""

    module: str
    component: ClassVar[str] = "Ln"


Part = ForkPart | AttentionPart | ResidualPart | NormPart | FeedForwardPart


class Topology(ABC):
    """The order in which the parts of a block act."""

    @abstractmethod
    def chain(self) -> tuple[Part, ...]:
        """The parts in order, with the forks and returns of the residual branches."""


@dataclass(frozen=True)
class PostNorm(Topology):
    """ATTN RES LN FF RES LN."""

    attention: AttentionPart
    attention_norm: str
    feed_forward: FeedForwardPart
    feed_forward_norm: str

    def chain(self) -> tuple[Part, ...]:
        return (
            *(ForkPart(), self.attention, ResidualPart(), NormPart(self.attention_norm)),
            *(ForkPart(), self.feed_forward, ResidualPart(), NormPart(self.feed_forward_norm)),
        )


def positions_from_zero(config: Config) -> int | None:
    """The longest input of a model with a table of positions."""
    return getattr(config, "max_position_embeddings", None)


def positions_after_padding(config: Config) -> int | None:
    """As RoBERTa counts: positions start after the padding index."""
    return config.max_position_embeddings - config.pad_token_id - 1


def hidden_layers(config: Config) -> int:
    """The number of blocks a forward pass goes through."""
    return config.num_hidden_layers


@dataclass(frozen=True)
class Family:
    """An architecture: its blocks (a path below the bare model, `*` for each index), their topology, and its limits."""

    name: str
    model_types: tuple[str, ...]
    blocks: str
    topology: Topology
    longest: Callable[[Config], int | None] = positions_from_zero
    depth: Callable[[Config], int] = hidden_layers

    def components(self) -> list[str]:
        """The names of a block's components, in chain order."""
        return [part.component for part in self.topology.chain() if part.component]
