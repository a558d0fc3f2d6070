"""Counting the weights: which part of `weight x value` goes to the value, to query and key, and which stays with the
weight.

With `r[h, i, j] = <g_i, values_j>` what key `j` brings if it had all of the attention, head `h` brings `sum_j a_ij r_ij` to
query `i`. Every rule splits that sum exactly:

    sum_j a_ij r_ij  =  sum_j A_ij r_ij  +  sum_j (Q_ij + K_ij) s_ij  +  sum_j routing_ij

`A` goes to the values, `Q` to the queries and `K` to the keys, as covectors: they make up the scores `s`. What is left is
the routing account, which belongs to no token's state: what was chosen by the weights themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.scores import Scores
from normscope.chain.trace import Attention
from normscope.errors import UnsupportedArchitectureError
from normscope.options import Weights

_NODES = 12
"""Gauss-Legendre nodes of the path from no scores to the model's own."""

PerPair = Float[Tensor, "target head query key"]


@dataclass(frozen=True)
class Counted:
    """The split of one attention: what values, queries and keys get, and the account. `None` is nothing."""

    to_values: Float[Tensor, "*target head query key"]
    to_queries: PerPair | None
    to_keys: PerPair | None
    routing: PerPair


def counted(attention: Attention, effects: PerPair, weights: Weights) -> Counted | None:
    """The split by a rule, of `effects` (`r`); nothing if all goes to the values."""
    rule = _RULES[weights]
    if rule is None:
        return None
    to_values, to_queries, to_keys = rule(attention, effects)
    routing = effects * (attention.weights - to_values)
    for share in (to_queries, to_keys):
        if share is not None:
            routing = routing - share * known_scores(attention).products()
    return Counted(to_values, to_queries, to_keys, routing)


def known_scores(attention: Attention) -> Scores:
    """What the weights of an attention are made of; raises where that is not known."""
    if attention.scores is None:
        raise UnsupportedArchitectureError(
            f"The weights of {attention.name} are not known to be the softmax of queries and keys, so that nothing can be "
            f"handed on to these. Explain with weights='half', which keeps it in the account, or with 'constant'."
        )
    return attention.scores


_Split = tuple[Float[Tensor, "*target head query key"], "PerPair | None", "PerPair | None"]


def _players(attention: Attention, effects: PerPair) -> _Split:
    """The same where there is a choice: with a single key in sight the weight is no player, and all goes to the value.

    The weight's half is again made by two players, query and key. The key's half of that is handed on to it as far as the
    softmax follows its score, where it is known what the weights are made of; the rest stays.
    """
    chosen = visible_keys(attention) > 1
    to_values = torch.where(chosen, attention.weights / 2, attention.weights)
    to_keys = None if attention.scores is None else _by_score(attention.weights, effects) / 4
    return to_values, None, to_keys


def visible_keys(attention: Attention) -> Int[Tensor, "some_head query 1"]:
    """The number of keys that each query can attend to."""
    scores = attention.scores
    if scores is None or scores.added is None:
        return (attention.weights != 0).sum(-1, keepdim=True).clamp(min=1)
    hidden = scores.added <= torch.finfo(scores.added.dtype).min / 2
    return (~hidden).sum(-1, keepdim=True).clamp(min=1)


def _half(attention: Attention, effects: PerPair) -> _Split:
    """Weight and value are two players: each gets half of their product. The weight's half stays."""
    return attention.weights / 2, None, None


def _joint(attention: Attention, effects: PerPair) -> _Split:
    """Integrated gradients on the straight path from zero queries, keys and values: scores go with its square."""
    scores = known_scores(attention)
    own = scores.products()
    to_values, to_scores = torch.zeros_like(own), torch.zeros_like(effects)
    for place, width in _nodes():
        on_path = scores.softmax(own * place**2)
        to_values += width * on_path
        to_scores += width * place**2 * _by_score(on_path, effects)
    return to_values, to_scores, to_scores


def _by_score(weights: Float[Tensor, "head query key"], effects: PerPair) -> PerPair:
    """The derivative of what a head brings by its scores: `P_ij (r_ij - sum_l P_il r_il)`."""
    brought = weights * effects
    return brought - weights * brought.sum(-1, keepdim=True)


def _nodes() -> list[tuple[float, float]]:
    places, widths = np.polynomial.legendre.leggauss(_NODES)
    return [((1 + float(place)) / 2, float(width) / 2) for place, width in zip(places, widths, strict=True)]


_RULES: dict[Weights, Callable[[Attention, PerPair], _Split] | None] = {
    "constant": None,
    "half": _half,
    "players": _players,
    "joint": _joint,
}
