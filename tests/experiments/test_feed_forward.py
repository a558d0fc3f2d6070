"""Norms of the feed-forward network and its outlier dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from experiments.made import TOKENS, normalised, pearson, random_analysis, rows, spearman
from normscope.experiments import Observation
from normscope.experiments.ff_norms import FeedForwardNormsExperiment
from normscope.experiments.outlier_dimensions import OutlierDimensions
from normscope.methods.vectors import FeedForwardDimensions, FeedForwardNorms, MapWithoutDimensions


def test_norms_of_the_feed_forward_are_averaged_over_tokens() -> None:
    norms = np.random.default_rng(2).random((2, 2, 6))
    outcome = FeedForwardNormsExperiment().over(
        [Observation(random_analysis(0, TOKENS), 0, results={FeedForwardNorms(): norms})]
    )
    (found,) = rows(outcome, "ff-norms", layer=2, vector="bypass")
    assert found["mean"] == pytest.approx(norms[1, 1].mean())


def test_removing_outliers_compares_the_changed_map_with_the_one_before_the_feed_forward() -> None:
    item = random_analysis(0, TOKENS)
    removed = 2 * item.map("AttnResLn").values + 1  # similarity 1
    dimensions = np.random.default_rng(3).random((2, 3, 200))
    results = {MapWithoutDimensions(0.01): removed, FeedForwardDimensions(): dimensions}
    outcome = OutlierDimensions().over([Observation(item, 0, results=results)])
    (found,) = rows(outcome, "outlier-dimensions", correlation="pearson", normalisation="none", layer=1)
    expected = pearson(*(item.map(s).values[0] for s in ("AttnResLn", "AttnResLnFf")))
    assert (found["before"], found["after"]) == (pytest.approx(expected), pytest.approx(1))
    assert (found["before_error"], found["after_error"], found["sequences"]) == (None, None, 1)
    chosen = rows(outcome, "outlier-dimensions-values", layer=1, removed=True)
    assert {row["dimension"] for row in chosen} == set(np.argsort(dimensions[0, 2])[:2])


def test_removal_is_a_mean_over_sequences_with_its_error_in_every_way_that_is_asked_for() -> None:
    items = [random_analysis(seed, TOKENS) for seed in range(4)]
    removed = [np.random.default_rng(10 + seed).random((2, 6, 6)) for seed in range(4)]
    observations = [
        Observation(
            item,
            number,
            results={MapWithoutDimensions(0.01): removed[number], FeedForwardDimensions(): np.ones((2, 3, 200))},
        )
        for number, item in enumerate(items)
    ]
    both = OutlierDimensions(correlations=("pearson", "spearman"), normalisations=("none", "column"))
    outcome = both.over(observations)
    for correlation, definition in (("pearson", pearson), ("spearman", spearman)):
        for axis in ("none", "column"):
            values = [
                definition(normalised(item.map("AttnResLn").values[1], axis), normalised(changed[1], axis))
                for item, changed in zip(items, removed, strict=True)
            ]
            (found,) = rows(outcome, "outlier-dimensions", correlation=correlation, normalisation=axis, layer=2)
            assert found["after"] == pytest.approx(np.mean(values), abs=1e-12)
            assert found["after_error"] == pytest.approx(stats.sem(values), rel=1e-6)
    assert len(outcome.tables["outlier-dimensions"]) == 8
    titles = [axes.get_title() for axes in outcome.figures["outlier-dimensions-removal"]().axes][:4]
    assert len(set(titles)) == 4 and titles[3].endswith("columns scaled to 1")


def test_values_of_dimensions_are_means_over_all_tokens_and_not_over_sequences() -> None:
    chance = np.random.default_rng(4)
    observations, tokens_of = [], (TOKENS, TOKENS[:3])
    absolute = [chance.random((2, 2, len(tokens), 20)) for tokens in tokens_of]
    gamma = chance.random((2, 1, 20))
    for number, (tokens, values) in enumerate(zip(tokens_of, absolute, strict=True)):
        item = random_analysis(number, tokens)
        results = {
            MapWithoutDimensions(0.1): item.map("AttnResLnFf").values,
            FeedForwardDimensions(): np.concatenate([values.mean(2), gamma], 1),
        }
        observations.append(Observation(item, number, results=results))
    outcome = OutlierDimensions(fraction=0.1).over(observations)
    pooled = np.concatenate(absolute, 2).mean(2)
    found = rows(outcome, "outlier-dimensions-values", layer=2)
    assert [row["output"] for row in found] == pytest.approx(pooled[1, 1].tolist())
    assert [row["gamma"] for row in found] == pytest.approx(gamma[1, 0].tolist())
