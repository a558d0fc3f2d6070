"""Correlations, histograms, the bootstrap and intervals: statistics of plain arrays and rows, without models or files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from normscope.experiments.tables import Row
from normscope.options import Correlation

# ---- Correlations ----------------------------------------------------------------------------------------------------

_ROUNDING = 1e-12
"""Relative norm below which a centred series counts as constant."""


def average_ranks(values: Float[np.ndarray, "*batch n"]) -> Float[np.ndarray, "*batch n"]:
    """Ranks from 1 along the last axis; equal values share the mean of their ranks, as in `scipy.stats.rankdata`."""
    ranks = np.empty(values.shape)
    for index in np.ndindex(values.shape[:-1]):
        order = values[index].argsort()
        ranks[index][order] = _shared_ranks(values[index][order])
    return ranks


def _shared_ranks(ordered: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The ranks of values in order: each run of equal ones has the mean of its first and its last."""
    ends = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, [len(ordered)]])
    return np.repeat((ends[:-1] + ends[1:] + 1) / 2, np.diff(ends))


def correlations(values: Float[Tensor, "*batch series n"]) -> Float[Tensor, "*batch series series"]:
    """Pearson correlation of every pair of series; NaN for a constant one."""
    values = values.double()
    centred = values - values.mean(-1, keepdim=True)
    products = centred @ centred.mT
    norms = products.diagonal(dim1=-2, dim2=-1).sqrt()
    norms = norms.masked_fill(norms <= _ROUNDING * values.norm(dim=-1), torch.nan)
    return (products / (norms[..., :, None] * norms[..., None, :])).clamp(-1, 1)


def correlation_matrix(maps: np.ndarray, kind: Correlation) -> np.ndarray:
    """`[batch, series, n]` to `[batch, series, series]`: Pearson's r or Spearman's rho of every pair of series of a batch.

    One matrix product for all pairs: the same numbers as `scipy.stats.pearsonr` and `spearmanr`, in a small fraction of
    their time for hundreds of maps.

    Missing values (NaN) are left out: over the entries that exist in every series, if those are the same for all, and
    otherwise pair by pair over the entries that exist in both. NaN where there are fewer than two of them.
    """
    there = ~np.isnan(maps)
    shared = there[0, 0]
    if not (there == shared).all():
        return _pair_by_pair(maps, there, kind)
    present = maps if shared.all() else maps[..., shared]
    if present.shape[-1] < 2:
        return np.full((*maps.shape[:2], maps.shape[1]), np.nan)
    return np.stack([_correlated(series, kind) for series in present])


def _correlated(series: Float[np.ndarray, "series n"], kind: Correlation) -> Float[np.ndarray, "series series"]:
    values = average_ranks(series) if kind == "spearman" else np.ascontiguousarray(series)
    return correlations(torch.from_numpy(values)).numpy()


def _pair_by_pair(maps: Float[np.ndarray, "batch series n"], there: np.ndarray, kind: Correlation) -> np.ndarray:
    batch, series, _ = maps.shape
    result = np.full((batch, series, series), np.nan)
    for index in range(batch):
        for first in range(series):
            for second in range(first, series):
                both = there[index, first] & there[index, second]
                if both.sum() >= 2:
                    found = _correlated(maps[index][[first, second]][:, both], kind)[0, 1]
                    result[index, first, second] = result[index, second, first] = found
    return result


# ---- Histograms ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogBins:
    """Bins of equal width in log10, from `10**low` to `10**high`; values outside are counted in the outermost bins.

    Histograms are rows of bins and counts, whole numbers that add up exactly whatever the size of the corpus.
    """

    low: int
    high: int
    per_decade: int

    @property
    def size(self) -> int:
        return (self.high - self.low) * self.per_decade

    @property
    def half_width(self) -> float:
        """The largest relative error of a value that is replaced by the middle of its bin."""
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
    result: object = stats.spearmanr(first, second)
    return float(result.statistic)


# ---- The unpaired bootstrap ------------------------------------------------------------------------------------------

EXACT = 10_000
"""Up to how many values a side is really resampled. The mean of more has, by the central limit theorem, a normal
distribution, from which it is drawn: its error is known, and millions of values need not be drawn ten thousand times."""

_BATCH_VALUES = 2_000_000
"""How many resampled values are in memory at once."""


@dataclass(frozen=True)
class Sample:
    """One side of a comparison: how much each value counts, and, row by row, the products of weight and value."""

    weights: np.ndarray
    weighted: Callable[[int], np.ndarray]

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
        weighted, total = self.weighted(row), self.weights.sum()
        mean = weighted.sum() / total
        return float(mean), float(np.sqrt(((weighted - mean * self.weights) ** 2).sum()) / total)

    def resampled(self, rows: int, resamples: int, chance: np.random.Generator) -> np.ndarray:
        """`[row, resample]`: the means of as many values drawn with replacement. Rows are resampled together."""
        if len(self) > EXACT:
            return np.stack([chance.normal(*self.mean(row), size=resamples) for row in range(rows)])
        weighted = np.stack([self.weighted(row) for row in range(rows)])
        batch = max(1, _BATCH_VALUES // len(self))
        batches = [self._drawn(weighted, min(batch, resamples - start), chance) for start in range(0, resamples, batch)]
        return np.concatenate(batches, 1)

    def _drawn(self, weighted: np.ndarray, resamples: int, chance: np.random.Generator) -> np.ndarray:
        count = len(self)
        places = chance.integers(count, size=(resamples, count)) + count * np.arange(resamples)[:, None]
        times = np.bincount(places.reshape(-1), minlength=resamples * count).reshape(resamples, count).astype(float)
        return (weighted @ times.T) / (times @ self.weights)


@dataclass(frozen=True)
class MeanDifference:
    """The difference of two means, its confidence interval, and the p-value of no difference; the means themselves, and
    their standard errors."""

    effect: float
    low: float
    high: float
    p: float
    means: tuple[float, float]
    errors: tuple[float, float]


_NAN = float("nan")
_UNKNOWN = MeanDifference(_NAN, _NAN, _NAN, _NAN, (_NAN, _NAN), (_NAN, _NAN))


def compare_means(
    first: Sample, second: Sample, rows: int, *, resamples: int, confidence: float, sides: str, seed: int
) -> list[MeanDifference]:
    """One comparison per row.

    The p-value is how often the resampled difference, like the data, is not on its side of zero; two-sided, twice that.
    With fewer than two values on a side, everything is NaN.
    """
    if min(len(first), len(second)) < 2:
        return [_UNKNOWN] * rows
    chance = np.random.default_rng(seed)
    resampled = [side.resampled(rows, resamples, chance) for side in (first, second)]
    found: list[MeanDifference] = []
    for row, differences in enumerate(resampled[0] - resampled[1]):
        (mean, error), (other, other_error) = first.mean(row), second.mean(row)
        low, high = (float(end) for end in np.quantile(differences, [(1 - confidence) / 2, (1 + confidence) / 2]))
        p = _p_value(differences, sides)
        found.append(MeanDifference(mean - other, low, high, p, (mean, other), (error, other_error)))
    return found


def _p_value(distribution: np.ndarray, sides: str) -> float:
    count = len(distribution) + 1
    greater = (1 + int((distribution <= 0).sum())) / count
    less = (1 + int((distribution >= 0).sum())) / count
    return {"greater": greater, "less": less, "two": min(1.0, 2 * min(greater, less))}[sides]


# ---- Means with intervals --------------------------------------------------------------------------------------------

Record = Row
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
    return mean_of_means([values], resamples, confidence, seed)


def mean_of_means(
    groups: Sequence[np.ndarray], resamples: int, confidence: float, seed: int
) -> tuple[float, float, float]:
    """The mean of the groups' means, each counting alike; the bootstrap draws within every group."""
    if any(len(values) < 2 for values in groups):
        own = [float(values.mean()) if len(values) else float("nan") for values in groups]
        return float(np.mean(own)), float("nan"), float("nan")
    mean = float(np.mean([values.mean() for values in groups]))
    if all(np.ptp(values) == 0 for values in groups):
        return mean, mean, mean
    result = stats.bootstrap(
        tuple(groups),
        _mean_of_means,
        n_resamples=resamples,
        batch=max(1, 1_000_000 // max(map(len, groups))),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    interval: object = result.confidence_interval
    return mean, float(interval.low), float(interval.high)


def _mean_of_means(*groups: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.mean([values.mean(axis=axis) for values in groups], axis=0)


Interval = Callable[[np.ndarray], tuple[float, float, float]]


def means(groups: Mapping[tuple[object, ...], Group], by: Sequence[str], interval: Interval) -> list[Record]:
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
    groups: Mapping[tuple[object, ...], Group], by: Sequence[str], reference: str, interval: Interval
) -> list[Record]:
    """One record for every group and method other than the reference: method minus reference on the same sequences."""
    records: list[Record] = []
    for key, group in groups.items():
        base = present(reference, group)
        own = group.get(base, {})
        for method, values in group.items():
            both = sorted(set(own) & set(values))
            if method != base and both:
                mean, low, high = interval(_array(values, both) - _array(own, both))
                records.append(
                    {**dict(zip(by, key, strict=True)), "method": method, "reference": base, "difference": mean}
                    | {"low": low, "high": high, "sequences": len(both)}
                )
    return records


def present(reference: str, methods: Iterable[str]) -> str:
    """The method that others are compared with: the reference, or the first method where that is not among them."""
    names = list(methods)
    return reference if reference in names or not names else names[0]


def _array(values: Mapping[int, float], sequences: Sequence[int]) -> np.ndarray:
    return np.array([values[sequence] for sequence in sequences])
