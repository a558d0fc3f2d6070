"""Distance-matched groups and the bootstrap: matching really matches, a planted effect is found, a null one is not."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.made import SCOPES, analysis, rows
from normscope.errors import InputError
from normscope.experiments import ModelFacts, Observation, merged
from normscope.experiments.bootstrap import compare_means
from normscope.experiments.groups import Entities, WordSplit, holm, match_distances

TOKENS = ["[CLS]", *"abcdefghijklmnop", "[SEP]"]
WORDS = [0, 1, 1, 2, 3, 3, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11, 12, 13]


def _corpus(effect: float, count: int = 12) -> list[Observation]:
    chance = np.random.default_rng(0)
    words = np.array(WORDS)
    same = (words[:, None] == words[None, :]) & ~np.eye(len(words), dtype=bool)
    found = []
    for number in range(count):
        maps = {scope: chance.random((1, len(TOKENS), len(TOKENS))) + 1 for scope in SCOPES}
        maps["AttnResLnFf"] = maps["AttnResLnFf"] + effect * same
        found.append(Observation(analysis(maps, TOKENS, words=WORDS), number, entities=np.where(words == 3, 0, -1)))
    return found


def test_both_sides_have_equally_many_pairs_of_every_distance() -> None:
    chance = np.random.default_rng(1)
    in_group = chance.random(500) < 0.2
    distances = chance.integers(-4, 5, 500)
    group, other = match_distances(in_group, distances, chance.permutation(500))
    assert in_group[group].all() and not in_group[other].any()
    assert np.array_equal(np.sort(distances[group]), np.sort(distances[other]))
    assert len(group) == in_group.sum()  # there were others enough
    assert len(np.unique(group)) == len(group) and len(np.unique(other)) == len(other)


def test_where_others_are_few_the_group_is_cut_to_match() -> None:
    in_group = np.array([True, True, True, False])
    group, other = match_distances(in_group, np.array([1, 1, 2, 1]), np.arange(4))
    assert (group.tolist(), other.tolist()) == ([0], [3])


def test_signed_and_absolute_distances_match_as_named() -> None:
    signed = WordSplit(unit="occurrence", resamples=50).over(_corpus(0.0, 2)).tables["word-split-distances"].to_pylist()
    absolute = (
        WordSplit(unit="occurrence", resamples=50, distance="absolute")
        .over(_corpus(0.0, 2))
        .tables["word-split-distances"]
        .to_pylist()
    )
    assert [row["distance"] for row in signed] == [-2, -1, 1, 2]
    assert [row["distance"] for row in absolute] == [1, 2]
    assert all(row["group_pairs"] == row["other_pairs"] for row in (*signed, *absolute))


def test_a_planted_effect_is_found_and_a_null_one_is_not() -> None:
    planted = rows(WordSplit(unit="occurrence", resamples=500).over(_corpus(0.8)), "word-split", kind="ff")[0]
    null = rows(WordSplit(unit="occurrence", resamples=500).over(_corpus(0.0)), "word-split", kind="ff")[0]
    assert planted["significant"] and planted["effect"] > 0 and planted["low"] > 0
    assert not null["significant"] and null["low"] < 0 < null["high"]
    assert planted["pairs"] == 12 * 10 and planted["group_pairs_left_out"] == 0


def test_the_null_is_rejected_about_as_often_as_the_level_says() -> None:
    chance = np.random.default_rng(3)
    first, second = chance.normal(size=(300, 60)), chance.normal(size=(300, 60))
    p = np.array([found.p for found in compare_means(first, second, 400, 0.95, "two", 0)])
    assert 0.01 < (p < 0.05).mean() < 0.12


def test_sides_say_which_difference_counts() -> None:
    first, second = np.full((1, 30), 1.0) + np.arange(30) / 100, np.zeros((1, 30)) + np.arange(30) / 100
    p = {sides: compare_means(first, second, 200, 0.95, sides, 0)[0].p for sides in ("two", "greater", "less")}
    assert p["greater"] < 0.01 and p["two"] == pytest.approx(2 * p["greater"]) and p["less"] == 1


def test_holm_corrects_step_by_step() -> None:
    assert holm(np.array([0.01, 0.04, 0.03])).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_entities_are_those_of_the_labels() -> None:
    outcome = Entities(unit="occurrence", resamples=50).over(_corpus(0.8))
    found = rows(outcome, "entities", kind="ff")[0]
    assert found["pairs"] == 12 * 6  # three tokens: six ordered pairs
    with pytest.raises(InputError, match="CoNLL"):
        Entities().over([Observation(_corpus(0, 1)[0].analysis)])


def test_a_corpus_without_any_group_finds_nothing_and_does_not_fail() -> None:
    bare = [Observation(analysis({s: np.ones((1, 3, 3)) for s in SCOPES}, ["a", "b", "c"]))]
    outcome = WordSplit().over(bare)
    for row in outcome.tables["word-split"].to_pylist():
        assert (row["pairs"], row["effect"], row["p"], row["significant"]) == (0, None, None, False)
    assert not outcome.figures


def test_pairs_are_those_of_types_averaged_over_their_occurrences_as_in_the_paper() -> None:
    """Against a direct computation: means over occurrences of (types, distance) in and out of words, singletons left out."""
    chance = np.random.default_rng(5)
    sequences = [["a", "##b", "c", "d"], ["c", "a", "##b", "a", "d"], ["a", "##b", "c", "d", "d"]]
    words = [[0, 0, 1, 2], [0, 1, 1, 2, 3], [0, 0, 1, 2, 3]]
    found: dict[tuple[bool, str, str, int], list[float]] = {}
    observations = []
    for number, (tokens, owners) in enumerate(zip(sequences, words, strict=True)):
        maps = {scope: chance.random((1, len(tokens), len(tokens))) for scope in SCOPES}
        observations.append(Observation(analysis(maps, tokens, words=owners), number))
        before, after = (maps[scope][0] / maps[scope][0].sum(0) for scope in ("AttnResLn", "AttnResLnFf"))
        for query, key in np.argwhere(~np.eye(len(tokens), dtype=bool)):
            same = owners[query] == owners[key]
            pair = bool(same), tokens[query], tokens[key], int(key - query)
            found.setdefault(pair, []).append(after[query, key] - before[query, key])
    units = {pair: np.mean(values) for pair, values in found.items() if len(values) > 1}
    inside = [value for (same, *_), value in units.items() if same]
    row = rows(WordSplit(resamples=50).over(observations), "word-split", kind="ff")[0]
    assert len(inside) == 2 and row["pairs"] == 2  # (a, ##b) and (##b, a), each seen three times
    assert row["group_mean"] == pytest.approx(np.mean(inside), abs=1e-9)
    ones = [value for (same, *_, distance), value in units.items() if not same and abs(distance) == 1]
    assert min(ones) <= row["other_mean"] <= max(ones)
    assert row["group_pairs_seen_once"] == 0


def test_group_pairs_seen_once_are_left_out_and_counted() -> None:
    maps = {scope: np.random.default_rng(0).random((1, 4, 4)) for scope in SCOPES}
    single = [Observation(analysis(maps, ["a", "##b", "c", "d"], words=[0, 0, 1, 2]), 0)]
    for row in WordSplit().over(single).tables["word-split"].to_pylist():
        assert (row["pairs"], row["group_pairs_seen_once"]) == (0, 2)


def test_the_seed_draws_other_pairs_anew() -> None:
    def mean(seed: int) -> float:
        observations = [Observation(item.analysis, item.number, seed=seed) for item in _corpus(0.0, 3)]
        partials = [
            WordSplit(unit="occurrence").observe(item, ModelFacts.of_analysis(item.analysis)) for item in observations
        ]
        table = merged(partials).rows["pairs"].compacted()
        chosen = ~table["in_group"].to_numpy(zero_copy_only=False)
        return float(table["ff_1"].to_numpy()[chosen].mean())

    assert mean(0) == mean(0) != mean(1)


def test_bars_show_the_means_and_mark_what_is_significant() -> None:
    outcome = WordSplit(unit="occurrence", resamples=500).over(_corpus(0.8))
    (record,) = rows(outcome, "word-split", kind="ff")
    (axes,) = outcome.figures["word-split-ff"]().axes
    heights = [patch.get_height() for patch in axes.patches]
    assert heights == pytest.approx([record["group_mean"], record["other_mean"]])
    assert [text.get_text() for text in axes.texts] == ["*"]
