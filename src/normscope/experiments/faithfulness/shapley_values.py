"""Shapley values of a feed-forward's input vectors next to their integrated gradients, for some queries of a layer.

The neurons read a sum over players, the tokens; what belongs to no token is always present, or one more player. Values are
exact, over all coalitions, or estimated from sampled permutations. Everything is in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.linear import LinearisedNetwork, linearised
from normscope.chain.measure import CaptureDepth, LayerMeasure
from normscope.chain.trace import Expert, FeedForward, Gated, LayerTrace, OwnFeedForward, Plain
from normscope.errors import UnsupportedArchitectureError
from normscope.methods.maps import carried, tiles
from normscope.methods.vectors import feed_forward_input, feed_forward_place

Neurons = Callable[[Float[Tensor, "many branch f"]], Float[Tensor, "many f"]]
"""The outputs of neurons as a function of their inputs, on one branch (plain) or two (gate and up)."""


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


BiasRole = Literal["present", "player"]
BIAS_ROLES: tuple[BiasRole, ...] = ("present", "player")

FEWEST = 3
"""With fewer keys two rankings cannot be compared."""


@dataclass(frozen=True)
class QueryValues:
    """One query of a layer: the norm of every key's vector by both methods, and how the vectors compare.

    `standard_error` is that of the sampled vectors' length, 0 where all coalitions were counted. `completeness` is how far
    the Shapley values are from adding up to the network's output.
    """

    query: int
    bias: BiasRole
    integrated: np.ndarray
    shapley: np.ndarray
    standard_error: np.ndarray
    cosine: float
    difference: float
    completeness: float
    is_exact: bool


@dataclass(frozen=True)
class ShapleyMaps(LayerMeasure[list[QueryValues]]):
    """Both maps for evenly spread queries of every layer."""

    exact: int = 10
    pairs: int = 32
    queries: int = 4
    biases: tuple[BiasRole, ...] = BIAS_ROLES
    seed: int = 0

    def reach(self, components: Sequence[str]) -> CaptureDepth:
        return CaptureDepth(components=1 + list(components).index("Ff"))

    def of_layer(self, trace: LayerTrace) -> list[QueryValues]:
        index = feed_forward_place(trace)
        step = trace.steps[index]
        if isinstance(step, OwnFeedForward) or trace.source_length:
            raise UnsupportedArchitectureError(
                "Shapley values need a feed-forward that reads what attention brought from the tokens of one stack. Here it "
                "reads only the query's own token, or there are two stacks."
            )
        assert isinstance(step, FeedForward)
        state, networks = feed_forward_input(trace).double(), linearised(step)
        chosen = set(_spread(trace, self.queries))
        results: list[QueryValues] = []
        for rows, tile in tiles(carried(trace, index)):
            for row in range(*rows.indices(len(trace.queries))):
                if row in chosen:
                    keys = int(trace.queries[row]) + 1 if trace.causal else trace.length
                    parts = tile.parts[:keys, row - rows.start].double()
                    query = _Query(parts, state[row] - parts.sum(0), row, list(_serving(step, networks, row)))
                    results += [self._compared(query, int(trace.queries[row]), bias) for bias in self.biases]
        return results

    def _compared(self, query: _Query, position: int, bias: BiasRole) -> QueryValues:
        players = query.count + (bias == "player")
        is_exact = players <= self.exact + (bias == "player")
        generator = torch.Generator().manual_seed(self.seed)
        estimates, complete = query.shapley(bias, None if is_exact else self.pairs, generator)
        shapley, integrated = estimates.mean(0), query.integrated()
        spread = (estimates - shapley).square().sum((0, 2)) / max(1, len(estimates) - 1) / len(estimates)
        lengths = shapley.norm(dim=-1)
        cosines = torch.nn.functional.cosine_similarity(shapley, integrated, dim=-1)
        error = (shapley.sum(0) - complete).norm() / complete.norm() if bias == "present" else complete.new_zeros(())
        return QueryValues(
            position,
            bias,
            integrated.norm(dim=-1).cpu().numpy(),
            lengths.cpu().numpy(),
            spread.sqrt().cpu().numpy(),
            float(cosines.mean()),
            float((shapley - integrated).norm(dim=-1).sum() / lengths.sum()),
            float(error),
            is_exact,
        )


@dataclass(frozen=True)
class _Query:
    """The parts of one query before the feed-forward, and the networks that serve it."""

    parts: Float[Tensor, "key d"]
    bias: Float[Tensor, " d"]
    row: int
    serving: list[tuple[Expert, LinearisedNetwork, int]]

    @property
    def count(self) -> int:
        return len(self.parts)

    def integrated(self) -> Float[Tensor, "key d"]:
        """What integrated gradients give every key, as the maps have it."""
        total = torch.zeros_like(self.parts)
        for _, network, row in self.serving:
            hidden = sum(
                (self.parts @ linear.weight.double().T) * slope[row].double()
                for linear, slope in zip(network.projections, network.slopes, strict=True)
            )
            assert isinstance(hidden, Tensor)
            total += hidden @ network.output.weight.double().T
        return total

    def shapley(
        self, bias: BiasRole, pairs: int | None, generator: torch.Generator
    ) -> tuple[Float[Tensor, "estimate key d"], Float[Tensor, " d"]]:
        """Estimates of every key's Shapley vector (one, if exact), and the value of all players together."""
        estimates = self.parts.new_zeros(pairs or 1, *self.parts.shape)
        complete = torch.zeros_like(self.bias)
        for expert, network, row in self.serving:
            weights = torch.stack([linear.weight.double() for linear in network.projections])
            if expert.scales is not None:
                weights = weights * float(expert.scales[row])
            players = torch.einsum("kd,bfd->kbf", self.parts, weights)
            present = torch.einsum("d,bfd->bf", self.bias, weights) + _biases(network)
            if bias == "player":
                players = torch.cat([players, present[None]])
                present = torch.zeros_like(present)
            values = (
                exact(neurons_of(expert), players, present)[None]
                if pairs is None
                else sampled(neurons_of(expert), players, present, pairs, generator)
            )
            weight, output = float(expert.weights[row]), network.output.weight.double().T
            estimates += weight * (values[:, : self.count] @ output)
            ends = neurons_of(expert)(torch.stack([present + players.sum(0), present]))
            complete += weight * ((ends[0] - ends[1]) @ output)
        return estimates, complete


def neurons_of(expert: Expert) -> Neurons:
    """The function of a network's neurons."""
    network = expert.network
    match network:
        case Plain():
            return lambda inputs: network.activation.function(inputs[:, 0])
        case Gated():
            limit, offset = network.up_limit, network.up_offset
            return lambda inputs: (
                network.activation.function(inputs[:, 0]) * (inputs[:, 1].clamp(-limit, limit) + offset)
            )


def _biases(network: LinearisedNetwork) -> Float[Tensor, "branch f"]:
    neurons = network.slopes[0].shape[-1]
    none = network.slopes[0].new_zeros(neurons, dtype=torch.float64)
    return torch.stack([none if linear.bias is None else linear.bias.double() for linear in network.projections])


def _serving(
    step: FeedForward, networks: list[LinearisedNetwork], row: int
) -> Iterator[tuple[Expert, LinearisedNetwork, int]]:
    """The networks that serve a query, with its place among those of each."""
    for expert, network in zip(step.experts, networks, strict=True):
        for index in torch.nonzero(expert.rows == row)[:, 0].tolist():
            yield expert, network, int(index)


def _spread(trace: LayerTrace, count: int) -> list[int]:
    """Rows of evenly spread queries that have enough keys."""
    rows = [
        row
        for row, query in enumerate(trace.queries.tolist())
        if (query + 1 if trace.causal else trace.length) >= FEWEST
    ]
    if len(rows) <= count:
        return rows
    return [rows[index] for index in np.rint(np.linspace(0, len(rows) - 1, count)).astype(int)]
