"""The agreement of methods: with themselves, against scipy by hand, and with what cannot be had."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from support.rule_model import rule_analyzer

import normscope as ns
from normscope.experiments import experiment
from normscope.experiments.statistics import spearman
from normscope.runs import run

TEXTS = ["a dog saw the red cat", "it was cold in may"]


def test_correlations_are_those_of_the_attributions_themselves(analyzer: ns.Analyzer) -> None:
    options = {"agreement": {"methods": ("pull-back", "decompx:bias=apart", "globenc", "attention-rollout")}}
    result = run(["agreement"], model=analyzer, corpus=TEXTS, options=options)
    rows = {(row["first"], row["second"]): row for row in result.tables["agreement"].to_pylist()}
    assert len(rows) == 6
    assert rows["pull-back", "decompx:bias=apart"]["spearman"] == pytest.approx(1)  # the same by two ways
    expected = []
    for text in TEXTS:
        shares = [
            analyzer.explain(text, direction="state", at=0, method=name).attribution.values[1:-1]
            for name in ("pull-back", "globenc")
        ]
        expected.append(stats.spearmanr(*shares).statistic)
    assert rows["pull-back", "globenc"]["spearman"] == pytest.approx(np.mean(expected))
    layers = result.tables["agreement-layers"].to_pylist()
    assert {(row["first"], row["second"]) for row in layers} == {("globenc", "attention-rollout")}
    (second,) = [row for row in layers if row["layer"] == 2]
    by_hand = [
        spearman(np.delete(a, row), np.delete(b, row))
        for text in TEXTS
        for a_map, b_map in [
            (analyzer.analyze(text, method="globenc", layers=2), analyzer.analyze(text, scopes="AttnW", layers=2))
        ]
        for row, (a, b) in enumerate(
            zip(a_map.map(a_map.scopes[-1]).values[0], b_map.map("AttnW").values[0], strict=True)
        )
    ]
    assert second["sequences"] == 2
    halves = np.split(np.array(by_hand), [len(TEXTS[0].split()) + 2])
    assert second["spearman"] == pytest.approx(np.mean([half.mean() for half in halves]))
    for draw in result.outcomes["agreement"].figures.values():
        assert draw().axes


def test_methods_of_a_model_with_a_known_rule_agree_on_the_word_that_decides() -> None:
    options = {"agreement": {"methods": ("pull-back", "leave-one-out", "random"), "level": "prediction"}}
    result = run(["agreement"], model=rule_analyzer(), corpus=["key one two three", "one key key two"], options=options)
    rows = {(row["first"], row["second"]): row["spearman"] for row in result.tables["agreement"].to_pylist()}
    assert rows["pull-back", "leave-one-out"] > 0.5 > rows["pull-back", "random"]
    assert list(result.tables) == ["agreement"]


def test_too_little_to_rank_is_missing_and_bad_options_are_refused() -> None:
    assert np.isnan(spearman(np.array([1.0, 2.0]), np.array([1.0, 2.0])))
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))
    assert spearman(np.array([1.0, np.nan, 2.0, 5.0]), np.array([1.0, 9.0, 2.0, 3.0])) == pytest.approx(1)
    with pytest.raises(ns.InputError, match="prediction"):
        experiment("agreement", {"level": "words"})
    with pytest.raises(ns.InputError, match="at least one method"):
        experiment("agreement", {"methods": ()})
