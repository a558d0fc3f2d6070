"""FF approximately: norms after the feed-forward without the `2 n^2 F d` operations that exact ones need.

A part is what the median slopes make of it, which stays in factored form and whose norm is exact, plus a remainder: each
query's most important neurons with the difference of their slopes. The remainder may be looked at along a few directions
only. How well that works is measured elsewhere; here is only how it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.decompose.approximation import Approximation
from normscope.decompose.carrier import SELF, Carrier, OpenCarrier
from normscope.decompose.lens import Known, Lens
from normscope.decompose.linear import SlopedNetwork, scale_
from normscope.decompose.sums import Sums
from normscope.errors import UnsupportedArchitectureError
from normscope.trace import Norm

if TYPE_CHECKING:
    from normscope.decompose.factored import KeyGroup

TILE_VECTORS = 16384
"""How many part vectors a tile holds when none of them is expanded to all neurons."""

EXPANDED_VECTORS = 4096

_THIN = 2.0
"""By how much an operation of a thin product costs more than one of a large product."""

_SAMPLES = 64
"""How many pairs of tokens show how much each neuron takes in."""


class ApproximateExpansion:
    """All tiles of one feed-forward, approximately."""

    def __init__(
        self, sums: Sums, groups: tuple[KeyGroup, ...], networks: list[SlopedNetwork], approximation: Approximation
    ) -> None:
        everything = torch.arange(len(sums.queries), device=sums.queries.device)
        if len(networks) != 1 or not torch.equal(networks[0].rows, everything):
            raise UnsupportedArchitectureError(
                "Approximate maps exist for feed-forwards with one network for all tokens, not for mixtures of experts. "
                "Leave out approximate."
            )
        self.groups, self.network, self.approximation = groups, networks[0], approximation
        self.sums = sums.feed_forward(networks)
        self.weights = [group.scaled_weights for group in groups]
        slopes = self.network.slopes
        self.main = [slope.median(0).values for slope in slopes] if approximation.neurons < 1 else None
        self.slopes = slopes if self.main is None else tuple(s - m for s, m in zip(slopes, self.main, strict=True))
        self.importance = self._importance()
        self.chosen = None
        if self.main is not None:
            self.chosen = self.importance.topk(
                approximation.selected(self.importance.shape[1]), dim=1, sorted=False
            ).indices
        self.lens = Lens(self.network.output.weight.T, self._energy(), approximation)

    # ---- neurons -------------------------------------------------------------------------------------------------------

    @cached_property
    def folded(self) -> list[list[Float[Tensor, "f _"]]]:
        """For each group of keys and each branch, first matrix times output projection: one row for each neuron."""
        return [[group.folded(linear).T.contiguous() for linear in self.network.projections] for group in self.groups]

    @cached_property
    def projected(self) -> list[list[Float[Tensor, "_ head f"]]]:
        """For each group of keys and each branch, what every head of a key puts into every neuron."""
        return [
            [
                torch.bmm(group.values, folded.T.unflatten(0, group.output.shape[:2])).transpose(0, 1)
                for folded in of_group
            ]
            for group, of_group in zip(self.groups, self.folded, strict=True)
        ]

    @cached_property
    def taken_in(self) -> list[Float[Tensor, " f"]]:
        """For each branch, the root mean square of what a part of unit weight puts into every neuron, from a sample."""
        group = self.groups[0]
        keys = torch.linspace(0, group.values.shape[1] - 1, _SAMPLES, device=group.values.device).long()
        queries = torch.arange(_SAMPLES, device=keys.device) * 7919 % len(self.sums.queries)
        weights = group.weights[keys, queries]
        weights = weights / weights.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        flat = (weights[..., None] * group.values[:, keys].transpose(0, 1)).flatten(1)
        return [(flat @ folded.T).square().mean(0).sqrt() for folded in self.folded[0]]

    def _importance(self) -> Float[Tensor, "query f"]:
        """How much a neuron's slope of each query matters: slope (or difference) x what it takes in x what it gives out."""
        total = sum((slope * size).square() for slope, size in zip(self.slopes, self.taken_in, strict=True))
        assert isinstance(total, Tensor)
        return total.sqrt() * self.network.output.weight.norm(dim=0)

    def _energy(self) -> Float[Tensor, " f"]:
        """How much goes through each neuron, of those that are looked at."""
        kept = self.importance
        if self.chosen is not None:
            kept = torch.zeros_like(kept).scatter(1, self.chosen, kept.gather(1, self.chosen))
        return kept.square().mean(0) / self.network.output.weight.square().sum(0).clamp(min=1e-30)

    # ---- tiles ---------------------------------------------------------------------------------------------------------

    def tiles(self) -> Iterator[tuple[slice, Approximate]]:
        known = {group.kind: self._main(place) for place, group in enumerate(self.groups)}
        stage = Known(known, {group.kind: group.values for group in self.groups}, self.lens)
        keys = sum(len(group.weights) for group in self.groups)
        height = max(1, (EXPANDED_VECTORS if self.expands else TILE_VECTORS) // keys)
        for start in range(0, len(self.sums.queries), height):
            rows = slice(start, start + height)
            weights = {group.kind: self._terms(place, rows) for place, group in enumerate(self.groups)}
            remainder = Remainder(Entering(self, rows), self.lens)
            yield rows, Approximate(
                sums=self.sums.select(rows), stage=stage, weights=weights, remainder=remainder,
                scale=torch.ones_like(self.sums.rows[0, rows, 0]),
            )  # fmt: skip

    def _main(self, place: int) -> list[Tensor]:
        """What the main slopes make of a group's output projection: a factored part of the result."""
        if self.main is None:
            return []
        group, second = self.groups[place], self.network.output.weight
        scaled = sum(folded * main[:, None] for folded, main in zip(self.folded[place], self.main, strict=True))
        assert isinstance(scaled, Tensor)
        return [(second @ scaled).T.unflatten(0, group.output.shape[:2])]

    def _terms(self, place: int, rows: slice) -> list[Float[Tensor, "key row head"]]:
        return [] if self.main is None else [self.weights[place][:, rows]]

    @cached_property
    def expands(self) -> bool:
        """Whether expanding keys to all neurons is cheaper than multiplying the matrices around the slopes of a query."""
        group, (d, neurons) = self.groups[0], self.network.output.weight.shape
        width, kept = self.approximation.width(d), self.approximation.selected(neurons)
        values, keys, heads = group.output.shape[0] * group.output.shape[1], len(group.weights), group.weights.shape[2]
        branches = len(self.network.projections)
        folding = values * kept * (width + 2 * branches) + keys * values * (width + 2)
        expanding = keys * (branches * neurons * (_THIN * heads + 4) + kept * (width + 4))
        return expanding < folding


class Entering:
    """What enters the second matrix for a tile of queries: the same through every lens, so that it is made once."""

    def __init__(self, expansion: ApproximateExpansion, rows: slice) -> None:
        self.expansion, self.rows = expansion, rows
        self.chosen = None if expansion.chosen is None else expansion.chosen[rows]
        self._made: dict[int, Tensor | list[Tensor]] = {}

    def through(self, place: int, second: Float[Tensor, "f direction"]) -> Float[Tensor, "row _ direction"]:
        """The remainders of a group of keys, each along some directions."""
        return self._expanded(place, second) if self.expansion.expands else self._folded(place, second)

    def _folded(self, place: int, second: Float[Tensor, "f direction"]) -> Float[Tensor, "row _ direction"]:
        values, matrices = self._values(place), self._matrices(place)
        if self.chosen is None:
            matrix = torch.stack([each.T @ second for each in matrices])
        else:
            matrix = torch.stack([each.T @ second[i] for each, i in zip(matrices, self.chosen, strict=True)])
        return torch.bmm(values, matrix)

    def _values(self, place: int) -> Float[Tensor, "row _ value"]:
        """All weighted values of a pair, one after the other."""
        return self._once(2 * place, self._weighted_values)

    def _weighted_values(self, place: int) -> Tensor:
        weights = self.expansion.weights[place][:, self.rows].transpose(0, 1)
        return (weights[..., None] * self.expansion.groups[place].values.transpose(0, 1)).flatten(2)

    def _matrices(self, place: int) -> list[Tensor]:
        """For each query, from values to its neurons, with their slopes."""
        key = 2 * place + 1
        if key not in self._made:
            self._made[key] = [self._matrix(place, row) for row in range(len(self.expansion.slopes[0][self.rows]))]
        made = self._made[key]
        assert isinstance(made, list)
        return made

    def _matrix(self, place: int, row: int) -> Tensor:
        folded, slopes = self.expansion.folded[place], [slope[self.rows][row] for slope in self.expansion.slopes]
        if self.chosen is not None:
            index = self.chosen[row]
            folded, slopes = [each.index_select(0, index) for each in folded], [each[index] for each in slopes]
            scaled = [each.mul_(slope[:, None]) for each, slope in zip(folded, slopes, strict=True)]
        else:
            scaled = [each * slope[:, None] for each, slope in zip(folded, slopes, strict=True)]
        return scaled[0] if len(scaled) == 1 else scaled[0].add_(scaled[1])

    def _expanded(self, place: int, second: Float[Tensor, "f direction"]) -> Float[Tensor, "row _ direction"]:
        hidden = self._once(2 * place, self._hidden)
        if self.chosen is None:
            return (hidden.flatten(0, 1) @ second).unflatten(0, hidden.shape[:2]).transpose(0, 1)
        return torch.bmm(hidden, second[self.chosen])

    def _hidden(self, place: int) -> Tensor:
        """What every key puts into the neurons of every query: all, `[key, row, f]`, or the chosen, `[row, key, chosen]`."""
        weights, total = self.expansion.weights[place][:, self.rows], None
        for projected, slope in zip(self.expansion.projected[place], self.expansion.slopes, strict=True):
            branch = torch.bmm(weights, projected).mul_(slope[self.rows])
            total = branch if total is None else total.add_(branch)
        assert total is not None
        if self.chosen is None:
            return total
        return total.gather(2, self.chosen.expand(len(total), -1, -1)).transpose(0, 1)

    def _once(self, key: int, make: Callable[[int], Tensor]) -> Tensor:
        if key not in self._made:
            self._made[key] = make(key // 2)
        made = self._made[key]
        assert isinstance(made, Tensor)
        return made


@final
class Remainder:
    """What a tile's queries add to the main part, as a lens shows it: `[row, key, direction]`, computed when needed."""

    def __init__(self, entering: Entering, lens: Lens) -> None:
        self.entering, self.lens = entering, lens

    def normalised(self, norm: Norm, lens: Lens) -> Remainder:
        """As the next lens shows it; what was seen whole goes through the norm as it is."""
        after = Remainder(self.entering, lens)
        if lens.is_whole and "vectors" in self.__dict__:
            after.__dict__["vectors"] = {kind: scale_(norm, each) for kind, each in self.vectors.items()}
        return after

    @cached_property
    def vectors(self) -> dict[int, Float[Tensor, "row _ direction"]]:
        """By group of keys."""
        groups = self.entering.expansion.groups
        return {group.kind: self.entering.through(place, self.lens.second) for place, group in enumerate(groups)}


@final
@dataclass(frozen=True, kw_only=True)
class Approximate(Carrier):
    """A tile after the feed-forward: its sums exactly, its parts as known terms (`weights` of `stage`) plus a remainder."""

    stage: Known
    weights: dict[int, list[Float[Tensor, "_ row head"]]]
    remainder: Remainder
    scale: Float[Tensor, " row"]

    def add(self, bypass: OpenCarrier) -> Approximate:
        weights = {kind: list(terms) for kind, terms in self.weights.items()}
        for group in bypass.groups:
            weights[group.kind].append(group.scaled_weights)
        return Approximate(
            sums=self.sums.add(bypass.sums), stage=self.stage.joined(bypass.groups), weights=weights,
            remainder=self.remainder, scale=self.scale,
        )  # fmt: skip

    def scaled(self, factor: float) -> Approximate:
        return self._times(self.sums.scaled(factor), self.stage, self.remainder, torch.full_like(self.scale, factor))

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Approximate:
        stage = self.stage.normalised(norm)
        remainder = self.remainder.normalised(norm, stage.lens)
        return self._times(self.sums.normalise(norm, deviation), stage, remainder, 1 / deviation)

    def _times(self, sums: Sums, stage: Known, remainder: Remainder, factor: Float[Tensor, " row"]) -> Approximate:
        weights = {kind: [each * factor[:, None] for each in terms] for kind, terms in self.weights.items()}
        return Approximate(sums=sums, stage=stage, weights=weights, remainder=remainder, scale=self.scale * factor)

    def maps(self) -> dict[int, Float[Tensor, "query key"]]:
        maps = {kind: self._norms(kind) for kind in self.weights}
        if SELF in maps:
            rows = torch.arange(len(self.sums.queries), device=maps[SELF].device)
            maps[SELF][rows, self.sums.queries] = self.sums.own.norm(dim=-1)
        return maps

    def _norms(self, kind: int) -> Float[Tensor, "row key"]:
        vectors = self.remainder.vectors[kind] * self.scale[:, None, None]
        terms = self.weights[kind]
        if not terms:
            return vectors.norm(dim=-1)
        weights = torch.cat(terms, dim=-1)
        seen = torch.bmm(weights, self.stage.seen_factors(kind)).transpose(0, 1)
        if self.remainder.lens.is_whole:
            return vectors.add_(seen).norm(dim=-1)
        # The norm of the known terms is exact; the sketch adds only what the remainder changes of it.
        squares = self.stage.squares(kind, weights)
        changes = vectors.mul(seen.mul_(2).add_(vectors)).sum(-1)
        return squares.add_(changes.double()).clamp_(min=0).sqrt_().to(vectors.dtype)
