"""Rows computed again by the rules of a model, with the sizes of the numbers that the model rounds on its way to them.

Every number that a model computes is rounded to its dtype. One rounding is an error of the dtype's unit roundoff times the
number that is rounded. `rounded` keeps these sizes, so that anything else can be told from rounding, in every dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.linear import deviation, scale_, shift
from normscope.chain.trace import (
    Attention,
    Expert,
    FeedForward,
    Gated,
    LayerNorm,
    Linear,
    Norm,
    Normalise,
    Plain,
    ValueSource,
)


@dataclass(frozen=True)
class Computed:
    """Rows that were computed again, and for each of their numbers the size of what is rounded on the way to it."""

    value: Float[Tensor, "row f"]
    rounded: Float[Tensor, "row f"]

    @staticmethod
    def from_model(states: Float[Tensor, "row f"]) -> Computed:
        """The model's own states, to go on from."""
        return Computed(states, states.abs())

    def error(self, own: Float[Tensor, "row f"], least: float, groups: int = 1) -> Float[Tensor, "row group"]:
        """How far the model's `own` states are, relative to what is rounded, in each group: the larger of two measures.

        The root mean square over a group counts all numbers alike, so that a small one that is wrong is seen. The length of
        the difference relative to that of what is rounded counts them by their size: in a wide state, one number that is far
        larger than the others may be all that matters. `least` is the smallest number that the model's dtype rounds to all
        of its digits.
        """
        difference = (self.value - own).unflatten(-1, (groups, -1))
        rounded = (self.rounded + least).unflatten(-1, (groups, -1))
        alike = (difference / rounded).square().mean(-1).sqrt()
        largest = rounded.amax(-1, keepdim=True)  # squares of the numbers themselves could be too large or too small
        by_size = (difference / largest).norm(dim=-1) / (rounded / largest).norm(dim=-1)
        return alike.maximum(by_size)

    def __add__(self, other: Computed) -> Computed:
        return Computed(self.value + other.value, self.rounded + other.rounded)

    def __mul__(self, factor: float | Tensor) -> Computed:
        return Computed(self.value * factor, self.rounded * abs(factor))

    def __getitem__(self, rows: Int[Tensor, " row"]) -> Computed:
        return Computed(self.value[rows], self.rounded[rows])

    def plus(self, constant: Tensor | None) -> Computed:
        """With something added that is the same for all rows."""
        return self if constant is None else Computed(self.value + constant, self.rounded + constant.abs())

    def linear(self, linear: Linear, groups: int = 1) -> Computed:
        """Through an affine map.

        What was rounded before adds up as independent errors do, by their squares: their mean in each of the `groups` into
        which the outputs are divided.
        """
        weight = linear.weight.to(self.value)
        value = self.value @ weight.T
        squares = linear.shared.once((groups,), (linear.weight,), lambda: _mean_squares(weight, groups))
        spread = (self.rounded.square() @ squares.to(value).T).sqrt()
        rounded = value.abs().unflatten(-1, (groups, -1)).add_(spread[..., None]).flatten(-2)
        if linear.bias is None:
            return Computed(value, rounded)
        bias = linear.bias.to(value)
        return Computed(value.add_(bias), rounded.add_(bias.abs()))

    def normalised(self, norm: Norm) -> Computed:
        """Through a norm; the mean that a LayerNorm takes away is rounded too."""
        divisor = deviation(norm, self.value)[:, None]
        entering = self.rounded
        if isinstance(norm, LayerNorm):
            entering = entering + entering.norm(dim=-1, keepdim=True) / entering.shape[-1]
        value = scale_(norm, self.value / divisor)
        return Computed(value, value.abs() + entering * norm.weight.abs() / divisor).plus(shift(norm))


def _mean_squares(weight: Float[Tensor, "outputs inputs"], groups: int) -> Float[Tensor, "group inputs"]:
    """The mean square of each input's weights to the outputs of each group."""
    if groups == len(weight):
        return weight.square()
    rows = len(weight) // groups
    # Some rows at a time: no copy of a large matrix is made, and torch sums squares faster than it takes norms.
    sums = [torch.stack([part.square().sum(0) for part in group.split(1024)]).sum(0) for group in weight.split(rows)]
    return torch.stack(sums) / rows


def attended(step: Attention) -> Computed:
    """What an attention outputs, from the model's own weights and values."""
    context = step.summed_taps(step.weights @ step.values)
    if step.factors is not None:
        context = context * step.factors
    flat = Computed.from_model(context.transpose(0, 1).flatten(1))
    return flat.linear(Linear(step.output.flatten(0, 1).T, step.bias))


def values_from(source: ValueSource) -> Computed:
    """The values `[key, head x d_head]` that an attention has if they are made of what it reads."""
    reached = Computed.from_model(source.states)
    for step in source.steps:
        reached = reached.normalised(step.norm) if isinstance(step, Normalise) else reached.linear(step)
    bias = None if source.bias is None else source.bias.flatten()
    made = reached.linear(Linear(source.projection.flatten(0, 1), bias), groups=len(source.projection))
    if source.slopes is not None:
        return _by_tap(source, made)
    return made if math.isinf(source.limit) else Computed(made.value.clamp(-source.limit, source.limit), made.rounded)


def _by_tap(source: ValueSource, made: Computed) -> Computed:
    """What every tap of a convolution puts into the values, `[key, tap x head x d_head]`."""
    assert source.slopes is not None
    shape = source.projection.shape[:2]

    def spread(rows: Tensor, slopes: Tensor) -> Tensor:
        by_head = rows.unflatten(-1, shape).transpose(0, 1)
        return (by_head.repeat(len(slopes) // shape[0], 1, 1) * slopes).transpose(0, 1).flatten(1)

    value, rounded = spread(made.value, source.slopes), spread(made.rounded, source.slopes.abs())
    if source.offset is None:
        return Computed(value, rounded)
    offset = source.offset.transpose(0, 1).flatten(1)
    return Computed(value + offset, rounded + offset.abs())


def entering_neurons(expert: Expert, entering: Computed) -> tuple[Computed, ...]:
    """What the first matrices of a network make of the rows that it serves, in the order of its `pre_activations`."""
    network = expert.network
    first = (network.first,) if isinstance(network, Plain) else (network.gate, network.up)
    rows = entering[expert.rows]
    if expert.scales is not None:
        rows = rows * expert.scales[:, None]
    return tuple(rows.linear(linear) for linear in first)


def fed_forward(step: FeedForward, like: Float[Tensor, "row d"]) -> Computed:
    """What a feed-forward outputs, from the model's own pre-activations."""
    total = Computed(like.new_zeros(like.shape), like.new_zeros(like.shape))
    for expert in step.experts:
        output = _out_of_neurons(expert)
        total.value.index_add_(0, expert.rows, output.value)
        total.rounded.index_add_(0, expert.rows, output.rounded)
    return total


def _out_of_neurons(expert: Expert) -> Computed:
    match network := expert.network:
        case Plain():
            neurons, second = network.activation.function(expert.pre_activations[0]), network.second
        case Gated():
            gate, up = expert.pre_activations
            up = up.clamp(-network.up_limit, network.up_limit) + network.up_offset
            neurons, second = network.activation.function(gate) * up, network.down
    return Computed.from_model(neurons).linear(second) * expert.weights[:, None]
