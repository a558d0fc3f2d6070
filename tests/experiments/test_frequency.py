"""Norms and mixing ratios against the frequency of tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from experiments.made import SCOPES, TOKENS, analysis, causal, random_analysis, rows
from normscope.experiments import Observation
from normscope.experiments.base import RunFacts
from normscope.experiments.frequency import Frequency, MixingFrequency, rank_of_types
from normscope.methods.vectors import ValueNorms


def test_frequencies_of_a_causal_model_are_also_correlated_without_the_first_token() -> None:
    observation, model = causal(["a", "b", "c", "d"])
    observation = replace(observation, token_ids=np.array([4, 9, 7, 8]))
    outcome = MixingFrequency().finish(
        MixingFrequency().observe(observation, model), RunFacts(model, ranks={4: 1, 9: 5, 7: 3, 8: 9})
    )
    (found,) = rows(outcome, "mixing-frequency", quantity="Attn", tokens="without the first token")
    expected = stats.spearmanr([5, 3, 9], observation.analysis.mixing_ratio("Attn").values.mean(0)[1:]).statistic
    assert (found["spearman"], found["occurrences"]) == (pytest.approx(expected), 3)


def test_frequency_ranks_come_from_the_list_or_the_corpus() -> None:
    types = np.array([5, 5, 7, 9])
    assert rank_of_types(types, {5: 1, 7: 4}).tolist() == [1, 1, 4, 5]  # unseen: last rank + 1
    assert rank_of_types(types, None).tolist() == [1, 1, 2.5, 2.5]


def test_frequency_correlates_occurrences_with_ranks() -> None:
    chance = np.random.default_rng(9)
    ids = np.array([101, 5, 6, 7, 5, 102])
    weights, values = chance.random((2, 3, 6, 6)), chance.random((2, 3, 6))
    item = random_analysis(0, TOKENS, heads={"AttnW": weights})
    observation = Observation(item, 0, token_ids=ids, results={ValueNorms(): values})
    ranks = {5: 1, 6: 2, 7: 3, 101: 4, 102: 5}
    outcome = Frequency().over([observation], ranks=ranks)
    rank = [ranks[number] for number in ids]
    expected = stats.spearmanr(rank, weights.mean((0, 1, 2))).statistic
    (found,) = rows(outcome, "frequency", quantity="weight", tokens="all")
    assert found["spearman"] == pytest.approx(expected)
    axes = outcome.figures["frequency"]().axes[0]
    shown = {line.get_label(): line.get_xydata()[0].tolist() for line in axes.lines}
    assert shown["[CLS]"] == pytest.approx([4, weights.mean((0, 1, 2))[0]]) and "comma, period" in shown
    (inner,) = rows(outcome, "frequency", quantity="f", tokens="without special tokens")
    assert inner["spearman"] == pytest.approx(stats.spearmanr(rank[1:5], values.mean((0, 1))[1:5]).statistic)


def test_mixing_frequency_averages_layers_per_occurrence() -> None:
    ratios = {scope: np.random.default_rng(1).random((2, 6)) for scope in SCOPES[:4]}
    dataset = analysis({}, TOKENS, mixing=ratios)
    observation = Observation(dataset, 0, token_ids=np.array([1, 2, 3, 4, 2, 5]))
    (found,) = rows(
        MixingFrequency().over([observation], ranks={1: 3, 2: 1, 3: 9, 4: 2}),
        "mixing-frequency",
        quantity="Attn",
        tokens="all",
    )
    assert found["spearman"] == pytest.approx(stats.spearmanr([3, 1, 9, 2, 1, 10], ratios["Attn"].mean(0)).statistic)
