"""Shapley values of neurons whose input is a sum over players: exact over all coalitions, or by sampled permutations.

Knows no models and no traces; everything is in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Neurons = Callable[[Float[Tensor, "many branch f"]], Float[Tensor, "many f"]]
"""What neurons give out for what enters them, on one branch (plain) or two (gate and up)."""


def exact(
    neurons: Neurons, players: Float[Tensor, "player branch f"], present: Float[Tensor, "branch f"]
) -> Float[Tensor, "player f"]:
    """The Shapley values of all players, from the values of all their coalitions; `present` is in every one."""
    count, device = len(players), players.device
    numbers = torch.arange(2**count, device=device)
    member = ((numbers[:, None] >> torch.arange(count, device=device)) & 1).double()
    inputs = (member @ players.flatten(1)).unflatten(1, players.shape[1:]) + present
    sizes = member.sum(1).long()
    joins = torch.tensor([_weight(size - 1, count) for size in range(count + 1)], dtype=torch.float64, device=device)
    stays = torch.tensor([_weight(size, count) for size in range(count + 1)], dtype=torch.float64, device=device)
    coefficients = torch.where(member.T == 1, joins[sizes], -stays[sizes])
    return coefficients @ neurons(inputs)


def _weight(others: int, count: int) -> float:
    """The probability that just these others come before a player in a random order of all."""
    if not 0 <= others < count:
        return 0.0
    return 1 / (count * math.comb(count - 1, others))


def sampled(
    neurons: Neurons,
    players: Float[Tensor, "player branch f"],
    present: Float[Tensor, "branch f"],
    pairs: int,
    generator: torch.Generator,
) -> Float[Tensor, "pair player f"]:
    """Independent estimates of the Shapley values, each from a random order of the players and its reverse."""
    estimates: list[Tensor] = []
    for _ in range(pairs):
        order = torch.randperm(len(players), generator=generator, device=generator.device).to(players.device)
        estimates.append(
            (_along(neurons, players, present, order) + _along(neurons, players, present, order.flip(0))) / 2
        )
    return torch.stack(estimates)


def _along(
    neurons: Neurons, players: Float[Tensor, "player branch f"], present: Float[Tensor, "branch f"], order: Tensor
) -> Float[Tensor, "player f"]:
    """What every player adds when players come in an order."""
    inputs = torch.cat([present[None], present + players[order].cumsum(0)])
    added = neurons(inputs).diff(dim=0)
    return torch.empty_like(added).index_copy_(0, order, added)
