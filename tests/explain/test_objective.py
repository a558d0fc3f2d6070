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
    assert explanation.attrs["objective"] == "centred"


def test_a_centred_logit_is_the_logit_less_its_mean_token_by_token(causal: ns.Analyzer) -> None:
    with torch.no_grad():
        chances = causal.model(**IDS).logits[0, -1].double().softmax(-1).numpy()
    singles = [causal.explain(IDS, target=label, objective="logit").attribution.values for label in range(40)]
    explanation = causal.explain(IDS, target=3, objective="centred")
    np.testing.assert_allclose(explanation.attribution.values, singles[3] - chances @ np.stack(singles), atol=2e-5)


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


def test_a_contrast_without_another_label_is_with_the_next_most_probable_one(causal: ns.Analyzer) -> None:
    with torch.no_grad():
        first, second = causal.model(**IDS).logits[0, -1].topk(2).indices.tolist()
    for target, against in ((first, second), (3, first)):
        explanation = causal.explain(IDS, target=target, objective="contrast")
        named = causal.explain(IDS, target=target, against=against)
        assert explanation.targets == named.targets == [f"{target} - {against}"]
        np.testing.assert_array_equal(explanation.attribution.values, named.attribution.values)
    with pytest.raises(ns.InputError, match="nothing to contrast"):
        classifier(num_labels=1).explain(IDS, objective="contrast")


def test_by_default_a_label_is_compared_with_what_else_the_model_might_have_said(causal: ns.Analyzer) -> None:
    with torch.no_grad():
        logits = causal.model(**IDS).logits[0, -1].double()
    others = [label for label in range(40) if label != 3]
    mean = float(logits[others].softmax(-1) @ logits[others])
    explanation = causal.explain(IDS, target=3)
    assert explanation.attrs["objective"] == "alternatives"
    assert float(explanation.value) == pytest.approx(float(logits[3]) - mean, abs=1e-5)
    assert total(explanation) == pytest.approx(float(explanation.value), abs=1e-5)
    scaled = causal.explain(IDS, target=3, objective="centred").attribution / float(1 - logits.softmax(-1)[3])
    np.testing.assert_allclose(explanation.attribution.values, scaled.values, atol=2e-5)


def test_a_label_that_the_model_is_sure_of_is_as_large_a_value_as_any() -> None:
    model = classifier(num_labels=2)
    with torch.no_grad():
        model.model.classifier.bias.copy_(torch.tensor([60.0, 0.0]))
        logits = model.model(**IDS).logits[0].double()
    assert float(logits.softmax(-1)[0]) == 1.0
    explanation = model.explain(IDS)
    assert float(explanation.value) == pytest.approx(float(logits[0] - logits[1]), rel=1e-5)
    contrast = model.explain(IDS, target=0, against=1)
    np.testing.assert_allclose(explanation.attribution.values, contrast.attribution.values, atol=1e-5)


@pytest.mark.parametrize("changes", [{"problem_type": "multi_label_classification"}, {"num_labels": 1}])
def test_where_labels_are_no_alternatives_the_default_is_the_logit(changes: dict[str, Any]) -> None:
    model = classifier(**changes)
    with torch.no_grad():
        logits = model.model(**IDS).logits[0]
    explanation = model.explain(IDS, target=0)
    assert explanation.attrs["objective"] == "logit"
    assert float(explanation.value) == pytest.approx(float(logits[0]), abs=1e-5)


@pytest.mark.usefixtures("unchecked_types")
def test_an_objective_that_does_not_exist_is_refused(causal: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="one of alternatives, contrast, centred, logit, not 'probability'"):
        causal.explain(IDS, target=3, objective="probability")  # type: ignore[arg-type]
