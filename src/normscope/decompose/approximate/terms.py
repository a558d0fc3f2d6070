"""The factored terms of approximate parts: the linear term of a feed-forward, and those that residuals bring back.

They follow the components after the feed-forward. Each stage is computed once and serves all tiles; norms are exact, by the
Gram matrices of every key's terms and heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.linear import scale_
from normscope.chain.trace import Norm
from normscope.decompose.approximate.sketch import (
    ProjectedTerms,
    Projection,
)
from normscope.decompose.key_groups import NUMBERS, KeyGroup, gram_matrices, squared_norms

Views = list[Float[Tensor, "head d_head d"]]
"""The output projection of a term as it joined the chain, and after every norm since."""


@final
class FactoredTerms:
    """By group of keys, the output projections of the known terms up to one point of the chain, and their squares there."""

    def __init__(self, outputs: dict[int, list[Views]], values: dict[int, Tensor], projection: Projection) -> None:
        self.outputs, self.values, self.projection = outputs, values, projection
        self._next: dict[str, FactoredTerms] = {}
        self._seen: dict[int, Tensor] = {}
        self._alone: dict[int, KeyGroup] = {}
        self._grams: dict[int, Tensor] = {}

    def joined(self, groups: Sequence[KeyGroup]) -> FactoredTerms:
        """With the terms that a residual adds back, which are the same for all tiles."""

        def make() -> FactoredTerms:
            outputs = {kind: list(terms) for kind, terms in self.outputs.items()}
            known = FactoredTerms(outputs, self.values, self.projection)
            for group in groups:
                if not outputs[group.kind]:
                    known._alone[group.kind] = group
                outputs[group.kind].append([group.output])
            return known

        return self._once("joined", make)

    def normalised(self, norm: Norm) -> FactoredTerms:
        def make() -> FactoredTerms:
            outputs = {
                kind: [[*views, scale_(norm, views[-1].clone())] for views in terms]
                for kind, terms in self.outputs.items()
            }
            return FactoredTerms(outputs, self.values, self.projection.normalised(norm))

        return self._once("normalised", make)

    def _once(self, step: str, make: Callable[[], FactoredTerms]) -> FactoredTerms:
        if step not in self._next:
            self._next[step] = make()
        return self._next[step]

    def factors(self, kind: int) -> Float[Tensor, "key term_head direction"]:
        """The factors of every key, term and head, as the projection shows them."""
        if kind not in self._seen:
            terms = [torch.bmm(self.values[kind], self.projection.through(views)) for views in self.outputs[kind]]
            self._seen[kind] = torch.cat(terms).transpose(0, 1).contiguous()
        return self._seen[kind]

    def grams(self, kind: int) -> Float[Tensor, "key term_head term_head"]:
        """The Gram matrix of every key's terms and heads."""
        alone = self._alone.get(kind)
        if alone is not None and len(alone.grams) == len(alone.weights):
            return alone.grams
        if kind not in self._grams:
            outputs = torch.cat([views[-1] for views in self.outputs[kind]])
            values = self.values[kind].repeat(len(self.outputs[kind]), 1, 1)
            some = max(1, NUMBERS // outputs[:, 0].numel())
            self._grams[kind] = gram_matrices(
                torch.bmm(each, outputs).transpose(0, 1) for each in values.split(some, dim=1)
            )
        return self._grams[kind]


@final
@dataclass(frozen=True)
class WeightedTerms(ProjectedTerms):
    """The sums of the known terms of one group of keys, with the weights that some queries give them."""

    known: FactoredTerms
    kind: int
    weights: Float[Tensor, "key row term_head"]

    def vectors(self) -> Float[Tensor, "row key direction"]:
        return torch.bmm(self.weights, self.known.factors(self.kind)).transpose(0, 1)

    def products(self, vectors: Float[Tensor, "row key direction"]) -> Float[Tensor, "row key"]:
        with_factors = torch.bmm(vectors.transpose(0, 1), self.known.factors(self.kind).mT)
        return with_factors.mul_(self.weights).sum(-1).T

    def squares(self) -> Float[Tensor, "row key"]:
        return squared_norms(self.weights, self.known.grams(self.kind)).T.contiguous()
