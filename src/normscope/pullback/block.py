"""The pull-back of covectors through one block, from any point of its chain to its attentions and its input.

With attention weights, deviations and slopes fixed, every step is affine, `y = A x + b`, so that a covector `g` at its
output acts on its input as

    <g, y> = <A^T g, x> + <g, b>

and no part vector is ever formed: all of it costs as much as a backward pass. At an attention the covector of query `i`
meets every key as `score[h, i, j] = a[h, i, j] <values[h, j] @ output[h], g_i>`. The shares `<g, b>` of the biases are added
up, so that everything together is again `<g, y>`. Where the weights are counted too, `counting` says what the values get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.fold import Point, Rules, backward
from normscope.chain.linear import LinearisedNetwork, constant_context, deviation, linearised, scale_back, shift
from normscope.chain.trace import (
    Attention,
    FeedForward,
    LayerNorm,
    LayerTrace,
    Linear,
    Normalise,
    OwnFeedForward,
    SequentialFeedForward,
    ValueSource,
)
from normscope.errors import UnsupportedArchitectureError
from normscope.options import Weights
from normscope.pullback.counting import Counted, counted, known_scores

Covector = Float[Tensor, "target query d"]


@dataclass(frozen=True)
class PulledAttention:
    """What reaches an attention: `covector[t, h, i]` acts on the context vector of head `h` and query `i`."""

    attention: Attention
    covector: Float[Tensor, "target head query d_head"]
    weights: Weights = "constant"

    @staticmethod
    def of(attention: Attention, covector: Covector, weights: Weights = "constant") -> PulledAttention:
        """From the covectors at the attention's output."""
        return PulledAttention(attention, attention.back_from_output(covector), weights)

    @cached_property
    def counted(self) -> Counted | None:
        """The split of `weight x value` between the value and others; `None` if all of it goes to the value."""
        if self.weights == "constant":
            return None
        return counted(self.attention, self.covector @ self.attention.values.mT, self.weights)

    @property
    def to_values(self) -> Float[Tensor, "*target head query key"]:
        """What the values are multiplied by: the weights, or their share of them."""
        return self.attention.weights if self.counted is None else self.counted.to_values

    def scores(self, values: Float[Tensor, "head key d_head"]) -> Float[Tensor, "target head query key"]:
        """`a[h, i, j] <values[h, j] W_O[h], g_i>`: what the value of every key brings to every query by every head."""
        return (self.covector @ values.mT).mul_(self.to_values)

    def edges(self, values: Float[Tensor, "head key d_head"]) -> Float[Tensor, "target query key"]:
        """The sum of the scores over the heads, one target after another: no array of all heads is kept."""
        weights = self.to_values.expand(len(self.covector), -1, -1, -1)
        pairs = zip(self.covector, weights, strict=True)
        return torch.stack([(each @ values.mT).mul_(weight).sum(0) for each, weight in pairs])

    def constant(self, values: Float[Tensor, "head constant d_head"]) -> Float[Tensor, "target query"]:
        """What values that belong to no token bring to every query: one for all keys, or one for each."""
        return (self.covector * constant_context(self.to_values, values)).sum((1, 3))

    @cached_property
    def at_values(self) -> Float[Tensor, "target head key d_head"]:
        """The covector that acts on the values of every key."""
        return self.to_values.mT @ self.covector

    @cached_property
    def at_queries(self) -> Float[Tensor, "target head query d_key"] | None:
        """The covector that acts on the queries; nothing where they get no share."""
        if self.counted is None or self.counted.to_queries is None:
            return None
        scores = known_scores(self.attention)
        return (self.counted.to_queries @ scores.keys).mul_(scores.scale)

    @cached_property
    def at_keys(self) -> Float[Tensor, "target head key d_key"] | None:
        """The covector that acts on the keys; nothing where they get no share."""
        if self.counted is None or self.counted.to_keys is None:
            return None
        scores = known_scores(self.attention)
        return (self.counted.to_keys.mT @ scores.queries).mul_(scores.scale)

    def key_scores(self) -> Float[Tensor, "target head query key"] | None:
        """The share of every key in every query by attracting attention, without what belongs to no token."""
        if self.counted is None or self.counted.to_keys is None:
            return None
        scores = known_scores(self.attention)
        keys = scores.keys if scores.constant_keys is None else scores.keys - scores.constant_keys
        return self.counted.to_keys * (scores.queries @ keys.mT).mul_(scores.scale)

    def query_scores(self) -> Float[Tensor, "target head query"] | None:
        """The share of every query's own token by directing attention, without what belongs to no token."""
        if self.at_queries is None:
            return None
        scores = known_scores(self.attention)
        queries = scores.queries if scores.constant_queries is None else scores.queries - scores.constant_queries
        return (self.at_queries * queries).sum(-1)

    def constant_scores(self) -> Float[Tensor, "target query"]:
        """The shares of queries and keys that belong to no token, at every query."""
        bias = self.covector.new_zeros(len(self.covector), self.covector.shape[2])
        if self.counted is None or self.attention.scores is None:
            return bias
        scores = self.attention.scores
        if self.at_queries is not None and scores.constant_queries is not None:
            bias = bias + (self.at_queries * scores.constant_queries).sum((1, 3))
        if self.counted.to_keys is not None and scores.constant_keys is not None:
            held = (scores.queries @ scores.constant_keys.mT).mul_(scores.scale)
            bias = bias + (self.counted.to_keys * held).sum((1, 3))
        return bias

    def routing(self) -> Float[Tensor, "target head query key"] | None:
        """The share that stays with the weights."""
        return None if self.counted is None else self.attention.summed_taps(self.counted.routing)


@dataclass(frozen=True)
class PulledFeedForward:
    """What reaches a feed-forward parallel to the attention: `covector[t, i]` acts on what it reads of query `i`."""

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


def pull_back_block(
    trace: LayerTrace, covectors: Covector | Mapping[int, Covector], weights: Weights = "constant"
) -> PulledBlock:
    """From the block's output to its start, or, by number of steps, from several points of the chain at once.

    Targets come out in the order in which the way back meets them: those of the latest point first.
    """
    entries = {len(trace.steps): covectors} if isinstance(covectors, Tensor) else covectors
    return _PullBack(trace, entries, weights).run()


class _PullBack(Rules[Tensor]):
    """The rules for covectors, and what they leave on their way: biases, and what reaches attentions and feed-forwards."""

    def __init__(self, trace: LayerTrace, entries: Mapping[int, Covector], weights: Weights) -> None:
        self.trace, self.entries = trace, entries
        self.weights: Weights = weights
        self.empty: Covector = trace.hidden.new_zeros(0, *trace.hidden.shape)
        self.bias: Float[Tensor, "target query"] = self.empty[..., 0]
        self.through_feed_forward = self.bias
        self.own: PulledFeedForward | None = None
        self.attentions: list[PulledAttention] = []

    def run(self) -> PulledBlock:
        point = Point(self.empty)
        for index in range(max(self.entries), 0, -1):
            if index in self.entries:
                point = replace(point, value=self._enter(point.value, self.entries[index]))
            step = self.trace.steps[index - 1]
            point = backward(point, step, self)
            if isinstance(step, SequentialFeedForward):
                share = (point.value * _state_before(self.trace, index - 1)).sum(-1)
                self.through_feed_forward = self.through_feed_forward + share
        attentions = tuple(reversed(self.attentions))
        return PulledBlock(point.value, attentions, self.own, self.through_feed_forward, self.bias)

    def _enter(
        self, covector: Float[Tensor, "before query d"], more: Float[Tensor, "more query d"]
    ) -> Float[Tensor, "before+more query d"]:
        """More targets, after those that are already on their way."""
        zero = more.new_zeros(more.shape[:2])
        self.bias = torch.cat([self.bias, zero])
        self.through_feed_forward = torch.cat([self.through_feed_forward, zero])
        return torch.cat([covector, more])

    def add(self, value: Covector, bypass: Float[Tensor, "before query d"]) -> Covector:
        """Targets that entered inside the branch have no bypass: its residual comes after them."""
        return torch.cat([value[: len(bypass)] + bypass, value[len(bypass) :]])

    def attention(self, step: Attention, value: Covector) -> Covector:
        if step.beside is not None:
            raise UnsupportedArchitectureError(
                "Gates that share in what they let through (gates='joint') are not pulled back: norms and mixing ratios "
                "alone have them."
            )
        if step.bias is not None:
            self.bias = self.bias + value @ step.bias
        self.attentions.append(PulledAttention.of(step, value, self.weights))
        return torch.zeros_like(value)

    def normalise(self, step: Normalise, value: Covector) -> Covector:
        constant = shift(step.norm)
        if constant is not None:  # around a branch there are fewer targets than those that entered inside of it
            self.bias = torch.cat([self.bias[: len(value)] + value @ constant, self.bias[len(value) :]])
        return pull_back_norm(step, value)

    def own_feed_forward(self, step: OwnFeedForward, value: Covector) -> Covector:
        self.own = PulledFeedForward(step, self.feed_forward(step, value))
        self.through_feed_forward = self.through_feed_forward + self.own.shares()
        return value

    def feed_forward(self, step: FeedForward, value: Covector) -> Covector:
        networks = linearised(step)
        if len(networks) == 1 and len(networks[0].rows) == value.shape[1]:
            pulled, bias = _pull_back_network(networks[0], value)
            self.bias = self.bias + bias
            return pulled
        pulled = torch.zeros_like(value)
        for network in networks:
            at_input, bias = _pull_back_network(network, value[:, network.rows])
            pulled = pulled.index_add(1, network.rows, at_input)
            self.bias = self.bias.index_add(1, network.rows, bias)
        return pulled


def pull_back_norm(step: Normalise, covector: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """LN: `g -> C(gamma * g) / s`, without the centring for an RMS norm."""
    return scale_back(step.norm, covector) / deviation(step.norm, step.state_before)[:, None]


def _pull_back_network(
    network: LinearisedNetwork, covector: Float[Tensor, "target row d"]
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
    if constant is None:
        return source.constant
    values = source.sloped(torch.einsum("ki,hei->hke", constant, source.projection))
    return values if source.constant is None else values + source.constant


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


def composed_values(source: ValueSource) -> tuple[Float[Tensor, "inner d"], Float[Tensor, " key"] | None]:
    """The linear way from states to values as one matrix, and the numbers by which norms on it multiply every key.

    Slopes of a convolution come after it.
    """
    matrix, scale = source.projection.flatten(0, 1), None
    for step in reversed(source.steps):
        if isinstance(step, Linear):
            matrix = matrix @ step.weight
            continue
        matrix = matrix * step.norm.weight
        if isinstance(step.norm, LayerNorm):
            matrix = matrix - matrix.mean(-1, keepdim=True)
        divisor = deviation(step.norm, step.state_before)
        scale = 1 / divisor if scale is None else scale / divisor
    return matrix, scale


def pull_back_values(
    source: ValueSource, at_values: Float[Tensor, "target head key d_head"]
) -> Float[Tensor, "target key d"]:
    """From the values to the states that they are made of."""
    if source.slopes is not None:
        at_values = (at_values * source.slopes).unflatten(1, (-1, len(source.projection))).sum(1)
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
