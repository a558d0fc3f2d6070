"""What a carrier of a decomposition can do: go through the components of a block, and be measured.

A carrier holds `state_i = sum_j part[i, j] + bias[i]` for its query rows. Three forms exist, each the cheapest that is
exact where it is used: `Summed` (no single keys), `Factored` (all keys, before the activation), `Dense` (a tile, after it).
The first two are open: any component may follow. After the activation only linear components can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from normscope.trace import Attention, Norm, QueryRows

if TYPE_CHECKING:
    from normscope.decompose.factored import KeyGroup
    from normscope.decompose.linear import SlopedNetwork
    from normscope.decompose.sums import Sums

SELF, SOURCE = 0, 1
"""The two groups of keys: the sequence's own tokens, and those of the encoder."""


@dataclass(frozen=True, kw_only=True)
class Carrier(ABC):
    """A decomposition of the states of its queries, at one point of the chain.

    `sums` are the own vector, the sum of the others and the bias of every query.
    """

    sums: Sums

    @abstractmethod
    def add(self, bypass: OpenCarrier) -> Carrier:
        """RES: adds the decomposition that went around."""

    @abstractmethod
    def scaled(self, factor: float) -> Carrier:
        """Every part and the bias times a constant."""

    @abstractmethod
    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Carrier:
        """LN: every part by itself, with the deviation of the actual state."""

    @abstractmethod
    def maps(self) -> dict[int, Float[Tensor, "query key"]]:
        """`||part[i, j]||` by group of keys, empty where no key has a part of its own.

        Keys that no query of the carrier can see may be cut off at the end.
        """


@dataclass(frozen=True, kw_only=True)
class OpenCarrier(Carrier):
    """A carrier that any component may follow, and that a residual branch may set aside.

    `groups` are its factored parts, if it has any.
    """

    groups: tuple[KeyGroup, ...] = ()

    @abstractmethod
    def select(self, rows: QueryRows) -> OpenCarrier:
        """The same decomposition for some of its query rows."""

    @abstractmethod
    def attend(self, attention: Attention, *, causal: bool, bias_apart: bool = False) -> OpenCarrier:
        """ATTN, CROSS: replaces the parts by what attention brings from every key.

        `bias_apart` counts the value projection's bias with the bias, not with the keys.
        """

    @abstractmethod
    def add(self, bypass: OpenCarrier) -> OpenCarrier:
        """RES: adds the decomposition that went around."""

    @abstractmethod
    def feed_forward(self, networks: list[SlopedNetwork]) -> Iterator[tuple[slice, Carrier]]:
        """FF: yields the result for all query rows, tile by tile. A tile is valid until the next one is asked for."""
