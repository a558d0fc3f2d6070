"""Deletion curves and what is read off them, for any value as a function of the tokens taken away.

Comprehensiveness and sufficiency (DeYoung et al. 2020), the area over the curve with its best and worst order by beam search
(Edin et al. 2025), and the symmetric gain. Nothing here knows models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Value = Callable[[Sequence[frozenset[int]]], np.ndarray]
"""The value without each of some sets of tokens; NaN where there is none."""

BINS = (0.01, 0.05, 0.10, 0.20, 0.50)
"""The shares of tokens that are taken away or kept alone."""


def order_of(shares: np.ndarray, candidates: Sequence[int]) -> list[int]:
    """The candidates from the most important down; missing shares last, equal ones in their order."""
    known = np.where(np.isfinite(shares), shares, -np.inf)
    return sorted(candidates, key=lambda index: (-known[index], index))


def comprehensiveness(value: Value, order: Sequence[int]) -> np.ndarray:
    """How much the value falls without the first 1, 5, 10, 20, 50 % of an order (at least one token): `[bin]`."""
    return _fall(value, [frozenset(order[: _count(share, order)]) for share in BINS])


def sufficiency(value: Value, order: Sequence[int]) -> np.ndarray:
    """How much the value falls when only the first 1, 5, 10, 20, 50 % of an order are kept: `[bin]`."""
    return _fall(value, [frozenset(order[_count(share, order) :]) for share in BINS])


def _count(share: float, order: Sequence[int]) -> int:
    return max(1, math.ceil(share * len(order) - 1e-9))


def _fall(value: Value, removed: list[frozenset[int]]) -> np.ndarray:
    whole, *others = value([frozenset(), *removed])
    return whole - np.array(others)


@dataclass(frozen=True)
class Curve:
    """A value while tokens are taken away in an order: after `counts` of `tokens` tokens."""

    counts: np.ndarray
    values: np.ndarray

    @property
    def area_over(self) -> float:
        """AOPC: the mean fall of the value over all steps."""
        return float(np.nanmean(self.values[0] - self.values[1:]))

    @property
    def area_under(self) -> float:
        """The area under the curve over the share of tokens taken away, by trapezoids."""
        known = np.isfinite(self.values)
        counts = self.counts[known]
        return float(np.trapezoid(self.values[known], counts / counts[-1]))


def curve(value: Value, order: Sequence[int], steps: int) -> Curve:
    """Token by token, or in `steps` even steps where there are more tokens."""
    counts = np.unique(np.rint(np.linspace(0, len(order), min(steps, len(order)) + 1)).astype(int))
    return Curve(counts, value([frozenset(order[:count]) for count in counts]))


def symmetric_gain(value: Value, order: Sequence[int], steps: int) -> float:
    """SRG: the area with the least important token first minus that with the most important first."""
    return curve(value, order[::-1], steps).area_under - curve(value, order, steps).area_under


def extreme_areas(value: Value, candidates: Sequence[int], beam: int) -> tuple[float, float]:
    """The smallest and the largest area over the curve that an order of the candidates gives, by beam search."""
    return -_best_area(value, candidates, beam, sign=-1), _best_area(value, candidates, beam, sign=1)


def _best_area(value: Value, candidates: Sequence[int], beam: int, sign: int) -> float:
    """The largest mean of `sign` times the fall. Orders that removed the same tokens continue in the same way, so only the
    best is kept."""
    whole = float(value([frozenset()])[0])
    front: dict[frozenset[int], float] = {frozenset(): 0.0}
    steps = 0
    for _ in candidates:
        reached: dict[frozenset[int], float] = {}
        for removed, total in front.items():
            for index in candidates:
                if index not in removed:
                    longer = removed | {index}
                    reached[longer] = max(total, reached.get(longer, -math.inf))
        falls = sign * (whole - value(list(reached)))
        totals = {key: total + fall for (key, total), fall in zip(reached.items(), falls, strict=True)}
        if not all(math.isfinite(total) for total in totals.values()):
            break  # nothing is left to read
        front = dict(sorted(totals.items(), key=lambda entry: -entry[1])[:beam])
        steps += 1
    return max(front.values()) / steps if steps else math.nan


def normalised(area: float, smallest: float, largest: float) -> float:
    """An area between the smallest (0) and the largest (1) there is; beam search may miss them by a little."""
    return math.nan if not largest > smallest else min(1.0, max(0.0, (area - smallest) / (largest - smallest)))
