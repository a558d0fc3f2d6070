"""The oracle of counted weights: the split of `weight x value` from its definitions, in float64, query by query.

Shapley values are averages over the orders in which players come, integrated gradients a fine quadrature of the
derivative of `softmax(q k) v` by queries, keys and values. Slow and plain; shares no code with `pullback`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.trace import Attention

_NODES = 80


@dataclass(frozen=True)
class OracleSplit:
    """The shares of value, query and key in each pair of a query and a key, and the rest. These are numbers, not
    coefficients: all four add up to `weight x <covector, value>`.
    """

    values: Float[Tensor, "head query key"]
    queries: Float[Tensor, "head query key"]
    keys: Float[Tensor, "head query key"]
    routing: Float[Tensor, "head query key"]


def oracle_split(attention: Attention, covector: Float[Tensor, "head query d_head"], weights: str) -> OracleSplit:
    """The split of one attention, for covectors at the outputs of its heads."""
    assert attention.scores is not None
    scores = attention.scores
    effects = torch.einsum("hid,hjd->hij", covector.double(), attention.values.double())
    own = torch.einsum("hid,hjd->hij", scores.queries.double(), scores.keys.double()) * scores.scale
    added = torch.zeros_like(own) if scores.added is None else scores.added.double().expand_as(own)
    total = torch.softmax(own + added, -1) * effects
    split = {"constant": _constant, "half": _half, "players": _players, "joint": _joint}[weights]
    values, queries, keys = (torch.zeros_like(total) for _ in range(3))
    for head in range(len(own)):
        for query in range(own.shape[1]):
            given = split(own[head, query], added[head, query], effects[head, query])
            values[head, query], queries[head, query], keys[head, query] = given
    return OracleSplit(values, queries, keys, total - values - queries - keys)


_Row = Float[Tensor, " key"]
_Given = tuple[_Row, _Row, _Row]


def _constant(own: _Row, added: _Row, effects: _Row) -> _Given:
    return torch.softmax(own + added, -1) * effects, torch.zeros_like(own), torch.zeros_like(own)


def _shapley(factors: list[float]) -> list[float]:
    """The Shapley values of a product: its factors come one after another, in every order, and without one of them it is
    zero."""
    shares = [0.0] * len(factors)
    orders = list(permutations(range(len(factors))))
    for order in orders:
        product = 1.0
        for factor in factors:
            product *= factor
        shares[order[-1]] += product / len(orders)
    return shares


def _half(own: _Row, added: _Row, effects: _Row) -> _Given:
    weights = torch.softmax(own + added, -1)
    pairs = zip(weights.tolist(), effects.tolist(), strict=True)
    values = torch.tensor([_shapley([weight, value])[1] for weight, value in pairs], dtype=own.dtype)
    return values, torch.zeros_like(own), torch.zeros_like(own)


def _players(own: _Row, added: _Row, effects: _Row) -> _Given:
    """A weight without an alternative is not a player; otherwise weight and value share their product, then query and
    key."""
    if int((added > -1e30).sum()) == 1:
        return _constant(own, added, effects)
    values, _, _ = _half(own, added, effects)
    varied = own.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(torch.softmax(varied + added, -1) @ effects, varied)
    keys = torch.tensor([_shapley([float(score), 0.5])[0] for score in slopes * own], dtype=own.dtype)
    return values, torch.zeros_like(own), keys


def _joint(own: _Row, added: _Row, effects: _Row) -> _Given:
    """Queries, keys and values grow from zero together, so scores grow with the square."""
    places, widths = (torch.tensor(each, dtype=own.dtype) for each in np.polynomial.legendre.leggauss(_NODES))
    places, widths = (1 + places[:, None]) / 2, widths[:, None] / 2
    weights = torch.softmax(places**2 * own + added, -1)
    brought = weights * (effects - (weights * effects).sum(-1, keepdim=True))
    scores = (widths * places**2 * brought).sum(0) * own
    return (widths * weights).sum(0) * effects, scores, scores
