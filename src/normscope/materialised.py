"""The method again, written for reading instead of speed: every part as a vector, in float64.

For tests, and for users who doubt. It follows the chain of a trace with nothing but definitions and shares no code with
`decompose`. From the trace it takes only the block's input, the attention and the weights: deviations and
pre-activations are its own, and integrated gradients are integrated numerically. It needs `n * n * d` memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from normscope.scopes import scopes_of, weights_scope
from normscope.trace import (
    Attention,
    FeedForward,
    Fork,
    Gated,
    LayerNorm,
    LayerTrace,
    Linear,
    Network,
    Norm,
    Normalise,
    OwnFeedForward,
    Plain,
    Residual,
    RmsNorm,
    Scale,
    SelfAttention,
)


@dataclass(frozen=True)
class OracleResult:
    """`state_i = sum_j parts[i, j] + bias[i]` at one scope.

    Keys are the sequence's own tokens and then the encoder's; `present` says which of them exist for a query here.
    """

    parts: Float[Tensor, "query key d"]
    bias: Float[Tensor, "query d"]
    present: Bool[Tensor, "query key"]
    queries: Int[Tensor, " query"]

    @property
    def state(self) -> Float[Tensor, "query d"]:
        """What the parts and the bias add up to."""
        return self.parts.sum(1) + self.bias

    @property
    def own(self) -> Float[Tensor, "query d"]:
        """`part[i, i]`."""
        return self.parts[torch.arange(len(self.queries)), self.queries]

    @property
    def map(self) -> Float[Tensor, "query key"]:
        """`||part[i, j]||`, NaN where the key does not exist."""
        return self.parts.norm(dim=-1).masked_fill(~self.present, math.nan)

    @property
    def mixing_ratio(self) -> Float[Tensor, " query"]:
        """`||sum over j != i of part[i, j]||`, divided by itself plus `||part[i, i]||`."""
        others = (self.parts.sum(1) - self.own).norm(dim=-1)
        return others / (others + self.own.norm(dim=-1))


def oracle(trace: LayerTrace, *, value_bias: str = "token") -> dict[str, OracleResult]:
    """The decomposition at every scope of a trace, but those of the attention weights.

    Its `parts` are `[query, key, d]`, its `bias` `[query, d]`, in float64: for a few dozen tokens, to see or to doubt.
    The value projection's bias counts with the `"token"` or with the `"bias"`.

    Examples:
        >>> import normscope as ns
        >>> trace = ns.load().traces("A text.")[2]                         # layer 3
        >>> ns.oracle(trace)["AttnResLnFf"].parts.shape
        torch.Size([5, 5, 384])
    """
    current, bypasses = _of_tokens(trace.hidden, trace), list[OracleResult]()
    scopes = iter(scopes_of(trace.components, weights=False))
    results: dict[str, OracleResult] = {}
    for step in trace.steps:
        match step:
            case Fork():
                bypasses.append(current)
                continue
            case Scale():
                current = replace(current, parts=current.parts * step.factor, bias=current.bias * step.factor)
                continue
            case Attention():
                current = _attend(step, trace, value_bias)
            case Residual():
                current = _add(current, bypasses.pop())
            case Normalise():
                current = _normalise(step.norm, current)
            case OwnFeedForward():
                own_token = _of_tokens(step.hidden, trace)
                current = _add(current, _feed_forward(step, own_token))
            case FeedForward():
                current = _feed_forward(step, current)
        results[next(scopes)] = current
    return results


def oracle_weights(trace: LayerTrace) -> dict[str, Float[Tensor, "query key"]]:
    """Maps of the attention weights, mean over heads: `AttnW`, and `CrossW` of a block with a cross-attention."""
    maps: dict[str, Tensor] = {}
    for step in trace.steps:
        if isinstance(step, Attention):
            weights = _over_all_keys(step, step.weights.double().mean(0), trace)
            maps[weights_scope(step.name)] = weights.masked_fill(~_visible(step, trace), math.nan)
    return maps


# ---- the components --------------------------------------------------------------------------------------------------


def _of_tokens(hidden: Float[Tensor, "query d"], trace: LayerTrace) -> OracleResult:
    """Every state is its own token's."""
    rows, (queries, d) = torch.arange(len(hidden)), hidden.shape
    keys = trace.length + trace.source_length
    parts = torch.zeros(queries, keys, d, dtype=torch.float64)
    parts[rows, trace.queries] = hidden.double()
    present = torch.zeros(queries, keys, dtype=torch.bool)
    present[rows, trace.queries] = True
    return OracleResult(parts, torch.zeros(queries, d, dtype=torch.float64), present, trace.queries)


def _visible(attention: Attention, trace: LayerTrace) -> Bool[Tensor, "query key"]:
    """Which keys an attention reads: those of its own group, and if causal none after the query."""
    visible = torch.zeros(len(trace.queries), trace.length + trace.source_length, dtype=torch.bool)
    visible[:, attention.keys(trace)] = True
    if trace.causal and isinstance(attention, SelfAttention):
        visible &= torch.arange(visible.shape[1]) <= trace.queries[:, None]
    return visible


def _over_all_keys(
    attention: Attention, of_group: Float[Tensor, "query group_key *d"], trace: LayerTrace
) -> Float[Tensor, "query key *d"]:
    """Zero for the keys of the other group."""
    queries, _, *d = of_group.shape
    everything = of_group.new_zeros(queries, trace.length + trace.source_length, *d)
    everything[:, attention.keys(trace)] = of_group
    return everything


def _attend(attention: Attention, trace: LayerTrace, value_bias: str) -> OracleResult:
    """ATTN, CROSS: `part[i, j] = sum_h a[h, i, j] * values[h, j] @ output[h]`; the parts before it are gone."""
    weights, values, output = attention.weights.double(), attention.values.double(), attention.output.double()
    bias = torch.zeros(weights.shape[1], output.shape[-1], dtype=torch.float64)
    if attention.bias is not None:
        bias += attention.bias.double()
    if value_bias == "bias" and (constant := attention.value_bias) is not None:
        bias += torch.einsum("hqk,he,hed->qd", weights, constant.double(), output)
        values = values - constant.double()[:, None]
    factors = torch.einsum("hke,hed->hkd", values, output)
    parts = torch.einsum("hqk,hkd->qkd", weights, factors)
    return OracleResult(_over_all_keys(attention, parts, trace), bias, _visible(attention, trace), trace.queries)


def _add(one: OracleResult, other: OracleResult) -> OracleResult:
    """RES: the whole decomposition that went around."""
    return OracleResult(one.parts + other.parts, one.bias + other.bias, one.present | other.present, one.queries)


def _normalise(norm: Norm, current: OracleResult) -> OracleResult:
    """LN: every vector by itself, but for the deviation, which is that of the state."""
    state, gamma = current.state, norm.weight.double()
    match norm:
        case LayerNorm():
            deviation = torch.sqrt(state.var(dim=-1, correction=0) + norm.epsilon)[:, None]
            parts = current.parts - current.parts.mean(dim=-1, keepdim=True)
            bias = current.bias - current.bias.mean(dim=-1, keepdim=True)
            beta = 0.0 if norm.bias is None else norm.bias.double()
        case RmsNorm():
            deviation = torch.sqrt((state**2).mean(dim=-1) + norm.epsilon)[:, None]
            parts, bias, beta = current.parts, current.bias, 0.0
    return replace(current, parts=parts / deviation[:, None] * gamma, bias=bias / deviation * gamma + beta)


def _feed_forward(step: FeedForward, current: OracleResult) -> OracleResult:
    """FF: the sum over experts, each weighted by its router weight, a constant."""
    parts, bias = torch.zeros_like(current.parts), torch.zeros_like(current.bias)
    for expert in step.experts:
        rows, weights = expert.rows, expert.weights.double()
        expert_parts, expert_bias = _network(expert.network, current.parts[rows], current.bias[rows])
        parts[rows] += weights[:, None, None] * expert_parts
        bias[rows] += weights[:, None] * expert_bias
    return replace(current, parts=parts, bias=bias)


def _network(
    network: Network, parts: Float[Tensor, "row key d"], bias: Float[Tensor, "row d"]
) -> tuple[Float[Tensor, "row key d"], Float[Tensor, "row d"]]:
    """Integrated gradients from the zero baseline along the straight path: `x_j * integral of dg(t x)/dx over t`."""
    match network:
        case Plain():
            neuron_parts, neuron_bias = _element_wise(network.activation.function, *_affine(network.first, parts, bias))
            output = network.second
        case Gated():
            a_parts, a_bias = _affine(network.gate, parts, bias)
            u_parts, u_bias = _affine(network.up, parts, bias)
            if math.isfinite(network.up_limit):
                u_parts, u_bias = _element_wise(partial(_clamp, limit=network.up_limit), u_parts, u_bias)
            u_bias = u_bias + network.up_offset
            a, u = a_parts.sum(1) + a_bias, u_parts.sum(1) + u_bias
            # The derivatives of g(a) * u at (t a, t u) are g'(t a) * t u and g(t a).
            value, _, ramped_gradient = path_integrals(network.activation.function, a)
            neuron_parts = a_parts * (ramped_gradient * u)[:, None] + u_parts * value[:, None]
            neuron_bias = a_bias * ramped_gradient * u + u_bias * value
            output = network.down
    return _affine(output, neuron_parts, neuron_bias)


def _element_wise(
    function: Callable[[Tensor], Tensor], parts: Float[Tensor, "row key f"], bias: Float[Tensor, "row f"]
) -> tuple[Float[Tensor, "row key f"], Float[Tensor, "row f"]]:
    """`z_j * integral of g'(t z) over t`; the value at the baseline belongs to no token."""
    _, gradient, _ = path_integrals(function, parts.sum(1) + bias)
    return parts * gradient[:, None], bias * gradient + function(torch.zeros_like(bias))


def _clamp(z: Tensor, limit: float) -> Tensor:
    return z.clamp(-limit, limit)


def _affine(
    linear: Linear, parts: Float[Tensor, "row key inputs"], bias: Float[Tensor, "row inputs"]
) -> tuple[Float[Tensor, "row key outputs"], Float[Tensor, "row outputs"]]:
    """The parts through the matrix, and the bias through the matrix and its own bias."""
    matrix = linear.weight.double().T
    constant = 0.0 if linear.bias is None else linear.bias.double()
    return parts @ matrix, bias @ matrix + constant


# ---- integrals along the path ----------------------------------------------------------------------------------------

_ABSCISSAE, _QUADRATURE_WEIGHTS = (torch.from_numpy(numbers) for numbers in np.polynomial.legendre.leggauss(12))


def path_integrals(
    function: Callable[[Tensor], Tensor], z: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."], Float[Tensor, "..."]]:
    """The integrals of `g(t z)`, of `g'(t z)` and of `t g'(t z)` over `t` from 0 to 1, element by element.

    Gauss-Legendre on panels between the points where `t z` is a whole number: short enough for 1e-12 or so, and where
    the known activations have kinks, they have them at whole numbers.
    """
    z = z.double()
    nodes, weights = ((numbers / 2).view(-1, *[1] * z.ndim) for numbers in (_ABSCISSAE + 1, _QUADRATURE_WEIGHTS))
    value, gradient, ramped_gradient = torch.zeros_like(z), torch.zeros_like(z), torch.zeros_like(z)
    reach = z.abs().clamp(min=1)
    for panel in range(math.ceil(reach.max().item()) if reach.numel() else 0):
        start, end = (panel / reach).clamp(max=1), ((panel + 1) / reach).clamp(max=1)
        t = start + (end - start) * nodes
        g, slope = _value_and_gradient(function, t * z)
        value += (end - start) * (weights * g).sum(0)
        gradient += (end - start) * (weights * slope).sum(0)
        ramped_gradient += (end - start) * (weights * t * slope).sum(0)
    return value, gradient, ramped_gradient


def _value_and_gradient(
    function: Callable[[Tensor], Tensor], points: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        values = function(points)
        (gradients,) = torch.autograd.grad(values.sum(), points)
    return values.detach(), gradients
