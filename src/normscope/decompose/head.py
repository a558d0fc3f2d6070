"""Parts carried through a head: the contribution of every input token to the rows that it outputs.

Every step of a head is affine once activations are replaced by their secant slopes and norms by the deviation of the model's
own state, so that the vectors of each token go through it by themselves. What belongs to no token is the last column, to
which the constants are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.head_trace import (
    Activate,
    Average,
    Concatenate,
    HeadStep,
    Pick,
    PickEach,
    Products,
    Rescale,
    Scale,
    Shift,
)
from normscope.chain.linear import deviation, scale_, shift
from normscope.chain.trace import Linear, Normalise
from normscope.errors import HeadError

RowVectors = Float[Tensor, "_ column _"]
"""`[row, column, f]`: one vector of every column in each row. A head may have fewer rows than tokens."""


def through_head(steps: Sequence[HeadStep], vectors: RowVectors, *, bias: bool) -> RowVectors:
    """The vectors of every column after the steps; with `bias`, the last column is what belongs to no token."""
    for step in steps:
        vectors = _after(step, vectors, bias)
    return vectors


def _after(step: HeadStep, vectors: RowVectors, bias: bool) -> RowVectors:
    match step:
        case Linear():
            constant = None if step.bias is None else step.bias.to(vectors)
            return _shifted(vectors @ step.weight.to(vectors).T, constant, bias)
        case Normalise():
            divided = vectors / deviation(step.norm, step.state_before)[:, None, None]
            return _shifted(scale_(step.norm, divided), shift(step.norm), bias)
        case Activate():
            slopes = step.activation.slope(step.state_before.to(vectors))
            at_zero = vectors.new_tensor(step.activation.at_zero)
            return _shifted(vectors * slopes[:, None], at_zero, bias)
        case Scale():
            return vectors * step.factor
        case Rescale():
            return vectors * step.factors[:, None, None]
        case Shift():
            return _shifted(vectors.clone(), step.bias.to(vectors), bias)
        case Pick():
            return torch.einsum("rc,rckf->rkf", step.weights, vectors[step.sources])
        case PickEach():
            return vectors.gather(0, step.sources[None, None].expand(1, vectors.shape[1], -1))
        case Average():
            return torch.stack([through_head(branch, vectors, bias=bias) for branch in step.branches]).mean(0)
        case Concatenate():
            return torch.cat([through_head(branch, vectors, bias=bias) for branch in step.branches], -1)
        case Products():
            raise HeadError("A head that multiplies vectors of two tokens is not linear in the tokens.")


def _shifted(vectors: RowVectors, constant: Tensor | None, bias: bool) -> RowVectors:
    """With a constant added to the column that belongs to no token, in place."""
    if bias and constant is not None:
        vectors[:, -1] += constant
    return vectors
