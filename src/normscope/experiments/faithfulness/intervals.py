"""Means with bootstrap intervals, and paired differences from a reference, of rows that trials leave behind.

A row has a sequence, a method and a value, beside what it is grouped by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

Record = dict[str, Any]
Group = dict[str, dict[int, float]]
"""The values of every method, by sequence."""


def grouped(rows: Sequence[Mapping[str, Any]], by: Sequence[str], value: str = "value") -> dict[tuple[Any, ...], Group]:
    """Rows by what they are grouped by, in the order in which groups and methods come."""
    groups: dict[tuple[Any, ...], Group] = {}
    for row in rows:
        number = float("nan") if row[value] is None else float(row[value])
        if np.isfinite(number):
            group = groups.setdefault(tuple(row[name] for name in by), {})
            group.setdefault(str(row["method"]), {})[int(row["sequence"])] = number
    return groups


def mean_with_interval(values: np.ndarray, resamples: int, confidence: float, seed: int) -> tuple[float, float, float]:
    """The mean of values, and the percentile bootstrap's interval; no interval of fewer than two values."""
    if len(values) < 2:
        return (float(values.mean()) if len(values) else float("nan")), float("nan"), float("nan")
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0]), float(values[0])
    result = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 1_000_000 // len(values)),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    interval: Any = result.confidence_interval
    return float(values.mean()), float(interval.low), float(interval.high)


Interval = Callable[[np.ndarray], tuple[float, float, float]]


def means(groups: Mapping[tuple[Any, ...], Group], by: Sequence[str], interval: Interval) -> list[Record]:
    """One record for every group and method."""
    records: list[Record] = []
    for key, group in groups.items():
        for method, values in group.items():
            mean, low, high = interval(_array(values, sorted(values)))
            records.append(
                {**dict(zip(by, key, strict=True)), "method": method, "mean": mean, "low": low, "high": high}
                | {"sequences": len(values)}
            )
    return records


def differences(
    groups: Mapping[tuple[Any, ...], Group], by: Sequence[str], reference: str, interval: Interval
) -> list[Record]:
    """One record for every group and method other than the reference: method minus reference on the same sequences."""
    records: list[Record] = []
    for key, group in groups.items():
        own = group.get(reference, {})
        for method, values in group.items():
            both = sorted(set(own) & set(values))
            if method != reference and both:
                mean, low, high = interval(_array(values, both) - _array(own, both))
                records.append(
                    {**dict(zip(by, key, strict=True)), "method": method, "reference": reference, "difference": mean}
                    | {"low": low, "high": high, "sequences": len(both)}
                )
    return records


def _array(values: Mapping[int, float], sequences: Sequence[int]) -> np.ndarray:
    return np.array([values[sequence] for sequence in sequences])
