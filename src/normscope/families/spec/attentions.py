"""Attentions: how the weights and values of one come into sight, and where its output projection is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

from normscope.families.spec.config import Config
from normscope.families.spec.norms import NormPart
from normscope.families.spec.values import Value


@final
@dataclass(frozen=True)
class DispatchedAttention:
    """Attention that goes through the attention interface of transformers, which shows its weights and values.

    `norm` is the one between the block's input and what the attention reads, if there is one.
    """

    module: str
    value: Value
    output: str
    norm: NormPart | None = None
    component: ClassVar[str] = "Attn"


@final
@dataclass(frozen=True)
class DispatchedCrossAttention:
    """The same from a decoder to the encoder's tokens. Its values are read off the encoder's output, without a norm."""

    module: str
    value: Value
    output: str
    norm: ClassVar[None] = None
    component: ClassVar[str] = "Cross"


def all_heads(config: Config) -> int:
    """As many value heads as attention heads."""
    return config.num_attention_heads


@final
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


AttentionPart = DispatchedAttention | DispatchedCrossAttention | HookedAttention
