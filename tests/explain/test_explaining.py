"""Explanations as a user asks for them: what adds up, what is the same by another way, and every bad question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.rule_model import rule_analyzer
from support.tiny_architectures import BART, T5, tiny
from support.tiny_models import shaken
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

import normscope as ns
from normscope.cli import main

TEXT = "The opera singer caught a soap bubble."
SIZE: dict[str, Any] = dict(hidden_size=12, num_hidden_layers=3, num_attention_heads=3, intermediate_size=20)
IDS = {"input_ids": torch.tensor([[5, 9, 7, 30, 12, 8]])}


@pytest.fixture(scope="module")
def causal() -> ns.Analyzer:
    return ns.load(shaken(LlamaForCausalLM(LlamaConfig(vocab_size=40, num_key_value_heads=3, **SIZE))))


@pytest.fixture(scope="module")
def masked(analyzer: ns.Analyzer) -> ns.Analyzer:
    return ns.load(shaken(BertForMaskedLM(BertConfig(vocab_size=30522, **SIZE))), analyzer.tokenizer)


@pytest.fixture(scope="module")
def classifier(analyzer: ns.Analyzer) -> ns.Analyzer:
    config = BertConfig(vocab_size=30522, id2label={0: "calm", 1: "angry"}, label2id={"calm": 0, "angry": 1}, **SIZE)
    return ns.load(shaken(BertForSequenceClassification(config)), analyzer.tokenizer)


def total(explanation: ns.Explanation) -> float:
    return float(explanation.attribution.sum()) + float(explanation.bias)


# ---- what adds up ------------------------------------------------------------------------------------------------------


def test_the_difference_of_two_large_logits_is_as_sure_as_they_are() -> None:
    model = shaken(LlamaForCausalLM(LlamaConfig(vocab_size=40, num_key_value_heads=3, **SIZE)))
    with torch.no_grad():
        model.lm_head.weight[4] = 1000 * model.lm_head.weight[4]
        model.lm_head.weight[6] = model.lm_head.weight[4] * (1 + 1e-4)
    explanation = ns.load(model).explain(IDS, target=4, against=6)
    (value,) = explanation.values
    with torch.no_grad():
        logits = model(**IDS).logits[0, -1].double()
    assert total(explanation) == pytest.approx(value, abs=1e-5 * float(logits[4].abs()))


def test_shares_and_bias_add_up_to_the_models_own_difference_of_logits(causal: ns.Analyzer) -> None:
    explanation = causal.explain(IDS, target=3, against=4)
    with torch.no_grad():
        logits = causal.model(**IDS).logits[0, -1]
    assert explanation.value == pytest.approx(float(logits[3] - logits[4]), abs=1e-5)
    assert total(explanation) == pytest.approx(explanation.values[0], abs=1e-5)


def test_edges_into_a_token_are_its_relevance_and_edges_out_of_it_that_before(masked: ns.Analyzer) -> None:
    explanation = masked.explain("The [MASK] caught a bubble.", heads=True)
    relevance = explanation.relevance.values
    for layer in (1, 2, 3):
        edges = explanation.edges(layer).values
        bias = explanation.dataset["bias"].sel(layer=layer).isel(target=0).values
        np.testing.assert_allclose(edges.sum(-1) + bias, relevance[layer], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(edges.sum(0), relevance[layer - 1], rtol=1e-3, atol=1e-4)
        by_head = explanation.heads.sel(layer=layer)
        np.testing.assert_allclose(by_head.sum("query"), explanation.head_shares.sel(layer=layer), rtol=1e-3, atol=1e-4)
        others = by_head.sum("head").values - edges
        np.testing.assert_allclose(others - np.diag(np.diag(others)), 0, atol=1e-4)


def test_a_flow_graph_keeps_the_fewest_edges_of_every_layer(causal: ns.Analyzer) -> None:
    explanation = causal.explain(IDS, target=3)
    flow = explanation.flow(0.7)
    for layer in (1, 2, 3):
        sizes = np.sort(np.abs(explanation.edges(layer).values).ravel())[::-1]
        count = sum(edge.layer == layer for edge in flow)
        assert sizes[:count].sum() >= 0.7 * sizes.sum() > sizes[: count - 1].sum()
    assert (flow.carried >= 0.7 - 1e-6).all()
    with pytest.raises(ns.InputError, match=r"above 0 and at most 1, not 2.0"):
        explanation.flow(2.0)


def test_a_token_that_decides_by_construction_comes_first() -> None:
    explanation = rule_analyzer().explain("one key two three four", target="good")
    shares = explanation.attribution.values
    assert shares.argmax() == 1 and np.abs(np.delete(shares, 1)).max() < 1e-5 * shares[1]


# ---- the same by another way -------------------------------------------------------------------------------------------


def test_a_limit_of_memory_changes_no_number(causal: ns.Analyzer) -> None:
    whole = causal.explain(IDS, target=3)
    bounded = causal.explain(IDS, target=3, max_memory=1)
    assert whole.dataset.drop_attrs().identical(bounded.dataset.drop_attrs())


def test_a_continuation_is_explained_token_by_token(causal: ns.Analyzer) -> None:
    together = causal.explain(IDS, target=[3, 4])
    longer = {"input_ids": torch.cat([IDS["input_ids"], torch.tensor([[3]])], dim=1)}
    alone = [causal.explain(IDS, target=3), causal.explain(longer, target=4)]
    assert together.attribution.sizes["target"] == 2
    for row, each in zip(together.attribution.values, alone, strict=True):
        np.testing.assert_allclose(row[: len(each.tokens)], each.attribution.values, atol=1e-5)


def test_gradient_times_input_is_what_autograd_gives(causal: ns.Analyzer) -> None:
    explanation = causal.explain(IDS, target=3, method="gradient-x-input", objective="logit")
    embeddings = causal.model.get_input_embeddings()(IDS["input_ids"]).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(causal.model(inputs_embeds=embeddings).logits[0, -1, 3], embeddings)
    expected = (gradient * embeddings).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(explanation.attribution.values, expected, rtol=1e-4, atol=1e-5)
    assert explanation.method == "gradient-x-input"
    with pytest.raises(ns.SelectionError, match="does not follow it through the layers"):
        explanation.flow()


def test_a_bare_model_explains_a_state_along_itself(analyzer: ns.Analyzer) -> None:
    explanation = analyzer.explain(TEXT, direction="state", at=2)
    assert explanation.value == pytest.approx(1, abs=1e-4) and total(explanation) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("auto", [AutoModel, AutoModelForSeq2SeqLM])
@pytest.mark.parametrize(("model_type", "sizes"), [("marian", BART), ("mbart", BART), ("t5", T5)])
def test_a_state_of_a_decoder_is_followed_into_the_encoder_with_or_without_a_head(
    model_type: str, sizes: dict[str, Any], auto: Any
) -> None:
    translator = ns.load(tiny(model_type, auto, **sizes).double().eval())
    explanation = translator.explain(IDS, decoder_text=[8, 6], direction="state", at=1)
    assert len(explanation.tokens) == 6 + 3 and np.abs(explanation.attribution.values[-6:]).max() > 1e-4
    assert explanation.value == pytest.approx(1) and total(explanation) == pytest.approx(1, abs=1e-6)


def test_an_explanation_comes_back_from_its_file(classifier: ns.Analyzer, tmp_path: Path) -> None:
    explanation = classifier.explain("The cat sat on the unaffable mat.", target="angry")
    back = ns.open(explanation.save(tmp_path / "why.nc"))
    assert isinstance(back, ns.Explanation) and back.dataset.identical(explanation.dataset)
    words = explanation.words()
    assert total(words) == pytest.approx(total(explanation), abs=1e-5) and len(words.tokens) < len(explanation.tokens)


# ---- bad questions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (TEXT, {}, "has 0 of them. Write \\[MASK\\] once"),
        ("A [MASK] bubble.", {"target": "unaffable"}, "one token is predicted at a mask"),
        ("A [MASK] bubble.", {"target": "soap", "against": "soap"}, "the same label"),
        ("A [MASK] bubble.", {"target": 99999999}, "There is no label 99999999"),
        (TEXT, {"at": 99}, "There is no token 99"),
        ("A [MASK] bubble.", {"target": ""}, "empty"),
    ],
)
def test_a_question_that_a_masked_model_cannot_answer_is_refused(
    masked: ns.Analyzer, text: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ns.NormscopeError, match=message):
        masked.explain(text, **options)


def test_an_unknown_label_is_refused_with_those_that_exist(classifier: ns.Analyzer) -> None:
    with pytest.raises(ns.SelectionError, match=r"no label 'cross'.*calm, angry"):
        classifier.explain(TEXT, target="cross")
    with pytest.raises(ns.SelectionError, match="one answer for the whole input"):
        classifier.explain(TEXT, at=1)


def test_a_model_without_a_head_says_so(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.HeadError, match="bare model"):
        analyzer.explain(TEXT)


# ---- the command line --------------------------------------------------------------------------------------------------


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_the_command_prints_the_sum_and_writes_files(
    classifier: ns.Analyzer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    classifier.model.save_pretrained(folder)
    classifier.tokenizer.save_pretrained(folder)  # type: ignore[union-attr]
    assert run("explain", TEXT, "--model", str(folder)) == 0
    printed = capfd.readouterr().out
    assert "conservation error" in printed and "bubble" in printed
    for name in ("why.svg", "why.csv", "why.html", "why.nc"):
        assert run("explain", TEXT, "--model", str(folder), "--target", "calm", "--out", str(tmp_path / name)) == 0
        assert (tmp_path / name).stat().st_size > 200
    assert run("explain", TEXT, "--model", str(folder), "--target", "cross", "--out", str(tmp_path / "no.svg")) == 2
    assert "no label 'cross'" in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "no.svg").exists()
    assert run("methods") == 0 and "pull-back" in capfd.readouterr().out
