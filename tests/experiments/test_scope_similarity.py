"""Similarity of maps at different scopes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from experiments.made import SCOPES, TOKENS, analysis, normalised, random_analysis, rows
from normscope.experiments.scope_similarity import ScopeSimilarity


@pytest.mark.parametrize("axis", ["none", "row", "column"])
def test_similarity_is_the_mean_over_sequences_then_layers_of_spearmans_rho(axis: str) -> None:
    analyses = [random_analysis(seed, TOKENS) for seed in range(3)]
    outcome = ScopeSimilarity().over(analyses)
    rho = [
        [
            stats.spearmanr(
                *(normalised(a.map(s).values[k], axis).reshape(-1) for s in ("AttnResLn", "AttnResLnFf"))
            ).statistic
            for a in analyses
        ]
        for k in range(2)
    ]
    labels = {"normalisation": axis, "first": "AttnResLn", "second": "AttnResLnFf"}
    (summary,) = rows(outcome, "scope-similarity", **labels)
    (layer,) = rows(outcome, "scope-similarity-layers", **labels, layer=2)
    assert summary["similarity"] == pytest.approx(np.mean(rho), abs=1e-12)
    assert layer["similarity"] == pytest.approx(np.mean(rho[1]), abs=1e-12)
    assert layer["change"] == pytest.approx(1 - np.mean(rho[1]), abs=1e-12)
    assert summary["relation"] == "adjacent" and summary["sequences"] == 3


def test_a_map_that_only_scales_its_columns_is_unchanged_by_column() -> None:
    chance = np.random.default_rng(0)
    base = chance.random((1, 4, 4))
    maps = {scope: base * (chance.random(4) if scope.endswith("Ff") else 1) for scope in SCOPES}
    outcome = ScopeSimilarity(normalisations=("column",)).over([analysis(maps, ["a", "b", "c", "d"])])
    assert all(row["similarity"] == pytest.approx(1) for row in outcome.tables["scope-similarity"].to_pylist())


def test_causal_maps_are_compared_where_keys_exist() -> None:
    item = random_analysis(1, ["a", "b", "c", "d"])
    dataset = item.dataset.copy(deep=True)
    lower = np.tril(np.ones((4, 4), bool))
    dataset["map"] = dataset["map"].where(np.broadcast_to(lower, dataset["map"].shape))
    outcome = ScopeSimilarity(normalisations=("none",)).over([type(item)(dataset)])
    expected = stats.spearmanr(*(item.map(s).values[0][lower] for s in ("AttnW", "Attn"))).statistic
    (found,) = rows(outcome, "scope-similarity-layers", first="AttnW", second="Attn", layer=1)
    assert found["similarity"] == pytest.approx(expected, abs=1e-12)
