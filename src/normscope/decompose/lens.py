"""What approximate parts are looked at through: all numbers of a vector, or a few directions that serve every scope.

A lens follows the norms after the feed-forward. `Whole` keeps every number; `Sketch` keeps the products with a few
directions, of which most are those along which sampled parts lie, and the others random in what is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.decompose.linear import scale_
from normscope.trace import Norm

_MAIN = 2 / 3
"""The share of directions along which sampled parts lie."""

_KNOWN = 0.5
"""How much the sampled known terms count beside the sampled parts, when directions are sought."""

_RANDOM_PRODUCTS = 0.5
"""How much of the products with known terms is taken from the random directions: noise against bias."""

_TINY = 1e-30


@dataclass(frozen=True)
class Seen:
    """Known terms of parts: as a lens shows them, and their squared norms, in float64, where these are asked for."""

    vectors: Float[Tensor, "row key direction"]
    squares: Callable[[], Float[Tensor, "row key"]]


class Lens(ABC):
    """A way to look at the parts that a feed-forward gives out, at one point of the chain after it."""

    @property
    @abstractmethod
    def second(self) -> Float[Tensor, "f direction"]:
        """What a neuron gives out, as the lens shows it."""

    @abstractmethod
    def normalised(self, norm: Norm) -> Lens:
        """The lens after a norm."""

    @abstractmethod
    def normalise(self, norm: Norm, vectors: Float[Tensor, "... direction"]) -> Float[Tensor, "... direction"]:
        """What was seen before a norm, as it is seen after it; may change it in place."""

    @abstractmethod
    def through(self, views: Sequence[Float[Tensor, "... d"]]) -> Float[Tensor, "... direction"]:
        """Known vectors, such that products with what is seen of a part are products with that part.

        `views` are the vectors as they joined the chain, and after every norm since.
        """

    @abstractmethod
    def norms(
        self, vectors: Float[Tensor, "row key direction"], known: Callable[[], Seen] | None
    ) -> Float[Tensor, "row key"]:
        """The norms of parts that are seen so, with the `known` terms that belong to them."""


@final
@dataclass(frozen=True)
class Whole(Lens):
    """Every number of a part: nothing is left out."""

    matrix: Float[Tensor, "f d"]

    @property
    def second(self) -> Float[Tensor, "f d"]:
        return self.matrix

    def normalised(self, norm: Norm) -> Whole:
        return self

    def normalise(self, norm: Norm, vectors: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return scale_(norm, vectors)

    def through(self, views: Sequence[Float[Tensor, "... d"]]) -> Float[Tensor, "... d"]:
        return views[-1]

    def norms(self, vectors: Float[Tensor, "row key d"], known: Callable[[], Seen] | None) -> Float[Tensor, "row key"]:
        return (vectors if known is None else vectors + known().vectors).norm(dim=-1)


def views_of(vectors: Float[Tensor, "... d"], norms: Sequence[Norm]) -> list[Float[Tensor, "... d"]]:
    """Vectors before and after each of some norms, but for its deviation."""
    views = [vectors]
    for norm in norms:
        views.append(scale_(norm, views[-1].clone()))
    return views


@dataclass(frozen=True)
class Samples:
    """Sampled vectors at every view, first without a norm, then after one more norm each; missing before they joined."""

    views: Sequence[Float[Tensor, "sample d"] | None]

    def stacked(self, sizes: Sequence[Float[Tensor, ""]]) -> Float[Tensor, "sample d_of_all_views"]:
        """All views of each vector one after the other, in units of `sizes`, with the length 1."""
        one = next(view for view in self.views if view is not None)
        views = [torch.zeros_like(one) if view is None else view / s for view, s in zip(self.views, sizes, strict=True)]
        return torch.nn.functional.normalize(torch.cat(views, dim=-1), dim=-1, eps=_TINY)


class Directions:
    """The directions of a sketch: in the space of all views, stacked, so that the same products serve every scope."""

    def __init__(self, parts: Samples, known: Sequence[Samples], width: int, seed: int) -> None:
        views = [view for view in parts.views if view is not None]
        self.sizes = [view.norm(dim=-1).median().clamp(min=_TINY) for view in views]
        stacked = parts.stacked(self.sizes)
        everything = torch.cat([stacked, *(_KNOWN * each.stacked(self.sizes) for each in known)])
        self.d, size = views[0].shape[-1], stacked.shape[-1]
        self.main = max(1, min(round(_MAIN * width), width - 1, len(everything)))
        generator = torch.Generator().manual_seed(seed)
        random = torch.randn(size, width, generator=generator, dtype=stacked.dtype, device=generator.device).to(
            stacked.device
        )
        first = random[:, : self.main]
        for _ in range(2):
            first = torch.linalg.qr(everything.T @ (everything @ first)).Q
        rest = random[:, self.main :]
        rest = torch.linalg.qr(rest - first @ (first.T @ rest)).Q
        self.matrix = torch.cat([first, rest * ((size - self.main) / (width - self.main)) ** 0.5], dim=1)
        left = (stacked - (stacked @ first) @ first.T).square().sum(0).unflatten(0, (len(views), -1)).sum(1)
        self.shares = left / left.sum().clamp(min=_TINY)

    def of_view(self, view: int) -> Float[Tensor, "d direction"]:
        """The rows that belong to a view, in its own units."""
        return self.matrix[view * self.d : (view + 1) * self.d] * self.sizes[view]


@final
@dataclass(frozen=True)
class Sketch(Lens):
    """Products of every part with a few directions; all views of a part are estimated from the same products."""

    directions: Directions
    later: tuple[Norm, ...]
    products: Float[Tensor, "f direction"]
    view: int = 0

    @staticmethod
    def of(matrix: Float[Tensor, "f d"], norms: tuple[Norm, ...], directions: Directions) -> Sketch:
        """From what every neuron gives out (`matrix`), which is seen after some of the `norms`."""
        products = torch.zeros_like(matrix[:, :1])
        for view, seen in enumerate(views_of(matrix, norms)):
            products = products + seen @ (directions.of_view(view) / directions.sizes[view] ** 2)
        return Sketch(directions, norms, products)

    @property
    def second(self) -> Float[Tensor, "f direction"]:
        return self.products

    def normalised(self, norm: Norm) -> Sketch:
        return replace(self, view=self.view + 1)

    def normalise(self, norm: Norm, vectors: Float[Tensor, "... direction"]) -> Float[Tensor, "... direction"]:
        return vectors

    def through(self, views: Sequence[Float[Tensor, "... d"]]) -> Float[Tensor, "... direction"]:
        main, joined = self.directions.main, self.view + 1 - len(views)
        along = views[-1] @ self.directions.of_view(self.view)[:, :main]
        # Random directions see products at all views in one: this view's share of them is taken, and only half of it,
        # since they are noisy.
        every = views_of(views[-1], self.later[self.view :])
        left = torch.zeros_like(along[..., :1])
        for view, vectors in enumerate([*views[:-1], *every], joined):
            left = left + vectors @ self.directions.of_view(view)[:, main:] / self.directions.sizes[view] ** 2
        share = self.directions.shares[self.view] / self.directions.shares[joined:].sum().clamp(min=_TINY)
        factor = _RANDOM_PRODUCTS * share * self.directions.sizes[self.view] ** 2
        return torch.cat([along, left * factor], dim=-1)

    def norms(
        self, vectors: Float[Tensor, "row key direction"], known: Callable[[], Seen] | None
    ) -> Float[Tensor, "row key"]:
        if known is None:
            return self._squares(vectors).sqrt_()
        # The norm of the known terms is exact; the sketch adds only what the rest changes of it.
        seen = known()
        changes = self._squares(vectors).add_(seen.vectors.mul_(vectors).sum(-1), alpha=2)
        return seen.squares().add_(changes).clamp_(min=0).sqrt_().to(vectors.dtype)

    def _squares(self, vectors: Float[Tensor, "row key direction"]) -> Float[Tensor, "row key"]:
        main = self.directions.main
        along = (vectors[..., :main] @ self._root).square().sum(-1)
        left = vectors[..., main:].square().sum(-1)
        return along.add_(left * (self.directions.sizes[self.view] ** 2 * self.directions.shares[self.view]))

    @cached_property
    def _root(self) -> Float[Tensor, "main main"]:
        """Products along the main directions to numbers whose squares add up to that of the view's vector."""
        main = self.directions.of_view(self.view)[:, : self.directions.main]
        return torch.linalg.qr(main).R.T.contiguous()
