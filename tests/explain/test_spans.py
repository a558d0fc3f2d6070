"""Spans of output: the sum of single tokens, the definitions in float64, and combinations of the model's own logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from methods.propagated_oracle import propagated
from pullback.test_head import traces_of
from support.chat_model import chat_analyzer
from support.tiny_architectures import BART, tiny
from support.tiny_heads import tiny_head
from support.tiny_models import shaken, traces
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, LlamaConfig, LlamaForCausalLM

import normscope as ns
from normscope.chain.head_trace import Target
from normscope.explain.pulling import PullRequest
from normscope.explain.spans import Output, PulledSpans, pull_back_spans
from normscope.inputs import read_ids, read_target
from normscope.pullback import pull_back_head, values_of

IDS = [5, 9, 7, 30, 12, 8, 21, 6]
OUTPUTS = [Output(4, 8), Output(5, 21), Output(6, 6), Output(7, 11)]


@pytest.fixture(scope="module")
def exact() -> ns.Analyzer:
    return chat_analyzer(dtype=torch.float64)


def spans(model: ns.Analyzer, chosen: Any, objective: Any = "logit", **how: Any) -> PulledSpans:
    return pull_back_spans(model, read_ids(IDS, None), OUTPUTS, chosen, objective, PullRequest(**how))


def logits_of(model: ns.Analyzer) -> Tensor:
    with torch.no_grad():
        return model.model(torch.tensor([IDS])).logits[0]


@torch.no_grad()
def oracle_parts(model: ns.Analyzer) -> tuple[Tensor, Tensor]:
    """What every token `[row, token, label]` and the biases `[row, label]` put into every logit, from the definitions."""
    captured = traces(model.model, [IDS], below_attention=True)
    last = propagated([captured[layer, 0] for layer in model.layers])[-1]
    norm, head = model.model.transformer.ln_f, model.model.lm_head.weight.double()
    state = last.parts.sum(1) + last.bias
    deviation = ((state - state.mean(-1, keepdim=True)).square().mean(-1) + norm.eps).sqrt()

    def after(vectors: Tensor, scale: Tensor) -> Tensor:
        return (vectors - vectors.mean(-1, keepdim=True)) * norm.weight.double() / scale[..., None] @ head.T

    return after(last.parts, deviation[:, None]), after(last.bias, deviation) + head @ norm.bias.double()


# ---- linear ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["logit", "centred"])
def test_a_span_is_the_sum_of_its_tokens(exact: ns.Analyzer, objective: str) -> None:
    together = spans(exact, [[0, 1, 2, 3], [1, 3]], objective)
    alone = [spans(exact, [[place]], objective) for place in range(4)]
    for span, members in enumerate(([0, 1, 2, 3], [1, 3])):
        for name in ("shares", "bias", "values"):
            expected = sum(getattr(alone[place], name)[0] for place in members)
            torch.testing.assert_close(getattr(together, name)[span], expected, rtol=1e-9, atol=1e-11)


def test_rows_of_a_table_are_what_they_are_alone_however_many_go_together(
    exact: ns.Analyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = spans(exact, [[place] for place in range(4)])
    monkeypatch.setattr("normscope.explain.spans._BYTES_AT_ONCE", 1)
    one_by_one = spans(exact, [[place] for place in range(4)])
    torch.testing.assert_close(table.shares, one_by_one.shares, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(table.bias, one_by_one.bias, rtol=1e-12, atol=1e-13)
    recaptured = spans(exact, [[place] for place in range(4)], max_memory=1)
    torch.testing.assert_close(table.shares, recaptured.shares, rtol=1e-12, atol=1e-13)


# ---- the definitions ---------------------------------------------------------------------------------------------------


def test_shares_and_bias_are_those_of_the_definitions(exact: ns.Analyzer) -> None:
    parts, bias = oracle_parts(exact)
    logits = logits_of(exact)
    torch.testing.assert_close(parts.sum(1) + bias, logits, rtol=1e-7, atol=1e-8)
    found = spans(exact, [[0, 2, 3]])
    expected = sum(parts[OUTPUTS[place].row, :, OUTPUTS[place].label] for place in (0, 2, 3))
    torch.testing.assert_close(found.shares[0], expected, rtol=1e-7, atol=1e-9)
    constant = sum(bias[OUTPUTS[place].row, OUTPUTS[place].label] for place in (0, 2, 3))
    torch.testing.assert_close(found.bias[0], constant, rtol=1e-7, atol=1e-9)


def test_a_centred_logit_is_what_its_parts_are_above_their_mean(exact: ns.Analyzer) -> None:
    parts, bias = oracle_parts(exact)
    logits = logits_of(exact)
    found = spans(exact, [[1, 2]], "centred")
    share, constant, value = torch.zeros(len(IDS), dtype=torch.float64), 0.0, 0.0
    for place in (1, 2):
        row, label = OUTPUTS[place].row, OUTPUTS[place].label
        chances = logits[row].softmax(-1)
        share += parts[row, :, label] - parts[row] @ chances
        constant += float(bias[row, label] - bias[row] @ chances)
        value += float(logits[row, label] - logits[row] @ chances)
    torch.testing.assert_close(found.shares[0], share, rtol=1e-7, atol=1e-9)
    assert float(found.bias[0]) == pytest.approx(constant, abs=1e-9)
    assert float(found.values[0]) == pytest.approx(value, abs=1e-9)
    assert float(found.shares[0].sum() + found.bias[0]) == pytest.approx(value, abs=1e-8)


def test_a_contrast_is_the_difference_of_two_logits(exact: ns.Analyzer) -> None:
    parts, bias = oracle_parts(exact)
    outputs = [Output(4, 8), Output(5, 21, against=13)]
    found = pull_back_spans(exact, read_ids(IDS, None), outputs, [[1]], "contrast", PullRequest())
    torch.testing.assert_close(found.shares[0], parts[5, :, 21] - parts[5, :, 13], rtol=1e-7, atol=1e-9)
    assert float(found.bias[0]) == pytest.approx(float(bias[5, 21] - bias[5, 13]), abs=1e-9)


def test_probabilities_are_the_models_own(exact: ns.Analyzer) -> None:
    chances = logits_of(exact).softmax(-1)
    expected = [float(chances[each.row, each.label]) for each in OUTPUTS]
    assert spans(exact, [[0]]).probabilities.tolist() == pytest.approx(expected, rel=1e-5)


def test_later_tokens_have_no_share(exact: ns.Analyzer) -> None:
    table = spans(exact, [[place] for place in range(4)], "centred").shares
    for row, output in zip(table, OUTPUTS, strict=True):
        assert not row[output.row + 1 :].any()


def test_an_empty_span_is_refused(exact: ns.Analyzer) -> None:
    with pytest.raises(ns.SelectionError, match="at least one token"):
        spans(exact, [[0], []])


# ---- heads -------------------------------------------------------------------------------------------------------------


def test_centred_targets_of_a_head_are_their_logits_above_the_mean() -> None:
    trace = traces_of(tiny_head("llama", "LlamaForCausalLM"), torch.float64)[0]
    targets = [Target(2, {4: 1.0}, centred=True), Target(5, {3: 2.0}, centred=True), Target(1, {7: 1.0})]
    pulled = pull_back_head(trace, targets)
    logits = trace.logits.double()
    means = (logits.softmax(-1) * logits).sum(-1)
    expected = torch.stack([logits[2, 4] - means[2], 2 * (logits[5, 3] - means[5]), logits[1, 7]])
    torch.testing.assert_close(values_of(trace, targets).double(), expected)
    torch.testing.assert_close(pulled.relevance(trace.states).sum(-1) + pulled.bias, values_of(trace, targets))


def test_the_soft_cap_of_gemma_is_part_of_a_centred_logit() -> None:
    trace = traces_of(tiny_head("gemma2", "Gemma2ForCausalLM", final_logit_softcapping=0.5))[0]
    targets = [Target(row, {label: 1.0}, centred=True) for row in (0, 3) for label in (2, 9)]
    pulled = pull_back_head(trace, targets)
    torch.testing.assert_close(
        pulled.relevance(trace.states).sum(-1) + pulled.bias, values_of(trace, targets), rtol=1e-4, atol=1e-5
    )


def test_labels_that_a_model_rules_out_do_not_spoil_a_centred_logit() -> None:
    model = tiny_head("marian", "MarianMTModel")
    model.final_logits_bias[0, 7] = -torch.inf
    trace = traces_of(model)[0]
    targets = [Target(0, {6: 1.0}, centred=True), Target(2, {3: 1.0}, centred=True)]
    pulled, values = pull_back_head(trace, targets), values_of(trace, targets)
    assert bool(values.isfinite().all())
    torch.testing.assert_close(pulled.relevance(trace.states).sum(-1) + pulled.bias, values, rtol=1e-4, atol=1e-4)


def test_an_output_matrix_in_half_precision_is_weighed_by_all_its_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normscope.pullback.head._ROWS_AT_ONCE", 7)
    trace = traces_of(tiny_head("llama", "LlamaForCausalLM", torch.bfloat16))[0]
    targets = [Target(2, {4: 1.0}, centred=True), Target(5, {3: 1.0}, centred=True)]
    pulled = pull_back_head(trace, targets)
    error = (pulled.relevance(trace.states).sum(-1) + pulled.bias - values_of(trace, targets)).abs().max()
    assert error / trace.logits.abs().max() < 0.02


# ---- long inputs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [3, 100])
@pytest.mark.parametrize("objective", ["logit", "centred"])
def test_blocks_that_are_run_again_row_by_row_give_the_same_shares(
    exact: ns.Analyzer, monkeypatch: pytest.MonkeyPatch, rows: int, objective: str
) -> None:
    kept = spans(exact, [[0, 1, 2, 3], [2]], objective)
    monkeypatch.setattr("normscope.capture.ROWS_AT_ONCE", rows)
    monkeypatch.setattr("normscope.explain.streaming._FEWEST_ROWS", rows)
    monkeypatch.setattr("normscope.explain.streaming._WEIGHTS_AT_ONCE", 1)
    streamed = spans(exact, [[0, 1, 2, 3], [2]], objective, max_memory=1)
    for name in ("shares", "bias", "values", "probabilities"):
        torch.testing.assert_close(getattr(streamed, name), getattr(kept, name), rtol=1e-9, atol=1e-11)
    assert torch.equal(streamed.sinks, kept.sinks)


@pytest.mark.parametrize(
    ("model_type", "class_name", "changes"),
    [
        ("llama", "LlamaForCausalLM", {}),
        ("gemma2", "Gemma2ForCausalLM", {"final_logit_softcapping": 0.5}),
        ("mixtral", "MixtralForCausalLM", {}),
        ("gpt_neox", "GPTNeoXForCausalLM", {}),
    ],
)
def test_other_architectures_are_streamed_alike(
    monkeypatch: pytest.MonkeyPatch, model_type: str, class_name: str, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr("normscope.capture.ROWS_AT_ONCE", 3)
    monkeypatch.setattr("normscope.explain.streaming._FEWEST_ROWS", 3)
    monkeypatch.setattr("normscope.explain.streaming._WEIGHTS_AT_ONCE", 1)
    model = ns.load(tiny_head(model_type, class_name, **changes))
    kept, streamed = (spans(model, [[0, 1, 2, 3], [1]], "centred", max_memory=memory) for memory in (None, 1))
    scale = kept.shares.abs().max()
    torch.testing.assert_close(streamed.shares / scale, kept.shares / scale, rtol=0, atol=1e-5)
    torch.testing.assert_close(streamed.bias, kept.bias, rtol=1e-4, atol=1e-5)


def test_a_block_that_gives_out_something_else_when_it_is_run_again_is_refused() -> None:
    model = chat_analyzer()
    calls = 0

    def drifting(_: Any, __: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        return output + calls

    handle = model.model.transformer.h[1].mlp.register_forward_hook(drifting)
    try:
        with pytest.raises((ns.UnsupportedArchitectureError, ns.CompletenessError)):
            spans(model, [[0]], max_memory=1)
    finally:
        handle.remove()


def test_progress_counts_the_layers_on_the_way_back(exact: ns.Analyzer) -> None:
    told: list[tuple[int, int]] = []
    spans(exact, [[0]], max_memory=1, tell=lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3)]


# ---- other models ------------------------------------------------------------------------------------------------------


def test_an_encoder_decoder_shares_out_to_the_tokens_of_both_sides() -> None:
    model = ns.load(tiny("marian", AutoModelForSeq2SeqLM, **BART).double().eval())
    explanation = model.explain({"input_ids": [IDS]}, target=[8, 6, 9], objective="logit")
    target = read_target(read_ids([8, 6, 9], None), model.module, None, model.longest, closed=True)
    sequence = replace(read_ids(IDS, None), target=target)
    outputs = [Output(0, 8), Output(1, 6), Output(2, 9)]
    found = pull_back_spans(model, sequence, outputs, [[0, 1, 2]], "logit", PullRequest())
    expected = explanation.attribution.values[:3].sum(0)
    assert float(found.values[0]) == pytest.approx(sum(explanation.values[:3]))
    np.testing.assert_allclose(found.shares[0, : len(IDS)], expected[-len(IDS) :], atol=1e-9)
    np.testing.assert_allclose(found.shares[0, len(IDS) :], expected[:3], atol=1e-9)
    assert float(found.shares[0].sum() + found.bias[0]) == pytest.approx(float(found.values[0]))


def test_a_model_of_many_heads_and_shared_keys_is_explained_as_by_explain() -> None:
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=12,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=20,
    )
    model = ns.load(shaken(LlamaForCausalLM(config)))
    explanation = model.explain({"input_ids": [IDS[:5]]}, target=[8, 21, 6], objective="logit")
    sequence = read_ids([*IDS[:5], 8, 21], None)
    outputs = [Output(4, 8), Output(5, 21), Output(6, 6)]
    found = pull_back_spans(model, sequence, outputs, [[0, 1, 2]], "logit", PullRequest())
    scale = np.abs(explanation.attribution.values).max()
    np.testing.assert_allclose(found.shares[0], explanation.attribution.values.sum(0), atol=1e-5 * scale)
