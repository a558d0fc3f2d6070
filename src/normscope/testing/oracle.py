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

from normscope.chain.trace import (
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
from normscope.scopes import scopes_of, weights_scope


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


def oracle(
    trace: LayerTrace, *, value_bias: str = "token", ff_baseline: str = "zero", gates: str = "fixed"
) -> dict[str, OracleResult]:
    """The decomposition at every scope of a trace, except those of the attention weights.

    Its `parts` are `[query, key, d]`, its `bias` `[query, d]`, in float64: for a few dozen tokens, to see or to doubt.
    The value projection's bias counts with the `"token"` or with the `"bias"`; the integrated gradients of a feed-forward
    start from `"zero"` or from the `"bias"`. Gates of attention are `"fixed"`, or their share in what they let through
    counts with the query's own token (`"joint"`).

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
                bypasses.append(_around(step, current))
                continue
            case Scale():
                current = _scaled(step, current)
                if not step.name:
                    continue
            case Attention():
                current = _attend(step, trace, bias_apart=value_bias == "bias")
                if gates == "joint" and step.gating is not None:
                    current = _with_joint_gates(step, trace, current, bias_apart=value_bias == "bias")
            case Residual():
                current = _add(current, bypasses.pop())
            case Normalise():
                current = _normalise(step.norm, current)
            case OwnFeedForward():
                own_token = _of_tokens(step.hidden, trace)
                current = _add(current, _feed_forward(step, own_token, ff_baseline))
            case FeedForward():
                current = _feed_forward(step, current, ff_baseline)
        results[next(scopes)] = current
    return results


def oracle_weights(trace: LayerTrace) -> dict[str, Float[Tensor, "query key"]]:
    """Maps of the attention weights, mean over heads: `AttnW`, and `CrossW` of a block with a cross-attention."""
    maps: dict[str, Tensor] = {}
    for step in trace.steps:
        if isinstance(step, Attention):
            weights = _over_all_keys(step, step.mixing_weights.double().mean(0), trace)
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


def _attend(attention: Attention, trace: LayerTrace, *, bias_apart: bool) -> OracleResult:
    """ATTN, CROSS: `part[i, j] = sum_h a[h, i, j] * values[h, j] @ output[h]`; the parts before it are gone.

    What the heads output is gated and normalised before the output matrix, every part by itself: gates are constants, as
    the weights are, and deviations those of the sum of all parts.
    """
    weights, values, output = attention.weights.double(), attention.values.double(), attention.output.double()
    constant = attention.value_bias if bias_apart else None
    no_token = torch.zeros(weights.shape[1], len(output), output.shape[1], dtype=torch.float64)
    if constant is not None:
        every = constant.double().expand_as(values)
        no_token = torch.einsum("thqk,thke->qhe", _by_tap(attention, weights), _by_tap(attention, every))
        values = values - every
    parts = torch.einsum("thqk,thke->qkhe", _by_tap(attention, weights), _by_tap(attention, values))
    factors = _channel_factors(attention, parts.sum(1) + no_token)
    bias = torch.einsum("qhe,hed->qd", no_token * factors, output)
    if attention.bias is not None:
        bias += attention.bias.double()
    parts = torch.einsum("qkhe,hed->qkd", parts * factors[:, None], output)
    return OracleResult(_over_all_keys(attention, parts, trace), bias, _visible(attention, trace), trace.queries)


def _with_joint_gates(
    attention: Attention, trace: LayerTrace, gated: OracleResult, *, bias_apart: bool
) -> OracleResult:
    """The gate `g(z)` times its input, both on the path from zero: the input is multiplied by the mean of `g` on the path,
    and the rest is the gate's share, which belongs to the query's own token."""
    gating = attention.gating
    assert gating is not None
    value, _, _ = path_integrals(gating.activation.function, gating.entering.double())
    full = gating.activation.function(gating.entering.double())
    gates = torch.ones_like(full) if attention.gates is None else attention.gates.double()
    deviations = None if attention.norm is None else attention.norm.deviations  # those of the model's own state
    norm = 1.0 if deviations is None else deviations.double()
    share = torch.cat([torch.ones_like(gates[: gating.ungated]), (value / full).expand(-1, len(trace.queries), -1)])
    by_channel = (gates * share / norm).expand(-1, -1, attention.output.shape[1])
    taken = _attend(replace(attention, gates=by_channel, norm=None), trace, bias_apart=bias_apart)
    rest = gated.state - taken.state
    parts = taken.parts.clone()
    parts[torch.arange(len(trace.queries)), trace.queries] += rest
    return replace(taken, parts=parts)


def _by_tap(attention: Attention, of_heads: Float[Tensor, "tap_head row width"]) -> Float[Tensor, "tap head row width"]:
    return of_heads.unflatten(0, (attention.taps, len(attention.output)))


def _channel_factors(
    attention: Attention, context: Float[Tensor, "query head d_head"]
) -> Float[Tensor, "query head d_head"]:
    """What a norm and gates multiply the channels of each query by; the deviations are those of `context`."""
    factors = torch.ones_like(context)
    if attention.gates is not None:
        factors = factors * attention.gates.double().transpose(0, 1)
    if attention.norm is not None:
        state = context * factors if attention.norm.gated_first else context
        groups = state.flatten(1).unflatten(1, (attention.norm.groups, -1))
        deviations = torch.sqrt((groups**2).mean(-1, keepdim=True) + attention.norm.epsilon)
        factors = factors / deviations.expand_as(groups).flatten(1).view_as(context)
    return factors


def _around(fork: Fork, current: OracleResult) -> OracleResult:
    """What goes around a branch, after the norms and scales on its way."""
    for step in fork.around:
        current = _scaled(step, current) if isinstance(step, Scale) else _normalise(step.norm, current)
    return current


def _scaled(step: Scale, current: OracleResult) -> OracleResult:
    factor = step.factor.double() if isinstance(step.factor, Tensor) else step.factor
    return replace(current, parts=current.parts * factor, bias=current.bias * factor)


def _add(one: OracleResult, other: OracleResult) -> OracleResult:
    """RES: the whole decomposition that went around."""
    return OracleResult(one.parts + other.parts, one.bias + other.bias, one.present | other.present, one.queries)


def _normalise(norm: Norm, current: OracleResult) -> OracleResult:
    """LN: every vector by itself, except for the deviation, which is that of the state."""
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


def _feed_forward(step: FeedForward, current: OracleResult, baseline: str) -> OracleResult:
    """FF: the sum over experts, each weighted by its router weight, a constant."""
    parts, bias = torch.zeros_like(current.parts), torch.zeros_like(current.bias)
    for expert in step.experts:
        rows, weights = expert.rows, expert.weights.double()
        scales = torch.ones_like(weights) if expert.scales is None else expert.scales.double()
        entering = current.parts[rows] * scales[:, None, None], current.bias[rows] * scales[:, None]
        expert_parts, expert_bias = _network(expert.network, *entering, baseline)
        parts[rows] += weights[:, None, None] * expert_parts
        bias[rows] += weights[:, None] * expert_bias
    return replace(current, parts=parts, bias=bias)


def _network(
    network: Network, parts: Float[Tensor, "row key d"], bias: Float[Tensor, "row d"], baseline: str
) -> tuple[Float[Tensor, "row key d"], Float[Tensor, "row d"]]:
    """Integrated gradients along the straight path from the baseline: `x_j * integral of dg(x(t))/dx over t`."""
    match network:
        case Plain():
            entering = _affine(network.first, parts, bias)
            neurons = _element_wise(network.activation.function, *entering, baseline)
            output = network.second
        case Gated():
            a_parts, a_bias = _affine(network.gate, parts, bias)
            u_parts, u_bias = _affine(network.up, parts, bias)
            if math.isfinite(network.up_limit):
                u_parts, u_bias = _element_wise(partial(_clamp, limit=network.up_limit), u_parts, u_bias, baseline)
            u_bias = u_bias + network.up_offset
            neurons = _gate(network.activation.function, (a_parts, a_bias), (u_parts, u_bias), baseline)
            output = network.down
    return _affine(output, *neurons)


def _gate(
    function: Callable[[Tensor], Tensor], a: tuple[Tensor, Tensor], u: tuple[Tensor, Tensor], baseline: str
) -> tuple[Float[Tensor, "row key f"], Float[Tensor, "row f"]]:
    """The derivatives of `g(a) * u` at `(a(t), u(t))` are `g'(a(t)) u(t)` and `g(a(t))`, on the way that both take."""
    (a_parts, a_bias), (u_parts, u_bias) = a, u
    a_end, u_end = a_parts.sum(1) + a_bias, u_parts.sum(1) + u_bias
    a_start, u_start = (a_bias, u_bias) if baseline == "bias" else (torch.zeros_like(a_end), torch.zeros_like(u_end))
    value, gradient, ramped_gradient = path_integrals(function, a_end, a_start)
    of_gate = gradient * u_start + ramped_gradient * (u_end - u_start)
    parts = a_parts * of_gate[:, None] + u_parts * value[:, None]
    bias = (a_bias - a_start) * of_gate + (u_bias - u_start) * value + function(a_start) * u_start
    return parts, bias


def _element_wise(
    function: Callable[[Tensor], Tensor], parts: Float[Tensor, "row key f"], bias: Float[Tensor, "row f"], baseline: str
) -> tuple[Float[Tensor, "row key f"], Float[Tensor, "row f"]]:
    """`z_j * integral of g'(z(t)) over t`; the value at the baseline belongs to no token."""
    start = bias if baseline == "bias" else torch.zeros_like(bias)
    _, gradient, _ = path_integrals(function, parts.sum(1) + bias, start)
    return parts * gradient[:, None], (bias - start) * gradient + function(start)


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
    function: Callable[[Tensor], Tensor], z: Float[Tensor, "..."], start: Float[Tensor, "..."] | None = None
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."], Float[Tensor, "..."]]:
    """The integrals of `g(x(t))`, of `g'(x(t))` and of `t g'(x(t))` over `t` from 0 to 1, element by element, on the
    straight way `x(t)` from `start` (zero by default) to `z`.

    Gauss-Legendre on panels between the points where `x(t)` is a whole number: short enough for 1e-12 or so, and where
    the known activations have kinks, they have them at whole numbers.
    """
    z = z.double()
    origin = torch.zeros_like(z) if start is None else start.double()
    way = z - origin
    # How far it is to the first whole number on the way, from where on there is one after every step of length 1.
    first = torch.where(way >= 0, origin.floor() + 1 - origin, origin - (origin.ceil() - 1))
    nodes, weights = ((numbers / 2).view(-1, *[1] * z.ndim) for numbers in (_ABSCISSAE + 1, _QUADRATURE_WEIGHTS))
    value, gradient, ramped_gradient = torch.zeros_like(z), torch.zeros_like(z), torch.zeros_like(z)
    begin = torch.zeros_like(z)
    for panel in range(2 + math.ceil(way.abs().max().item()) if way.numel() else 0):
        end = ((first + panel) / way.abs()).clamp(max=1)
        t = begin + (end - begin) * nodes
        g, slope = _value_and_gradient(function, origin + t * way)
        value += (end - begin) * (weights * g).sum(0)
        gradient += (end - begin) * (weights * slope).sum(0)
        ramped_gradient += (end - begin) * (weights * t * slope).sum(0)
        begin = end
    return value, gradient, ramped_gradient


def _value_and_gradient(
    function: Callable[[Tensor], Tensor], points: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    with torch.enable_grad():
        points = points.detach().requires_grad_()
        values = function(points)
        (gradients,) = torch.autograd.grad(values.sum(), points)
    return values.detach(), gradients
