"""What a model's task head did to one sequence: the steps from the states that leave the last block to the logits.

Plain data, as in `trace`: `capture` records it, `pullback` computes with it. A *row* of the logits is a token (language
models, token classifiers), or the one row of a classifier; a *label* is a token id, a class, or the start and the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, float64, inf

from normscope.chain.activations import Activation
from normscope.chain.trace import Linear, Normalise


@dataclass(frozen=True)
class Pick:
    """Rows made of other rows: `row[r] = sum_c weights[r, c] * old_row[sources[r, c]]`."""

    sources: Int[Tensor, "row choice"]
    weights: Float[Tensor, "row choice"]


@dataclass(frozen=True)
class PickEach:
    """One row whose elements come from different rows, as in max pooling: `row[f] =
    old_row[sources[f], f]`."""

    sources: Int[Tensor, " f"]


@dataclass(frozen=True)
class Activate:
    """An element-wise activation of the model's own state just before it; a soft-cap of logits too."""

    activation: Activation
    state_before: Float[Tensor, "row f"]


@dataclass(frozen=True)
class Scale:
    """A product with a number."""

    factor: float


@dataclass(frozen=True)
class Rescale:
    """A product with one number for each row, such as one over its length."""

    factors: Float[Tensor, " row"]


@dataclass(frozen=True)
class Shift:
    """An added bias."""

    bias: Float[Tensor, " f"]


@dataclass(frozen=True)
class Average:
    """The mean of the outputs of several chains on the same rows."""

    branches: tuple[tuple[HeadStep, ...], ...]


@dataclass(frozen=True)
class Concatenate:
    """The outputs of several chains on the same rows, concatenated: branch `b` has `widths[b]` elements of each row."""

    branches: tuple[tuple[HeadStep, ...], ...]
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Factor:
    """One side of a product: a chain of steps and what it outputs."""

    steps: tuple[HeadStep, ...]
    output: Float[Tensor, "row f"]


@dataclass(frozen=True)
class Products:
    """One label for each pair of factors: `logits[row, label] = <left[row], right[row]>`."""

    pairs: tuple[tuple[Factor, Factor], ...]


HeadStep = Pick | PickEach | Normalise | Linear | Activate | Scale | Rescale | Shift | Average | Concatenate | Products
"""Tensors as large as the vocabulary stay in their own dtype, on their own device; only the requested labels are
taken."""


@dataclass(frozen=True)
class HeadTrace:
    """One head, one sequence without its padding: the output of the last block, the steps, and the model's own
    logits."""

    states: Float[Tensor, "token d"]
    steps: tuple[HeadStep, ...]
    logits: Float[Tensor, "row label"]


@dataclass(frozen=True)
class EncoderEnd:
    """One sequence: the output of an encoder's last block, and the steps from there to the states that a decoder
    reads."""

    states: Float[Tensor, "token d"]
    steps: tuple[HeadStep, ...]


@dataclass(frozen=True)
class Target:
    """A number to explain: `sum over labels of weights[label] * logits[row, label]`.

    One label of weight 1 is a logit; a second one of weight -1 makes it a difference of two. A `centred` target subtracts
    from every logit the mean of the row's logits under the row's own probabilities `p`, which are constants:
    `sum over labels of weights[label] * (logits[row, label] - sum_v p[v] * logits[row, v])`. Among `others`, the labels
    with a weight have no part in that mean. For one label, this is its centred logit divided by the probability of all
    others, so that it does not shrink for a label that the model is sure of.
    """

    row: int
    weights: Mapping[int, float]
    centred: bool = False
    others: bool = False

    def direction(self, logits: Float[Tensor, " label"]) -> Float[Tensor, " label"]:
        """The weight of every label, in float64, given the logits of the target's row."""
        dense = logits.new_zeros(logits.shape, dtype=float64)
        if self.centred:
            compared = logits.to(float64, copy=True)
            if self.others:
                compared[list(self.weights)] = -inf
            dense -= compared.softmax(-1) * sum(self.weights.values())
        for label, weight in self.weights.items():
            dense[label] += weight
        return dense
