"""The propagated decomposition from its definition, in float64: every part of every input token as a vector, at every layer.

It shares no code with `propagate`: norms and feed-forwards are those of the oracle, which computes its own deviations and
integrates numerically. Biases are kept separate, or shared out as the paper's formulas say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from normscope.chain.trace import (
    Attention,
    CrossAttention,
    FeedForward,
    Fork,
    LayerTrace,
    Linear,
    Normalise,
    OwnFeedForward,
    Plain,
    Residual,
    Scale,
    ValueSource,
)
from normscope.testing.oracle import (
    OracleResult,
    _add,
    _affine,
    _channel_factors,
    _element_wise,
    _feed_forward,
    _normalise,
)

Share = Callable[[Tensor, Tensor], Tensor]
"""The share of every token, `[query, token]`, from its vectors and the bias."""

SHARES: dict[str, Share] = {
    "absdot": lambda parts, bias: (parts * bias[:, None]).sum(-1).abs(),
    "norm": lambda parts, bias: parts.norm(dim=-1),
    "equal": lambda parts, bias: (parts.norm(dim=-1) > 0).double(),
}


def propagated(traces: Sequence[LayerTrace], share: str = "apart") -> list[OracleResult]:
    """The parts of the tokens that enter the first trace (and of an encoder's states) after every layer."""
    first = traces[0]
    keys = first.length + first.source_length
    hidden = first.hidden.double()
    parts = torch.zeros(first.length, keys, hidden.shape[-1], dtype=torch.float64)
    parts[range(first.length), range(first.length)] = hidden
    current = _result(parts, torch.zeros_like(hidden), first)
    layers: list[OracleResult] = []
    for trace in traces:
        current = _block(trace, current, SHARES.get(share))
        layers.append(current)
    return layers


def _result(parts: Tensor, bias: Tensor, trace: LayerTrace) -> OracleResult:
    keys = torch.arange(parts.shape[1])
    present = torch.ones(parts.shape[:2], dtype=torch.bool)
    if trace.causal:
        present = (keys <= trace.queries[:, None]) | (keys >= trace.length)
    return OracleResult(parts, bias, present, trace.queries)


def _block(trace: LayerTrace, entering: OracleResult, share: Share | None) -> OracleResult:
    current, bypasses = entering, list[OracleResult]()
    for step in trace.steps:
        match step:
            case Fork():
                bypasses.append(current)
            case Scale():
                current = replace(current, parts=current.parts * step.factor, bias=current.bias * step.factor)
            case Attention():
                current = _attend(step, entering, trace)
            case Residual():
                current = _shared(_add(current, bypasses.pop()), share)
            case Normalise():
                current = _shared(_normalise(step.norm, current), share)
            case OwnFeedForward():
                read = entering if step.norm is None else _normalise(step.norm.norm, entering)
                current = _add(current, _feed_forward(step, read, "zero"))
            case FeedForward() if share is None:
                current = _feed_forward(step, current, "zero")
            case FeedForward():
                current = _shared_network(step, current, share)
    return current


def _attend(step: Attention, entering: OracleResult, trace: LayerTrace) -> OracleResult:
    """The values of every part by itself, weighted; what the norms and projections before add belongs to no token."""
    source = step.source
    assert source is not None
    of = entering
    if isinstance(step, CrossAttention):
        states = source.states.double()
        parts = torch.zeros(len(states), entering.parts.shape[1], states.shape[-1], dtype=torch.float64)
        parts[range(len(states)), range(trace.length, trace.length + len(states))] = states
        every = torch.ones(parts.shape[:2], dtype=torch.bool)
        of = OracleResult(parts, torch.zeros_like(states), every, torch.arange(len(states)))
    values, constant = _values(source, of)
    weights, output = step.weights.double(), step.output.double()
    heads = weights.unflatten(0, (step.taps, len(output)))
    contexts = torch.einsum("thij,thjke->ikhe", heads, values.unflatten(0, heads.shape[:2]))
    of_no_token = torch.einsum("thij,thje->ihe", heads, constant.unflatten(0, heads.shape[:2]))
    factors = _channel_factors(step, contexts.sum(1) + of_no_token)
    bias = torch.einsum("ihe,hed->id", of_no_token * factors, output)
    if step.bias is not None:
        bias = bias + step.bias.double()
    return replace(entering, parts=torch.einsum("ikhe,hed->ikd", contexts * factors[:, None], output), bias=bias)


def _values(source: ValueSource, of: OracleResult) -> tuple[Tensor, Tensor]:
    for step in source.steps:
        if isinstance(step, Linear):
            parts, bias = _affine(step, of.parts, of.bias)
            of = replace(of, parts=parts, bias=bias)
        else:
            of = _normalise(step.norm, of)
    projection = source.projection.double()
    constant = torch.einsum("jd,hed->hje", of.bias, projection)
    if source.bias is not None:
        constant = constant + source.bias.double()[:, None]
    values = torch.einsum("jkd,hed->hjke", of.parts, projection)
    if source.slopes is not None:
        taps = len(source.slopes) // len(projection)
        values = values.repeat(taps, 1, 1, 1) * source.slopes.double()[:, :, None]
        constant = constant.repeat(taps, 1, 1) * source.slopes.double()
    return values, constant if source.offset is None else constant + source.offset.double()


def _shared(current: OracleResult, share: Share | None) -> OracleResult:
    """The whole bias given to the tokens, each by its share."""
    if share is None:
        return current
    weights = share(current.parts, current.bias)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-300)
    parts = current.parts + weights[..., None] * current.bias[:, None]
    return replace(current, parts=parts, bias=torch.zeros_like(current.bias))


def _shared_network(step: FeedForward, current: OracleResult, share: Share) -> OracleResult:
    """A plain network, its biases shared out before the activation and after the second matrix."""
    (expert,) = step.experts
    network = expert.network
    assert isinstance(network, Plain)
    parts, bias = _affine(network.first, current.parts, current.bias)
    entering = _shared(replace(current, parts=parts, bias=bias), share)
    neurons, at_zero = _element_wise(network.activation.function, entering.parts, entering.bias, "zero")
    leaving = _shared(replace(entering, parts=neurons, bias=at_zero), share)
    parts, bias = _affine(network.second, leaving.parts, leaving.bias)
    return _shared(replace(leaving, parts=parts, bias=bias), share)
