"""Terms of approximate parts that are known in factored form: exact norms by themselves, and their products with the rest.

They follow the components after the feed-forward; each stage is made once and serves all tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.decompose.lens import Lens, Seen
from normscope.decompose.linear import scale_
from normscope.trace import Norm

if TYPE_CHECKING:
    from normscope.decompose.factored import KeyGroup

_CHUNK = 2_000_000
"""How many float64 numbers the factors of the keys that are squared together may hold."""


Views = list[Float[Tensor, "head d_head d"]]
"""The output projection of a term as it joined the chain, and after every norm since."""


class Known:
    """By group of keys, the output projections of the known terms up to one point of the chain, and their squares there."""

    def __init__(self, outputs: dict[int, list[Views]], values: dict[int, Tensor], lens: Lens) -> None:
        self.outputs, self.values, self.lens = outputs, values, lens
        self._next: dict[str, Known] = {}
        self._seen: dict[int, Tensor] = {}
        self._grams: dict[int, Tensor] = {}

    def joined(self, groups: Sequence[KeyGroup]) -> Known:
        """With the terms that a residual brings back, for all tiles the same."""

        def make() -> Known:
            outputs = {kind: list(terms) for kind, terms in self.outputs.items()}
            for group in groups:
                outputs[group.kind].append([group.output])
            return Known(outputs, self.values, self.lens)

        return self._once("joined", make)

    def normalised(self, norm: Norm) -> Known:
        def make() -> Known:
            outputs = {
                kind: [[*views, scale_(norm, views[-1].clone())] for views in terms]
                for kind, terms in self.outputs.items()
            }
            return Known(outputs, self.values, self.lens.normalised(norm))

        return self._once("normalised", make)

    def _once(self, step: str, make: Callable[[], Known]) -> Known:
        if step not in self._next:
            self._next[step] = make()
        return self._next[step]

    def seen(self, kind: int, weights: Float[Tensor, "key row term_head"]) -> Seen:
        """The sums of known terms with these weights."""
        vectors = torch.bmm(weights, self._seen_factors(kind)).transpose(0, 1)
        return Seen(vectors, lambda: self._squares(kind, weights))

    def _seen_factors(self, kind: int) -> Float[Tensor, "key term_head direction"]:
        """The factors of every key, term and head, as the lens shows them."""
        if kind not in self._seen:
            terms = [torch.bmm(self.values[kind], self.lens.through(views)) for views in self.outputs[kind]]
            self._seen[kind] = torch.cat(terms).transpose(0, 1).contiguous()
        return self._seen[kind]

    def _squares(self, kind: int, weights: Float[Tensor, "key row term_head"]) -> Float[Tensor, "row key"]:
        """The squared norms of the sums of known terms, from the Gram matrix of each key, in float64."""
        doubles = weights.double()
        return (doubles @ self._gram(kind)).mul_(doubles).sum(-1).clamp_(min=0).T.contiguous()

    def _gram(self, kind: int) -> Float[Tensor, "key term_head term_head"]:
        if kind not in self._grams:
            values, outputs = self.values[kind], torch.cat([views[-1] for views in self.outputs[kind]])
            terms, keys = len(self.outputs[kind]), values.shape[1]
            chunk = max(1, _CHUNK // outputs[:, 0].numel())
            grams: list[Tensor] = []
            for start in range(0, keys, chunk):
                some = values[:, start : start + chunk].repeat(terms, 1, 1)
                factors = torch.bmm(some, outputs).transpose(0, 1).double()
                grams.append(factors @ factors.mT)
            self._grams[kind] = torch.cat(grams)
        return self._grams[kind]
