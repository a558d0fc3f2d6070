"""Sketches: norms of parts after the feed-forward, estimated from products with a few directions.

With `S` of k rows instead of d, multiplied into the second matrix of the feed-forward, only `S p` of a part `p` is computed:

    ||p||^2  ~  ||(S p) along the main directions||^2 + ||(S p) along the random ones||^2

Two thirds of the rows are the main directions, along which sampled parts lie, so that little is left for the others, which
are random in the remaining space and scaled for its size. One set of directions serves every scope: it is made for vectors
stacked as they are after each norm that follows. A `Projection` is either a `Sketch` or `Whole`, which keeps every number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.linear import scale_, scale_back
from normscope.chain.trace import Norm
from normscope.decompose.carriers import OpenCarrier
from normscope.decompose.key_groups import KeyGroup

_KEYS = 64
_ROWS_PER_KEY = 4
SAMPLED_PAIRS = _KEYS * _ROWS_PER_KEY


@dataclass(frozen=True)
class Pairs:
    """Some keys of a group, spread evenly, and for each of them some query rows that see it."""

    group: KeyGroup
    keys: Int[Tensor, " sampled_key"]
    rows: Int[Tensor, "sampled_key sampled_row"]

    @staticmethod
    def sampled(group: KeyGroup, seed: int) -> Pairs:
        visible, device = group.visible(), group.weights.device
        keys = torch.linspace(0, visible - 1, min(_KEYS, visible), device=device).long()
        seen = group.weights[keys].abs().sum(-1).cpu() > 0
        generator = torch.Generator().manual_seed(seed)
        rows = torch.multinomial(seen + 1e-9, _ROWS_PER_KEY, replacement=True, generator=generator)
        return Pairs(group, keys, rows.to(keys.device))

    @cached_property
    def weights(self) -> Float[Tensor, "sampled_key sampled_row head"]:
        return self.group.weights[self.keys[:, None], self.rows] * self.group.scale[self.rows, None]

    def through(self, output: Float[Tensor, "head d_head outputs"]) -> Float[Tensor, "sampled_key sampled_row outputs"]:
        """The pairs' parts after a matrix for each head."""
        return torch.bmm(self.weights, torch.bmm(self.group.values[:, self.keys], output).transpose(0, 1))

    def of_factors(
        self, factors: Float[Tensor, "key head outputs"]
    ) -> Float[Tensor, "sampled_key sampled_row outputs"]:
        """The same from the factors of all keys."""
        return torch.bmm(self.weights, factors[self.keys])

    def parts(self, output: Float[Tensor, "head d_head d"]) -> Float[Tensor, "sample d"]:
        return self.through(output).flatten(0, 1)


@dataclass(frozen=True)
class RestOfChain:
    """The chain after a feed-forward: its norms, and the bypasses that join with the number of norms before them."""

    norms: tuple[Norm, ...] = ()
    bypasses: tuple[tuple[int, OpenCarrier], ...] = ()

    def known_samples(self, pairs: Sequence[Pairs]) -> list[Samples]:
        """The parts of sampled pairs that bypasses bring back."""
        samples: list[Samples] = []
        for joined, bypass in self.bypasses:
            outputs = {group.kind: group.output for group in bypass.groups}
            parts = [each.parts(outputs[each.group.kind]) for each in pairs if each.group.kind in outputs]
            if parts:
                samples.append(Samples([*[None] * joined, *views_of(torch.cat(parts), self.norms[joined:])]))
        return samples


# ---- Projections of approximate parts: all numbers of a vector, or its products with a few directions.

_MAIN = 2 / 3
"""The share of directions along which sampled parts lie."""

_KNOWN = 0.5
"""The weight of the sampled known terms relative to the sampled parts, when directions are chosen."""

_RANDOM_PRODUCTS = 0.5
"""How much of the products with known terms is taken from the random directions: noise against bias."""

_TINY = 1e-30


class ProjectedTerms(ABC):
    """Known terms of parts, projected."""

    @abstractmethod
    def vectors(self) -> Float[Tensor, "row key direction"]:
        """The terms."""

    @abstractmethod
    def products(self, vectors: Float[Tensor, "row key direction"]) -> Float[Tensor, "row key"]:
        """Of each with a vector, without the terms being written out."""

    @abstractmethod
    def squares(self) -> Float[Tensor, "row key"]:
        """Their squared norms, in float64."""


class Projection(ABC):
    """What is computed from the output parts of a feed-forward, at one point of the chain after it."""

    @property
    @abstractmethod
    def second(self) -> Float[Tensor, "f direction"]:
        """The projected output of every neuron."""

    @abstractmethod
    def normalised(self, norm: Norm) -> Projection:
        """The projection after a norm."""

    @abstractmethod
    def normalise(self, norm: Norm, vectors: Float[Tensor, "... direction"]) -> Float[Tensor, "... direction"]:
        """The projection after a norm, from that before it; may change it in place."""

    @abstractmethod
    def through(self, views: Sequence[Float[Tensor, "... d"]]) -> Float[Tensor, "... direction"]:
        """Known vectors, such that products with what is seen of a part are products with that part.

        `views` are the vectors as they joined the chain, and after every norm since.
        """

    @abstractmethod
    def norms(
        self, vectors: Float[Tensor, "row key direction"], scale: Float[Tensor, " row"], known: ProjectedTerms | None
    ) -> Float[Tensor, "row key"]:
        """The norms of parts that are seen so, times the `scale`, with the `known` terms that belong to them."""


@final
@dataclass(frozen=True)
class Whole(Projection):
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

    def norms(
        self, vectors: Float[Tensor, "row key d"], scale: Float[Tensor, " row"], known: ProjectedTerms | None
    ) -> Float[Tensor, "row key"]:
        if known is None:
            return vectors.norm(dim=-1) * scale[:, None]
        return torch.addcmul(known.vectors(), vectors, scale[:, None, None]).norm(dim=-1)


def views_of(vectors: Float[Tensor, "... d"], norms: Sequence[Norm]) -> list[Float[Tensor, "... d"]]:
    """Vectors before and after each of some norms, except for its deviation."""
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

    def pulled_back(self, norms: Sequence[Norm], view: int) -> Float[Tensor, "d direction"]:
        """The vectors whose product with one at a view is the sum of the products there and at all later views."""
        pulled = self.of_view(len(norms)) / self.sizes[len(norms)] ** 2
        for earlier in reversed(range(view, len(norms))):
            pulled = scale_back(norms[earlier], pulled.T).T + self.of_view(earlier) / self.sizes[earlier] ** 2
        return pulled


@final
@dataclass(frozen=True)
class Sketch(Projection):
    """Products of every part with a few directions; all views of a part are estimated from the same products."""

    directions: Directions
    later: tuple[Norm, ...]
    sketched: Float[Tensor, "f direction"]
    view: int = 0

    @staticmethod
    def of(matrix: Float[Tensor, "f d"], norms: tuple[Norm, ...], directions: Directions) -> Sketch:
        """From what every neuron outputs (`matrix`), which is seen after some of the `norms`."""
        return Sketch(directions, norms, matrix @ directions.pulled_back(norms, 0))

    @property
    def second(self) -> Float[Tensor, "f direction"]:
        return self.sketched

    def normalised(self, norm: Norm) -> Sketch:
        return replace(self, view=self.view + 1)

    def normalise(self, norm: Norm, vectors: Float[Tensor, "... direction"]) -> Float[Tensor, "... direction"]:
        return vectors

    def through(self, views: Sequence[Float[Tensor, "... d"]]) -> Float[Tensor, "... direction"]:
        directions, main, joined = self.directions, self.directions.main, self.view + 1 - len(views)
        along = views[-1] @ directions.of_view(self.view)[:, :main]
        # Random directions see products at all views in one: this view's share of them is taken, and only half of it,
        # since they are noisy.
        left = views[-1] @ directions.pulled_back(self.later, self.view)[:, main:]
        for view, vectors in enumerate(views[:-1], joined):
            left += vectors @ directions.of_view(view)[:, main:] / directions.sizes[view] ** 2
        share = directions.shares[self.view] / directions.shares[joined:].sum().clamp(min=_TINY)
        factor = _RANDOM_PRODUCTS * share * directions.sizes[self.view] ** 2
        return torch.cat([along, left * factor], dim=-1)

    def norms(
        self, vectors: Float[Tensor, "row key direction"], scale: Float[Tensor, " row"], known: ProjectedTerms | None
    ) -> Float[Tensor, "row key"]:
        squares = self._squares(vectors)
        if known is None:
            return squares.sqrt_().mul_(scale[:, None])
        # The norm of the known terms is exact; the sketch adds only what the rest changes of it.
        changes = squares.mul_(scale[:, None]).add_(known.products(vectors), alpha=2).mul_(scale[:, None])
        return known.squares().add_(changes).clamp_(min=0).sqrt_().to(vectors.dtype)

    def _squares(self, vectors: Float[Tensor, "row key direction"]) -> Float[Tensor, "row key"]:
        if not vectors.is_contiguous():  # one product for all needs them as they lie
            return self._squares(vectors.transpose(0, 1).contiguous()).T
        main, flat = self.directions.main, vectors.flatten(0, 1)
        along = torch.linalg.vector_norm(flat[:, :main] @ self._root, dim=-1).square_()
        left = torch.linalg.vector_norm(flat[:, main:], dim=-1).square_()
        left *= self.directions.sizes[self.view] ** 2 * self.directions.shares[self.view]
        return along.add_(left).unflatten(0, vectors.shape[:2])

    @cached_property
    def _root(self) -> Float[Tensor, "main main"]:
        """Products along the main directions to numbers whose squares add up to that of the view's vector."""
        main = self.directions.of_view(self.view)[:, : self.directions.main]
        return torch.linalg.qr(main).R.T.contiguous()
