"""Squared norms of weighted sums from Gram matrices: `||sum_h a_h U_h||^2 = a^T G a`, in float64, since heads cancel."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

NUMBERS = 1_000_000
"""How many float64 numbers each of the products may hold at once."""


def gram_matrices(factors: Iterable[Float[Tensor, "_ head d"]]) -> Float[Tensor, "key head head"]:
    """The products of every two heads of a key, some keys after the other."""
    return torch.cat([doubles @ doubles.mT for doubles in (some.double() for some in factors)])


def squared_norms(
    weights: Float[Tensor, "key query head"], grams: Float[Tensor, "key head head"]
) -> Float[Tensor, "key query"]:
    """The squared norms of the sums of each key's factors with these weights."""
    doubles = weights.double()
    return (doubles @ grams).mul_(doubles).sum(-1).clamp_(min=0)
