"""What flows through a layer whose traces come for blocks of query rows, one after another.

Numbers of tokens, heads and targets only: what every query takes from every key is not kept, and its array never made.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.trace import CrossAttention, LayerTrace
from normscope.pullback.block import PulledAttention, PulledBlock, constant_values
from normscope.pullback.layers import LayerFlow, PulledLayer, StatesPullBack, below_own


class FlowPullBack(StatesPullBack):
    """The pull-back of states through one layer that also notes what flows inside of it, except for edges."""

    def __init__(self, covector: Float[Tensor, "target token d"]) -> None:
        super().__init__(covector)
        self.hidden = covector[0].clone()
        self.at_tokens: dict[str, Float[Tensor, "target token"]] = {}
        self.heads: Float[Tensor, "target head key"] | None = None

    def add(self, trace: LayerTrace) -> PulledBlock:
        pulled = super().add(trace)
        bias, taken = pulled.bias, list[Tensor]()
        if pulled.own is not None:
            bias = bias + below_own(pulled.own)[1]
        for attention in pulled.attentions:
            share, constant = _of_attention(attention)
            taken.append(_among_all_keys(trace, attention, share))
            bias = bias + constant
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

    def finish_layer(self) -> PulledLayer:
        """The covectors below the layer and what flows through it, when all of its rows were added."""
        assert self.heads is not None
        below = self.finish()
        relevance = (below.covector * self.hidden).sum(-1)
        flow = LayerFlow(relevance, None, self.heads, self.at_tokens["feed_forward"], self.at_tokens["bias"], None)
        return PulledLayer(flow, below.covector, below.source)


def _of_attention(pulled: PulledAttention) -> tuple[Float[Tensor, "target head key"], Tensor]:
    """What every head takes from every key, and what belongs to no token, at every query."""
    values, constant = pulled.attention.values, constant_values(pulled.attention.linear_source)
    bias = pulled.covector.new_zeros(())
    if constant is not None:
        values, bias = values - constant, pulled.constant(constant)
    taken = (pulled.at_values * values).sum(-1, keepdim=True)
    return pulled.attention.summed_taps(taken).squeeze(-1), bias


def _among_all_keys(trace: LayerTrace, pulled: PulledAttention, heads: Tensor) -> Tensor:
    """The same with zeros for the keys of the other group."""
    start = trace.length if isinstance(pulled.attention, CrossAttention) else 0
    every = heads.new_zeros(*heads.shape[:-1], trace.length + trace.source_length)
    every[..., start : start + heads.shape[-1]] = heads
    return every
