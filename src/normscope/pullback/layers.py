"""The pull-back through a whole stack of blocks, layer by layer from the last to the first, conserved at every layer.

`relevance[l, k] = <g_k, x_k^l>` of all tokens, with what went to biases (to an encoder, and to the account of the weights)
so far, is the value that is explained, at every layer: the certificate. Pure mathematics on kept traces; what the value is,
is the head's concern.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.linear import shift
from normscope.chain.trace import Attention, CrossAttention, LayerTrace
from normscope.options import Weights
from normscope.pullback.block import (
    Covector,
    PulledAttention,
    PulledBlock,
    PulledFeedForward,
    constant_values,
    pull_back_block,
    pull_back_norm,
    pull_back_values,
)
from normscope.pullback.counting import known_scores


@dataclass(frozen=True)
class LayerFlow:
    """What flows through one layer towards each target, signed. Keys are the sequence's own tokens, then the encoder's.

    `edges[t, i, j]` goes from token `j` before the layer to token `i` after it. With `bias[t, i]` they add up to the
    relevance of `i` after the layer, and over `i` to `relevance[t, j]`, that before it. `heads[t, h, j]` is what head `h`
    takes from token `j`; `feed_forward[t, i]` is what comes through the feed-forward at `i`. Edges, which have a number for
    every query and key, may be left out. Where the weights are counted, `looked_at[t, j]` is what stays with them at key
    `j`, and with the edges there is `routing[t, i, j]`: edges, bias and routing are then the relevance of `i`.
    """

    relevance: Float[Tensor, "target token"]
    edges: Float[Tensor, "target query key"] | None
    heads: Float[Tensor, "target head key"]
    feed_forward: Float[Tensor, "target query"]
    bias: Float[Tensor, "target query"]
    head_edges: Float[Tensor, "target head query key"] | None
    looked_at: Float[Tensor, "target key"] | None = None
    routing: Float[Tensor, "target query key"] | None = None
    head_routing: Float[Tensor, "target head query key"] | None = None
    handed_on: bool = False
    """Whether queries or keys of all attentions got a share of the weights."""

    @property
    def routed(self) -> Float[Tensor, " target"]:
        """What stays with the weights of this layer."""
        return torch.zeros_like(self.bias[:, 0]) if self.looked_at is None else self.looked_at.sum(-1)


@dataclass(frozen=True)
class PulledLayer:
    """Covectors below a layer: at its input, and at the encoder's states that its cross-attention reads."""

    flow: LayerFlow
    covector: Covector
    source: Float[Tensor, "target key d"] | None


def pull_back_layer(
    trace: LayerTrace, covector: Covector, *, head_edges: bool = False, weights: Weights = "constant"
) -> PulledLayer:
    """From the covectors at the output of a layer to those at its input, and everything that flows between the two.

    The trace must have been captured below attention, for all queries. The covectors may come from another device.
    """
    pulled = pull_back_block(trace, covector.to(trace.hidden.device), weights)
    ways = [_Way.of(attention, head_edges=head_edges) for attention in pulled.attentions]
    at_input, source, bias = pulled.direct, None, pulled.bias + sum(way.bias for way in ways)
    if pulled.own is not None:
        own, constant = below_own(pulled.own)
        at_input, bias = at_input + own, bias + constant
    direct = (at_input * trace.hidden).sum(-1)
    for way in ways:
        if way.cross:
            source = way.at_states
        else:
            at_input = at_input + way.at_states
    edges = _over_keys(trace, ways, [way.edges for way in ways])
    edges[:, :, : trace.length].diagonal(dim1=1, dim2=2).add_(direct)
    flow = LayerFlow(
        relevance=(at_input * trace.hidden).sum(-1),
        edges=edges,
        heads=_over_keys(trace, ways, [way.heads for way in ways]),
        feed_forward=pulled.feed_forward,
        bias=bias,
        head_edges=_over_keys(trace, ways, [way.head_edges for way in ways]) if head_edges else None,
        **_accounts(trace, ways, head_edges=head_edges),
    )
    return PulledLayer(flow, at_input, source)


def _accounts(trace: LayerTrace, ways: list[_Way], *, head_edges: bool) -> dict[str, Any]:
    """What stays with the weights of a layer, by query and key, and by head; nothing where they are constants."""
    known = [way.routing for way in ways if way.routing is not None]
    if not known or len(known) < len(ways):
        return {}
    whole = _over_keys(trace, ways, known)
    handed = all(way.handed_on for way in ways)
    account = whole.sum(1)
    by_head = {"head_routing": whole} if head_edges else {}
    return {"handed_on": handed, "looked_at": account.sum(1), "routing": account, **by_head}


@dataclass(frozen=True)
class PulledStates:
    """Covectors below a layer, without what flows inside it; `bias[t]` is what the layer adds whatever the tokens are, and
    `routed[t]` what stays with its weights."""

    covector: Float[Tensor, "target token d"]
    source: Float[Tensor, "target key d"] | None
    bias: Float[Tensor, " target"]
    routed: Float[Tensor, " target"]


class StatesPullBack:
    """The same as `pull_back_layer` without any edge: no array of queries and keys is kept.

    The traces of a layer may come for blocks of query rows, one after another: what reaches the values of the keys adds up,
    and so does what reaches queries and keys where the weights are counted.
    """

    def __init__(self, covector: Float[Tensor, "target token d"], weights: Weights = "constant") -> None:
        self.covector = covector
        self.weights: Weights = weights
        self.direct: Float[Tensor, "target token d"] | None = None
        self.bias: Float[Tensor, " target"] = covector.new_zeros(len(covector))
        self.routed: Float[Tensor, " target"] = self.bias
        self.reached: dict[int, _Reached] = {}

    def add(self, trace: LayerTrace) -> PulledBlock:
        """Pull the covectors of a trace's query rows back."""
        whole = self.covector.to(trace.hidden.device)
        rows = whole if len(trace.queries) == whole.shape[1] else whole[:, trace.queries]
        pulled = pull_back_block(trace, rows, self.weights)
        direct, bias = pulled.direct, pulled.bias
        if pulled.own is not None:
            own, constant = below_own(pulled.own)
            direct, bias = direct + own, bias + constant
        self.bias = self.bias.to(bias.device) + bias.sum(-1)
        for number, attention in enumerate(pulled.attentions):
            self.bias = self.bias + _biases_in(attention)
            if attention.counted is not None:
                self.routed = self.routed.to(bias.device) + attention.counted.routing.sum((1, 2, 3))
            self.reached.setdefault(number, _Reached(attention.attention)).add(attention, trace.queries, trace.length)
        self.direct = torch.zeros_like(whole) if self.direct is None else self.direct
        self.direct[:, trace.queries] += direct
        return pulled

    def finish(self) -> PulledStates:
        """The covectors below the layer, when all of its rows were added."""
        assert self.direct is not None
        covector, source = self.direct, None
        for reached in self.reached.values():
            if isinstance(reached.attention, CrossAttention):
                source = reached.at_states()
            else:
                covector = covector + reached.at_states()
        return PulledStates(covector, source, self.bias, self.routed)


def _biases_in(attention: PulledAttention) -> Float[Tensor, " target"]:
    """The shares of the biases of values, queries and keys."""
    bias = attention.constant_scores().sum(-1)
    constant = constant_values(attention.attention.linear_source)
    return bias if constant is None else bias + attention.constant(constant).sum(-1)


class _Reached:
    """The covectors that reach values, queries and keys of one attention, added up over blocks of query rows.

    The attention is that of the first block, which has all keys. Others may have fewer.
    """

    def __init__(self, attention: Attention) -> None:
        self.attention = attention
        self.values: Float[Tensor, "target head key d_head"] | None = None
        self.keys: Float[Tensor, "target head key d_key"] | None = None
        self.queries: Float[Tensor, "target head query d_key"] | None = None

    def add(self, pulled: PulledAttention, rows: Int[Tensor, " row"], length: int) -> None:
        self.values = _sum(self.values, pulled.at_values)
        self.keys = _sum(self.keys, pulled.at_keys)
        if pulled.at_queries is not None:
            shape = (*pulled.at_queries.shape[:2], length, pulled.at_queries.shape[3])
            self.queries = pulled.at_queries.new_zeros(shape) if self.queries is None else self.queries
            self.queries[:, :, rows] += pulled.at_queries

    def at_states(self) -> Float[Tensor, "target key d"]:
        assert self.values is not None
        at_states = pull_back_values(self.attention.linear_source, self.values)
        return at_states + below_scores(self.attention, self.queries, self.keys)


def _sum(before: Tensor | None, more: Tensor | None) -> Tensor | None:
    """Over keys, of which the second may have fewer."""
    if before is None or more is None:
        return more if before is None else before
    if before.shape == more.shape:
        return before + more
    return torch.cat([before[:, :, : more.shape[2]] + more, before[:, :, more.shape[2] :]], dim=2)


def below_scores(attention: Attention, queries: Tensor | None, keys: Tensor | None) -> Tensor | float:
    """From covectors at queries and keys to the states; nothing where neither got a share."""
    if queries is None and keys is None:
        return 0.0
    scores = known_scores(attention)
    reached = keys if queries is None else queries
    assert reached is not None
    zero = reached.new_zeros(len(reached), *scores.keys.shape)
    return scores.back(zero if queries is None else queries, zero if keys is None else keys)


def pull_back_states(trace: LayerTrace, covector: Covector) -> PulledStates:
    """The same for the trace of a whole layer."""
    pulled = StatesPullBack(covector)
    pulled.add(trace)
    return pulled.finish()


def below_own(own: PulledFeedForward) -> tuple[Covector, Tensor]:
    """From what a feed-forward parallel to the attention reads to the block's input, and what belongs to no token."""
    norm = own.step.norm
    if norm is None:
        return own.covector, own.covector.new_zeros(())
    constant = shift(norm.norm)
    bias = own.covector.new_zeros(()) if constant is None else own.covector @ constant
    return pull_back_norm(norm, own.covector), bias


@dataclass(frozen=True)
class _Way:
    """The way back through one attention."""

    cross: bool
    at_states: Float[Tensor, "target key d"]
    edges: Float[Tensor, "target query key"]
    heads: Float[Tensor, "target head key"]
    bias: Float[Tensor, "target query"]
    head_edges: Tensor
    routing: Float[Tensor, "target head query key"] | None
    handed_on: bool

    @staticmethod
    def of(pulled: PulledAttention, *, head_edges: bool) -> _Way:
        source, values = pulled.attention.linear_source, pulled.attention.values
        bias = pulled.constant_scores()
        constant = constant_values(source)
        if constant is not None:
            values, bias = values - constant, bias + pulled.constant(constant)
        at_values = pulled.at_values
        by_head = pulled.attention.summed_taps(pulled.scores(values)) if head_edges else values.new_empty(0)
        edges = by_head.sum(1) if head_edges else pulled.edges(values)
        heads = pulled.attention.summed_taps((at_values * values).sum(-1, keepdim=True)).squeeze(-1)
        for share in _of_scores(pulled):
            edges += share.sum(1)
            heads = heads + share.sum(2)
            by_head = by_head + share if head_edges else by_head
        at_states = pull_back_values(source, at_values) + below_scores(
            pulled.attention, pulled.at_queries, pulled.at_keys
        )
        cross = isinstance(pulled.attention, CrossAttention)
        handed_on = pulled.at_keys is not None
        return _Way(cross, at_states, edges, heads, bias, by_head, pulled.routing(), handed_on)


def _of_scores(pulled: PulledAttention) -> Iterator[Float[Tensor, "target head query key"]]:
    """The shares of keys by attracting attention, and those of each query's own token by directing it."""
    keys, queries = pulled.key_scores(), pulled.query_scores()
    if keys is not None:
        yield keys
    if queries is not None:
        yield queries.diag_embed()


def _over_keys(trace: LayerTrace, ways: list[_Way], arrays: list[Tensor]) -> Tensor:
    """Arrays whose last axis is one group of keys, side by side over the keys of both groups; zero where there is none."""
    shape = arrays[0].shape[:-1]
    every = arrays[0].new_zeros(*shape, trace.length + trace.source_length)
    for way, array in zip(ways, arrays, strict=True):
        start = trace.length if way.cross else 0
        every[..., start : start + array.shape[-1]] += array
    return every
