"""The carrier after the activation: for a tile of queries, every part as a vector.

`parts` is working memory that `expand` fills tile by tile, and operations change it in place: every norm after the
feed-forward is taken from the same tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.decompose.carrier import SELF, Carrier, OpenCarrier
from normscope.decompose.linear import scale_
from normscope.trace import Norm


@final
@dataclass(frozen=True, kw_only=True)
class Dense(Carrier):
    """Every part of a tile of queries as a vector; `extents` says which rows of `parts` belong to which group of keys."""

    parts: Float[Tensor, "key query d"]
    extents: dict[int, slice]

    def add(self, bypass: OpenCarrier) -> Dense:
        sums = self.sums.add(bypass.sums)
        for group in bypass.groups:
            target = self.parts[self.extents[group.kind]]
            keys = len(target)
            torch.baddbmm(target, group.scaled_weights[:keys], group.factors[:keys], out=target)
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

    def maps_without(self, dimensions: Int[Tensor, " dimension"]) -> dict[int, Float[Tensor, "query key"]]:
        """The same norms without some dimensions of the parts, which are as they were afterwards."""
        kept = self.parts[..., dimensions].clone()
        self.parts[..., dimensions] = 0
        maps = self.maps()
        self.parts[..., dimensions] = kept
        return maps
