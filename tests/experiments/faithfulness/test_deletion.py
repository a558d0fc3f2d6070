"""The deletion experiment on a model whose rule is known, its model calls, and chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.rule_model import WORDS, rule_analyzer
from support.tiny_models import shaken
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification

import normscope as ns
from normscope.corpora import Corpus, Problems
from normscope.experiments import experiment
from normscope.experiments.faithfulness.base import case_of
from normscope.experiments.faithfulness.deletion import Probabilities
from normscope.runs import run

SIZE: dict[str, Any] = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)
TAGS: dict[str, Any] = {**SIZE, "id2label": {0: "O", 1: "PER", 2: "LOC"}}
TEXTS = ["key one two three four five", "one key six seven two two", "key key one two three four"]


def means(result: Any, **wanted: object) -> dict[str, dict[str, Any]]:
    rows = result.tables["deletion"].to_pylist()
    return {row["method"]: row for row in rows if all(row[name] == value for name, value in wanted.items())}


def test_a_prediction_falls_without_the_words_that_it_rests_on() -> None:
    options = {"deletion": {"methods": ("pull-back", "random", "gradient-norm"), "beam": 8}}
    result = run(["deletion"], model=rule_analyzer(), corpus=TEXTS, options=options)
    assert {row["removal"] for row in result.tables["deletion"].to_pylist()} == {"drop", "mean"}  # there is no mask
    for removal in ("drop", "mean"):
        for measure in ("comprehensiveness", "aopc", "srg"):
            found = means(result, removal=removal, measure=measure)
            assert found["pull-back"]["mean"] > found["random"]["mean"] and found["pull-back"]["mean"] > 0.1
        assert means(result, removal=removal, measure="naopc")["pull-back"]["mean"] == pytest.approx(1, abs=0.02)
        whole = means(result, removal=removal, measure="sufficiency 50%")["pull-back"]["mean"]
        assert whole <= means(result, removal=removal, measure="sufficiency 50%")["random"]["mean"]
    falls = result.tables["deletion-curves"].to_pylist()
    assert {row["order"] for row in falls} == {"most", "least"}
    for draw in result.outcomes["deletion"].figures.values():
        assert draw().axes


def test_every_input_is_asked_once_and_gives_what_the_model_gives_alone() -> None:
    analyzer = rule_analyzer()
    (item,) = Corpus.of_texts(TEXTS[:1]).items(analyzer.tokenizer, Problems())
    asked = Probabilities(analyzer, case_of(analyzer, item, 0))
    sets = [frozenset({0}), frozenset({1}), frozenset({0, 2}), frozenset({0})]
    first = asked.without(sets, "drop")
    calls = asked.calls
    np.testing.assert_array_equal(asked.without(sets, "drop"), first)
    assert asked.calls == calls == 4
    ids = asked.case.sequence.features["input_ids"]
    kept = torch.tensor([[number for place, number in enumerate(ids) if place not in (0, 2)]])
    with torch.no_grad():
        logits = analyzer.model(kept).logits[0, -1]
    assert first[2] == pytest.approx(float(logits.softmax(-1)[WORDS.index("good")]), abs=1e-6)
    assert np.isnan(asked.without([frozenset(range(len(ids)))], "drop")[0])


def test_without_tokens_a_masked_model_is_read_at_its_mask(analyzer: ns.Analyzer) -> None:
    masked = ns.load(shaken(BertForMaskedLM(BertConfig(vocab_size=30522, **SIZE))), analyzer.tokenizer)
    (item,) = Corpus.of_texts(["the cat sat on a mat"]).items(masked.tokenizer, Problems())
    case = case_of(masked, item, 3)
    ids = case.sequence.features["input_ids"]
    row = ids.index(masked.tokenizer.mask_token_id)  # type: ignore[union-attr]
    assert row not in case.candidates and len(case.candidates) == 5
    asked = Probabilities(masked, case)
    with torch.no_grad():
        label = int(masked.model(torch.tensor([ids])).logits[0, row].argmax())
        removed = frozenset({case.candidates[0], case.candidates[-1]})
        kept = [number for place, number in enumerate(ids) if place not in removed]
        after = masked.model(torch.tensor([kept])).logits[0, kept.index(masked.tokenizer.mask_token_id)]  # type: ignore[union-attr]
    assert asked.without([removed], "drop")[0] == pytest.approx(float(after.softmax(-1)[label]), abs=1e-6)
    assert np.isfinite(asked.without([removed], "mask")).all() and np.isfinite(asked.without([removed], "mean")).all()


def test_of_a_tagger_a_tag_of_an_entity_is_explained_and_its_own_token_stays(analyzer: ns.Analyzer) -> None:
    tagger = ns.load(
        shaken(BertForTokenClassification(BertConfig(vocab_size=30522, **TAGS))),
        analyzer.tokenizer,
    )
    (item,) = Corpus.of_texts(["the cat sat on a mat"]).items(tagger.tokenizer, Problems())
    entity = np.array([-1, -1, 0, -1, -1, -1, -1, -1])
    rows = {case_of(tagger, replace(item, entities=entity), seed).candidates for seed in range(5)}
    assert rows == {(1, 3, 4, 5, 6)}
    case = case_of(tagger, item, 0)
    asked = Probabilities(tagger, case)
    ids, removed = case.sequence.features["input_ids"], frozenset(case.candidates[:2])
    (row,) = set(range(1, 7)) - set(case.candidates)
    kept = [place for place in range(len(ids)) if place not in removed]
    with torch.no_grad():
        label = int(tagger.model(torch.tensor([ids])).logits[0, row].argmax())
        after = tagger.model(torch.tensor([[ids[place] for place in kept]])).logits[0, kept.index(row)]
    assert asked.without([removed], "drop")[0] == pytest.approx(float(after.softmax(-1)[label]), abs=1e-6)


def test_methods_explain_the_objective_that_is_asked_for(analyzer: ns.Analyzer) -> None:
    model = ns.load(shaken(BertForMaskedLM(BertConfig(vocab_size=30522, **SIZE))), analyzer.tokenizer)
    texts = ["the cat sat on a mat", "one of these days it will rain", "nobody knows the way to the sea"]
    options: dict[str, Any] = {"methods": ("pull-back", "random"), "removals": ("drop",), "beam": 0}
    logit, contrast = (
        means(run(["deletion"], model=model, corpus=texts, options={"deletion": options | more}), measure="srg")
        for more in ({}, {"objective": "contrast"})
    )
    assert logit["random"]["mean"] == contrast["random"]["mean"]
    assert logit["pull-back"]["mean"] != contrast["pull-back"]["mean"]
    with pytest.raises(ns.InputError, match="loudness"):
        experiment("deletion", {"objective": "loudness"})


def test_the_gain_of_a_random_order_covers_zero_in_its_interval(analyzer: ns.Analyzer) -> None:
    config = BertConfig(vocab_size=30522, **SIZE)
    classifier = ns.load(shaken(BertForSequenceClassification(config)), analyzer.tokenizer)
    words = ["one", "two", "three", "four", "five", "six", "red", "green", "old", "young", "cold", "slow"]
    chance = np.random.default_rng(1)
    texts = [" ".join(chance.choice(words, 6)) for _ in range(40)]
    options = {"deletion": {"methods": ("random", "leave-one-out"), "removals": ("mask",), "beam": 0, "steps": 6}}
    found = means(run(["deletion"], model=classifier, corpus=texts, options=options), removal="mask", measure="srg")
    assert found["random"]["low"] < 0 < found["random"]["high"]
    assert found["leave-one-out"]["low"] > 0


def test_bad_options_and_models_are_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="mask"):
        experiment("deletion", {"removals": ("burn",)})
    with pytest.raises(ns.InputError, match="steps is at least 2"):
        experiment("deletion", {"steps": 1})
    with pytest.raises(ns.InputError, match="no task head"):
        run(["deletion"], model=analyzer, corpus=["a text"])
    with pytest.raises(ns.InputError, match="runs the model itself"):
        experiment("deletion").over([analyzer.analyze("a text", scopes="Attn")])
