"""The unpaired bootstrap of a difference of weighted means, for many rows (layers) at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

EXACT = 10_000
"""Up to how many values a side is really resampled. The mean of more has, by the central limit theorem, a normal
distribution, from which it is drawn: its error is known, and millions of values need not be drawn ten thousand times."""

_BATCH_VALUES = 2_000_000
"""How many resampled values are in memory at once."""


@dataclass(frozen=True)
class Sample:
    """One side of a comparison: how much each value counts, and, row by row, the products of weight and value."""

    weights: np.ndarray
    products: Callable[[int], np.ndarray]

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray | None = None) -> Sample:
        """From values `[row, n]` in memory; without weights, all count alike."""
        known = np.ones(values.shape[1]) if weights is None else weights
        return cls(known, lambda row: values[row] * known)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def effective(self) -> float:
        """How many values of equal weight would give a mean as good (Kish)."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum()) if len(self) else 0.0

    def mean(self, row: int) -> tuple[float, float]:
        """The weighted mean of a row, and its standard error: that of a ratio of two sums."""
        products, total = self.products(row), self.weights.sum()
        mean = products.sum() / total
        return float(mean), float(np.sqrt(((products - mean * self.weights) ** 2).sum()) / total)

    def resampled(self, rows: int, resamples: int, chance: np.random.Generator) -> np.ndarray:
        """`[row, resample]`: the means of as many values drawn with replacement. Rows are resampled together."""
        if len(self) > EXACT:
            return np.stack([chance.normal(*self.mean(row), size=resamples) for row in range(rows)])
        products = np.stack([self.products(row) for row in range(rows)])
        batch = max(1, _BATCH_VALUES // len(self))
        batches = [self._drawn(products, min(batch, resamples - start), chance) for start in range(0, resamples, batch)]
        return np.concatenate(batches, 1)

    def _drawn(self, products: np.ndarray, resamples: int, chance: np.random.Generator) -> np.ndarray:
        count = len(self)
        places = chance.integers(count, size=(resamples, count)) + count * np.arange(resamples)[:, None]
        times = np.bincount(places.reshape(-1), minlength=resamples * count).reshape(resamples, count).astype(float)
        return (products @ times.T) / (times @ self.weights)


@dataclass(frozen=True)
class Comparison:
    """The difference of two means, its confidence interval, and the p-value of no difference; the means themselves, and
    their standard errors."""

    effect: float
    low: float
    high: float
    p: float
    means: tuple[float, float]
    errors: tuple[float, float]


_NAN = float("nan")
_UNKNOWN = Comparison(_NAN, _NAN, _NAN, _NAN, (_NAN, _NAN), (_NAN, _NAN))


def compare_means(
    first: Sample, second: Sample, rows: int, *, resamples: int, confidence: float, sides: str, seed: int
) -> list[Comparison]:
    """One comparison per row.

    The p-value is how often the resampled difference, like the data, is not on its side of zero; two-sided, twice that.
    With fewer than two values on a side, nothing is known, and everything is NaN.
    """
    if min(len(first), len(second)) < 2:
        return [_UNKNOWN] * rows
    chance = np.random.default_rng(seed)
    resampled = [side.resampled(rows, resamples, chance) for side in (first, second)]
    found: list[Comparison] = []
    for row, differences in enumerate(resampled[0] - resampled[1]):
        (mean, error), (other, other_error) = first.mean(row), second.mean(row)
        low, high = (float(end) for end in np.quantile(differences, [(1 - confidence) / 2, (1 + confidence) / 2]))
        p = _p_value(differences, sides)
        found.append(Comparison(mean - other, low, high, p, (mean, other), (error, other_error)))
    return found


def _p_value(distribution: np.ndarray, sides: str) -> float:
    count = len(distribution) + 1
    greater = (1 + int((distribution <= 0).sum())) / count
    less = (1 + int((distribution >= 0).sum())) / count
    return {"greater": greater, "less": less, "two": min(1.0, 2 * min(greater, less))}[sides]
