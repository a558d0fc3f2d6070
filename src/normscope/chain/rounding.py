"""Rows computed again by the rules of a model, with the sizes of the numbers that the model rounds on its way to them.

Every number that a model computes is rounded to its dtype. One rounding is an error of the dtype's unit roundoff times the
number that is rounded. `rounded` keeps these sizes, so that anything else can be told from rounding, in every dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.linear import deviation, scale_, shift
from normscope.chain.scores import Scores
from normscope.chain.trace import (
    Attention,
    Expert,
    FeedForward,
    Gated,
    LayerNorm,
    Linear,
    Network,
    Norm,
    Normalise,
    Plain,
    Shared,
    ValueSource,
)

_COMBINATIONS = 8
"""The number of random combinations in which the elements of a row are compared, instead of multiplying out a
product."""

_SURE = 0.25
"""A row whose estimated error is below this part of what is allowed is not multiplied out. An error of exactly the
allowed size is underestimated that much once in six thousand times, one eight times larger once in 10^10 times."""


@dataclass(frozen=True)
class Product:
    """The rows `rows @ weight.T` before they are multiplied out, and the size of the numbers that are rounded on the
    way."""

    rows: Float[Tensor, "row inputs"]
    weight: Float[Tensor, "f inputs"]
    spread: Float[Tensor, "row group"]
    shared: Shared

    def of(self, rows: Int[Tensor, " some"]) -> Product:
        """The same for some of the rows."""
        return replace(self, rows=self.rows[rows], spread=self.spread[rows])

    def times(self, factor: float | Tensor) -> Product:
        """Multiplied by a number, or by one for each row."""
        return replace(self, rows=self.rows * factor, spread=self.spread * abs(factor))

    def combined(
        self, combinations: Float[Tensor, "group width combination"]
    ) -> Float[Tensor, "row group*combination"]:
        """Random combinations of the outputs of each group, for far less than the outputs themselves."""

        def of_weight() -> Tensor:
            grouped = self.weight.unflatten(0, combinations.shape[:2])
            return torch.bmm(combinations.transpose(1, 2), grouped).flatten(0, 1).T

        combined = self.shared.once((*combinations.shape, *self.weight.shape), (self.weight,), of_weight)
        return self.rows @ combined.to(self.rows)


@dataclass(frozen=True)
class Computed:
    """Rows that were computed again, and for each element the size of the numbers that are rounded on the way to it.

    `products` are summands that are not multiplied out, and not yet included in `value` and `rounded`.
    """

    value: Float[Tensor, "row f"]
    rounded: Float[Tensor, "row f"]
    products: tuple[Product, ...] = ()

    @staticmethod
    def from_model(states: Float[Tensor, "row f"]) -> Computed:
        """The model's own states, to go on from."""
        return Computed(states, states.abs())

    def error(
        self, own: Float[Tensor, "row f"], least: float, groups: int = 1, limit: float = 0.0
    ) -> Float[Tensor, "row group"]:
        """The distance to the model's `own` states, relative to what is rounded, in each group: the larger of two
        measures.

        The root mean square over a group counts all numbers alike, so that a small one that is wrong is seen. The length of
        the difference relative to that of what is rounded counts them by their size: in a wide state, one number that is far
        larger than the others may be all that matters. `least` is the smallest number that the model's dtype rounds to all
        of its digits.

        Where there are products, an upper bound of both is estimated first, and only the rows that are not certainly
        well within the `limit` are multiplied out.
        """
        if not self.products:
            return self._error(own, least, groups)
        errors = self._estimate(own, least, groups)
        unsure = (~(errors <= _SURE * limit).all(1)).nonzero()[:, 0]  # also what is no number
        if len(unsure):
            errors[unsure] = self[unsure].multiplied_out()._error(own[unsure], least, groups)
        return errors

    def _error(self, own: Float[Tensor, "row f"], least: float, groups: int) -> Float[Tensor, "row group"]:
        difference = (self.value - own).unflatten(-1, (groups, -1))
        rounded = (self.rounded + least).unflatten(-1, (groups, -1))
        alike = (difference / rounded).square().mean(-1).sqrt()
        largest = rounded.amax(-1, keepdim=True)  # squares of the numbers themselves could be too large or too small
        by_size = (difference / largest).norm(dim=-1) / (rounded / largest).norm(dim=-1)
        return alike.maximum(by_size)

    def _estimate(self, own: Float[Tensor, "row f"], least: float, groups: int) -> Float[Tensor, "row group"]:
        """The length of the difference by the rule of Freivalds: in random combinations, which cost no product of matrices.

        It is set against the spread of the products alone, the smallest of what is rounded in a group.
        """
        combinations = _combinations(groups, own.shape[-1] // groups).to(own)

        def combined(rows: Tensor) -> Tensor:
            return torch.einsum("rgw,gwc->rgc", rows.unflatten(-1, (groups, -1)), combinations).flatten(1)

        rest = combined(self.value - own) if len(self.value) == len(own) else combined(self.value) - combined(own)
        for product in self.products:
            rest = rest + product.combined(combinations)
        spread = torch.stack([product.spread.expand(-1, groups) for product in self.products]).amax(0)
        # The squares of what is divided first are neither too large nor too small.
        return (rest.unflatten(-1, (groups, -1)) / (spread + least)[..., None]).square().mean(-1).sqrt()

    def multiplied_out(self) -> Computed:
        """The same without products."""
        value, rounded = self.value, self.rounded
        for product in self.products:
            whole = product.rows @ product.weight.T
            sizes = whole.abs().unflatten(-1, (product.spread.shape[1], -1)).add_(product.spread[..., None])
            value, rounded = value + whole, rounded + sizes.flatten(-2)
        return Computed(value, rounded)

    def __add__(self, other: Computed) -> Computed:
        return Computed(self.value + other.value, self.rounded + other.rounded, self.products + other.products)

    def __mul__(self, factor: float | Tensor) -> Computed:
        products = tuple(product.times(factor) for product in self.products)
        return Computed(self.value * factor, self.rounded * abs(factor), products)

    def __getitem__(self, rows: Int[Tensor, " row"]) -> Computed:
        products = tuple(product.of(rows) for product in self.products)
        alike = bool(products) and len(self.value) < len(self.products[0].rows)  # the same for all rows
        if alike:
            return Computed(self.value, self.rounded, products)
        return Computed(self.value[rows], self.rounded[rows], products)

    def plus(self, constant: Tensor | None) -> Computed:
        """With a vector added that is the same for all rows."""
        return (
            self if constant is None else Computed(self.value + constant, self.rounded + constant.abs(), self.products)
        )

    def linear(self, linear: Linear, groups: int = 1) -> Computed:
        """Through an affine map.

        What was rounded before adds up as independent errors do, by their squares: their mean in each of the `groups` into
        which the outputs are divided.
        """
        return self.product(linear, groups).multiplied_out()

    def product(self, linear: Linear, groups: int = 1) -> Computed:
        """The same without multiplying out, to be compared as it is."""
        before = self.multiplied_out()
        weight = linear.weight.to(before.value)
        squares = linear.shared.once((groups, *weight.shape), (linear.weight,), lambda: _mean_squares(weight, groups))
        spread = (before.rounded.square() @ squares.to(before.value).T).sqrt()
        bias = weight.new_zeros(1, len(weight)) if linear.bias is None else linear.bias.to(weight)[None]
        return Computed(bias, bias.abs(), (Product(before.value, weight, spread, linear.shared),))

    def normalised(self, norm: Norm) -> Computed:
        """Through a norm; the mean that a LayerNorm takes away is rounded too."""
        divisor = deviation(norm, self.value)[:, None]
        entering = self.rounded
        if isinstance(norm, LayerNorm):
            entering = entering + entering.norm(dim=-1, keepdim=True) / entering.shape[-1]
        value = scale_(norm, self.value / divisor)
        return Computed(value, value.abs() + entering * norm.weight.abs() / divisor).plus(shift(norm))


@lru_cache(maxsize=64)
def _combinations(groups: int, width: int) -> Float[Tensor, "group width combination"]:
    """Weights of random combinations, whose squares have on average the sum of the squares; the mean over the width."""
    generator = torch.Generator("cpu").manual_seed(groups)
    weights = torch.randn(groups, width, _COMBINATIONS, generator=generator, device="cpu", dtype=torch.float64)
    return weights / math.sqrt(width)


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
    return flat.product(Linear(step.output.flatten(0, 1).T, step.bias, step.shared))


def softmax_of(scores: Scores) -> Computed:
    """The weights `[query, head x key]` of an attention, computed from its queries and keys.

    An error of a score is one of its weight relative to it, and a score is rounded as the lengths of query and key are.
    """
    weights = scores.softmax(scores.products())
    lengths = scores.queries.norm(dim=-1)[:, :, None] * scores.keys.norm(dim=-1)[:, None] * abs(scores.scale)
    value, rounded = (each.transpose(0, 1).flatten(1) for each in (weights, weights * (1 + lengths)))
    return Computed(value, rounded)


def values_from(source: ValueSource, shared: Shared) -> Computed:
    """The values `[key, head x d_head]` of an attention, computed from the states that it reads."""
    reached = Computed.from_model(source.states)
    for step in source.steps:
        reached = reached.normalised(step.norm) if isinstance(step, Normalise) else reached.linear(step)
    bias = None if source.bias is None else source.bias.flatten()
    made = reached.product(Linear(source.projection.flatten(0, 1), bias, shared), groups=len(source.projection))
    if source.slopes is None and math.isinf(source.limit):
        return made
    made = made.multiplied_out()
    if source.slopes is not None:
        return _by_tap(source, made)
    return Computed(made.value.clamp(-source.limit, source.limit), made.rounded)


def _by_tap(source: ValueSource, made: Computed) -> Computed:
    """The contribution of every tap of a convolution to the values, `[key, tap x head x d_head]`."""
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
    """The outputs of the first matrices of a network for the rows that it serves, in the order of its
    `pre_activations`."""
    first = first_matrices(expert.network)
    rows = entering if _serves_all(expert, len(entering.value)) else entering[expert.rows]
    if expert.scales is not None:
        rows = rows * expert.scales[:, None]
    return tuple(rows.product(linear) for linear in first)


def first_matrices(network: Network) -> tuple[Linear, ...]:
    """The first matrix of a plain network, or the two of a gated one."""
    return (network.first,) if isinstance(network, Plain) else (network.gate, network.up)


def fed_forward(step: FeedForward, like: Float[Tensor, "row d"]) -> Computed:
    """The output of a feed-forward, from the model's own pre-activations."""
    if len(step.experts) == 1 and _serves_all(step.experts[0], len(like)):
        return _out_of_neurons(step.experts[0])
    total = Computed(like.new_zeros(like.shape), like.new_zeros(like.shape))
    for expert in step.experts:
        output = _out_of_neurons(expert).multiplied_out()
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
    return Computed.from_model(neurons).product(second) * expert.weights[:, None]


def _serves_all(expert: Expert, rows: int) -> bool:
    """Whether the network serves all rows, in order."""
    return len(expert.rows) == rows and bool((expert.rows == torch.arange(rows, device=expert.rows.device)).all())
