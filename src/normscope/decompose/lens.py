"""What approximate parts are looked at through: the feed-forward's second matrix along a few directions, and known terms.

Both follow the components after the feed-forward; each stage is made once and serves all tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.decompose.approximation import Approximation
from normscope.decompose.linear import scale_
from normscope.trace import Norm

if TYPE_CHECKING:
    from normscope.decompose.factored import KeyGroup

_CHUNK = 2_000_000
"""How many float64 numbers the factors of the keys that are squared together may hold."""


class Lens:
    """The second matrix, one row for each neuron, after some norms, and the directions along which it is looked at.

    Half of the directions span most of what the neurons give out, weighted by the `energy` that goes through them; the rest
    are random in what is left, scaled so that squares are right on average.
    """

    def __init__(self, matrix: Float[Tensor, "f d"], energy: Float[Tensor, " f"], approximation: Approximation) -> None:
        self.matrix, self.energy, self.approximation = matrix, energy, approximation

    def normalised(self, norm: Norm) -> Lens:
        return Lens(scale_(norm, self.matrix.clone()), self.energy, self.approximation)

    @property
    def is_whole(self) -> bool:
        d = self.matrix.shape[1]
        return self.approximation.width(d) == d

    @cached_property
    def directions(self) -> Float[Tensor, "d direction"]:
        d = self.matrix.shape[1]
        width = self.approximation.width(d)
        first = width // 2
        generator = torch.Generator().manual_seed(self.approximation.seed)
        random = torch.randn(d, width, generator=generator, dtype=self.matrix.dtype).to(self.matrix.device)
        weighted = (self.matrix * self.energy[:, None]).T
        main = random[:, :first]
        for _ in range(2):
            main = torch.linalg.qr(weighted @ (self.matrix @ main)).Q
        rest = random[:, first:]
        rest = torch.linalg.qr(rest - main @ (main.T @ rest)).Q
        return torch.cat([main, rest * ((d - first) / (width - first)) ** 0.5], dim=1)

    def through(self, vectors: Float[Tensor, "... d"]) -> Float[Tensor, "... direction"]:
        """Vectors as the lens shows them."""
        return vectors if self.is_whole else vectors @ self.directions

    @cached_property
    def second(self) -> Float[Tensor, "f direction"]:
        """What a neuron gives out, as the lens shows it."""
        return self.through(self.matrix).contiguous()


class Known:
    """Terms of the parts that are known in factored form: by group of keys, their output projections, and their squares."""

    def __init__(self, outputs: dict[int, list[Tensor]], values: dict[int, Tensor], lens: Lens) -> None:
        self.outputs, self.values, self.lens = outputs, values, lens
        self._next: dict[str, Known] = {}
        self._seen: dict[int, Tensor] = {}
        self._grams: dict[int, Tensor] = {}

    def joined(self, groups: Sequence[KeyGroup]) -> Known:
        """With the terms that a residual brings back, for all tiles the same."""

        def make() -> Known:
            outputs = {kind: list(terms) for kind, terms in self.outputs.items()}
            for group in groups:
                outputs[group.kind].append(group.output)
            return Known(outputs, self.values, self.lens)

        return self._once("joined", make)

    def normalised(self, norm: Norm) -> Known:
        def make() -> Known:
            outputs = {kind: [scale_(norm, each.clone()) for each in terms] for kind, terms in self.outputs.items()}
            return Known(outputs, self.values, self.lens.normalised(norm))

        return self._once("normalised", make)

    def _once(self, step: str, make: Callable[[], Known]) -> Known:
        if step not in self._next:
            self._next[step] = make()
        return self._next[step]

    def seen_factors(self, kind: int) -> Float[Tensor, "key term_head direction"]:
        """The factors of every key, term and head, as the lens shows them."""
        if kind not in self._seen:
            terms = [torch.bmm(self.values[kind], self.lens.through(output)) for output in self.outputs[kind]]
            self._seen[kind] = torch.cat(terms).transpose(0, 1).contiguous()
        return self._seen[kind]

    def squares(self, kind: int, weights: Float[Tensor, "key row term_head"]) -> Float[Tensor, "row key"]:
        """The squared norms of the sums of known terms, from the Gram matrix of each key, in float64."""
        doubles = weights.double()
        return (doubles @ self._gram(kind)).mul_(doubles).sum(-1).clamp_(min=0).T.contiguous()

    def _gram(self, kind: int) -> Float[Tensor, "key term_head term_head"]:
        if kind not in self._grams:
            values, outputs = self.values[kind], torch.cat(self.outputs[kind])
            terms, keys = len(self.outputs[kind]), values.shape[1]
            chunk = max(1, _CHUNK // outputs[:, 0].numel())
            grams: list[Tensor] = []
            for start in range(0, keys, chunk):
                some = values[:, start : start + chunk].repeat(terms, 1, 1)
                factors = torch.bmm(some, outputs).transpose(0, 1).double()
                grams.append(factors @ factors.mT)
            self._grams[kind] = torch.cat(grams)
        return self._grams[kind]
