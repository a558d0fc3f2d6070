"""Attention weights against the norms of the vectors that they weigh."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from experiments.made import SCOPES, TOKENS, random_analysis, rows
from normscope.experiments import Observation
from normscope.experiments.base import ModelFacts, RunFacts
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.tokens import CATEGORIES
from normscope.experiments.weight_norm import WeightVersusNorm
from normscope.methods.vectors import ValueNorms
from normscope.scopes import Scope


def test_weight_and_norm_correlate_as_their_values_do() -> None:
    chance = np.random.default_rng(8)
    values = chance.random((2, 3, 6)) + 0.1
    weights = np.broadcast_to(0.2 / values[:, :, None, :], (2, 3, 6, 6)) ** 2
    item = random_analysis(0, TOKENS, heads={"AttnW": weights})
    outcome = WeightVersusNorm().over([Observation(item, 0, results={ValueNorms(): values})])
    (found,) = rows(outcome, "weight-vs-norm", category="all")
    assert found["pairs"] == 2 * 3 * 6 * 6
    assert found["spearman"] == pytest.approx(-1, abs=0.001)


def test_the_correlation_of_weights_and_norms_is_within_its_stated_error_of_the_exact_one() -> None:
    chance = np.random.default_rng(11)
    observations, pairs = [], {name: ([], []) for name in ("all", *CATEGORIES)}
    for number in range(3):
        values = np.exp(chance.normal(size=(2, 3, 6)))
        weights = chance.dirichlet(np.full(6, 0.3), size=(2, 3, 6))
        item = random_analysis(number, TOKENS, heads={"AttnW": weights})
        observations.append(Observation(item, number, results={ValueNorms(): values}))
        names = ["[CLS]", "other", "other", "comma, period", "other", "[SEP]"]
        for key, name in enumerate(names):
            for each in ("all", name):
                pairs[each][0].append(weights[..., key].reshape(-1))
                pairs[each][1].append(np.repeat(values[..., key].reshape(-1), 6))
    outcome = WeightVersusNorm().over(observations)
    for name, (weights, norms) in pairs.items():
        exact = stats.spearmanr(np.concatenate(weights), np.concatenate(norms)).statistic
        (found,) = rows(outcome, "weight-vs-norm", category=name)
        assert abs(found["spearman"] - exact) <= found["error"]
        assert abs(found["spearman"] - exact) < 5e-3
    assert outcome.figures["weight-vs-norm"]().axes[0].get_title().startswith("all")


def test_the_correlation_of_weights_and_norms_is_the_same_to_the_last_bit_however_the_rows_lie() -> None:
    chance = np.random.default_rng(12)
    cells = np.unique(chance.integers(0, len(CATEGORIES) * 5120 * 4800, 40_000))
    joint = pa.table({"cell": cells, "count": chance.integers(1, 1_000_000, len(cells))})
    facts = RunFacts(ModelFacts("made-up", (1,), tuple(map(Scope, SCOPES))))
    outcomes = [
        WeightVersusNorm().finish(Partial(rows={"joint": Rows((table,), keys=("cell",))}), facts)
        for table in (joint, joint.take(chance.permutation(len(cells))))
    ]
    first, second = (outcome.tables["weight-vs-norm"].to_pylist() for outcome in outcomes)
    assert first == second
