"""What the feed-forward network amplifies."""

from __future__ import annotations

import itertools
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from experiments.made import normalised, random_analysis, rows
from normscope.errors import InputError
from normscope.experiments import Observation
from normscope.experiments.amplification import FeedForwardAmplification
from normscope.experiments.base import Outcome


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


SENTENCES = [
    (["New", "York", "sto", "##ck", "the", "x", "the"], [0, 1, 2, 2, 3, 4, 5], [0, 0, -1, -1, -1, -1, -1]),
    (["the", "York", "New", "sto", "##ck", "y", "New"], [0, 1, 2, 3, 3, 4, 5], [-1, 1, 1, -1, -1, -1, -1]),
]


def _sentences(**options: object) -> Outcome:
    items = [
        Observation(random_analysis(seed, tokens, words=words), seed, entities=np.array(entities))
        for seed, (tokens, words, entities) in enumerate(SENTENCES)
    ]
    return FeedForwardAmplification(**{"top": 99, **options}).over(items)  # pyright: ignore[reportArgumentType]


def test_the_kind_of_a_pair_is_what_most_of_its_occurrences_are() -> None:
    outcome = _sentences()
    found = {
        (r["key_type"], r["query_type"]): r["category"] for r in rows(outcome, "ff-amplification", kind="ff", layer=1)
    }
    assert found["sto", "##ck"] == found["##ck", "sto"] == "same word"
    assert found["the", "the"] == "same type"  # in the first sentence, in both orders
    assert found["New", "York"] == found["York", "New"] == "same entity"  # in two of three occurrences, side by side
    assert found["x", "the"] == "adjacent"
    assert found["the", "York"] == "other"  # side by side in one of three
    counts = {r["category"]: r["pairs"] for r in rows(outcome, "ff-amplification-categories", kind="ff", layer=1)}
    assert counts == {name: list(found.values()).count(name) for name in counts}
    assert set(counts) == {"same word", "same type", "same entity", "adjacent", "other"}


def test_pairs_that_occur_too_rarely_or_of_a_type_with_itself_are_left_out_as_asked() -> None:
    def listed(**options: object) -> dict[tuple[str, str], int]:
        found = rows(_sentences(**options), "ff-amplification", kind="ff", layer=1)
        return {(r["key_type"], r["query_type"]): r["occurrences"] for r in found}

    twice = listed()
    assert min(twice.values()) == 2 and ("the", "the") in twice
    assert listed(minimum_count=3) == {pair: count for pair, count in twice.items() if count > 2} != {}
    assert min(listed(minimum_count=1).values()) == 1
    assert listed(same_type=False) == {pair: count for pair, count in twice.items() if pair[0] != pair[1]}
    with pytest.raises(InputError, match="minimum_count is how often a pair has to occur, at least 1, not 0"):
        FeedForwardAmplification(minimum_count=0)


def test_the_lists_are_printed_as_the_papers_print_them() -> None:
    outcome = _sentences(top=12, kinds=("ff", "group"))
    assert outcome.printed is not None
    console = Console(width=200, record=True, force_terminal=True, file=StringIO())
    console.print(outcome.printed())
    styled = console.export_text(styles=True)
    listed = outcome.tables["ff-amplification"].to_pylist()
    assert {bool(record["also_in"]) for record in listed} == {True, False}
    for record in listed:
        pair = f"({record['key_type']}, {record['query_type']})"
        assert pair in styled
        if record["also_in"]:
            assert f"\x1b[1m{pair}" in styled
    assert "same word" in styled and "the feed-forward" in styled
