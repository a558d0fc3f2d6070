"""What the modules of a block are: norms, linear layers, the attention, feed-forwards and experts, each found by numbers.

A module is what it computes: its output in the observed pass is compared with what each kind of part would compute from its
input. Names of classes and modules decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from types import BuiltinFunctionType, FunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import ACT2FN

from normscope.capture.values import value_share
from normscope.capture.weights import BlockWeights
from normscope.chain.trace import LayerNorm, Norm
from normscope.describing.observe import BlockRun, Call, difference, limit_of, same
from normscope.errors import NormscopeError
from normscope.families.spec import (
    AttentionPart,
    ClampedExpertsPart,
    Config,
    ConfigField,
    DispatchedAttention,
    ExpertsPart,
    FeedForwardPart,
    FixedLayerNormPart,
    FusedGatedPart,
    FusedPerHead,
    FusedShards,
    FusedTail,
    GatedPart,
    HookedAttention,
    LatentPerHead,
    LayerNormPart,
    NamedActivation,
    NormPart,
    PlainPart,
    RmsNormPart,
    SharedExpertsPart,
    SplitHeads,
    UnitLayerNormPart,
    UnitRmsNormPart,
    Value,
    all_heads,
)

_EPSILONS = (1e-5, 1e-6, 1e-12, 1e-8)
_SHARDS = (2, 4, 8)
_WITH_PARAMETERS = {"xielu"}
"""Activations that have parameters of their own in every layer, so that a name does not tell what they compute."""


@dataclass(frozen=True)
class Normed:
    """A norm that was called, with what it read and returned."""

    part: NormPart
    reads: Tensor
    returns: Tensor


@dataclass(frozen=True)
class Attended:
    """An attention, with what its values are made of and what its output projection returned. `causal` is what was seen."""

    part: AttentionPart
    reads: Tensor
    returns: Tensor
    causal: bool


@dataclass(frozen=True)
class FedForward:
    """A feed-forward, with what it read and returned."""

    part: FeedForwardPart
    reads: Tensor
    returns: Tensor


# ---- norms and linear layers -------------------------------------------------------------------------------------------


def norm_part(owner: nn.Module, path: str, reads: Tensor, returns: Tensor) -> NormPart | None:
    """The norm that computes what a module returned, if any: of several the nearest."""
    kinds: list[NormPart] = [kind(path) for kind in (LayerNormPart, RmsNormPart, UnitRmsNormPart, UnitLayerNormPart)]
    module = owner.get_submodule(path)
    if sum(parameter.dim() != 1 for parameter in module.parameters()):
        return None
    if not any(hasattr(module, name) for name in ("eps", "variance_epsilon", "epsilon")):
        kinds = [FixedLayerNormPart(path, epsilon) for epsilon in _EPSILONS]
    weights, errors = BlockWeights(owner, reads.dtype), dict[NormPart, float]()
    for kind in kinds:
        try:
            computed = normalised(weights.norm(kind, reads), reads)
        except (NormscopeError, RuntimeError, TypeError, AttributeError):
            continue
        if computed.shape == returns.shape:
            errors[kind] = difference(computed, returns)
    best = min(errors, key=errors.__getitem__, default=None)
    return best if best is not None and errors[best] <= limit_of(returns) else None


def normalised(norm: Norm, states: Tensor) -> Tensor:
    """What a norm makes of states."""
    if isinstance(norm, LayerNorm):
        scaled = functional.layer_norm(states, states.shape[-1:], eps=norm.epsilon) * norm.weight
        return scaled if norm.bias is None else scaled + norm.bias
    return functional.rms_norm(states, states.shape[-1:], eps=norm.epsilon) * norm.weight


def norms_of(run: BlockRun) -> list[Normed]:
    """The norms among the modules of a block."""
    found: list[Normed] = []
    for call in run.inside:
        if not call.transforms or call.reads.shape != call.returns.shape or call.reads.shape[-1] < 2:
            continue
        if any(True for _ in call.module.children()) or isinstance(call.module, nn.Dropout | nn.Identity):
            continue
        part = norm_part(run.module, call.path, call.reads, call.returns)
        if part is not None:
            found.append(Normed(part, call.reads, call.returns))
    return found


def is_linear(owner: nn.Module, call: Call) -> bool:
    """Whether a module multiplies by its matrix and adds its bias, and nothing else."""
    weight = getattr(call.module, "weight", None)
    if (
        not call.transforms
        or not isinstance(weight, Tensor)
        or weight.dim() != 2
        or isinstance(call.module, nn.Embedding)
    ):
        return False
    try:
        linear = BlockWeights(owner, call.reads.dtype).linear(call.path)
        return same(functional.linear(call.reads, linear.weight, linear.bias), call.returns)
    except (NormscopeError, RuntimeError, TypeError, AttributeError):
        return False


def linear_calls(run: BlockRun) -> list[Call]:
    """The linear layers of a block."""
    return [call for call in run.inside if is_linear(run.module, call)]


# ---- attention ---------------------------------------------------------------------------------------------------------


def attentions_of(run: BlockRun, linears: list[Call], norms: list[Normed], config: Config) -> list[Attended]:
    """The attentions of a block whose weights, values and output projection fit each other."""
    found = list(_dispatched(run, linears, norms))
    return found or list(_hooked(run, linears, norms, config))


def _dispatched(run: BlockRun, linears: list[Call], norms: list[Normed]) -> Iterator[Attended]:
    for path, (eager, probed, values) in run.attentions.items():
        for weights, is_probed in ((eager, False), (probed, True)):
            mixed = mix(weights, values)
            output = next((call for call in linears if same(call.reads, mixed)), None)
            if output is None:
                continue
            for value, reads in _values(values.transpose(0, 1), linears, norms):
                part = DispatchedAttention(path, value, output.path, probed=is_probed)
                yield Attended(part, reads, output.returns, not bool(weights.triu(1).any()))
                return


def _hooked(run: BlockRun, linears: list[Call], norms: list[Normed], config: Config) -> Iterator[Attended]:
    """Weights that a module returns, first or second, with every layout of values that gives what a projection reads."""
    length = len(run.reads)
    for call in run.inside:
        weights = _weights_in(call.output, length)
        if weights is None:
            continue
        heads = len(weights)
        for output in linears:
            if (output.start < call.start and call.end < output.end) or output.reads.shape[-1] % heads:
                continue
            size = output.reads.shape[-1] // heads
            for groups in _groups(heads):
                heads_of = _value_heads(groups, config)
                if heads_of is None:
                    continue
                for source in linears:
                    for value in _layouts(source.path):
                        values = _share(value, source.returns, groups, size)
                        if values is None or not same(mix(weights, values.transpose(0, 1)), output.reads):
                            continue
                        found = next(_values(values, [source], norms, [*linears]), None)
                        if found is None:
                            continue
                        part = HookedAttention(call.path, found[0], output.path, value_heads=heads_of)
                        yield Attended(part, found[1], output.returns, not bool(weights.triu(1).any()))
                        return


def mix(weights: Tensor, values: Tensor) -> Tensor:
    """`[query, head * d_head]` from weights `[head, query, key]` and values `[group, key, d_head]`."""
    if len(weights) % len(values) or weights.shape[-1] != values.shape[1]:
        return weights.new_zeros(0)
    repeated = values.repeat_interleave(len(weights) // len(values), dim=0)
    return (weights.to(repeated.dtype) @ repeated).transpose(0, 1).flatten(1)


def _weights_in(output: Any, length: int) -> Tensor | None:
    """Attention weights among what a module returns, where the capture looks for them."""
    given = output if isinstance(output, Tensor) else output[1] if isinstance(output, tuple) and output[1:] else None
    if isinstance(given, Tensor) and given.dim() == 4 and given.shape[-2:] == (length, length):
        return given[0]
    return None


def _groups(heads: int) -> list[int]:
    return [number for number in range(heads, 0, -1) if heads % number == 0]


_NAMES_OF_GROUPS = ("num_key_value_heads", "num_kv_heads", "num_heads", "n_head", "n_heads")


def _value_heads(groups: int, config: Config) -> Callable[[Config], int] | None:
    """What in a configuration is the number of value heads."""
    if getattr(config, "num_attention_heads", None) == groups:
        return all_heads
    return next((ConfigField(name) for name in _NAMES_OF_GROUPS if getattr(config, name, None) == groups), None)


def _layouts(path: str) -> list[Value]:
    return [SplitHeads(path), FusedTail(path), FusedPerHead(path), *(FusedShards(path, count) for count in _SHARDS)]


def _share(value: Value, projected: Tensor, groups: int, size: int) -> Tensor | None:
    """`[token, group, d_head]`, or nothing where the layout does not fit."""
    if isinstance(value, SplitHeads) and projected.shape[-1] != groups * size:
        return None
    if projected.shape[-1] < groups * size:
        return None
    try:
        share = value_share(value, projected, groups, size)
    except RuntimeError:
        return None
    return share if share.shape[-2:] == (groups, size) else None


def _values(
    values: Tensor, sources: list[Call], norms: list[Normed], linears: list[Call] | None = None
) -> Iterator[tuple[Value, Tensor]]:
    """The layouts in which projections have values `[token, group, d_head]`, and what the values are made of."""
    groups, size = values.shape[1:]
    limit = float(values.abs().max())
    for source in sources:
        for value in _layouts(source.path):
            share = _share(value, source.returns, groups, size)
            if share is None or not (same(share, values) or same(share.clamp(-limit, limit), values)):
                continue
            yield from _latent(value, source, norms, sources if linears is None else linears)
            yield value, source.reads


def _latent(value: Value, source: Call, norms: list[Normed], linears: list[Call]) -> Iterator[tuple[Value, Tensor]]:
    """Values of a narrow latent state: the first outputs of a linear layer, through a norm."""
    for norm in norms:
        width = norm.reads.shape[-1]
        if not isinstance(value, FusedPerHead) or not same(norm.returns, source.reads):
            continue
        for down in linears:
            if down.returns.shape[-1] > width and same(down.returns[:, :width], norm.reads):
                yield LatentPerHead(source.path, down.path, norm.part), down.reads


# ---- feed-forwards -----------------------------------------------------------------------------------------------------


def feed_forwards_of(run: BlockRun, linears: list[Call], attention: Attended) -> list[FedForward]:
    """The feed-forwards of a block: experts with what is added to them, or plain and gated networks."""
    used = {attention.part.value.module, attention.part.output}
    free = [call for call in linears if call.path not in used]
    networks = [network for down in free for network in _networks(run, free, down)]
    experts = [found for call in run.inside for found in _experts(run, call, networks, free)]
    return [*experts, *networks]


def _networks(run: BlockRun, linears: list[Call], down: Call) -> Iterator[FedForward]:
    before = [call for call in linears if call.start < down.start]
    for first in before:
        if first.returns.shape == down.reads.shape:
            for up in before:
                if up is not first and up.returns.shape == first.returns.shape and same(up.reads, first.reads):
                    gate = activation_of(run.module, first.returns, down.reads, up.returns, near=first.path)
                    if gate is not None:
                        yield FedForward(GatedPart(first.path, up.path, gate, down.path), first.reads, down.returns)
                        return
            activation = activation_of(run.module, first.returns, down.reads, near=first.path) or named_activation(
                first.returns, down.reads
            )
            if activation is not None:
                yield FedForward(PlainPart(first.path, activation, down.path), first.reads, down.returns)
                return
        elif first.returns.shape[-1] == 2 * down.reads.shape[-1] and len(first.returns) == len(down.reads):
            gate, up_half = first.returns.chunk(2, dim=-1)
            activation = activation_of(run.module, gate, down.reads, up_half, near=first.path)
            if activation is not None:
                yield FedForward(FusedGatedPart(first.path, activation, down.path), first.reads, down.returns)
                return


def activation_of(
    owner: nn.Module, entering: Tensor, leaving: Tensor, factor: Tensor | None = None, *, near: str
) -> str | None:
    """The path of an activation that turns one tensor into another (times a factor, where there is one).

    Of several that do, it is the nearest to the module `near`.
    """
    for path, function in sorted(_functions(owner), key=lambda item: -_shared_steps(item[0], near)):
        computed = _applied(function, entering)
        if computed is not None and same(computed if factor is None else computed * factor, leaving):
            return path
    return None


def _shared_steps(one: str, other: str) -> int:
    """How many modules two paths have in common."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one.split("."), other.split("."), strict=False))))


def named_activation(entering: Tensor, leaving: Tensor) -> NamedActivation | None:
    """The activation of transformers that turns one tensor into another: the nearest."""
    errors: dict[str, float] = {}
    for name in sorted(ACT2FN.keys() - _WITH_PARAMETERS):
        computed = _applied(cast("Callable[..., Any]", ACT2FN[name]), entering)
        if computed is not None:
            errors[name] = difference(computed, leaving)
    best = min(errors, key=errors.__getitem__, default=None)
    return NamedActivation(best) if best is not None and errors[best] <= limit_of(leaving) else None


def _functions(owner: nn.Module) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Modules without matrices, and functions that modules hold."""
    for path, module in owner.named_modules():
        small = all(parameter.numel() == 1 for parameter in module.parameters())
        if path and small and not isinstance(module, nn.Dropout | nn.Identity) and not any(module.children()):
            yield path, module.forward
        for name, value in vars(module).items():
            if isinstance(value, FunctionType | BuiltinFunctionType):
                yield f"{path}.{name}".lstrip("."), value


def _applied(function: Callable[..., Any], tensor: Tensor) -> Tensor | None:
    try:
        with torch.no_grad():
            result = function(tensor.clone())
    except Exception:  # whatever a function that is no activation may raise
        return None
    return result if isinstance(result, Tensor) and result.shape == tensor.shape else None


def _experts(run: BlockRun, call: Call, networks: list[FedForward], linears: list[Call]) -> Iterator[FedForward]:
    """Experts with stacked weights, called with states, choices and their weights, alone or with a shared network."""
    module: Any = call.module
    stacked = [getattr(module, name, None) for name in ("gate_up_proj", "down_proj")]
    if not all(isinstance(each, Tensor) and each.dim() == 3 for each in stacked) or len(call.arguments) < 3:
        return
    if call.arguments[1].is_floating_point() or not call.arguments[2].is_floating_point():
        return
    owner = call.path.rpartition(".")[0]
    whole = next((each for each in run.inside if each.path == owner), None)
    if whole is None:
        return
    if hasattr(module, "gate_up_proj_bias"):
        yield FedForward(ClampedExpertsPart(owner, call.path), whole.reads, whole.returns)
        return
    activation = next((path for path, _ in _functions(run.module) if path.startswith(f"{call.path}.")), None)
    if activation is None:
        return
    routed = ExpertsPart(owner, call.path, activation)
    if same(call.returns, whole.returns):
        beside = [each for each in networks if same(each.reads, whole.reads) and _is_shared(each)]
        for network in beside:
            part = SharedExpertsPart(routed, cast("GatedPart | FusedGatedPart", network.part))
            yield FedForward(part, whole.reads, whole.returns + network.returns)
        yield FedForward(routed, whole.reads, whole.returns)
        return
    for network in filter(_is_shared, networks):
        yield from _shared(routed, network, call.returns, whole, linears)


def _is_shared(network: FedForward) -> bool:
    return isinstance(network.part, GatedPart | FusedGatedPart)


def _shared(
    routed: ExpertsPart, network: FedForward, of_experts: Tensor, whole: Call, linears: list[Call]
) -> Iterator[FedForward]:
    """Both added up, the network times a sigmoid where there is one, each times a number."""
    gates = [call for call in linears if call.returns.shape[-1] == 1 and call.path.startswith(f"{routed.module}.")]
    options = [(None, network.returns), *((gate.path, network.returns * gate.returns.sigmoid()) for gate in gates)]
    for gate, own in options:
        pair = torch.stack([of_experts.flatten(), own.flatten()], dim=-1)
        factors = torch.linalg.lstsq(pair, whole.returns.flatten()[:, None]).solution.flatten()
        if same(pair @ factors, whole.returns.flatten()):
            of_routed, of_shared = (plain_number(float(factor)) for factor in factors)
            part = SharedExpertsPart(routed, cast("GatedPart | FusedGatedPart", network.part), gate)
            part = replace(part, routed_factor=plain_number(of_routed / of_shared), factor=of_shared)
            yield FedForward(part, whole.reads, whole.returns)


def plain_number(value: float, digits: int = 9) -> float:
    """A number without the digits that are rounding."""
    return float(f"{value:.{digits}g}")
