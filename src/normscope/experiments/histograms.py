"""Histograms with fixed, fine logarithmic bins, kept as rows of bins and counts: whole numbers, so they add up exactly,
whatever the size of the corpus. What is read off them is off by no more than is said here."""

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

    @property
    def half_width(self) -> float:
        """By what share of itself a value is off when it is replaced by the middle of its bin, at most."""
        return 10.0 ** (0.5 / self.per_decade) - 1

    def places(self, values: np.ndarray) -> np.ndarray:
        """The bin of every value."""
        floor = 10.0**self.low
        logs = np.log10(np.maximum(np.nan_to_num(values, nan=floor), floor))
        return np.clip(((logs - self.low) * self.per_decade).astype(np.int64), 0, self.size - 1)

    def middles(self, places: np.ndarray) -> np.ndarray:
        return 10.0 ** (self.low + (places + 0.5) / self.per_decade)

    def quantile(self, places: np.ndarray, counts: np.ndarray, share: float) -> float:
        """A quantile, with linear interpolation between the values around it, each the middle of its bin."""
        order = np.argsort(places)
        ends = counts[order].cumsum()
        position = share * (int(ends[-1]) - 1)
        at = [int(np.searchsorted(ends, index, side="right")) for index in (np.floor(position), np.ceil(position))]
        lower, upper = self.middles(places[order][at])
        return float(lower + (position - np.floor(position)) * (upper - lower))


def binned_spearman(first: np.ndarray, second: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Spearman's rho of two variables from their joint histogram (bin, bin, count), and how far it may be off.

    Values of one bin are taken as ties: their ranks are replaced by the mean rank of the bin, a projection. The angle
    between ranks and projected ranks is known from their variances, and angles add up at most.
    """
    total = int(counts.sum())
    if total < 2 or len(np.unique(first)) < 2 or len(np.unique(second)) < 2:
        return float("nan"), float("nan")
    weights = counts.astype(np.float64)
    deviations, angles = [], []
    for places in (first, second):
        centred = _mean_ranks(places, counts) - (total + 1) / 2
        deviations.append(centred)
        variance, largest = float((weights * centred**2).sum() / total), (float(total) ** 2 - 1) / 12
        angles.append(np.arccos(min(1.0, np.sqrt(variance / largest))))
    products = [
        float((weights * a * b).sum())
        for a, b in ((deviations[0], deviations[1]), (deviations[0],) * 2, (deviations[1],) * 2)
    ]
    rho = products[0] / float(np.sqrt(products[1] * products[2]))
    angle, slack = float(np.arccos(np.clip(rho, -1, 1))), float(sum(angles))
    ends = np.cos(max(0.0, angle - slack)), np.cos(min(np.pi, angle + slack))
    return rho, float(max(abs(end - rho) for end in ends))


def _mean_ranks(places: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The mean rank of the values of each cell's bin."""
    _, inverse = np.unique(places, return_inverse=True)
    sizes = np.bincount(inverse.reshape(-1), weights=counts)
    return (sizes.cumsum() - (sizes - 1) / 2)[inverse.reshape(-1)]


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """scipy's rank correlation; NaN where one side is constant or there are fewer than three values."""
    there = np.isfinite(first) & np.isfinite(second)
    first, second = first[there], second[there]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    result: Any = stats.spearmanr(first, second)
    return float(result.statistic)
