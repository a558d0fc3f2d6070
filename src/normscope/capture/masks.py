"""Masks of long inputs, by rows: those of the attention function of torch, which often needs none, as numbers to add."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Rows = slice | Tensor


@dataclass(frozen=True)
class RowMask:
    """Which keys each query sees, in any form in which an attention function gets it.

    `given` is `[batch, some head, query, key]`: what is added to the scores, or which keys are seen. Without it a query sees
    all keys, or, if `causal`, those up to its own.
    """

    given: Tensor | None
    causal: bool = False

    def of(self, rows: Rows, query: Tensor, keys: int) -> Tensor | None:
        """What is added to the scores of some rows of `query` for the first `keys`; nothing where all of them are seen."""
        if self.given is not None:
            return _added(self.given[:, :, rows, :keys], query)
        if not self.causal:
            return None
        places = torch.arange(query.shape[2], device=query.device)[rows]
        return _added((torch.arange(keys, device=query.device) <= places[:, None])[None, None], query)

    def fits(self, rows: int) -> bool:
        """Whether it has every row, so that rows are independent of each other."""
        return self.given is None or (self.given.dim() == 4 and self.given.shape[2] == rows)


def _added(mask: Tensor, query: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    zero = torch.zeros((), dtype=query.dtype, device=query.device)
    return torch.where(mask.to(query.device), zero, torch.finfo(query.dtype).min)
