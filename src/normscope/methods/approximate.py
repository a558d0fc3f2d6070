"""Approximate maps with their measured error: compared with exact ones of a few queries, in every layer.

`Fast` takes the cheapest approximation, as the planner counts, whose ranks are those of the exact map: in the worst scope,
the rank correlation of all cells of the sampled queries of a layer. Where none reaches it, the maps are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.trace import FeedForward, LayerTrace
from normscope.decompose import Approximation, Branches, LayerRequest, LayerResult, Reached
from normscope.decompose.maps import Walk
from normscope.errors import InputError, listing
from normscope.estimate.machine import Machine
from normscope.estimate.sizes import BlockSizes, sizes_of_trace
from normscope.estimate.work import Extent, approximate_maps, feed_forward_maps
from normscope.options import Products
from normscope.scopes import Scope

FEWEST, SAMPLED = 4, 8
"""How many queries of a layer are computed exactly, too: one of 64, within these bounds."""


EXACT = Approximation()
"""The end of a search that nothing cheaper ended."""


@dataclass(frozen=True)
class Fast:
    """The cheapest approximation with at least this rank correlation, chosen layer by layer."""

    spearman: float = 0.999


Approximate = Approximation | Fast


NAMED: dict[str, Approximate] = {
    "slopes": Approximation(neurons=0.2),
    "sketch": Approximation(directions=128),
    "both": Approximation(neurons=0.2, directions=128),
    "patterns": Approximation(directions=128, patterns=128),
    "fast": Fast(),
}
"""Approximations by name."""


def approximation(asked: str | Approximate | None, products: Products | None = None) -> Approximate | None:
    """What a name or a value stands for; alone, `products` are those of maps that are not approximated otherwise."""
    if products is not None:
        if asked is not None:
            raise InputError(f"Use approximate={asked!r} or products={products!r}, not both.")
        return Approximation(products=products)
    if asked is None or isinstance(asked, Approximation | Fast):
        return asked
    if not isinstance(asked, str) or asked not in NAMED:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"approximate is one of {listing(NAMED)}, or an Approximation, not {asked!r:.60}.")
    return NAMED[asked]


@dataclass(frozen=True)
class ApproximateLayer:
    """One layer to be approximated: its trace, and what is requested of it."""

    trace: LayerTrace
    request: LayerRequest

    def result(self, asked: Approximate, before: Reached | None) -> LayerResult:
        """The maps, with what they reached. `before` is what the layer below did, where a search begins."""
        scopes = [scope for scope in self.request.maps if FeedForward.name in scope.components]
        branches = Branches(Walk(self.trace, self.request))
        if not scopes:
            return branches.result()
        if isinstance(asked, Approximation):
            sample = Sample.of(branches, scopes)
            return sample.measured(asked)
        search = Search(self._candidates(len(scopes)), 1 - asked.spearman, before)
        result = _searched(search, Sample.of(branches, scopes)) if search.candidates else None
        if result is not None:
            return result
        nothing_missed = Reached(EXACT, dict.fromkeys(scopes, 0.0), dict.fromkeys(scopes, 1.0))
        return replace(branches.result(), reached=nothing_missed)

    def _candidates(self, scopes: int) -> list[Approximation]:
        trace = self.trace
        extent = Extent(trace.length + trace.source_length, len(trace.queries), trace.causal)
        return candidates(sizes_of_trace(trace), extent, scopes)


@dataclass(frozen=True)
class Sample:
    """Exact maps of a few queries, by which approximate ones are judged."""

    branches: Branches
    rows: Int[Tensor, " row"]
    maps: dict[str, Float[Tensor, "row key"]]

    @staticmethod
    def of(branches: Branches, scopes: Sequence[Scope]) -> Sample:
        queries = branches.walk.trace.queries
        rows = sampled(len(queries), queries.device)
        return Sample(branches, rows, branches.sample(rows, scopes))

    def measured(self, candidate: Approximation) -> LayerResult:
        """The maps of all queries, with what they reached."""
        result = self.branches.result(candidate)
        return replace(result, reached=self._reached(candidate, {s: result.maps[s][self.rows] for s in self.maps}))

    def alone(self, candidate: Approximation) -> Reached:
        """What a candidate reaches that sees the sampled queries alone."""
        return self._reached(candidate, self.branches.sample(self.rows, list(self.maps), candidate))

    def _reached(self, candidate: Approximation, maps: dict[str, Float[Tensor, "row key"]]) -> Reached:
        cells = {scope: (maps[scope], exact) for scope, exact in self.maps.items()}
        return Reached(
            candidate,
            {scope: relative_error(*pair) for scope, pair in cells.items()},
            {scope: spearman(*pair) for scope, pair in cells.items()},
        )


def sample_size(queries: int) -> int:
    """How many rows are computed exactly, too."""
    return min(queries, max(FEWEST, min(SAMPLED, queries // 64)))


def _searched(search: Search, sample: Sample) -> LayerResult | None:
    """The maps of the first candidate that is good enough, if there is one."""
    while (candidate := search.next()) is not None:
        # What a layer below was approximated by shows what to expect; without it, the sample is tried first. It shows
        # nothing of patterns that all queries share.
        alone = not search.is_informed and candidate.patterns is None
        if alone and search.misses(sample.alone(candidate)):
            continue
        result = sample.measured(candidate)
        if not search.misses(result.reached_or_exact):
            return result
    return None


def sampled(queries: int, device: torch.device) -> Tensor:
    """The rows that are computed exactly, too: spread evenly, with the last."""
    count = sample_size(queries)
    return torch.linspace(queries // (2 * count), queries - 1, count, device=device).long()


def relative_error(values: Float[Tensor, "row key"], exact: Float[Tensor, "row key"]) -> float:
    """The median relative error of the cells that exist and are not nothing."""
    there = exact > 0
    return float(((values - exact).abs() / exact)[there].median()) if bool(there.any()) else 0.0


def spearman(values: Float[Tensor, "row key"], exact: Float[Tensor, "row key"]) -> float:
    """The rank correlation of the cells that exist."""
    there = ~exact.isnan()
    ranks = [each[there].argsort(stable=True).argsort().double() for each in (values, exact)]
    if len(ranks[0]) < 2:
        return 1.0
    centred = [each - each.mean() for each in ranks]
    return float((centred[0] * centred[1]).sum() / (centred[0].norm() * centred[1].norm()))


# ---- the search: what is tried next, after what was tried so far -------------------------------------------------------


TYPICAL = Machine(large=1.0, thin=0.5, thin_double=0.25, passed=0.25)
"""Rates of a machine, relative to that of its large products, where none is measured."""

WORTHWHILE = 0.3
"""The share of the exact maps' work up to which an approximation is tried: it also has to be measured."""

_KINDS = (Approximation(), Approximation(neurons=0.3), Approximation(patterns=128))
_DIRECTIONS = (48, 64, 96, 128, 192, 256, 384, None)


def candidates(block: BlockSizes, extent: Extent, scopes: int) -> list[Approximation]:
    """Approximations that are expected to save time, cheapest first."""
    limit = WORTHWHILE * TYPICAL.seconds(feed_forward_maps(block, extent, scopes))
    every = (replace(kind, directions=directions) for kind, directions in product(_KINDS, _DIRECTIONS))
    near = [each for each in every if each != Approximation()]
    costs = {each: TYPICAL.seconds(approximate_maps(block, extent, scopes, each)) for each in near}
    return sorted((each for each, cost in costs.items() if cost <= limit), key=costs.__getitem__)


_DECAY = 1.5
"""By which power of its directions a sketch comes closer to the exact ranks: an expectation, which is then measured."""


class Search:
    """Candidates, cheapest first, of which the first that misses no more than `allowed` of a perfect correlation is sought.

    `before` is what a layer below reached: candidates of the same kind that it makes expect success are tried, no others.
    """

    def __init__(self, candidates: Sequence[Approximation], allowed: float, before: Reached | None) -> None:
        self.allowed = allowed
        self._missed: dict[Approximation, float] = {}
        self._expected_by: dict[Approximation, float] = {}
        if before is not None and before.approximation in candidates:
            candidates = [each for each in candidates if each.kind == before.approximation.kind]
            self._expected_by = {before.approximation: 1 - before.worst}
        self.candidates = candidates

    @property
    def is_informed(self) -> bool:
        """Whether a layer below shows what to expect."""
        return bool(self._expected_by)

    def next(self) -> Approximation | None:
        """The cheapest that neither missed nor is expected to miss."""
        for candidate in self.candidates:
            if candidate not in self._missed and self._expectation(candidate) <= self.allowed:
                return candidate
        return None

    def misses(self, reached: Reached) -> bool:
        """Whether a candidate that was tried did not reach enough, which is kept in mind."""
        miss = 1 - reached.worst
        if not miss <= self.allowed:
            self._missed[reached.approximation] = miss
        return not miss <= self.allowed

    def _expectation(self, candidate: Approximation) -> float:
        """What a candidate will miss, judged by those of the same kind; nothing is known without one."""
        known = {each: miss for each, miss in self._missed.items() if each.kind == candidate.kind}
        known = known or self._expected_by
        if candidate.directions is None:
            return 0.0
        misses = [
            miss * (each.directions / candidate.directions) ** _DECAY
            for each, miss in known.items()
            if each.directions is not None
        ]
        return max(misses, default=0.0)
