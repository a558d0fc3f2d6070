"""The carrier after the activation: for a tile of queries, every part as a vector.

`parts` is working memory that `expand` fills tile by tile, and operations change it in place: every norm after the
feed-forward is taken from the same tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.decompose.carrier import SELF, Carrier
from normscope.decompose.linear import SlopedNetwork, scale_
from normscope.trace import Attention, Norm, Rows


@dataclass(frozen=True, kw_only=True)
class Dense(Carrier):
    """Every part of a tile of queries as a vector; `extents` says which rows of `parts` belong to which group of keys."""

    parts: Float[Tensor, "key query d"]
    extents: dict[int, slice]

    def select(self, rows: Rows) -> NoReturn:
        raise NotImplementedError("a tile is not divided further")

    def attend(self, attention: Attention, *, causal: bool, bias_apart: bool = False) -> NoReturn:
        raise NotImplementedError("attention after the feed-forward of the same block")

    def feed_forward(self, networks: list[SlopedNetwork]) -> Iterator[tuple[slice, Carrier]]:
        raise NotImplementedError("a second feed-forward in the same block")

    def add(self, bypass: Carrier) -> Dense:
        sums = self.sums.add(bypass.sums)
        for group in bypass.groups:
            some = self.parts[self.extents[group.kind]]
            torch.baddbmm(some, group.scaled_weights[: len(some)], group.factors[: len(some)], out=some)
        if SELF in self.extents:
            rows = torch.arange(len(sums.queries), device=self.parts.device)
            self.parts[sums.queries, rows] = sums.own
        return Dense(sums=sums, parts=self.parts, extents=self.extents)

    def scaled(self, factor: float) -> Dense:
        return Dense(sums=self.sums.scaled(factor), parts=self.parts.mul_(factor), extents=self.extents)

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Dense:
        scale_(norm, self.parts).div_(deviation[:, None])
        return Dense(sums=self.sums.normalise(norm, deviation), parts=self.parts, extents=self.extents)

    def maps(self) -> dict[int, Float[Tensor, "query key"]]:
        norms = torch.linalg.vector_norm(self.parts, dim=-1).T
        return {kind: norms[:, keys] for kind, keys in self.extents.items()}
