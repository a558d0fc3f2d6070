"""A block computed again on plain states, with its real norms and activations.

Attention weights and routers are those of the model's own pass. What is carried is the state itself, `[query, d]`, or any
number of variants of it, `[variant, query, d]`: a fold can be stopped, its states changed, and continued from there.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.fold import Rules
from normscope.chain.linear import deviation, scale_, shift
from normscope.chain.trace import Attention, Expert, FeedForward, Gated, Linear, Normalise, OwnFeedForward, Plain

States = Float[Tensor, "*variant query d"]


class Replay(Rules[Tensor]):
    """The rules of the model itself."""

    def attention(self, step: Attention, value: States) -> Float[Tensor, "query d"]:
        output = step.through_output(step.weights @ step.values)
        return output if step.bias is None else output + step.bias

    def normalise(self, step: Normalise, value: States) -> States:
        scaled = scale_(step.norm, value / deviation(step.norm, value)[..., None])
        constant = shift(step.norm)
        return scaled if constant is None else scaled.add_(constant)

    def feed_forward(self, step: FeedForward, value: States) -> States:
        output = torch.zeros_like(value)
        for expert in step.experts:
            output[..., expert.rows, :] += expert.weights[:, None] * _network(expert, value[..., expert.rows, :])
        return output

    def own_feed_forward(self, step: OwnFeedForward, value: States) -> States:
        return value + self.feed_forward(step, step.hidden)


def _network(expert: Expert, states: Float[Tensor, "*variant row d"]) -> Float[Tensor, "*variant row d"]:
    if expert.scales is not None:
        states = states * expert.scales[:, None]
    match network := expert.network:
        case Plain():
            return _affine(network.second, network.activation.function(_affine(network.first, states)))
        case Gated():
            gate, up = _affine(network.gate, states), _affine(network.up, states)
            up = up.clamp(-network.up_limit, network.up_limit) + network.up_offset
            return _affine(network.down, network.activation.function(gate) * up)


def _affine(linear: Linear, states: Float[Tensor, "*variant row inputs"]) -> Float[Tensor, "*variant row outputs"]:
    return torch.nn.functional.linear(states, linear.weight, linear.bias)
