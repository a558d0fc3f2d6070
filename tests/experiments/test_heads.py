"""Categories of tokens and the dispersion of heads."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.made import TOKENS, random_analysis, rows
from normscope.experiments import Observation
from normscope.experiments.categories import Categories
from normscope.experiments.dispersion import Dispersion
from normscope.experiments.tokens import CATEGORIES
from normscope.experiments.weight_norm import WeightVersusNorm
from normscope.methods.vectors import HiddenNorms, ValueNorms


def test_the_first_token_of_a_causal_model_is_a_category_by_itself() -> None:
    chance, tokens = np.random.default_rng(6), ["[CLS]", "a", ",", "b"]
    lower = np.tril(np.ones((4, 4), bool))
    heads = {s: np.where(lower, chance.random((2, 3, 4, 4)), np.nan) for s in ("AttnW", "Attn")}
    observation = Observation(random_analysis(0, tokens, heads=heads), results={ValueNorms(): chance.random((2, 3, 4))})
    outcome = Categories().over([observation])
    (found,) = rows(outcome, "categories", layer=2, category="first")
    assert found["weights"] == pytest.approx(heads["AttnW"][1, :, :, 0].mean())
    (other,) = rows(outcome, "categories", layer=2, category="[CLS]")
    assert (other["weights"], other["sequences"]) == (None, 0)
    joint = WeightVersusNorm().over([observation])
    assert [row["pairs"] for row in rows(joint, "weight-vs-norm", category="first")] == [2 * 3 * 4]


def test_a_category_that_a_sequence_lacks_does_not_poison_the_mean() -> None:
    chance = np.random.default_rng(6)
    observations = []
    for number, tokens in enumerate((TOKENS, ["[CLS]", "a", "[SEP]"])):
        heads = {scope: chance.random((2, 3, len(tokens), len(tokens))) for scope in ("AttnW", "Attn")}
        item = random_analysis(number, tokens, heads=heads)
        observations.append(Observation(item, number, results={ValueNorms(): chance.random((2, 3, len(tokens)))}))
    outcome = Categories().over(observations)
    first = observations[0]
    expected = first.analysis.map("AttnW", heads=True).values[0, :, :, 3].mean(-1).mean()
    (found,) = rows(outcome, "categories", layer=1, category="comma, period")
    assert found["weights"] == pytest.approx(expected) and found["sequences"] == 1
    assert found["f"] == pytest.approx(first.results[ValueNorms()][0, :, 3].mean())
    columns = sum(row["weights"] for row in rows(outcome, "categories-heads", layer=2, head=3) if row["sequences"] == 2)
    both = [o.analysis.map("AttnW", heads=True).values[1, 2] for o in observations]
    direct = np.mean([both[0][:, [0, 1, 2, 4, 5]].sum(-1).mean(), both[1].sum(-1).mean()])
    assert columns == pytest.approx(direct)
    assert len(CATEGORIES) == 4
    images = [axes.images[0].get_array() for axes in outcome.figures["categories-heads"]().axes if axes.images]
    table = rows(outcome, "categories-heads", category="[SEP]")
    assert len(images) == 12
    assert np.asarray(images[1])[1, 2] == pytest.approx(
        next(r["weights"] for r in table if (r["layer"], r["head"]) == (2, 3))
    )


def test_dispersion_is_that_of_all_vectors() -> None:
    chance = np.random.default_rng(7)
    hidden, values = chance.random((2, 6)) + 1, chance.random((2, 3, 6)) + 1
    item = random_analysis(0, TOKENS)
    outcome = Dispersion().over([Observation(item, 0, results={HiddenNorms(): hidden, ValueNorms(): values})])
    (x,) = rows(outcome, "dispersion", quantity="x", layer=1)
    (f,) = rows(outcome, "dispersion", quantity="f(x)", layer=2, head=None)
    assert x["mean"] == pytest.approx(hidden[0].mean()) and x["cv"] == pytest.approx(hidden[0].std() / hidden[0].mean())
    assert (f["count"], f["maximum"]) == (18, values[1].max())
    assert f["deviation"] == pytest.approx(values[1].std())
    (head,) = rows(outcome, "dispersion", quantity="f(x)", layer=2, head=3)
    for name, share in {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}.items():
        assert f[name] == pytest.approx(np.quantile(values[1], share), rel=1e-3)
        assert head[name] == pytest.approx(np.quantile(values[1, 2], share), rel=1e-3)
        assert x[name] == pytest.approx(np.quantile(hidden[0], share), rel=1e-3)
