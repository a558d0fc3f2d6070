"""Histograms with fixed logarithmic bins: whole numbers, so they add up exactly, whatever the size of the corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class LogBins:
    """Bins of equal width in log10, from `10**low` to `10**high`; what lies outside goes to the outermost bins."""

    low: int
    high: int
    per_decade: int

    @property
    def size(self) -> int:
        return (self.high - self.low) * self.per_decade

    def edges(self) -> np.ndarray:
        return np.logspace(self.low, self.high, self.size + 1)

    def places(self, values: np.ndarray) -> np.ndarray:
        """The bin of every value."""
        floor = 10.0**self.low
        logs = np.log10(np.maximum(np.nan_to_num(values, nan=floor), floor))
        return np.clip(((logs - self.low) * self.per_decade).astype(np.int64), 0, self.size - 1)

    def counts(self, values: np.ndarray) -> np.ndarray:
        """`[..., n]` to `[..., bin]`."""
        places = self.places(values).reshape(-1, values.shape[-1])
        rows = np.arange(len(places))[:, None] * self.size
        return np.bincount((rows + places).reshape(-1), minlength=len(places) * self.size).reshape(
            *values.shape[:-1], self.size
        )

    def quantile(self, counts: np.ndarray, share: float) -> float:
        """The middle of the bin in which a quantile lies."""
        place = int(np.searchsorted(counts.cumsum(), share * counts.sum()))
        return float(10.0 ** (self.low + (min(place, self.size - 1) + 0.5) / self.per_decade))


def binned_spearman(counts: np.ndarray) -> float:
    """Spearman's rho of two variables from their joint counts `[first, second]`; values of one bin are ties."""
    total = counts.sum()
    first, second = _ranks(counts.sum(1)), _ranks(counts.sum(0))
    if total < 2 or (counts.sum(1) > 0).sum() < 2 or (counts.sum(0) > 0).sum() < 2:
        return float("nan")
    rows, columns = np.nonzero(counts)
    weights = counts[rows, columns].astype(np.float64)
    centred = (
        first[rows] - np.average(first[rows], weights=weights),
        second[columns] - np.average(second[columns], weights=weights),
    )
    products = [
        float((weights * a * b).sum()) for a, b in ((centred[0], centred[1]), (centred[0],) * 2, (centred[1],) * 2)
    ]
    return products[0] / float(np.sqrt(products[1] * products[2]))


def _ranks(counts: np.ndarray) -> np.ndarray:
    """The average rank of the values of every bin."""
    return counts.cumsum() - (counts - 1) / 2


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """scipy's rank correlation; NaN where one side is constant or there are fewer than three values."""
    there = np.isfinite(first) & np.isfinite(second)
    first, second = first[there], second[there]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    result: Any = stats.spearmanr(first, second)
    return float(result.statistic)
