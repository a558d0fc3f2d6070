"""The pull-back through a whole stack of blocks, layer by layer from the last to the first, conserved at every layer.

`relevance[l, k] = <g_k, x_k^l>` of all tokens, with what went to biases (and to an encoder) so far, is the value that is
explained, at every layer: the certificate. Pure mathematics on kept traces; what the value is, is the head's concern.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.linear import shift
from normscope.chain.trace import Attention, CrossAttention, LayerTrace
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


@dataclass(frozen=True)
class LayerFlow:
    """What flows through one layer towards each target, signed. Keys are the sequence's own tokens, then the encoder's.

    `edges[t, i, j]` goes from token `j` before the layer to token `i` after it. With `bias[t, i]` they add up to the
    relevance of `i` after the layer, and over `i` to `relevance[t, j]`, that before it. `heads[t, h, j]` is what head `h`
    takes from token `j`; `feed_forward[t, i]` is what comes through the feed-forward at `i`. Edges, which have a number for
    every query and key, may be left out.
    """

    relevance: Float[Tensor, "target token"]
    edges: Float[Tensor, "target query key"] | None
    heads: Float[Tensor, "target head key"]
    feed_forward: Float[Tensor, "target query"]
    bias: Float[Tensor, "target query"]
    head_edges: Float[Tensor, "target head query key"] | None


@dataclass(frozen=True)
class PulledLayer:
    """Covectors below a layer: at its input, and at the encoder's states that its cross-attention reads."""

    flow: LayerFlow
    covector: Covector
    source: Float[Tensor, "target key d"] | None


def pull_back_layer(trace: LayerTrace, covector: Covector, *, head_edges: bool = False) -> PulledLayer:
    """From the covectors at the output of a layer to those at its input, and all that flows between the two.

    The trace must have been captured below attention, for all queries. The covectors may come from another device.
    """
    pulled = pull_back_block(trace, covector.to(trace.hidden.device))
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
    )
    return PulledLayer(flow, at_input, source)


@dataclass(frozen=True)
class PulledStates:
    """Covectors below a layer, without what flows inside it; `bias[t]` is what the layer adds whatever the tokens are."""

    covector: Float[Tensor, "target token d"]
    source: Float[Tensor, "target key d"] | None
    bias: Float[Tensor, " target"]


class StatesPullBack:
    """The same as `pull_back_layer` without any edge: no array of queries and keys is made for a target.

    The traces of a layer may come for blocks of query rows, one after another: what reaches the values of the keys adds up.
    """

    def __init__(self, covector: Float[Tensor, "target token d"]) -> None:
        self.covector = covector
        self.direct: Float[Tensor, "target token d"] | None = None
        self.bias: Float[Tensor, " target"] | None = None
        self.at_values: dict[int, tuple[Attention, Float[Tensor, "target head key d_head"]]] = {}

    def add(self, trace: LayerTrace) -> PulledBlock:
        """Pull the covectors of a trace's query rows back."""
        whole = self.covector.to(trace.hidden.device)
        pulled = pull_back_block(trace, whole if len(trace.queries) == whole.shape[1] else whole[:, trace.queries])
        direct, bias = pulled.direct, pulled.bias
        if pulled.own is not None:
            own, constant = below_own(pulled.own)
            direct, bias = direct + own, bias + constant
        for number, attention in enumerate(pulled.attentions):
            constant = constant_values(attention.attention.linear_source)
            if constant is not None:
                bias = bias + attention.constant(constant)
            _, before = self.at_values.get(number, (None, None))
            at_values = attention.at_values if before is None else before + attention.at_values
            self.at_values[number] = attention.attention, at_values
        self.direct = torch.zeros_like(whole) if self.direct is None else self.direct
        self.direct[:, trace.queries] += direct
        self.bias = bias.sum(-1) if self.bias is None else self.bias + bias.sum(-1)
        return pulled

    def finish(self) -> PulledStates:
        """The covectors below the layer, when all of its rows were added."""
        assert self.direct is not None and self.bias is not None
        covector, source = self.direct, None
        for attention, at_values in self.at_values.values():
            at_states = pull_back_values(attention.linear_source, at_values)
            if isinstance(attention, CrossAttention):
                source = at_states
            else:
                covector = covector + at_states
        return PulledStates(covector, source, self.bias)


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

    @staticmethod
    def of(pulled: PulledAttention, *, head_edges: bool) -> _Way:
        source, values = pulled.attention.linear_source, pulled.attention.values
        bias = pulled.covector.new_zeros(len(pulled.covector), pulled.covector.shape[2])
        constant = constant_values(source)
        if constant is not None:
            values, bias = values - constant, pulled.constant(constant)
        at_values = pulled.at_values
        by_head = pulled.attention.summed_taps(pulled.scores(values)) if head_edges else values.new_empty(0)
        edges = by_head.sum(1) if head_edges else pulled.edges(values)
        heads = pulled.attention.summed_taps((at_values * values).sum(-1, keepdim=True)).squeeze(-1)
        at_states = pull_back_values(source, at_values)
        return _Way(isinstance(pulled.attention, CrossAttention), at_states, edges, heads, bias, by_head)


def _over_keys(trace: LayerTrace, ways: list[_Way], arrays: list[Tensor]) -> Tensor:
    """Arrays whose last axis is one group of keys, side by side over the keys of both groups; zero where there is none."""
    shape = arrays[0].shape[:-1]
    every = arrays[0].new_zeros(*shape, trace.length + trace.source_length)
    for way, array in zip(ways, arrays, strict=True):
        start = trace.length if way.cross else 0
        every[..., start : start + array.shape[-1]] += array
    return every
