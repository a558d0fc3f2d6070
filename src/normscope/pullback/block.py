"""The pull-back of covectors through one block, from any point of its chain to its attentions and its input.

With attention weights, deviations and slopes fixed, every step is affine, so that a covector goes back through its
transpose and no part vector is ever formed: the cost of a backward pass. What it makes of a step's bias is kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.linear import SlopedNetwork, deviation, scale_back, shift, sloped
from normscope.chain.trace import (
    Attention,
    FeedForward,
    Fork,
    LayerNorm,
    LayerTrace,
    Linear,
    Normalise,
    OwnFeedForward,
    Residual,
    Scale,
    ValueSource,
)

Covector = Float[Tensor, "target query d"]


@dataclass(frozen=True)
class PulledAttention:
    """What reaches an attention: `covector[t, h, i]` acts on the context vector of head `h` and query `i`."""

    attention: Attention
    covector: Float[Tensor, "target head query d_head"]

    def scores(self, values: Float[Tensor, "head key d_head"]) -> Float[Tensor, "target head query key"]:
        """`a[h, i, j] <values[h, j] W_O[h], g_i>`: what every key brings to every query by every head."""
        return (self.covector @ values.mT).mul_(self.attention.weights)

    def edges(self, values: Float[Tensor, "head key d_head"]) -> Float[Tensor, "target query key"]:
        """The sum of the scores over the heads, one target after another: no array of all heads is kept."""
        weights = self.attention.weights
        return torch.stack([(each @ values.mT).mul_(weights).sum(0) for each in self.covector])

    def constant(self, values: Float[Tensor, "head constant d_head"]) -> Float[Tensor, "target query"]:
        """What values that belong to no token bring to every query: one for all keys, or one for each."""
        weights = self.attention.weights
        context = weights.sum(-1, keepdim=True) * values if values.shape[1] == 1 else weights @ values
        return (self.covector * context).sum((1, 3))

    @property
    def at_values(self) -> Float[Tensor, "target head key d_head"]:
        """The covector that acts on the values of every key."""
        return self.attention.weights.mT @ self.covector


@dataclass(frozen=True)
class PulledFeedForward:
    """What reaches a feed-forward that stands beside the attention: `covector[t, i]` acts on what it reads of query `i`."""

    step: OwnFeedForward
    covector: Covector

    def shares(self) -> Float[Tensor, "target query"]:
        """What the query's own token puts in by it."""
        return (self.covector * self.step.hidden).sum(-1)


@dataclass(frozen=True)
class PulledBlock:
    """Covectors at the start of a block. `direct` acts on the block's input, by way of the residuals alone.

    `feed_forward[t, i]` is what comes through the feed-forward, and `bias[t, i]` what belongs to no token, at every query.
    """

    direct: Covector
    attentions: tuple[PulledAttention, ...]
    own: PulledFeedForward | None
    feed_forward: Float[Tensor, "target query"]
    bias: Float[Tensor, "target query"]


def pull_back_block(trace: LayerTrace, covectors: Covector | Mapping[int, Covector]) -> PulledBlock:
    """From the block's output to its start, or, by number of steps, from several points of the chain at once.

    Targets come out in the order in which the way back meets them: those of the latest point first.
    """
    entries = {len(trace.steps): covectors} if isinstance(covectors, Tensor) else covectors
    return _Walk(trace, entries).run()


class _Walk:
    """One way back along a chain."""

    def __init__(self, trace: LayerTrace, entries: Mapping[int, Covector]) -> None:
        self.trace, self.entries = trace, entries
        empty = trace.hidden.new_zeros(0, *trace.hidden.shape)
        self.covector: Covector = empty
        self.bias: Float[Tensor, "target query"] = empty[..., 0]
        self.through_feed_forward = self.bias
        self.bypasses: list[Covector] = []
        self.own: PulledFeedForward | None = None
        self.attentions: list[PulledAttention] = []

    def run(self) -> PulledBlock:
        for index in range(max(self.entries), 0, -1):
            if index in self.entries:
                self._enter(self.entries[index])
            self._step(index - 1)
        attentions = tuple(reversed(self.attentions))
        return PulledBlock(self.covector, attentions, self.own, self.through_feed_forward, self.bias)

    def _enter(self, covector: Covector) -> None:
        """More targets, after those that are already on their way."""
        zero = covector.new_zeros(covector.shape[:2])
        self.covector = torch.cat([self.covector, covector])
        self.bias = torch.cat([self.bias, zero])
        self.through_feed_forward = torch.cat([self.through_feed_forward, zero])

    def _step(self, index: int) -> None:
        match step := self.trace.steps[index]:
            case Residual():
                self.bypasses.append(self.covector)
            case Fork():
                # Targets that entered inside the branch have no bypass: its residual comes after them.
                if self.bypasses:
                    bypass = self.bypasses.pop()
                    self.covector = torch.cat([self.covector[: len(bypass)] + bypass, self.covector[len(bypass) :]])
            case Normalise():
                self.covector = self._normalise(step)
            case Scale():
                self.covector = self.covector * step.factor
            case OwnFeedForward():
                self.own = PulledFeedForward(step, self._feed_forward(step))
                self.through_feed_forward = self.through_feed_forward + self.own.shares()
            case FeedForward():
                self.covector = self._feed_forward(step)
                entering = _state_before(self.trace, index)
                self.through_feed_forward = self.through_feed_forward + (self.covector * entering).sum(-1)
            case Attention():
                self._attend(step)

    def _attend(self, step: Attention) -> None:
        if step.bias is not None:
            self.bias = self.bias + self.covector @ step.bias
        heads, d_head, _ = step.output.shape
        flat = self.covector @ step.output.flatten(0, 1).T
        at_context = flat.unflatten(-1, (heads, d_head)).transpose(1, 2)
        self.attentions.append(PulledAttention(step, at_context))
        self.covector = torch.zeros_like(self.covector)

    def _normalise(self, step: Normalise) -> Covector:
        constant = shift(step.norm)
        if constant is not None:
            self.bias = self.bias + self.covector @ constant
        return pull_back_norm(step, self.covector)

    def _feed_forward(self, step: FeedForward) -> Covector:
        networks = sloped(step)
        if len(networks) == 1 and len(networks[0].rows) == self.covector.shape[1]:
            pulled, bias = _pull_back_network(networks[0], self.covector)
            self.bias = self.bias + bias
            return pulled
        pulled = torch.zeros_like(self.covector)
        for network in networks:
            at_input, bias = _pull_back_network(network, self.covector[:, network.rows])
            pulled = pulled.index_add(1, network.rows, at_input)
            self.bias = self.bias.index_add(1, network.rows, bias)
        return pulled


def pull_back_norm(step: Normalise, covector: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """LN: `g -> C(gamma * g) / s`, without the centring for an RMS norm."""
    return scale_back(step.norm, covector) / deviation(step.norm, step.state_before)[:, None]


def _pull_back_network(
    network: SlopedNetwork, covector: Float[Tensor, "target row d"]
) -> tuple[Float[Tensor, "target row d"], Float[Tensor, "target row"]]:
    """FF: `g -> sum over branches of W (c * (W2 g))`, and what it makes of the biases."""
    at_neurons = covector @ network.output.weight
    bias = (at_neurons * network.hidden_bias).sum(-1)
    if network.output.bias is not None:
        bias = bias + network.weights * (covector @ network.output.bias)
    pulled: Tensor | None = None
    for linear, slope in zip(network.projections, network.slopes, strict=True):
        share = (at_neurons * slope) @ linear.weight
        pulled = share if pulled is None else pulled + share
    assert pulled is not None
    return pulled, bias


# ---- below the attention -----------------------------------------------------------------------------------------------


def constant_values(source: ValueSource) -> Float[Tensor, "head constant d_head"] | None:
    """The share of the values that belongs to no token, by the biases of norms and projections; one for all keys, or each.

    What is left of the values is linear in the tokens' states.
    """
    constant: Tensor | None = None
    for step in source.steps:
        constant = _push_constant(step, constant)
    values = None if constant is None else torch.einsum("ki,hei->hke", constant, source.projection)
    if source.bias is None:
        return values
    return source.bias[:, None] if values is None else values + source.bias[:, None]


def _push_constant(step: Normalise | Linear, constant: Tensor | None) -> Tensor | None:
    """What a step makes of something that belongs to no token, `[key or 1, inputs]`."""
    if isinstance(step, Linear):
        moved = None if constant is None else constant @ step.weight.T
        return moved if step.bias is None else step.bias[None] if moved is None else moved + step.bias
    added = shift(step.norm)
    if constant is not None:
        centred = constant - constant.mean(-1, keepdim=True) if isinstance(step.norm, LayerNorm) else constant
        constant = centred * step.norm.weight / deviation(step.norm, step.state_before)[:, None]
    return constant if added is None else added[None] if constant is None else constant + added


def pull_back_values(
    source: ValueSource, at_values: Float[Tensor, "target head key d_head"]
) -> Float[Tensor, "target key d"]:
    """From the values to the states that they are made of."""
    covector = at_values.transpose(1, 2).flatten(2) @ source.projection.flatten(0, 1)
    for step in reversed(source.steps):
        covector = covector @ step.weight if isinstance(step, Linear) else pull_back_norm(step, covector)
    return covector


def _state_before(trace: LayerTrace, index: int) -> Float[Tensor, "query d"]:
    """The model's own state that enters a step."""
    for before in range(index - 1, -1, -1):
        state = trace.states[before]
        if state is not None:
            return state
    return trace.hidden
