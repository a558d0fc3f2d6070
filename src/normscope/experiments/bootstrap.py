"""The unpaired bootstrap of a difference of means, by scipy, for many rows (layers) at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

_BATCH_VALUES = 2_000_000
"""How many resampled values are in memory at once."""


@dataclass(frozen=True)
class Comparison:
    """The difference of two means, its confidence interval, and the p-value of no difference."""

    effect: float
    low: float
    high: float
    p: float
    first_mean: float
    second_mean: float


def compare_means(
    first: np.ndarray, second: np.ndarray, resamples: int, confidence: float, sides: str, seed: int
) -> list[Comparison]:
    """`[row, n]` and `[row, m]` to one comparison per row. Rows are resampled together.

    The p-value is how often the resampled difference, like the data, is not on its side of zero; two-sided, twice that.
    With fewer than two values on a side, nothing is known, and everything is NaN.
    """
    if min(first.shape[1], second.shape[1]) < 2:
        return [Comparison(*[float("nan")] * 6)] * len(first)

    def difference(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return a.mean(axis) - b.mean(axis)

    batch = max(1, _BATCH_VALUES // (first.size + second.size))
    found = stats.bootstrap(
        (first, second),
        difference,
        n_resamples=resamples,
        batch=batch,
        vectorized=True,
        axis=-1,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    distribution = np.asarray(found.bootstrap_distribution)
    low, high = (np.asarray(end) for end in (found.confidence_interval.low, found.confidence_interval.high))
    means = first.mean(-1), second.mean(-1)
    return [
        Comparison(
            float(means[0][row] - means[1][row]),
            float(low[row]),
            float(high[row]),
            _p_value(distribution[row], sides),
            float(means[0][row]),
            float(means[1][row]),
        )
        for row in range(len(first))
    ]


def _p_value(distribution: np.ndarray, sides: str) -> float:
    count = len(distribution) + 1
    greater = (1 + int((distribution <= 0).sum())) / count
    less = (1 + int((distribution >= 0).sum())) / count
    return {"greater": greater, "less": less, "two": min(1.0, 2 * min(greater, less))}[sides]
