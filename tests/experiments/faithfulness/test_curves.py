"""Deletion curves against numbers worked out by hand, and their search against all orders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from normscope.experiments.faithfulness import curves

WEIGHTS = (0.4, 0.3, 0.1, 0.1, 0.05)


def value(removed: Sequence[frozenset[int]]) -> np.ndarray:
    """Five tokens that each bring a fixed share, next to 0.05 that is always left."""
    return np.array([1.0 - sum(WEIGHTS[place] for place in places) for places in removed])


def interacting(removed: Sequence[frozenset[int]]) -> np.ndarray:
    """Tokens 0 and 1 each suffice; token 2 speaks against."""
    return np.array(
        [0.2 + 0.6 * (not {0, 1} <= places) + 0.1 * (2 in places) - 0.01 * len(places) for places in removed]
    )


def test_areas_over_and_under_the_curve_of_five_tokens_are_those_worked_out_by_hand() -> None:
    most = curves.curve(value, [0, 1, 2, 3, 4], steps=20)
    np.testing.assert_allclose(most.values, [1, 0.6, 0.3, 0.2, 0.1, 0.05])
    # The falls are .4 .7 .8 .9 .95: their mean is 3.75 / 5.
    assert most.area_over == pytest.approx(0.75)
    # Trapezoids of width 1/5: (1/2 + .6 + .3 + .2 + .1 + .05/2) / 5.
    assert most.area_under == pytest.approx(1.725 / 5)
    # Backwards the values are 1 .95 .85 .75 .45 .05: (1/2 + .95 + .85 + .75 + .45 + .05/2) / 5.
    assert curves.symmetric_gain(value, [0, 1, 2, 3, 4], steps=20) == pytest.approx((3.525 - 1.725) / 5)


def test_comprehensiveness_and_sufficiency_take_at_least_one_token_and_round_up() -> None:
    order = [0, 1, 2, 3, 4]
    np.testing.assert_allclose(curves.comprehensiveness(value, order), [0.4, 0.4, 0.4, 0.4, 0.8])
    np.testing.assert_allclose(curves.sufficiency(value, order), [0.55, 0.55, 0.55, 0.55, 0.15])


def test_a_curve_of_many_tokens_has_even_steps_to_its_end() -> None:
    assert curves.curve(lambda sets: np.zeros(len(sets)), list(range(40)), steps=4).counts.tolist() == [
        0,
        10,
        20,
        30,
        40,
    ]


@pytest.mark.parametrize("function", [value, interacting])
def test_beam_search_wide_enough_finds_the_best_and_the_worst_of_all_orders(function: curves.Value) -> None:
    areas = [curves.curve(function, order, steps=20).area_over for order in permutations(range(5))]
    smallest, largest = curves.extreme_areas(function, range(5), beam=32)
    assert (smallest, largest) == (pytest.approx(min(areas)), pytest.approx(max(areas)))
    assert curves.normalised(max(areas), smallest, largest) == pytest.approx(1)
    assert curves.normalised(min(areas), smallest, largest) == pytest.approx(0)
    assert np.isnan(curves.normalised(0.5, 0.5, 0.5))


def test_the_search_ends_where_nothing_is_left_to_read() -> None:
    def unreadable(removed: Sequence[frozenset[int]]) -> np.ndarray:
        return np.where([len(places) == 5 for places in removed], np.nan, value(removed))

    _, largest = curves.extreme_areas(unreadable, range(5), beam=32)
    assert largest == pytest.approx((0.4 + 0.7 + 0.8 + 0.9) / 4)
    assert curves.curve(unreadable, range(5), steps=20).area_over == pytest.approx(largest)


def test_the_gain_of_random_orders_is_zero_on_average() -> None:
    chance = np.random.default_rng(0)
    gains = [curves.symmetric_gain(interacting, chance.permutation(5).tolist(), 20) for _ in range(800)]
    error = np.std(gains) / np.sqrt(len(gains))
    assert abs(np.mean(gains)) < 3 * error


def test_an_order_puts_missing_shares_last_and_leaves_others_out() -> None:
    assert curves.order_of(np.array([0.1, np.nan, 0.5, 0.1, 9.0]), [0, 1, 2, 3]) == [2, 0, 3, 1]
