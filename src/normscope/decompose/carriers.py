"""The interface of a carrier of a decomposition: it goes through the components of a block, and is measured.

A carrier holds `state_i = sum_j part[i, j] + bias[i]` for its query rows. Three forms exist, each the cheapest that is
exact where it is used: `Summed` (no single keys), `Factored` (all keys, before the activation), `Dense` (a tile, after it).
The first two are open: any component may follow. After the activation only linear components can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.fold import Rules
from normscope.chain.linear import LinearisedNetwork, constant_context, deviation, linearised, scale_, shift
from normscope.chain.trace import (
    Attention,
    CrossAttention,
    FeedForward,
    Norm,
    Normalise,
    OwnFeedForward,
    QueryRows,
)
from normscope.decompose.key_groups import KeyGroup
from normscope.errors import UnsupportedArchitectureError


@dataclass(frozen=True, kw_only=True)
class Carrier(ABC):
    """A decomposition of the states of its queries, at one point of the chain.

    `sums` are the own vector, the sum of the others and the bias of every query.
    """

    sums: Sums

    @abstractmethod
    def add(self, bypass: OpenCarrier) -> Carrier:
        """RES: adds the decomposition of the bypass."""

    @abstractmethod
    def scaled(self, factor: float | Tensor) -> Carrier:
        """Every part and the bias times a constant, one for all channels or one for each."""

    @abstractmethod
    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Carrier:
        """LN: every part by itself, with the deviation of the actual state."""

    @abstractmethod
    def maps(self) -> dict[int, Float[Tensor, "query key"]]:
        """`||part[i, j]||` by group of keys, empty where no key has a part of its own.

        Keys that no query of the carrier can see may be cut off at the end.
        """

    def __add__(self, bypass: Carrier) -> Carrier:
        return self.add(opened(bypass))

    def __mul__(self, factor: float | Tensor) -> Carrier:
        return self.scaled(factor)


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
        """ATTN, CROSS: replaces the parts by the contributions of every key through attention.

        `bias_apart` counts the value projection's bias with the bias, not with the keys.
        """

    @abstractmethod
    def add(self, bypass: OpenCarrier) -> OpenCarrier:
        """RES: adds the decomposition of the bypass."""

    @abstractmethod
    def feed_forward(self, networks: list[LinearisedNetwork]) -> Iterator[tuple[slice, Carrier]]:
        """FF: yields the result for all query rows, tile by tile. A tile is valid until the next one is requested."""


def opened(carrier: Carrier) -> OpenCarrier:
    """The carrier, if any component may follow it."""
    if isinstance(carrier, OpenCarrier):
        return carrier
    raise UnsupportedArchitectureError(
        "The chain of this block has an attention, a feed-forward or a residual branch after its feed-forward. "
        "Maps exist only for blocks in which the feed-forward is the last of these."
    )


# ---- For each query, the vector of its own token, the sum of all others, and the bias.
#
# These few rows are all that completeness and the mixing ratio need, so a carrier of them alone costs a few forward
# passes and no n x n. The other carriers keep them too, as their proof.

OWN, BIAS, OTHERS, SOURCE_TOKENS = range(4)


@dataclass(frozen=True)
class Sums:
    """`rows[OWN] = part[i, i]`, `rows[BIAS] = bias[i]`, `rows[OTHERS] = sum over j != i of part[i, j]`.

    After a cross-attention a fourth row holds the sum over the encoder's tokens.
    """

    rows: Float[Tensor, "row query d"]
    queries: Int[Tensor, " query"]

    @staticmethod
    def of_tokens(hidden: Float[Tensor, "query d"], queries: Int[Tensor, " query"]) -> Sums:
        """Where a block starts: every state is its own token's."""
        zero = torch.zeros_like(hidden)
        return Sums(torch.stack([hidden, zero, zero]), queries)

    @property
    def own(self) -> Float[Tensor, "query d"]:
        return self.rows[OWN]

    def select(self, rows: QueryRows) -> Sums:
        return Sums(self.rows[:, rows], self.queries[rows])

    def attend(self, attention: Attention, *, bias_apart: bool = False) -> Sums:
        """By way of the context vectors, `(sum_j a v) W_O`, the own token's share separate."""
        weights, values, through_output = attention.weights, attention.values, attention.through_output
        bias = values.new_zeros(weights.shape[1], attention.output.shape[-1])
        if attention.bias is not None:
            bias += attention.bias
        value_bias = attention.value_bias if bias_apart else None
        if value_bias is not None:
            bias += through_output(constant_context(weights, value_bias))
            values = values - value_bias
        everything = through_output(weights @ values)
        if isinstance(attention, CrossAttention):
            zero = torch.zeros_like(everything)
            return Sums(torch.stack([zero, bias, zero, everything]), self.queries)
        rows = torch.arange(len(self.queries), device=weights.device)
        own = through_output(weights[:, rows, self.queries, None] * values[:, self.queries])
        others = everything - own
        own = own if attention.beside is None else own + attention.beside
        return Sums(torch.stack([own, bias, others]), self.queries)

    def add(self, bypass: Sums) -> Sums:
        longer, shorter = sorted((self.rows, bypass.rows), key=len, reverse=True)
        rows = longer.clone()
        rows[: len(shorter)] += shorter
        return Sums(rows, self.queries)

    def scaled(self, factor: float | Tensor) -> Sums:
        return Sums(self.rows * factor, self.queries)

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Sums:
        rows = scale_(norm, self.rows / deviation[:, None])
        constant = shift(norm)
        if constant is not None:
            rows[BIAS] += constant
        return Sums(rows, self.queries)

    def feed_forward(self, networks: list[LinearisedNetwork]) -> Sums:
        rows = torch.zeros_like(self.rows)
        for network in networks:
            hidden = network.hidden(self.rows[:, network.rows])
            hidden[BIAS] += network.hidden_bias
            rows.index_add_(1, network.rows, network.out(hidden, BIAS))
        return Sums(rows, self.queries)

    def error_against(self, state: Float[Tensor, "query d"]) -> Float[Tensor, " query"]:
        """Relative error of (sum of parts + bias) against the model's own state, per query."""
        return (self.rows.sum(0) - state).norm(dim=-1) / state.norm(dim=-1)

    def mixing_ratio(self) -> Float[Tensor, " query"]:
        """`||sum of the others|| / (||sum of the others|| + ||own||)`: the norm of the sum, not the sum of norms."""
        own, others = self.own.norm(dim=-1), self.rows[OTHERS:].sum(0).norm(dim=-1)
        return others / (others + own)


@final
class Summed(OpenCarrier):
    """The sums alone: no single key has a part, so there are no maps."""

    def select(self, rows: QueryRows) -> Summed:
        return Summed(sums=self.sums.select(rows))

    def attend(self, attention: Attention, *, causal: bool, bias_apart: bool = False) -> Summed:
        return Summed(sums=self.sums.attend(attention, bias_apart=bias_apart))

    def add(self, bypass: OpenCarrier) -> Summed:
        return Summed(sums=self.sums.add(bypass.sums))

    def scaled(self, factor: float | Tensor) -> Summed:
        return Summed(sums=self.sums.scaled(factor))

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Summed:
        return Summed(sums=self.sums.normalise(norm, deviation))

    def feed_forward(self, networks: list[LinearisedNetwork]) -> Iterator[tuple[slice, Summed]]:
        yield slice(None), Summed(sums=self.sums.feed_forward(networks))

    def maps(self) -> dict[int, Float[Tensor, "query key"]]:
        return {}


@dataclass(frozen=True)
class CarrierRules(Rules[Carrier]):
    """The rules for carriers, up to a feed-forward that reads the state which the chain has reached."""

    causal: bool
    bias_apart: bool = False
    """Whether the value projection's bias counts with the bias."""

    def attention(self, step: Attention, value: Carrier) -> OpenCarrier:
        return opened(value).attend(step, causal=self.causal, bias_apart=self.bias_apart)

    def normalise(self, step: Normalise, value: Carrier) -> Carrier:
        return value.normalise(step.norm, deviation(step.norm, step.state_before))

    def feed_forward(self, step: FeedForward, value: Carrier) -> Carrier:
        raise NotImplementedError("a feed-forward expands a carrier tile by tile: fold up to it, then from every tile")

    def own_feed_forward(self, step: OwnFeedForward, value: Carrier) -> Carrier:
        own = Sums.of_tokens(step.hidden, value.sums.queries).feed_forward(linearised(step))
        return value.add(Summed(sums=own))
