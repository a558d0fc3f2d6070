"""The main slope: approximate parts after a feed-forward as a factored term plus a remainder of few neurons.

With `m` the median over queries of the slopes `c_i`,

    part[i, j] = (m * z[i, j]) @ W2 + ((c_i - m) * z[i, j]) @ W2

The first term is one linear map for all queries and stays in factored form, as do the terms that residuals bring back: their
norms are exact, and only their products with the remainder are needed. The remainder is computed on the neurons that matter
most for each query, and may be seen through a sketch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.linear import LinearisedNetwork
from normscope.chain.trace import Norm
from normscope.decompose.approximate.patterns import PatternMatrices, Patterns
from normscope.decompose.approximate.request import Approximation
from normscope.decompose.approximate.sketch import (
    Directions,
    Pairs,
    Projection,
    RestOfChain,
    Samples,
    Sketch,
    Whole,
    views_of,
)
from normscope.decompose.approximate.terms import FactoredTerms, WeightedTerms
from normscope.decompose.carriers import Carrier, OpenCarrier, Sums
from normscope.decompose.dense import PLAIN, Buffers, Projected
from normscope.decompose.key_groups import SELF, KeyGroup
from normscope.errors import UnsupportedArchitectureError

# ---- FF approximately: norms after the feed-forward without the `2 n^2 F d` operations that exact ones need.

FOLDED_VECTORS = 8192
"""The number of part vectors in a tile when none of them is expanded to all neurons."""

EXPANDED_VECTORS = 4096
"""The number when they are expanded."""

EXPANDED_NUMBERS, NEURONS = 524_288, 1024
"""How many numbers are expanded at a time, and for how many neurons: few enough for a cache."""


class ApproximateExpansion:
    """All tiles of one feed-forward, approximately."""

    def __init__(
        self,
        sums: Sums,
        groups: tuple[KeyGroup, ...],
        networks: list[LinearisedNetwork],
        approximation: Approximation,
        rest: RestOfChain,
        projected: Projected | None = None,
    ) -> None:
        everything = torch.arange(len(sums.queries), device=sums.queries.device)
        if len(networks) != 1 or not torch.equal(networks[0].rows, everything):
            raise UnsupportedArchitectureError(
                "Approximate maps exist for feed-forwards with one network for all tokens, not for mixtures of experts. "
                "Leave out approximate."
            )
        self.groups, self.network, self.approximation, self.rest = groups, networks[0], approximation, rest
        self.projected = projected or Projected(groups, self.network)
        if not self.expands:
            self.projected.forget()
        self.sums = sums.feed_forward(networks)
        self.weights = [group.scaled_weights for group in groups]
        self.buffers = Buffers(sums.rows)
        slopes = self.network.slopes
        self.main = [slope.median(0).values for slope in slopes] if approximation.neurons < 1 else None
        self.slopes = slopes if self.main is None else tuple(s - m for s, m in zip(slopes, self.main, strict=True))

    # ---- neurons -------------------------------------------------------------------------------------------------------

    @cached_property
    def pairs(self) -> list[Pairs]:
        """Sampled pairs of tokens, for each group of keys."""
        return [Pairs.sampled(group, self.approximation.seed) for group in self.groups]

    @cached_property
    def folded(self) -> list[list[Float[Tensor, "_ f"]]]:
        """For each group of keys and each branch, output projection times first matrix."""
        return [[group.folded(linear) for linear in self.network.projections] for group in self.groups]

    @cached_property
    def by_neuron(self) -> list[list[Float[Tensor, "f _"]]]:
        """The same with one row for each neuron, from which some are taken."""
        return [[folded.T.contiguous() for folded in of_group] for of_group in self.folded]

    @cached_property
    def sizes(self) -> list[Float[Tensor, " f"]]:
        """For each branch, the size of what goes through every neuron: its input from sampled parts x its output."""
        squares = [hidden.square().mean((0, 1)) for hidden in self._sampled_hidden(0, [1.0] * len(self.slopes))]
        return [each.sqrt() * self.network.output.weight.norm(dim=0) for each in squares]

    @cached_property
    def patterns(self) -> list[Patterns]:
        """For each branch, the patterns that the slopes of all queries consist of; none if every query has its own."""
        count = self.approximation.patterns
        if count is None or count > len(self.sums.queries):
            return []
        return [Patterns.of(slope, size, count) for slope, size in zip(self.slopes, self.sizes, strict=True)]

    @cached_property
    def pattern_matrices(self) -> list[PatternMatrices]:
        """For each group of keys, `K diag(pattern) S` of the patterns of all branches."""
        shares = torch.cat([each.shares for each in self.patterns], dim=1)
        return [PatternMatrices(shares, self._of_patterns(of_group)) for of_group in self.folded]

    def _of_patterns(self, folded: Sequence[Float[Tensor, "_ f"]]) -> Float[Tensor, "pattern _ direction"]:
        branches = [self._around(each, patterns.slopes) for each, patterns in zip(folded, self.patterns, strict=True)]
        return torch.cat(
            [each.unflatten(1, (-1, self.projection.second.shape[1])).transpose(0, 1) for each in branches]
        )

    @cached_property
    def chosen(self) -> Int[Tensor, "query chosen"] | None:
        """The neurons of every query that matter most: slope difference x input x output."""
        if self.main is None:
            return None
        squares = sum((slope * size).square() for slope, size in zip(self.slopes, self.sizes, strict=True))
        assert isinstance(squares, Tensor)
        return squares.topk(self.approximation.selected(squares.shape[1]), dim=1, sorted=False).indices

    def _sampled_hidden(
        self, index: int, slopes: Sequence[Tensor | float]
    ) -> list[Float[Tensor, "sampled_key sampled_row f"]]:
        """For each branch, the sampled parts at every neuron."""
        pairs = self.pairs[index]
        if self.expands:
            hidden = [pairs.of_factors(projected) for projected in self.projected.by_group[index]]
        else:
            by_head = [folded.unflatten(0, pairs.group.output.shape[:2]) for folded in self.folded[index]]
            hidden = [pairs.through(folded) for folded in by_head]
        return [each * (s[pairs.rows] if isinstance(s, Tensor) else s) for each, s in zip(hidden, slopes, strict=True)]

    def _sampled_remainders(self, index: int) -> Float[Tensor, "sample d"]:
        slopes = self.slopes
        if self.chosen is not None:
            slopes = [torch.zeros_like(s).scatter(1, self.chosen, s.gather(1, self.chosen)) for s in slopes]
        hidden = torch.stack(self._sampled_hidden(index, slopes)).sum(0)
        return hidden.flatten(0, 1) @ self.network.output.weight.T

    @cached_property
    def projection(self) -> Projection:
        matrix, width = self.network.output.weight.T, self.approximation.width(len(self.network.output.weight))
        if width == matrix.shape[1]:
            return Whole(matrix)
        remainders = torch.cat([self._sampled_remainders(index) for index in range(len(self.groups))])
        parts = Samples(views_of(remainders, self.rest.norms))
        known = self.rest.known_samples(self.pairs)
        if self.main is not None:
            main = [pairs.parts(self._main(index)) for index, pairs in enumerate(self.pairs)]
            known = [Samples(views_of(torch.cat(main), self.rest.norms)), *known]
        directions = Directions(parts, known, width, self.approximation.seed)
        return Sketch.of(matrix, self.rest.norms, directions)

    # ---- tiles ---------------------------------------------------------------------------------------------------------

    def tiles(self) -> Iterator[tuple[slice, Approximate]]:
        outputs = {
            group.kind: [] if self.main is None else [[self._main(index)]] for index, group in enumerate(self.groups)
        }
        stage = FactoredTerms(outputs, {group.kind: group.values for group in self.groups}, self.projection)
        keys = sum(len(group.weights) for group in self.groups)
        height = max(1, (EXPANDED_VECTORS if self.expands else FOLDED_VECTORS) // keys)
        for start in range(0, len(self.sums.queries), height):
            rows = slice(start, min(start + height, len(self.sums.queries)))
            places = {group.kind: index for index, group in enumerate(self.groups)}
            weights = {
                kind: [] if self.main is None else [self.weights[index][:, rows]] for kind, index in places.items()
            }
            vectors = {kind: self._remainders(index, rows) for kind, index in places.items()}
            yield rows, Approximate(
                sums=self.sums.select(rows), stage=stage, weights=weights, vectors=vectors,
                scale=torch.ones_like(self.sums.rows[0, rows, 0]),
            )  # fmt: skip

    def _main(self, index: int) -> Float[Tensor, "head d_head d"]:
        """A group's output projection through the main slopes: a factored part of the result."""
        assert self.main is not None
        scaled = sum(folded * main for folded, main in zip(self.folded[index], self.main, strict=True))
        assert isinstance(scaled, Tensor)
        return (scaled @ self.network.output.weight.T).unflatten(0, self.groups[index].output.shape[:2])

    @cached_property
    def expands(self) -> bool:
        """Whether expanding keys to all neurons is cheaper than multiplying the matrices around the slopes of a query."""
        group, (d, neurons) = self.groups[0], self.network.output.weight.shape
        heads, d_head = group.output.shape[:2]
        expanding, folding = self.approximation.operations(
            d, neurons, heads, heads * d_head, len(self.network.projections), len(group.weights)
        )
        return expanding < folding

    def _remainders(self, index: int, rows: slice) -> Float[Tensor, "row key direction"]:
        """The remainder of a tile's queries, as the projection shows it."""
        if self.chosen is not None:
            return self._of_chosen(index, rows, self.chosen[rows])
        if self.patterns:
            return torch.bmm(self._weighted_values(index, rows), self.pattern_matrices[index].of(rows))
        return self._expanded(index, rows) if self.expands else self._folded(index, rows)

    def _expanded(self, index: int, rows: slice) -> Float[Tensor, "row key direction"]:
        """`(a P * c) S`, some keys and neurons at a time: what is expanded stays in cache."""
        weights, second = self.weights[index][:, rows], self.projection.second
        out = second.new_empty(*weights.shape[:2], second.shape[1])
        some = max(1, EXPANDED_NUMBERS // (NEURONS * weights.shape[1]))
        for first in range(0, len(weights), some):
            keys = slice(first, min(first + some, len(weights)))
            vectors = out[keys].flatten(0, 1)
            for start in range(0, len(second), NEURONS):
                neurons = slice(start, min(start + NEURONS, len(second)))
                hidden = self._hidden(index, rows, keys, neurons).flatten(0, 1)
                PLAIN.add(vectors, hidden, second[neurons], first=start == 0)
        return out.transpose(0, 1)

    def _hidden(self, index: int, rows: slice, keys: slice, neurons: slice) -> Float[Tensor, "key row f"]:
        """The parts of some keys at some activated neurons of every query."""
        weights = self.weights[index][keys, rows]
        total: Tensor | None = None
        for branch, (projected, slope) in enumerate(zip(self.projected.by_group[index], self.slopes, strict=True)):
            target = self.buffers(f"branch {branch}", *weights.shape[:2], neurons.stop - neurons.start)
            torch.bmm(weights, projected[keys, :, neurons], out=target).mul_(slope[rows, neurons])
            total = target if total is None else total.add_(target)
        assert total is not None
        return total

    def _folded(self, index: int, rows: slice) -> Float[Tensor, "row key direction"]:
        """`(a v) (K diag(c) S)`: the slopes of all queries of the tile go onto the narrow matrix, in one product."""
        matrices: Tensor | None = None
        for folded, slope in zip(self.folded[index], self.slopes, strict=True):
            around = self._around(folded, slope[rows])
            matrices = around if matrices is None else matrices.add_(around)
        assert matrices is not None
        matrices = matrices.unflatten(1, (-1, self.projection.second.shape[1])).transpose(0, 1)
        return torch.bmm(self._weighted_values(index, rows), matrices)

    def _around(self, folded: Float[Tensor, "_ f"], slopes: Float[Tensor, "several f"]) -> Float[Tensor, "_ out"]:
        """`K diag(c) S` for several slopes `c`, side by side, in one product."""
        scaled = slopes.T[..., None] * self.projection.second[:, None]
        return folded @ scaled.flatten(1)

    def _weighted_values(self, index: int, rows: slice) -> Float[Tensor, "row key value"]:
        """All weighted values of a pair, one after the other."""
        weights = self.weights[index][:, rows].transpose(0, 1)
        return (weights[..., None] * self.groups[index].values.transpose(0, 1)).flatten(2)

    def _of_chosen(
        self, index: int, rows: slice, chosen: Int[Tensor, "row chosen"]
    ) -> Float[Tensor, "row key direction"]:
        """The same for the neurons that each query has chosen."""
        second = self.projection.second
        if self.expands:
            hidden = self._hidden(index, rows, slice(0, len(self.weights[index])), slice(0, len(second)))
            hidden = hidden.gather(2, chosen.expand(len(hidden), -1, -1)).transpose(0, 1)
            return torch.bmm(hidden, second[chosen])
        values = self._weighted_values(index, rows)
        slopes = [slope[rows].gather(1, chosen) for slope in self.slopes]
        matrices = [self._matrix(index, neurons, [s[i] for s in slopes]) for i, neurons in enumerate(chosen)]
        return torch.bmm(values, torch.stack(matrices))

    def _matrix(
        self, index: int, neurons: Int[Tensor, " chosen"], slopes: list[Tensor]
    ) -> Float[Tensor, "_ direction"]:
        """From the values of a key to its remainder, for the neurons of one query."""
        rows = [each.index_select(0, neurons) for each in self.by_neuron[index]]
        folded = [each.mul_(slope[:, None]) for each, slope in zip(rows, slopes, strict=True)]
        total = folded[0] if len(folded) == 1 else folded[0].add_(folded[1])
        return total.T @ self.projection.second[neurons]


@final
@dataclass(frozen=True, kw_only=True)
class Approximate(Carrier):
    """A tile after the feed-forward: its sums exactly, its parts as known terms (`weights` of `stage`) plus a remainder.

    `vectors` are the remainders as the stage's projection shows them, still to be multiplied by `scale`.
    """

    stage: FactoredTerms
    weights: dict[int, list[Float[Tensor, "_ row head"]]]
    vectors: dict[int, Float[Tensor, "row _ direction"]]
    scale: Float[Tensor, " row"]

    def add(self, bypass: OpenCarrier) -> Approximate:
        weights = {kind: list(terms) for kind, terms in self.weights.items()}
        for group in bypass.groups:
            weights[group.kind].append(group.scaled_weights)
        return Approximate(
            sums=self.sums.add(bypass.sums), stage=self.stage.joined(bypass.groups), weights=weights,
            vectors=self.vectors, scale=self.scale,
        )  # fmt: skip

    def scaled(self, factor: float | Tensor) -> Approximate:
        if isinstance(factor, Tensor):
            raise UnsupportedArchitectureError("Maps are not approximated where a branch is multiplied by a vector.")
        return self._times(self.sums.scaled(factor), self.stage, self.vectors, torch.full_like(self.scale, factor))

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Approximate:
        vectors = {kind: self.stage.projection.normalise(norm, each) for kind, each in self.vectors.items()}
        return self._times(self.sums.normalise(norm, deviation), self.stage.normalised(norm), vectors, 1 / deviation)

    def _times(
        self, sums: Sums, stage: FactoredTerms, vectors: dict[int, Tensor], factor: Float[Tensor, " row"]
    ) -> Approximate:
        weights = {kind: [each * factor[:, None] for each in terms] for kind, terms in self.weights.items()}
        return Approximate(sums=sums, stage=stage, weights=weights, vectors=vectors, scale=self.scale * factor)

    def maps(self) -> dict[int, Float[Tensor, "query key"]]:
        maps = {kind: self._norms(kind) for kind in self.weights}
        if SELF in maps:
            rows = torch.arange(len(self.sums.queries), device=maps[SELF].device)
            maps[SELF][rows, self.sums.queries] = self.sums.own.norm(dim=-1)
        return maps

    def _norms(self, kind: int) -> Float[Tensor, "row key"]:
        terms = self.weights[kind]
        known = WeightedTerms(self.stage, kind, torch.cat(terms, dim=-1)) if terms else None
        return self.stage.projection.norms(self.vectors[kind], self.scale, known)
