"""Many covectors through one block, when only their values below it are needed.

A block is prepared once from its trace: slopes, deviations, and the way to the values as one matrix. Covectors lie as
`[token, target, d]`, so that each step is one large product for all targets. Where the covectors at the block's output
differ from token to token only by a number, as below a mean of tokens, they stay `scale[token] * vector[target]` up to the
neurons, which saves the product with the feed-forward's second matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.fold import ChainRules, Point, fold_back, prepared
from normscope.chain.head_trace import HeadTrace, Pick
from normscope.chain.linear import LinearisedNetwork, deviation, linearised, scale_back
from normscope.chain.trace import (
    Attention,
    FeedForward,
    LayerTrace,
    Linear,
    Norm,
    Normalise,
    OwnFeedForward,
)
from normscope.pullback.block import composed_values
from normscope.pullback.head import pull_back_rows

Covectors = Float[Tensor, "token target d"]


@dataclass(frozen=True)
class Alike:
    """Covectors that are the same for all tokens up to a factor: `scales[token] * vectors[target]`."""

    vectors: Float[Tensor, "target d"]
    scales: Float[Tensor, " token"]

    def __mul__(self, factor: float | Tensor) -> Alike:
        return Alike(self.vectors * factor, self.scales)

    def __add__(self, other: Alike) -> Alike:
        raise TypeError("covectors are added where they are written out")

    @property
    def dense(self) -> Covectors:
        """Written out."""
        return self.scales[:, None, None] * self.vectors


Carried = Tensor | Alike


def _dense(value: Carried) -> Covectors:
    return value.dense if isinstance(value, Alike) else value


@dataclass(frozen=True)
class _Norm:
    norm: Norm
    scale: Float[Tensor, " token"]

    @staticmethod
    def of(step: Normalise) -> _Norm:
        return _Norm(step.norm, 1 / deviation(step.norm, step.state_before))

    def __call__(self, value: Carried) -> Carried:
        if isinstance(value, Alike):
            return Alike(scale_back(self.norm, value.vectors), value.scales * self.scale)
        return scale_back(self.norm, value).mul_(self.scale[:, None, None])


@dataclass(frozen=True)
class _Network:
    networks: list[LinearisedNetwork]
    beside: _Norm | None
    """Of a feed-forward parallel to the attention: the norm between the block's input and what it reads."""
    is_beside: bool

    @staticmethod
    def of(step: FeedForward) -> _Network:
        own = isinstance(step, OwnFeedForward)
        norm = _Norm.of(step.norm) if own and step.norm is not None else None
        return _Network(linearised(step), norm, own)

    def __call__(self, value: Carried) -> Covectors:
        if isinstance(value, Alike) and self._serves_all(len(value.scales)):
            return self._of_alike(self.networks[0], value)
        covectors = _dense(value)
        if self._serves_all(len(covectors)):
            return _through(self.networks[0], covectors)
        pulled = torch.zeros_like(covectors)
        for network in self.networks:
            pulled.index_add_(0, network.rows, _through(network, covectors[network.rows]))
        return pulled

    def _serves_all(self, count: int) -> bool:
        return len(self.networks) == 1 and len(self.networks[0].rows) == count

    def _of_alike(self, network: LinearisedNetwork, value: Alike) -> Covectors:
        at_neurons = value.vectors @ network.output.weight
        pulled: Tensor | None = None
        for linear, slope in zip(network.projections, network.slopes, strict=True):
            scaled = slope * value.scales[:, None]
            share = (scaled[:, None] * at_neurons) @ linear.weight
            pulled = share if pulled is None else pulled.add_(share)
        assert pulled is not None
        return pulled


def _through(network: LinearisedNetwork, covectors: Float[Tensor, "row target d"]) -> Float[Tensor, "row target d"]:
    """FF: `g -> sum over branches of W (c * (W2 g))`."""
    at_neurons = covectors @ network.output.weight
    *others, (linear, slope) = zip(network.projections, network.slopes, strict=True)
    shares = [(at_neurons * factor[:, None]) @ each.weight for each, factor in others]
    pulled = at_neurons.mul_(slope[:, None]) @ linear.weight
    for share in shares:
        pulled += share
    return pulled


@dataclass(frozen=True)
class _Attention:
    """ATTN: `weights` hold what norms before the values divide by; `matrix` is all else on the way to the values."""

    step: Attention
    weights: Float[Tensor, "tap_head key query"]
    matrix: Float[Tensor, "inner d"]
    output: Float[Tensor, "inner d"]
    factors: Float[Tensor, "query inner"] | None
    slopes: Float[Tensor, "tap_head key d_head"] | None

    @staticmethod
    def of(step: Attention) -> _Attention:
        source = step.linear_source
        matrix, scale = composed_values(source)
        weights = step.weights if scale is None else step.weights * scale
        factors = None if step.factors is None else step.factors.expand(-1, -1, step.output.shape[1])
        flat = None if factors is None else factors.transpose(0, 1).flatten(1)
        output = step.output.flatten(0, 1)
        return _Attention(step, weights.mT.contiguous(), matrix, output, flat, source.slopes)

    def at_values(self, value: Carried) -> Float[Tensor, "key target inner"]:
        """The covectors that act on what the projection makes the values of every key of."""
        covectors = _dense(value) @ self.output.T
        if self.factors is not None:
            covectors = covectors * self.factors[:, None]
        heads, (_, keys, queries) = len(self.step.output), self.weights.shape
        targets = covectors.shape[1]
        by_head = covectors.view(queries, targets, heads, -1).permute(2, 0, 1, 3).reshape(heads, queries, -1)
        arrived = torch.bmm(self.weights, by_head.repeat(self.step.taps, 1, 1)).view(-1, keys, targets, self._d_head)
        if self.slopes is not None:
            arrived = (arrived * self.slopes[:, :, None]).unflatten(0, (-1, heads)).sum(0)
        return arrived.permute(1, 2, 0, 3).reshape(keys, targets, -1)

    @property
    def _d_head(self) -> int:
        return self.step.output.shape[1]


_Prepared = _Attention | _Norm | _Network


class PreparedBlock:
    """One block, ready for covectors: made once from its trace, used for every tile of targets.

    With `rows`, covectors at its output are of these tokens alone, and all others are zero.
    """

    def __init__(self, trace: LayerTrace, rows: Int[Tensor, " row"] | None = None) -> None:
        self.hidden, self.rows = trace.hidden, rows
        selected = trace if rows is None else trace.select(rows)
        self.steps = prepared(selected.steps, attention=_Attention.of, normalise=_Norm.of, feed_forward=_Network.of)

    def pull(self, covectors: Carried) -> Covectors:
        """The covectors at the block's input."""
        way = _Way()
        at_input = self._at_input(fold_back(self.steps, way, Point(covectors)).value, way)
        for attention, value in way.attentions:
            at_input += attention.at_values(value) @ attention.matrix
        return at_input

    def shares(self, covectors: Carried) -> Float[Tensor, "target token"]:
        """The share of every token that enters the block in each target: `<g_k, x_k>`, without forming `g` at the
        values."""
        way = _Way()
        at_input = self._at_input(fold_back(self.steps, way, Point(covectors)).value, way)
        shares = torch.einsum("ktd,kd->tk", at_input, self.hidden)
        for attention, value in way.attentions:
            values = self.hidden @ attention.matrix.T
            shares += torch.einsum("kte,ke->tk", attention.at_values(value), values)
        return shares

    def _at_input(self, direct: Carried, way: _Way) -> Covectors:
        """The covectors that reach the input without the attentions, for all tokens."""
        covectors = _dense(direct)
        for norm, value in way.beside:
            covectors = covectors + (value if norm is None else _dense(norm(value)))
        if self.rows is None:
            return covectors
        return covectors.new_zeros(len(self.hidden), *covectors.shape[1:]).index_add_(0, self.rows, covectors)


class _Way(ChainRules[Carried, _Prepared]):
    """One walk back along a chain, and the covectors at attentions and feed-forwards that read the block's input."""

    def __init__(self) -> None:
        self.attentions: list[tuple[_Attention, Carried]] = []
        self.beside: list[tuple[_Norm | None, Covectors]] = []

    def transform(self, step: _Prepared, value: Carried) -> Carried:
        match step:
            case _Norm():
                return step(value)
            case _Network(is_beside=True):
                self.beside.append((step.beside, step(value)))
                return value
            case _Network():
                return step(value)
            case _Attention():
                self.attentions.append((step, value))
                return torch.zeros_like(_dense(value))

    def add(self, value: Carried, bypass: Carried) -> Carried:
        return _dense(value) + _dense(bypass)


# ---- from the rows that a head outputs to the last block -------------------------------------------------------------


class PreparedEnd:
    """The head above the last block. Where it weighs tokens and treats all alike, covectors stay alike for all tokens.

    `tokens` are those that it reads, `None` where it reads all.
    """

    def __init__(self, head: HeadTrace) -> None:
        self.head, self.tokens = head, None
        self.pick = next((index for index, step in enumerate(head.steps) if isinstance(step, Pick)), None)
        if self.pick is None or not all(isinstance(step, Normalise | Linear) for step in head.steps[: self.pick]):
            self.pick = None
            return
        step = head.steps[self.pick]
        assert isinstance(step, Pick)
        (self.sources,), (self.weights,) = step.sources, step.weights
        self.tokens = None if len(self.sources) == len(head.states) else self.sources

    def pull(self, covectors: Float[Tensor, "target row d"]) -> Carried:
        """The covectors at the output of the last block, of the tokens that are read."""
        if self.pick is None:
            return pull_back_rows(self.head, covectors).covector.transpose(0, 1).contiguous()
        above = replace(self.head, states=self.head.states[:1], steps=self.head.steps[self.pick + 1 :])
        vectors, scales = pull_back_rows(above, covectors).covector[:, 0], self.weights
        for step in reversed(self.head.steps[: self.pick]):
            if isinstance(step, Normalise):
                vectors = scale_back(step.norm, vectors)
                scales = scales / deviation(step.norm, step.state_before[self.sources])
            elif isinstance(step, Linear):
                vectors = vectors @ step.weight.to(vectors)
        return Alike(vectors, scales)
