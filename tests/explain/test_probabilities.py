"""Labels and their probabilities: one of several or each by itself, none of a regression, and names that are not clear."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
import torch
from rich.console import Console
from support.tiny_models import shaken
from transformers import BertConfig, BertForSequenceClassification

import normscope as ns
from normscope.experiments.faithfulness.base import Case
from normscope.experiments.faithfulness.deletion import Probabilities
from normscope.explain.question import LogitQuestion, Wanted
from normscope.explorer.predictions import predictions_of
from normscope.explorer.requests import Order
from normscope.inputs import read_inputs
from normscope.output.explanation_page import fragment
from normscope.output.explanation_terminal import explanation_view

TEXT = "The opera singer caught a soap bubble."
SIZE: dict[str, Any] = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)
NAMES = ("calm", "angry", "glad")


def classifier(analyzer: ns.Analyzer, names: tuple[str, ...] = NAMES, problem: str | None = None) -> ns.Analyzer:
    config = BertConfig(vocab_size=30522, id2label=dict(enumerate(names)), problem_type=problem, **SIZE)
    config.id2label = dict(enumerate(names))
    return ns.load(shaken(BertForSequenceClassification(config)), analyzer.tokenizer)


def logits_of(loaded: ns.Analyzer) -> torch.Tensor:
    assert loaded.tokenizer is not None
    with torch.no_grad():
        return loaded.model(**loaded.tokenizer(TEXT, return_tensors="pt")).logits[0]


def shown(explanation: ns.Explanation) -> str:
    console = Console(width=200, record=True, file=StringIO())
    console.print(explanation_view(explanation))
    return console.export_text()


def case_of(loaded: ns.Analyzer) -> Case:
    (sequence,), _ = read_inputs(TEXT, loaded.tokenizer, None)
    return Case(sequence, LogitQuestion(loaded, [(0, Wanted())]), (1, 2, 3))


def test_the_labels_of_a_multi_label_classifier_are_each_as_probable_as_their_sigmoid(analyzer: ns.Analyzer) -> None:
    loaded = classifier(analyzer, problem="multi_label_classification")
    expected = {name: float(chance) for name, chance in zip(NAMES, logits_of(loaded).sigmoid(), strict=True)}
    explanation = loaded.explain(TEXT)
    assert dict(explanation.top_predictions()) == pytest.approx(expected, abs=1e-5)
    assert explanation.probabilities_of == "each label by itself"
    assert "(each label by itself)" in shown(explanation) and "(each label by itself)" in fragment(explanation)
    (place,) = predictions_of(Order(loaded, TEXT))
    assert {one["name"]: one["probability"] for one in place["options"]} == pytest.approx(expected, abs=1e-5)
    assert place["of"] == "each label by itself"
    (chance,) = Probabilities(loaded, case_of(loaded)).without([frozenset()], "drop")
    assert chance == pytest.approx(max(expected.values()), abs=1e-5)


def test_the_labels_of_other_classifiers_share_one_probability(analyzer: ns.Analyzer) -> None:
    loaded = classifier(analyzer, problem="single_label_classification")
    explanation = loaded.explain(TEXT)
    assert sum(chance for _, chance in explanation.top_predictions()) == pytest.approx(1, abs=1e-5)
    assert explanation.probabilities_of == "" and "by itself" not in shown(explanation)


def test_a_regression_has_no_probabilities(analyzer: ns.Analyzer) -> None:
    loaded = classifier(analyzer, problem="regression")
    assert loaded.explain(TEXT, target=1).top_predictions() == []
    assert predictions_of(Order(loaded, TEXT)) == []
    with pytest.raises(ns.InputError, match="no probabilities"):
        Probabilities(loaded, case_of(loaded))


def test_a_label_of_just_this_name_comes_before_one_in_another_case(analyzer: ns.Analyzer) -> None:
    loaded = classifier(analyzer, ("Calm", "calm", "Glad"))
    assert [loaded.explain(TEXT, target=name).values[0] for name in ("Calm", "calm")] == pytest.approx(
        [loaded.explain(TEXT, target=number).values[0] for number in (0, 1)]
    )
    assert loaded.explain(TEXT, target="glad").values == pytest.approx(loaded.explain(TEXT, target=2).values)
    with pytest.raises(
        ns.SelectionError, match=r"2 labels that are called 'CALM'. Say its number: 0 \(Calm\), 1 \(calm\)"
    ):
        loaded.explain(TEXT, target="CALM")


def test_a_name_that_several_labels_have_is_refused_and_shown_with_its_number(analyzer: ns.Analyzer) -> None:
    loaded = classifier(analyzer, ("calm", "glad", "calm"))
    with pytest.raises(ns.SelectionError, match="2 labels that are called 'calm'"):
        loaded.explain(TEXT, target="calm")
    assert loaded.explain(TEXT, target=2).targets == ["calm (2)"]
    assert loaded.explain(TEXT, target="glad").targets == ["glad"]
