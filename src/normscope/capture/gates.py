"""Gates and norms between the outputs of a mixer's heads and its output projection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.activations import ACT2FN

from normscope.capture.values import value_share
from normscope.capture.view import SequenceView
from normscope.capture.weights import BlockWeights
from normscope.chain.activations import Activation, recognise
from normscope.chain.trace import Attention, ContextNorm, Gating
from normscope.families.spec import (
    ChannelGate,
    ContextNormPart,
    DispatchedAttention,
    HeadGate,
    LinearMixer,
    NamedActivation,
)


def watched_in_gates(part: DispatchedAttention | LinearMixer) -> tuple[str, ...]:
    """The submodules that gate or normalise the outputs of the heads."""
    gate = (part.gate.source.module,) if isinstance(part.gate, ChannelGate) else ()
    return gate if part.output_norm is None else (*gate, part.output_norm.module)


def with_gates(
    attention: Attention, part: DispatchedAttention | LinearMixer, read: BlockWeights, view: SequenceView
) -> Attention:
    """The same with the factors of its heads, channel by channel, and their normalisation."""
    if isinstance(part.gate, ChannelGate):
        entering = gate_inputs(part.gate, view, attention).transpose(0, 1)
        attention = replace(attention, **_gated(part.gate.activation, entering))
    if isinstance(part.gate, HeadGate):
        entering = view.output(part.gate.module).T[:, :, None]
        attention = replace(attention, gating=Gating(_activation(part.gate.activation), entering))
    if part.output_norm is not None:
        attention = _normalised(attention, part.output_norm, read, view)
    if isinstance(part, DispatchedAttention) and part.difference is not None:
        factor = 1 - float(read.attribute(f"{part.difference.module}.lambda_init"))
        attention = replace(attention, output=attention.output * factor)
    return attention


def with_slopes(attention: Attention, activation: Activation, context: Float[Tensor, "query channel"]) -> Attention:
    """The same with the factors by which an activation changes what the heads output."""
    heads = len(attention.output)
    return replace(attention, gates=activation.slope(context).unflatten(-1, (heads, -1)).transpose(0, 1))


def gate_inputs(gate: ChannelGate, view: SequenceView, attention: Attention) -> Float[Tensor, "query head d_head"]:
    """The input of the gate of every query and channel."""
    heads, d_head, _ = attention.output.shape
    return value_share(gate.source, view.output(gate.source.module), heads, d_head)


def _gated(name: str | NamedActivation | None, entering: Float[Tensor, "head query d_head"]) -> dict[str, Any]:
    """The gates that an activation makes, and how."""
    activation = _activation(name)
    return {"gates": activation.function(entering), "gating": Gating(activation, entering)}


def _activation(name: str | NamedActivation | None) -> Activation:
    match name:
        case None:
            return recognise(nn.Identity())
        case NamedActivation(known):
            return recognise(ACT2FN[known])
        case str(function):
            return recognise(getattr(torch.nn.functional, function))


def _normalised(attention: Attention, part: ContextNormPart, read: BlockWeights, view: SequenceView) -> Attention:
    heads, d_head, _ = attention.output.shape
    state, inner = view.input(part.module), heads * d_head
    own, epsilon = read.attribute(f"{part.module}.weight"), read.epsilon(part.module)
    weight = state.new_ones(d_head) if own is None else read.parameter(f"{part.module}.weight")
    if part.gate is not None:
        flat = view.second_input(part.module)
        attention = replace(attention, **_gated(part.gate, flat.unflatten(-1, (heads, d_head)).transpose(0, 1)))
        state = state * _activation(part.gate).function(flat) if part.gated_first else state
    width = inner if part.group_width is None else int(read.attribute(f"{part.module}.{part.group_width}"))
    width = min(width, len(weight))
    deviations = torch.sqrt(state.unflatten(-1, (-1, width)).square().mean(-1, keepdim=True) + epsilon)
    by_channel = deviations.expand(-1, -1, width).reshape(-1, heads, d_head).transpose(0, 1)
    alike = by_channel[..., :1] if width % d_head == 0 else by_channel
    norm = ContextNorm(epsilon, inner // width, part.gated_first, alike)
    gamma = weight.repeat(inner // len(weight)).view(heads, d_head, 1)
    return replace(attention, output=attention.output * gamma, norm=norm)
