"""Groups against all other pairs, and the bootstrap: distances match, a planted effect is found, a null one is not."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from experiments.made import SCOPES, analysis, rows
from normscope.errors import InputError
from normscope.experiments import Observation, statistics
from normscope.experiments.groups import Entities, WordSplit, holm
from normscope.experiments.statistics import MeanDifference, Sample, compare_means

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


def test_signed_and_absolute_distances_match_as_named() -> None:
    tables = {
        distance: WordSplit(unit="occurrence", resamples=50, distance=distance).over(_corpus(0.0, 2)).tables
        for distance in ("signed", "absolute")
    }
    found = {name: each["word-split-distances"].to_pylist() for name, each in tables.items()}
    assert [row["distance"] for row in found["signed"]] == [-2, -1, 1, 2]
    assert [row["distance"] for row in found["absolute"]] == [1, 2]
    for rows_ in found.values():
        for row in rows_:  # weighted, the others have as many pairs of every distance as the group
            assert row["other_weight"] * row["other_pairs"] == pytest.approx(row["group_pairs"])


def test_a_planted_effect_is_found_and_a_null_one_is_not() -> None:
    planted = rows(WordSplit(unit="occurrence", resamples=500).over(_corpus(0.8)), "word-split", kind="ff")[0]
    null = rows(WordSplit(unit="occurrence", resamples=500).over(_corpus(0.0)), "word-split", kind="ff")[0]
    assert planted["significant"] and planted["effect"] > 0 and planted["low"] > 0
    assert not null["significant"] and null["low"] < 0 < null["high"]
    assert planted["pairs"] == 12 * 10 and planted["group_pairs_left_out"] == 0


def _compared(first: np.ndarray, second: np.ndarray, **changed: Any) -> list[MeanDifference]:
    options = {"resamples": 400, "confidence": 0.95, "sides": "two", "seed": 0} | changed
    return compare_means(Sample.of(first), Sample.of(second), len(first), **options)


def test_the_null_is_rejected_about_as_often_as_the_level_says() -> None:
    chance = np.random.default_rng(3)
    first, second = chance.normal(size=(300, 60)), chance.normal(size=(300, 60))
    p = np.array([found.p for found in _compared(first, second)])
    assert 0.01 < (p < 0.05).mean() < 0.12


def test_sides_say_which_difference_counts() -> None:
    first, second = np.full((1, 30), 1.0) + np.arange(30) / 100, np.zeros((1, 30)) + np.arange(30) / 100
    p = {sides: _compared(first, second, sides=sides)[0].p for sides in ("two", "greater", "less")}
    assert p["greater"] < 0.01 and p["two"] == pytest.approx(2 * p["greater"]) and p["less"] == 1


def test_the_bootstrap_is_that_of_scipy_where_all_values_count_alike() -> None:
    chance = np.random.default_rng(4)
    first, second = chance.exponential(size=(1, 40)) + 0.3, chance.exponential(size=(1, 90))
    (found,) = _compared(first, second, resamples=20_000)
    known: Any = stats.bootstrap(
        (first[0], second[0]),
        lambda a, b, axis: a.mean(axis) - b.mean(axis),
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(1),
    )
    # each end of the interval is a quantile of 20,000 draws: its own error is about 3 % of the standard error
    assert found.low == pytest.approx(known.confidence_interval.low, abs=0.15 * known.standard_error)
    assert found.high == pytest.approx(known.confidence_interval.high, abs=0.15 * known.standard_error)
    assert found.effect == pytest.approx(first.mean() - second.mean())


def test_weights_say_how_much_a_value_counts() -> None:
    values, weights = np.array([[1.0, 5.0, 2.0]]), np.array([2.0, 1.0, 1.0])
    sample = Sample.of(values, weights)
    mean = (2 * 1 + 5 + 2) / 4
    error = np.sqrt((2 * (1 - mean)) ** 2 + (5 - mean) ** 2 + (2 - mean) ** 2) / 4
    assert sample.mean(0) == pytest.approx((mean, error))
    assert sample.effective == pytest.approx(4**2 / (4 + 1 + 1))
    drawn = sample.resampled(1, 4000, np.random.default_rng(0))[0]
    possible = [
        np.average(values[0, list(places)], weights=weights[list(places)])
        for places in itertools.product(range(3), repeat=3)
    ]
    assert set(np.round(drawn, 9)) == set(np.round(possible, 9))
    # the standard error of a mean of 4,000 draws is a 63rd of their deviation
    assert drawn.mean() == pytest.approx(np.mean(possible), abs=np.std(possible) / 10)


def test_the_mean_of_very_many_values_is_drawn_from_its_normal_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(6)
    sample = Sample.of(chance.exponential(size=(1, 3000)), chance.random(3000))
    resampled = sample.resampled(1, 4000, np.random.default_rng(0))
    monkeypatch.setattr(statistics, "EXACT", 100)
    limit = sample.resampled(1, 4000, np.random.default_rng(1))
    spread = resampled.std()
    assert limit.std() == pytest.approx(spread, rel=0.06)
    for share in (0.025, 0.5, 0.975):
        assert np.quantile(limit, share) == pytest.approx(np.quantile(resampled, share), abs=0.15 * spread)


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
        assert (row["pairs"], row["effect"], row["p"], row["significant"]) == (0, None, None, None)
    assert not outcome.figures


def test_a_text_of_one_word_has_no_pairs_and_does_not_end_the_run() -> None:
    alone = Observation(
        analysis({s: np.ones((1, 3, 3)) for s in SCOPES}, ["[CLS]", "a", "[SEP]"], words=[0, 1, 2]),
        12,
        entities=np.array([-1, 0, -1]),
    )
    for experiment in (Entities(resamples=50), WordSplit(resamples=50)):
        with_it, without = (experiment.over(corpus) for corpus in ([*_corpus(0.8), alone], _corpus(0.8)))
        assert with_it.tables[experiment.name].equals(without.tables[experiment.name])


def _types_corpus() -> tuple[list[Observation], dict[tuple[str, str], list[tuple[bool, int, float]]]]:
    """Sequences of few types, and for each (query, key) of types all occurrences: in a word, distance, amplification."""
    chance = np.random.default_rng(5)
    sequences = [["a", "##b", "c", "d"], ["c", "a", "##b", "a", "d"], ["a", "##b", "c", "d", "d"], ["##b", "d", "a"]]
    words = [[0, 0, 1, 2], [0, 1, 1, 2, 3], [0, 0, 1, 2, 3], [0, 1, 2]]
    found: dict[tuple[str, str], list[tuple[bool, int, float]]] = {}
    observations = []
    for number, (tokens, owners) in enumerate(zip(sequences, words, strict=True)):
        maps = {scope: chance.random((1, len(tokens), len(tokens))) for scope in SCOPES}
        observations.append(Observation(analysis(maps, tokens, words=owners), number))
        before, after = (maps[scope][0] / maps[scope][0].sum(0) for scope in ("AttnResLn", "AttnResLnFf"))
        for query, key in np.argwhere(~np.eye(len(tokens), dtype=bool)):
            occurrence = owners[query] == owners[key], int(key - query), float(after[query, key] - before[query, key])
            found.setdefault((tokens[query], tokens[key]), []).append(occurrence)
    return observations, found


def test_a_pair_is_one_of_types_and_all_others_are_weighted_to_the_distances_of_the_group() -> None:
    """Against the definition: a pair counts 1, shared by its occurrences; seen once, it is left out."""
    observations, found = _types_corpus()
    pairs = {pair: seen for pair, seen in found.items() if len(seen) > 1}
    inside = {pair for pair, seen in pairs.items() if 2 * sum(same for same, *_ in seen) > len(seen)}
    assert inside == {("a", "##b"), ("##b", "a")}  # most of their occurrences are in a word, though not all

    def share(distance: int, *, group: bool) -> float:
        return sum(
            sum(at == distance for _, at, _ in seen) / len(seen)
            for pair, seen in pairs.items()
            if (pair in inside) == group
        )

    group_mean = np.mean([np.mean([value for *_, value in pairs[pair]]) for pair in inside])
    total = weight = 0.0
    for pair, seen in pairs.items():
        for _, distance, value in seen if pair not in inside else []:
            counts = share(distance, group=True) / share(distance, group=False) / len(seen)
            total, weight = total + counts * value, weight + counts
    row = rows(WordSplit(resamples=50).over(observations), "word-split", kind="ff")[0]
    assert row["pairs"] == 2 and row["group_pairs_left_out"] == row["group_pairs_seen_once"] == 0
    assert weight == pytest.approx(2)  # the others, weighted, have the distances of the two pairs
    assert row["group_mean"] == pytest.approx(group_mean, abs=1e-9)
    assert row["other_mean"] == pytest.approx(total / weight, abs=1e-9)
    assert row["effect"] == pytest.approx(group_mean - total / weight, abs=1e-9)
    assert row["significant"] is None  # far too few to say


def test_occurrences_are_weighted_to_the_same_distances() -> None:
    observations, found = _types_corpus()
    occurrences = [occurrence for seen in found.values() for occurrence in seen]
    count = {side: Counter(distance for same, distance, _ in occurrences if same == side) for side in (True, False)}
    values, weights = zip(
        *[(value, count[True][at] / count[False][at]) for same, at, value in occurrences if not same], strict=True
    )
    row = rows(WordSplit(unit="occurrence", resamples=50).over(observations), "word-split", kind="ff")[0]
    assert row["group_mean"] == pytest.approx(np.mean([value for same, _, value in occurrences if same]), abs=1e-9)
    assert row["other_mean"] == pytest.approx(np.average(values, weights=weights), abs=1e-9)
    kept = np.array(weights)[np.array(weights) > 0]
    assert (row["other_pairs"], row["other_effective"]) == (len(kept), pytest.approx(kept.sum() ** 2 / (kept**2).sum()))


def test_group_pairs_at_a_distance_that_no_other_pair_has_are_left_out_and_counted() -> None:
    maps = {scope: np.random.default_rng(0).random((1, 3, 3)) for scope in SCOPES}
    single = [Observation(analysis(maps, ["a", "b", "##c"], words=[0, 1, 1]), 0)]
    row = rows(WordSplit(unit="occurrence").over(single), "word-split", kind="ff")[0]
    assert (row["pairs"], row["other_pairs"], row["group_pairs_left_out"]) == (2, 2, 0)
    single = [Observation(analysis(maps, ["a", "##b", "##c"], words=[0, 0, 0]), 0)]
    row = rows(WordSplit(unit="occurrence").over(single), "word-split", kind="ff")[0]
    assert (row["pairs"], row["other_pairs"], row["group_pairs_left_out"]) == (0, 0, 6)


def test_group_pairs_seen_once_are_left_out_and_counted() -> None:
    maps = {scope: np.random.default_rng(0).random((1, 4, 4)) for scope in SCOPES}
    single = [Observation(analysis(maps, ["a", "##b", "c", "d"], words=[0, 0, 1, 2]), 0)]
    for row in WordSplit().over(single).tables["word-split"].to_pylist():
        assert (row["pairs"], row["group_pairs_seen_once"]) == (0, 2)


def test_the_control_is_no_draw_so_that_the_seed_does_not_change_the_effect() -> None:
    first, second = (
        WordSplit(unit="occurrence", resamples=50).over(_corpus(0.4, 3), seed=seed).tables["word-split"].to_pylist()
        for seed in (0, 1)
    )
    assert [row["effect"] for row in first] == [row["effect"] for row in second]
    assert [row["low"] for row in first] != [row["low"] for row in second]


def test_with_few_pairs_there_is_no_star_however_large_the_effect() -> None:
    few = WordSplit(unit="occurrence", resamples=500).over(_corpus(5.0, 1))
    (record,) = rows(few, "word-split", kind="ff")
    assert record["pairs"] == 10 and record["p"] < 0.05 and record["significant"] is None
    (axes,) = few.figures["word-split-ff"]().axes
    assert not axes.texts and "10 pairs of the group" in axes.get_title() and "too few" in axes.get_title()


def test_bars_show_the_means_and_mark_what_is_significant() -> None:
    outcome = WordSplit(unit="occurrence", resamples=500).over(_corpus(0.8))
    (record,) = rows(outcome, "word-split", kind="ff")
    (axes,) = outcome.figures["word-split-ff"]().axes
    heights = [patch.get_height() for patch in axes.patches]
    assert heights == pytest.approx([record["group_mean"], record["other_mean"]])
    assert [text.get_text() for text in axes.texts] == ["*"]
    assert "120 pairs of the group" in axes.get_title()
