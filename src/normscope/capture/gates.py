"""Gates and norms between what the heads of a mixer give out and its output projection."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.activations import ACT2FN

from normscope.capture.values import value_share
from normscope.capture.view import SequenceView
from normscope.capture.weights import BlockWeights
from normscope.chain.trace import Attention, ContextNorm
from normscope.families.spec import ChannelGate, ContextNormPart, DispatchedAttention, LinearMixer, NamedActivation


def watched_in_gates(part: DispatchedAttention | LinearMixer) -> tuple[str, ...]:
    """The submodules that gate or normalise what the heads give out."""
    gate = (part.gate.source.module,) if isinstance(part.gate, ChannelGate) else ()
    return gate if part.output_norm is None else (*gate, part.output_norm.module)


def with_gates(
    attention: Attention, part: DispatchedAttention | LinearMixer, read: BlockWeights, view: SequenceView
) -> Attention:
    """The same with what its heads are multiplied by, channel by channel, and how they are normalised."""
    if isinstance(part.gate, ChannelGate):
        attention = replace(attention, gates=gates_of(part.gate, view, attention).transpose(0, 1))
    return attention if part.output_norm is None else _normalised(attention, part.output_norm, read, view)


def gates_of(gate: ChannelGate, view: SequenceView, attention: Attention) -> Float[Tensor, "query head d_head"]:
    """The factors of every query and channel."""
    heads, d_head, _ = attention.output.shape
    found = value_share(gate.source, view.output(gate.source.module), heads, d_head)
    match gate.activation:
        case None:
            return found
        case NamedActivation(name):
            return ACT2FN[name](found)
        case str(name):
            return getattr(torch.nn.functional, name)(found)


def _normalised(attention: Attention, part: ContextNormPart, read: BlockWeights, view: SequenceView) -> Attention:
    heads, d_head, _ = attention.output.shape
    state, inner = view.input(part.module), heads * d_head
    weight, epsilon = read.parameter(f"{part.module}.weight"), read.epsilon(part.module)
    gates = attention.gates
    if part.gate is not None:
        flat = getattr(torch.nn.functional, part.gate)(view.second_input(part.module))
        state = state * flat if part.gated_first else state
        gates = flat.unflatten(-1, (heads, d_head)).transpose(0, 1)
    width = inner if part.group_width is None else int(read.attribute(f"{part.module}.{part.group_width}"))
    width = min(width, len(weight))
    deviations = torch.sqrt(state.unflatten(-1, (-1, width)).square().mean(-1, keepdim=True) + epsilon)
    by_channel = deviations.expand(-1, -1, width).reshape(-1, heads, d_head).transpose(0, 1)
    alike = by_channel[..., :1] if width % d_head == 0 else by_channel
    norm = ContextNorm(epsilon, inner // width, part.gated_first, alike)
    gamma = weight.repeat(inner // len(weight)).view(heads, d_head, 1)
    return replace(attention, output=attention.output * gamma, norm=norm, gates=gates)
