"""Sums that do not depend on the order of adding: numbers are added as integers, so merging is associative to the last bit.

A value is held in two whole numbers, `value = (high + low / 2**40) / 2**20`: a resolution of 2**-60 and a range of about
8e12 for a sum. That is what makes a resumed, sharded or parallel run give the very same tables as an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_HIGH = 2.0**20
_LOW_BITS = 40
_LOW = 2.0**_LOW_BITS


@dataclass(frozen=True)
class ExactSum:
    """An array of sums, each exact to 2**-60."""

    high: np.ndarray
    low: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> ExactSum:
        """The sum over the first axis; missing values (NaN) count as nothing."""
        scaled = np.nan_to_num(np.asarray(values, np.float64), nan=0.0) * _HIGH
        high = np.floor(scaled)
        low = np.rint((scaled - high) * _LOW)
        return cls(high.astype(np.int64).sum(0), low.astype(np.int64).sum(0))._carried()

    def _carried(self) -> ExactSum:
        return ExactSum(self.high + (self.low >> _LOW_BITS), self.low & ((1 << _LOW_BITS) - 1))

    def __add__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.high + other.high, self.low + other.low)._carried()

    def value(self) -> np.ndarray:
        return (self.high + self.low / _LOW) / _HIGH


@dataclass(frozen=True)
class Moments:
    """Count, mean, spread and range of many arrays of one shape, element by element; missing values are left out."""

    count: np.ndarray
    total: ExactSum
    squares: ExactSum
    smallest: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """The moments over the first axis."""
        values = np.asarray(values, np.float64)
        there = np.isfinite(values)
        return cls(
            count=there.sum(0).astype(np.int64),
            total=ExactSum.of(np.where(there, values, np.nan)),
            squares=ExactSum.of(np.where(there, values, np.nan) ** 2),
            smallest=np.where(there, values, np.inf).min(0, initial=np.inf),
            largest=np.where(there, values, -np.inf).max(0, initial=-np.inf),
        )

    @classmethod
    def once(cls, values: np.ndarray) -> Moments:
        """The moments of a single array."""
        return cls.of(np.asarray(values)[None])

    def __add__(self, other: Moments) -> Moments:
        if self.count.shape != other.count.shape:
            raise ValueError(f"Moments of shapes {self.count.shape} and {other.count.shape} do not belong together.")
        return Moments(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            np.minimum(self.smallest, other.smallest),
            np.maximum(self.largest, other.largest),
        )

    def mean(self) -> np.ndarray:
        """NaN where nothing was counted."""
        return np.divide(self.total.value(), self.count, out=np.full(self.count.shape, np.nan), where=self.count > 0)

    def deviation(self) -> np.ndarray:
        """Standard deviation (dividing by the count)."""
        mean = self.mean()
        square = np.divide(
            self.squares.value(), self.count, out=np.full(self.count.shape, np.nan), where=self.count > 0
        )
        return np.sqrt(np.maximum(square - mean**2, 0.0))

    def standard_error(self) -> np.ndarray:
        """That of the mean, from the deviation of a sample (dividing by the count less one); NaN for fewer than two."""
        spare = np.where(self.count > 1, self.count - 1, 1)
        return np.where(self.count > 1, self.deviation() / np.sqrt(spare), np.nan)

    def minimum(self) -> np.ndarray:
        return np.where(self.count > 0, self.smallest, np.nan)

    def maximum(self) -> np.ndarray:
        return np.where(self.count > 0, self.largest, np.nan)

    def over(self, axis: int) -> Moments:
        """The moments with one axis pooled."""
        return Moments(
            self.count.sum(axis),
            _pool(self.total, axis),
            _pool(self.squares, axis),
            self.smallest.min(axis),
            self.largest.max(axis),
        )

    # ---- as plain arrays, for files ------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "count": self.count,
            "total.high": self.total.high,
            "total.low": self.total.low,
            "squares.high": self.squares.high,
            "squares.low": self.squares.low,
            "smallest": self.smallest,
            "largest": self.largest,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Moments:
        return cls(
            arrays["count"],
            ExactSum(arrays["total.high"], arrays["total.low"]),
            ExactSum(arrays["squares.high"], arrays["squares.low"]),
            arrays["smallest"],
            arrays["largest"],
        )


def _pool(sums: ExactSum, axis: int) -> ExactSum:
    zero = np.zeros((), np.int64)
    return ExactSum(sums.high.sum(axis), sums.low.sum(axis)) + ExactSum(zero, zero)
