"""What of a logit is explained: the logit itself, above the mean of all, or above another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_models import shaken
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

import normscope as ns

SIZE: dict[str, Any] = dict(hidden_size=12, num_hidden_layers=3, num_attention_heads=3, intermediate_size=20)
IDS = {"input_ids": torch.tensor([[5, 9, 7, 30, 12, 8]])}


@pytest.fixture(scope="module")
def causal() -> ns.Analyzer:
    return ns.load(shaken(LlamaForCausalLM(LlamaConfig(vocab_size=40, num_key_value_heads=3, **SIZE))))


def classifier(**changes: Any) -> ns.Analyzer:
    config = BertConfig(vocab_size=40, **{"num_labels": 3, **SIZE, **changes})
    return ns.load(shaken(BertForSequenceClassification(config)))


def centred(logits: torch.Tensor, label: int) -> float:
    return float(logits[label] - logits.softmax(-1) @ logits)


def total(explanation: ns.Explanation) -> float:
    return float(explanation.attribution.sum()) + float(explanation.bias)


def test_a_centred_logit_is_above_the_mean_of_all_by_their_probabilities(causal: ns.Analyzer) -> None:
    explanation = causal.explain(IDS, target=3, objective="centred")
    with torch.no_grad():
        logits = causal.model(**IDS).logits[0, -1].double()
    assert float(explanation.value) == pytest.approx(centred(logits, 3), abs=1e-5)
    assert total(explanation) == pytest.approx(float(explanation.value), abs=1e-5)
    assert explanation.attrs["objective"] == "centred" and causal.explain(IDS, target=3).attrs["objective"] == "logit"


def test_a_centred_logit_is_the_logit_less_its_mean_token_by_token(causal: ns.Analyzer) -> None:
    with torch.no_grad():
        chances = causal.model(**IDS).logits[0, -1].double().softmax(-1).numpy()
    singles = [causal.explain(IDS, target=label).attribution.values for label in range(40)]
    explanation = causal.explain(IDS, target=3, objective="centred")
    np.testing.assert_allclose(explanation.attribution.values, singles[3] - chances @ np.stack(singles), atol=2e-5)


def test_a_margin_is_the_logit_above_that_of_the_most_probable_other_label(causal: ns.Analyzer) -> None:
    with torch.no_grad():
        logits = causal.model(**IDS).logits[0, -1]
    first, second = logits.topk(2).indices.tolist()
    for target, other in ((3, first), (first, second)):
        explanation, contrast = (
            causal.explain(IDS, target=target, **how) for how in ({"objective": "margin"}, {"against": other})
        )
        assert float(explanation.value) == pytest.approx(float(logits[target] - logits[other]), abs=1e-5)
        np.testing.assert_allclose(explanation.attribution.values, contrast.attribution.values, atol=1e-6)
        assert explanation.attrs["objective"] == "margin" and explanation.targets == contrast.targets
    gradient = causal.explain(IDS, target=3, method="gradient-x-input", objective="margin")
    assert float(gradient.value) == pytest.approx(float(logits[3] - logits[first]), abs=1e-5)


def test_against_another_the_mean_is_the_same_for_both(causal: ns.Analyzer) -> None:
    plain, with_objective = (
        causal.explain(IDS, target=3, against=4, objective=objective) for objective in ("logit", "contrast")
    )
    np.testing.assert_array_equal(plain.attribution.values, with_objective.attribution.values)
    assert plain.attrs["objective"] == with_objective.attrs["objective"] == "contrast"
    assert causal.explain(IDS, target=3, against=4, objective="centred").value == plain.value


def test_each_token_of_a_continuation_is_centred_at_its_own_row(causal: ns.Analyzer) -> None:
    explanation = causal.explain(IDS, target=[3, 4], objective="centred")
    ids = torch.tensor([[5, 9, 7, 30, 12, 8, 3]])
    with torch.no_grad():
        logits = causal.model(ids).logits[0].double()
    assert explanation.values == pytest.approx([centred(logits[-2], 3), centred(logits[-1], 4)], abs=1e-5)
    assert causal.explain(IDS, continue_for=2, objective="centred").attrs["objective"] == "centred"


@pytest.mark.parametrize("method", ["pull-back", "gradient-x-input", "leave-one-out", "decompx"])
def test_classifiers_and_masked_models_have_centred_logits_by_every_method(method: str) -> None:
    masked = ns.load(shaken(BertForMaskedLM(BertConfig(vocab_size=40, **SIZE))))
    for model, options in ((classifier(), {"target": 1}), (masked, {"target": 7, "at": 2})):
        explanation = model.explain(IDS, method=method, objective="centred", **options)
        with torch.no_grad():
            logits = model.model(**IDS).logits[0].reshape(-1, model.model(**IDS).logits.shape[-1]).double()
        row = logits[0] if len(logits) == 1 else logits[2]
        assert float(explanation.value) == pytest.approx(centred(row, int(options["target"])), abs=1e-5)
        if explanation.adds_up:
            assert total(explanation) == pytest.approx(float(explanation.value), abs=1e-4)


def test_gradients_of_a_centred_logit_keep_the_probabilities(causal: ns.Analyzer) -> None:
    explanation = causal.explain(IDS, target=3, method="gradient-x-input", objective="centred")
    embeddings = causal.model.get_input_embeddings()(IDS["input_ids"]).detach().requires_grad_()
    logits = causal.model(inputs_embeds=embeddings).logits[0, -1]
    (gradient,) = torch.autograd.grad(logits[3] - logits.softmax(-1).detach() @ logits, embeddings)
    expected = (gradient * embeddings).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(explanation.attribution.values, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"problem_type": "multi_label_classification"}, {"target": 1}, "exclude each other"),
        ({"num_labels": 1}, {"target": 0}, "exclude each other"),
        ({}, {"direction": "state", "at": 1}, "no logit"),
    ],
)
def test_where_labels_are_no_alternatives_there_is_no_centred_logit(
    changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ns.InputError, match=message):
        classifier(**changes).explain(IDS, objective="centred", **options)


def test_a_contrast_needs_another_label(causal: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match=r"name it \(against"):
        causal.explain(IDS, target=3, objective="contrast")


@pytest.mark.usefixtures("unchecked_types")
def test_an_objective_that_does_not_exist_is_refused(causal: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="one of logit, centred, margin, contrast, not 'probability'"):
        causal.explain(IDS, target=3, objective="probability")  # type: ignore[arg-type]
