"""Norms and feed-forwards as linear maps, which is all that a decomposition needs of them.

Both read only weights and one scalar per query (or per query and neuron), so they apply to any stack of vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.trace import Expert, FeedForward, Fork, Gated, LayerNorm, Linear, Norm, Plain, RmsNorm, Scale


def deviation(norm: Norm, state: Float[Tensor, "*query d"]) -> Float[Tensor, "*query"]:
    """`s_i`, by which the norm divides: from the model's own state `y_i`, not from any part of it."""
    match norm:
        case LayerNorm():
            centred = state - state.mean(dim=-1, keepdim=True)  # torch takes a variance more slowly
            return torch.sqrt(centred.square_().mean(dim=-1) + norm.epsilon)
        case RmsNorm():
            return torch.sqrt(state.square().mean(dim=-1) + norm.epsilon)


def scale_(norm: Norm, vectors: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """The linear half of a norm, in place: LayerNorm centres each vector by *its own* mean; both multiply by gamma."""
    if isinstance(norm, LayerNorm):
        vectors.sub_(vectors.mean(dim=-1, keepdim=True))
    return vectors.mul_(norm.weight)


def scale_back(norm: Norm, covectors: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """The covectors before the linear half of a norm: their products with vectors there are those of `covectors` after
    it."""
    scaled = covectors * norm.weight
    return scaled - scaled.mean(dim=-1, keepdim=True) if isinstance(norm, LayerNorm) else scaled


def shift(norm: Norm) -> Float[Tensor, " d"] | None:
    """The constant half of a norm, which belongs to no token."""
    return norm.bias if isinstance(norm, LayerNorm) else None


def passed_around(fork: Fork, state: Float[Tensor, "query d"]) -> Float[Tensor, "query d"]:
    """The bypass of a branch, for the state that enters it."""
    for step in fork.around:
        if isinstance(step, Scale):
            state = state * step.factor
            continue
        constant = shift(step.norm)
        state = scale_(step.norm, state / deviation(step.norm, state)[:, None])
        state = state if constant is None else state + constant
    return state


@dataclass(frozen=True)
class LinearisedNetwork:
    """A network with its activation replaced by slopes: linear in its input, for each row that it serves.

    `x -> (sum_b slopes_b * (x @ projections_b.T)) @ output.T`, with one branch `b` for a plain network and two for a
    gated one. `constant` is the value of the neurons without any input. An expert's weight is already included in all
    of these, and the factor of the states that it reads is included in the slopes.
    """

    rows: Int[Tensor, " row"]
    weights: Float[Tensor, " row"]
    projections: tuple[Linear, ...]
    slopes: tuple[Float[Tensor, "row f"], ...]
    constant: Float[Tensor, "row f"]
    output: Linear

    def hidden(self, vectors: Float[Tensor, "... row d"]) -> Float[Tensor, "... row f"]:
        """The vectors at the activated neurons."""
        total = (vectors @ self.projections[0].weight.T).mul_(self.slopes[0])
        for linear, slope in zip(self.projections[1:], self.slopes[1:], strict=True):
            total += (vectors @ linear.weight.T).mul_(slope)
        return total

    @cached_property
    def hidden_bias(self) -> Float[Tensor, "row f"]:
        """What belongs to no token in the neurons: the constant, and the projections' biases."""
        total = self.constant.clone()
        for linear, slope in zip(self.projections, self.slopes, strict=True):
            if linear.bias is not None:
                total += slope * linear.bias
        return total

    def out(self, hidden: Float[Tensor, "... row f"], bias: int) -> Float[Tensor, "... row d"]:
        """Through the second matrix; the vectors at index `bias` also receive its bias."""
        vectors = hidden @ self.output.weight.T
        if self.output.bias is not None:
            vectors[bias] += self.weights[:, None] * self.output.bias
        return vectors


def linearised(step: FeedForward) -> list[LinearisedNetwork]:
    """The networks of a feed-forward at the model's own pre-activations."""
    return [_linearised(expert) for expert in step.experts]


def _linearised(expert: Expert) -> LinearisedNetwork:
    network = expert.network
    match network:
        case Plain():
            projections, output = (network.first,), network.second
            slopes, constant = _plain_slopes(network, expert)
        case Gated():
            projections, output = (network.gate, network.up), network.down
            slopes, constant = _gated_slopes(network, expert)
    weights = expert.weights[:, None]
    entering = weights if expert.scales is None else weights * expert.scales[:, None]
    scaled = tuple(slope * entering for slope in slopes)
    return LinearisedNetwork(expert.rows, expert.weights, projections, scaled, constant * weights, output)


_Slopes = tuple[Float[Tensor, "row f"], ...]


def _plain_slopes(network: Plain, expert: Expert) -> tuple[_Slopes, Float[Tensor, "row f"]]:
    """The slope of the activation from its baseline, and the value of the neurons there in addition to the slope's
    share."""
    (z,), activation = expert.pre_activations, network.activation
    if expert.baselines is None:
        return (activation.slope(z),), z.new_tensor(activation.at_zero).expand_as(z)
    (start,) = expert.baselines
    slope = activation.secant(start, z)
    return (slope,), activation.function(start) - slope * start


def _gated_slopes(network: Gated, expert: Expert) -> tuple[_Slopes, Float[Tensor, "row f"]]:
    """The same of gate and up projection. A clamp is replaced by its own secant first; without one that is 1."""
    (a, u), activation, limit = expert.pre_activations, network.activation, network.up_limit
    clamped = u.clamp(-limit, limit)
    if expert.baselines is None:
        of_gate, of_up = activation.gate_slopes(a)
        clamp_slope = torch.where(clamped == u, 1.0, clamped / u)
        return (of_gate * (clamped + network.up_offset), of_up * clamp_slope), of_up * network.up_offset
    a_start, u_start = expert.baselines
    clamped_start = u_start.clamp(-limit, limit)
    ups = [each + network.up_offset for each in (clamped_start, clamped)]
    of_gate, of_up = activation.gate_secants((a_start, ups[0]), (a, ups[1]))
    inside = (clamped == u) & (clamped_start == u_start)
    of_up = of_up * torch.where(inside, 1.0, (clamped - clamped_start) / torch.where(inside, 1.0, u - u_start))
    constant = activation.function(a_start) * ups[0] - of_gate * a_start - of_up * u_start
    return (of_gate, of_up), constant


def constant_context(
    weights: Float[Tensor, "head query key"], values: Float[Tensor, "head constant d_head"]
) -> Float[Tensor, "head query d_head"]:
    """The context vectors of values that belong to no token: one for all keys, or one for each.

    One for all keys reaches a query by the row sum of the weights, which need not be 1.
    """
    return weights.sum(-1, keepdim=True) * values if values.shape[1] == 1 else weights @ values
