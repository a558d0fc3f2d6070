"""What the feed-forward network amplifies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from experiments.made import normalised, random_analysis, rows
from normscope.experiments.amplification import FeedForwardAmplification


def test_amplification_is_the_mean_change_of_column_shares_over_occurrences_of_a_pair() -> None:
    chance = np.random.default_rng(5)
    sequences = [["a", "b", "a"], ["b", "a", "c"]]
    analyses = [random_analysis(int(chance.integers(99)), tokens) for tokens in sequences]
    direct: dict[tuple[str, str], list[float]] = {}
    for tokens, item in zip(sequences, analyses, strict=True):
        before, after = (normalised(item.map(s).values[1], "column") for s in ("AttnResLn", "AttnResLnFf"))
        for query, key in itertools.permutations(range(3), 2):
            direct.setdefault((tokens[key], tokens[query]), []).append(after[query, key] - before[query, key])
    expected = {pair: np.mean(values) for pair, values in direct.items() if len(values) > 1}
    outcome = FeedForwardAmplification(top=50).over(analyses)
    found = rows(outcome, "ff-amplification", kind="ff", layer=2)
    assert {(row["key_type"], row["query_type"]) for row in found} == set(expected)
    assert ("a", "a") in expected  # the same type at two positions stays in
    for row in found:
        assert row["amplification"] == pytest.approx(expected[row["key_type"], row["query_type"]], abs=1e-10)
    assert [row["amplification"] for row in found] == sorted((row["amplification"] for row in found), reverse=True)
    assert outcome.tables["ff-amplification-totals"].to_pylist() == [{"pairs": 12, "types_of_pairs": 7, "seen_once": 4}]


def test_the_group_amplification_goes_from_the_first_residual_to_the_whole_layer() -> None:
    item = random_analysis(3, ["a", "b", "a", "b"])
    outcome = FeedForwardAmplification(axis="none", top=9).over([item])
    change = item.map("AttnResLnFfResLn").values[0] - item.map("AttnRes").values[0]
    (found,) = rows(outcome, "ff-amplification", kind="group", layer=1, key_type="a", query_type="b")
    assert found["amplification"] == pytest.approx(np.mean([change[1, 0], change[1, 2], change[3, 0], change[3, 2]]))


def test_lists_say_which_pairs_they_share() -> None:
    """The norm after the feed-forward is listed, too, and a pair that two lists of a layer have is marked in both."""
    item = random_analysis(4, ["a", "b", "a", "b", "c", "c"])
    outcome = FeedForwardAmplification(top=3).over([item])
    lists = {
        (kind, layer): {
            (r["key_type"], r["query_type"]): r for r in rows(outcome, "ff-amplification", kind=kind, layer=layer)
        }
        for kind in ("ff", "group", "ln")
        for layer in (1, 2)
    }
    shared = 0
    for (kind, layer), pairs in lists.items():
        for pair, row in pairs.items():
            others = [other for other in ("ff", "group", "ln") if other != kind and pair in lists[other, layer]]
            assert row["also_in"] == ", ".join(others)
            shared += len(others)
    assert shared > 0
    change = normalised(item.map("AttnResLnFfResLn").values[1], "column") - normalised(
        item.map("AttnResLnFfRes").values[1], "column"
    )
    best = max(change[[1, 3]][:, [0, 2]].mean(), change[[0, 2]][:, [1, 3]].mean(), change[[4, 5], [5, 4]].mean())
    assert max(r["amplification"] for r in lists["ln", 2].values()) >= best - 1e-9
