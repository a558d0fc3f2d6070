"""Sums that do not depend on order, and ranks that agree with scipy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from normscope.experiments.partial import ExactSum, Moments
from normscope.experiments.statistics import LogBins, average_ranks, binned_spearman, correlation_matrix
from normscope.options import Correlation


@settings(deadline=None)  # of the clock, which depends on what else is running
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.randoms())
def test_the_sum_is_the_same_in_every_order_and_grouping(values: list[float], chance: object) -> None:
    parts = [ExactSum.of(np.array([[value]])) for value in values]
    chance.shuffle(parts)  # type: ignore[attr-defined]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    whole = ExactSum.of(np.array(values)[:, None])
    assert (total.high == whole.high).all() and (total.low == whole.low).all()
    assert float(whole.value()[0]) == pytest.approx(math.fsum(values), abs=1e-9, rel=1e-12)


def test_moments_are_those_of_numpy_and_leave_missing_values_out() -> None:
    values = np.random.default_rng(0).normal(size=(50, 3))
    values[:7, 1] = np.nan
    values[:, 2] = np.nan
    moments = Moments.of(values[:20]) + Moments.of(values[20:])
    kept = values[7:, 1]
    assert moments.count.tolist() == [50, 43, 0]
    assert moments.mean()[1] == pytest.approx(kept.mean(), abs=1e-14)
    assert moments.deviation()[1] == pytest.approx(kept.std(), abs=1e-12)
    assert moments.standard_error()[1] == pytest.approx(stats.sem(kept), rel=1e-9)
    assert (moments.minimum()[1], moments.maximum()[1]) == (kept.min(), kept.max())
    assert np.isnan(Moments.once(values[0]).standard_error()).all()
    assert np.isnan([moments.mean()[2], moments.minimum()[2]]).all()


def test_moments_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        _ = Moments.once(np.zeros(2)) + Moments.once(np.zeros(3))


def test_ranks_share_ties_as_scipy_does() -> None:
    values = np.random.default_rng(1).integers(0, 6, (4, 30)).astype(float)
    assert np.array_equal(average_ranks(values), stats.rankdata(values, axis=1))


def test_rank_correlations_are_those_of_scipy() -> None:
    maps = np.random.default_rng(2).integers(0, 9, (3, 4, 50)).astype(float)
    found = correlation_matrix(maps, "spearman")
    for batch in range(3):
        assert found[batch] == pytest.approx(stats.spearmanr(maps[batch], axis=1).statistic, abs=1e-12)


def test_correlations_of_values_are_those_of_scipy_and_a_constant_map_has_none() -> None:
    maps = np.random.default_rng(6).random((3, 4, 49)).astype(np.float32)
    maps[2, 3] = 0.1
    found = correlation_matrix(maps, "pearson")
    for batch, first, second in ((0, 0, 1), (1, 2, 3), (2, 0, 2)):
        expected = stats.pearsonr(*maps[batch, [first, second]].astype(np.float64)).statistic
        assert found[batch, first, second] == pytest.approx(expected, abs=1e-12)
    assert np.isnan(found[2, 3]).all()


@pytest.mark.parametrize(("kind", "definition"), [("pearson", stats.pearsonr), ("spearman", stats.spearmanr)])
def test_missing_entries_are_left_out_whether_shared_or_not(kind: Correlation, definition: Any) -> None:
    maps = np.random.default_rng(3).random((1, 3, 20))
    maps[..., :5] = np.nan
    expected = definition(maps[0, 0, 5:], maps[0, 1, 5:]).statistic
    assert correlation_matrix(maps, kind)[0, 0, 1] == pytest.approx(expected)
    maps[0, 2] = np.nan
    found = correlation_matrix(maps, kind)
    assert found[0, 0, 1] == pytest.approx(expected)
    assert np.isnan(found[0, 0, 2])


@pytest.mark.parametrize("per_decade", [10, 50, 400])
def test_the_binned_correlation_is_within_its_stated_error_of_the_exact_one(per_decade: int) -> None:
    chance = np.random.default_rng(4)
    first = 10 ** chance.normal(-1, 0.5, 20_000)
    second = first ** (-0.5) * 10 ** chance.normal(0, 0.3, 20_000)
    bins = LogBins(-4, 4, per_decade)
    cells, counts = np.unique(bins.places(first) * bins.size + bins.places(second), return_counts=True)
    rho, error = binned_spearman(*np.divmod(cells, bins.size), counts)
    assert abs(rho - stats.spearmanr(first, second).statistic) <= error < 4 / per_decade
    for share in (0.0, 0.05, 0.5, 1.0):
        places, counts = np.unique(bins.places(first[:101]), return_counts=True)
        exact = float(np.quantile(first[:101], share))
        assert bins.quantile(places, counts, share) == pytest.approx(exact, rel=bins.half_width)
