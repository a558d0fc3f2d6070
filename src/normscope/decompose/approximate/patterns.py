"""Slopes that queries share: those of a query are nearly a sum of a few patterns, and matrices are folded once for each.

Tokens of a text switch neurons on together, which is why few patterns are enough; how close they come is measured elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

_LEARNED_FROM = 512
"""How many queries, spread evenly, the patterns come from at the most."""

_ROWS = 64
"""For how many queries matrices are summed at a time: they are large, and each product reads them all."""


@dataclass(frozen=True)
class Patterns:
    """`shares @ slopes` is near the slopes of all queries. The first pattern is their mean."""

    shares: Float[Tensor, "query pattern"]
    slopes: Float[Tensor, "pattern f"]

    @staticmethod
    def of(slopes: Float[Tensor, "query f"], sizes: Float[Tensor, " f"], count: int) -> Patterns:
        """The mean and the principal directions around it, neurons weighed by `sizes`, what goes through them."""
        mean, sizes = slopes.mean(0), sizes.clamp(min=1e-6 * float(sizes.max()))
        deviations = (slopes - mean) * sizes
        rows = torch.linspace(0, len(slopes) - 1, min(len(slopes), _LEARNED_FROM), device=slopes.device).long()
        learned = deviations[rows]
        # The eigenvectors of the small Gram matrix give the same directions as a decomposition of all slopes.
        vectors = torch.linalg.eigh((learned @ learned.T).double()).eigenvectors[:, 1 - count :]
        axes = torch.nn.functional.normalize(vectors.T.to(learned.dtype) @ learned, dim=1)
        shares = torch.cat([torch.ones_like(deviations[:, :1]), deviations @ axes.T], dim=1)
        return Patterns(shares, torch.cat([mean[None], axes / sizes]))


@final
class PatternMatrices:
    """One matrix for each pattern, and the sums of them that the queries have, some queries at a time."""

    def __init__(
        self, shares: Float[Tensor, "query pattern"], matrices: Float[Tensor, "pattern value direction"]
    ) -> None:
        self.shares, self.matrices = shares, matrices
        self._block, self._sums = slice(0, 0), matrices[:0]

    def of(self, rows: slice) -> Float[Tensor, "row value direction"]:
        """The sums for consecutive queries."""
        if not self._block.start <= rows.start <= rows.stop <= self._block.stop:
            self._block = slice(rows.start, max(rows.stop, rows.start + _ROWS))
            sums = self.shares[self._block] @ self.matrices.flatten(1)
            self._sums = sums.unflatten(1, self.matrices.shape[1:])
        return self._sums[rows.start - self._block.start : rows.stop - self._block.start]
