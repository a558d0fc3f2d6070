"""Rank correlation, batched: average ranks (with ties) of many maps at once, then one matrix product for all pairs.

The same numbers as `scipy.stats.spearmanr`, at a small fraction of its time for hundreds of maps.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def average_ranks(values: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """Ranks from 1 along the last axis; equal values share the mean of their ranks."""
    ordered, order = values.sort(dim=-1)
    n = values.shape[-1]
    places = torch.arange(n, device=values.device).expand_as(ordered)
    changes = ordered[..., 1:] != ordered[..., :-1]
    edge = torch.ones_like(changes[..., :1]) if n > 1 else torch.ones_like(ordered, dtype=torch.bool)
    starts = torch.cat([edge, changes], -1) if n > 1 else edge
    ends = torch.cat([changes, edge], -1) if n > 1 else edge
    first = torch.where(starts, places, 0).cummax(-1).values
    last = torch.where(ends, places, n - 1).flip(-1).cummin(-1).values.flip(-1)
    shared = (first + last).double() / 2 + 1
    return torch.empty_like(shared).scatter_(-1, order, shared)


def correlations(values: Float[Tensor, "*batch series n"]) -> Float[Tensor, "*batch series series"]:
    """Pearson correlation of every pair of series; NaN for a constant one."""
    centred = values.double() - values.double().mean(-1, keepdim=True)
    products = centred @ centred.mT
    norms = products.diagonal(dim1=-2, dim2=-1).sqrt()
    return (products / (norms[..., :, None] * norms[..., None, :])).clamp(-1, 1)


def spearman_matrix(maps: np.ndarray) -> np.ndarray:
    """`[batch, series, n]` to `[batch, series, series]`: Spearman's rho of every pair of series of a batch.

    Missing values (NaN) are left out: over the entries that exist in every series, if those are the same for all, and
    otherwise pair by pair over the entries that exist in both. NaN where there are fewer than two of them.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(maps))
    there = ~tensor.isnan()
    shared = there[:1, :1]
    if bool((there == shared).all()):
        kept = tensor[..., shared[0, 0]]
        if kept.shape[-1] < 2:
            return np.full((*maps.shape[:2], maps.shape[1]), np.nan)
        return correlations(average_ranks(kept)).numpy()
    return _pair_by_pair(tensor, there)


def _pair_by_pair(tensor: Float[Tensor, "batch series n"], there: Tensor) -> np.ndarray:
    batch, series, _ = tensor.shape
    result = np.full((batch, series, series), np.nan)
    for place in range(batch):
        for first in range(series):
            for second in range(first, series):
                both = there[place, first] & there[place, second]
                if int(both.sum()) >= 2:
                    pair = tensor[place][[first, second]][:, both]
                    result[place, first, second] = result[place, second, first] = correlations(average_ranks(pair))[
                        0, 1
                    ]
    return result
