"""What flows through a layer whose traces come for blocks of query rows, one after another.

Numbers of tokens, heads and targets only: what every query takes from every key is not kept, and its array never made.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.trace import CrossAttention, LayerTrace
from normscope.options import Weights
from normscope.pullback.block import PulledAttention, PulledBlock, constant_values
from normscope.pullback.layers import LayerFlow, PulledLayer, StatesPullBack, below_own


class FlowPullBack(StatesPullBack):
    """The pull-back of states through one layer that also notes what flows inside of it, except for edges."""

    def __init__(self, covector: Float[Tensor, "target token d"], weights: Weights = "constant") -> None:
        super().__init__(covector, weights)
        self.hidden = covector[0].clone()
        self.at_tokens: dict[str, Float[Tensor, "target token"]] = {}
        self.heads: Float[Tensor, "target head key"] | None = None
        self.looked_at: Float[Tensor, "target key"] | None = None
        self.handed_on = True

    def add(self, trace: LayerTrace) -> PulledBlock:
        pulled = super().add(trace)
        bias, taken = pulled.bias, list[Tensor]()
        if pulled.own is not None:
            bias = bias + below_own(pulled.own)[1]
        for attention in pulled.attentions:
            share, constant = _of_attention(attention, trace)
            taken.append(_among_all_keys(trace, attention, share))
            bias = bias + constant
            self._note_account(trace, attention)
        self._note(trace, "bias", bias)
        self._note(trace, "feed_forward", pulled.feed_forward)
        heads = torch.stack(taken).sum(0)
        self.heads = heads if self.heads is None else self.heads + heads
        self.hidden = self.hidden.to(trace.hidden)
        self.hidden[trace.queries] = trace.hidden
        return pulled

    def _note(self, trace: LayerTrace, name: str, share: Float[Tensor, "target row"]) -> None:
        if name not in self.at_tokens:
            self.at_tokens[name] = share.new_zeros(len(share), self.covector.shape[1])
        self.at_tokens[name][:, trace.queries] = share

    def _note_account(self, trace: LayerTrace, attention: PulledAttention) -> None:
        """What stays with the weights at every key."""
        routing = attention.routing()
        if routing is None:
            return
        looked_at = _among_all_keys(trace, attention, routing.sum(2)).sum(1)
        self.looked_at = looked_at if self.looked_at is None else self.looked_at + looked_at
        self.handed_on = self.handed_on and attention.at_keys is not None

    def finish_layer(self) -> PulledLayer:
        """The covectors below the layer and what flows through it, when all of its rows were added."""
        assert self.heads is not None
        below = self.finish()
        relevance = (below.covector * self.hidden).sum(-1)
        at_tokens = self.at_tokens["feed_forward"], self.at_tokens["bias"]
        handed_on = self.looked_at is not None and self.handed_on
        flow = LayerFlow(relevance, None, self.heads, *at_tokens, None, looked_at=self.looked_at, handed_on=handed_on)
        return PulledLayer(flow, below.covector, below.source)


def _of_attention(pulled: PulledAttention, trace: LayerTrace) -> tuple[Float[Tensor, "target head key"], Tensor]:
    """The share that every head takes from every key, and what belongs to no token, at every query."""
    values, constant = pulled.attention.values, constant_values(pulled.attention.linear_source)
    bias = pulled.constant_scores()
    if constant is not None:
        values, bias = values - constant, bias + pulled.constant(constant)
    taken = (pulled.at_values * values).sum(-1, keepdim=True)
    heads, keys = pulled.attention.summed_taps(taken).squeeze(-1), pulled.key_scores()
    if keys is not None:
        heads = heads + keys.sum(2)
    queries = pulled.query_scores()
    return heads if queries is None else heads.index_add(2, trace.queries, queries), bias


def _among_all_keys(trace: LayerTrace, pulled: PulledAttention, heads: Tensor) -> Tensor:
    """The same with zeros for the keys of the other group."""
    start = trace.length if isinstance(pulled.attention, CrossAttention) else 0
    every = heads.new_zeros(*heads.shape[:-1], trace.length + trace.source_length)
    every[..., start : start + heads.shape[-1]] = heads
    return every
