"""Logits pulled back through every task head, against the model's own logits and against the definitions in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.tiny_heads import NOT_DESCRIBED, cases, head_classes, inputs_of, tiny_head
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    BertForSequenceClassification,
    BertPreTrainedModel,
    LlamaForCausalLM,
    PreTrainedModel,
)

import normscope as ns
from normscope.capture.heads import HeadListener, capture_head
from normscope.chain.activations import GELU, by_secant
from normscope.chain.head_trace import Activate, HeadTrace, Pick, Target
from normscope.chain.trace import Linear
from normscope.families import Family, family_of, supported_models
from normscope.families.heads import Head, encoder_end, head_of, heads, labels_of
from normscope.families.heads.spec import LinearPart, TokenAt
from normscope.families.spec import FixedLayerNormPart, LayerNormPart, NormPart, UnitRmsNormPart
from normscope.pullback import pull_back_end, pull_back_head, values_of
from normscope.testing import assert_head
from normscope.testing.inputs import head_inputs
from pullback.head_oracle import parts_of_logits

CASES = list(cases())
FLOAT32_LOGITS = ("Mamba2ForCausalLM", "MambaForCausalLM", "FalconMambaForCausalLM", "NemotronHForCausalLM")
"""They output logits in float32 whatever the weights are."""
EVERY_HEAD = pytest.mark.parametrize(
    ("model_type", "class_name", "changes"),
    CASES,
    ids=[f"{name}({changes or model_type})" for model_type, name, changes in CASES],
)

# ---- every head ------------------------------------------------------------------------------------------------------


@EVERY_HEAD
def test_the_logits_of_every_head_add_up_from_its_tokens_and_its_bias(
    model_type: str, class_name: str, changes: dict[str, Any]
) -> None:
    model = tiny_head(model_type, class_name, **changes)
    assert_head(model, *inputs_of(model))


@EVERY_HEAD
def test_every_token_contributes_to_a_logit_what_the_definitions_say(
    model_type: str, class_name: str, changes: dict[str, Any]
) -> None:
    trace = exact_trace(tiny_head(model_type, class_name, torch.float64, **changes))
    truth = parts_of_logits(trace)
    tolerance = 1e-6 if class_name in FLOAT32_LOGITS else 1e-9
    assert_close(truth.state, trace.logits, tolerance)
    rows, labels = trace.logits.shape
    targets = [Target(row, {label: 1.0}) for row in {0, rows - 1} for label in {0, labels // 2, labels - 1}]
    pulled = pull_back_head(trace, targets)
    for target, relevance, bias in zip(targets, pulled.relevance(trace.states), pulled.bias, strict=True):
        (label,) = target.weights
        assert_close(relevance, truth.of_tokens[:, target.row, label], 1e-9)
        assert_close(relevance.sum() + bias, trace.logits[target.row, label], tolerance)


def test_every_class_with_a_task_head_that_transformers_lists_is_described() -> None:
    listed = {name for model_type in supported_models() for name in head_classes(model_type)}
    assert sorted(listed - set(heads())) == sorted(NOT_DESCRIBED)


def exact_trace(model: PreTrainedModel) -> HeadTrace:
    """The trace of one sequence, the norms of the head computed in float64.

    Root-mean-square norms of transformers compute in float32 whatever the model's dtype is, which costs its own logits
    more digits than are compared here.
    """
    family, head = family_of(model.config.model_type), head_of(model)
    inputs, lengths = inputs_of(model)
    if inputs is None or lengths is None:
        inputs, lengths = head_inputs(family, head, model)
    cached = {"use_cache": False} if family.stack.causal or head.task == "causal-lm" else {}
    handles = [handle for part in head.parts for handle in made_exact(model, part)]
    first = {name: tensor[:, :1] if head.task == "multiple-choice" else tensor[:1] for name, tensor in inputs.items()}
    torch.set_default_dtype(torch.float64)  # XGLM makes the smallest number of its mask in the default dtype
    try:
        return capture_head(model, family, {**first, **cached}, lengths[:1], dtype=torch.float64)[0]
    finally:
        torch.set_default_dtype(torch.float32)
        for handle in handles:
            handle.remove()


def made_exact(model: PreTrainedModel, part: Any) -> Iterator[Any]:
    """A hook by which a norm outputs what it would, with every step of it in the dtype of its input."""
    if not isinstance(part, NormPart):
        return
    module = model.get_submodule(part.module)
    if isinstance(module, nn.LayerNorm):
        return

    def exactly(module: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        centred = isinstance(part, LayerNormPart | FixedLayerNormPart)
        states = args[0] - args[0].mean(-1, keepdim=True) if centred else args[0]
        epsilon = getattr(part, "epsilon", getattr(module, "variance_epsilon", getattr(module, "eps", None)))
        weight = getattr(module, "weight", 1) + (1 if isinstance(part, UnitRmsNormPart) else 0)
        exact = states * (states.square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight
        assert_close(output.nan_to_num(), exact.nan_to_num(), 1e-5)
        return exact

    yield module.register_forward_hook(exactly)


def assert_close(value: Tensor, truth: Tensor, tolerance: float) -> None:
    scale = truth.abs().max().clamp(min=0.1)
    assert float((value - truth).abs().max() / scale) <= tolerance


# ---- targets ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def trace() -> HeadTrace:
    return traces_of(tiny_head("llama", "LlamaForCausalLM"))[0]


def traces_of(model: PreTrainedModel, dtype: torch.dtype = torch.float32) -> list[HeadTrace]:
    family, head = family_of(model.config.model_type), head_of(model)
    inputs, lengths = head_inputs(family, head, model)
    return capture_head(model, family, inputs, lengths, dtype=dtype)


def test_a_target_is_any_combination_of_the_labels_of_a_row(trace: HeadTrace) -> None:
    targets = [Target(2, {4: 1.0, 9: -1.0}), Target(5, {0: 0.25, 3: 0.5, 30: 2.0})]
    pulled = pull_back_head(trace, targets)
    value = trace.logits[2, 4] - trace.logits[2, 9]
    torch.testing.assert_close(pulled.relevance(trace.states).sum(-1)[0] + pulled.bias[0], value)
    torch.testing.assert_close(pulled.relevance(trace.states).sum(-1) + pulled.bias, values_of(trace, targets))


def test_targets_together_are_what_they_are_alone(trace: HeadTrace) -> None:
    targets = [Target(row, {label: 1.0, label + 7: -0.5}) for row in range(4) for label in range(4)]
    together = pull_back_head(trace, targets)
    for index, target in enumerate(targets):
        alone = pull_back_head(trace, [target])
        torch.testing.assert_close(together.covector[index], alone.covector[0])
        torch.testing.assert_close(together.bias[index], alone.bias[0])


def test_a_language_model_reads_a_logit_off_one_token(trace: HeadTrace) -> None:
    pulled = pull_back_head(trace, [Target(3, {1: 1.0})])
    assert pulled.tokens.tolist() == [3]
    assert pulled.covector.shape == (1, *trace.states.shape)
    assert pulled.covector[0].any(-1).nonzero().flatten().tolist() == [3]


def test_of_the_output_matrix_only_the_rows_that_are_asked_for_are_touched(trace: HeadTrace) -> None:
    matrix = trace.steps[-1]
    assert isinstance(matrix, Linear)
    poisoned = torch.full_like(matrix.weight, torch.nan)
    poisoned[[4, 9]] = matrix.weight[[4, 9]]
    targets = [Target(2, {4: 1.0, 9: -1.0})]
    damaged = HeadTrace(trace.states, (*trace.steps[:-1], Linear(poisoned)), trace.logits)
    assert torch.equal(pull_back_head(damaged, targets).covector, pull_back_head(trace, targets).covector)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "No target was given"),
        ([Target(9, {0: 1.0})], "Row 9 of the logits was requested; there are 9"),
        ([Target(-1, {0: 1.0})], "Row -1"),
        ([Target(0, {})], "names no label"),
        ([Target(0, {50: 1.0})], "Label 50 was requested; there are 50, from 0 to 49"),
    ],
)
def test_a_target_that_does_not_exist_is_refused(trace: HeadTrace, targets: list[Target], message: str) -> None:
    with pytest.raises(ns.SelectionError, match=message):
        pull_back_head(trace, targets)


def test_a_label_that_the_model_rules_out_is_refused() -> None:
    model = tiny_head("marian", "MarianMTModel")
    model.final_logits_bias[0, 7] = -torch.inf
    captured = traces_of(model)[0]
    pull_back_head(captured, [Target(0, {6: 1.0})])
    with pytest.raises(ns.SelectionError, match=r"label 7 at row 0 is -inf.*rules this label out"):
        pull_back_head(captured, [Target(0, {7: 1.0})])


def test_an_activation_that_is_not_zero_at_zero_gives_to_the_bias() -> None:
    sigmoid = by_secant("sigmoid", nn.Sigmoid())
    states = torch.zeros(1, 2, dtype=torch.float64)
    steps = (Activate(sigmoid, states), Linear(torch.eye(2, dtype=torch.float64)))
    pulled = pull_back_head(HeadTrace(states, steps, torch.full((1, 2), 0.5)), [Target(0, {0: 1.0})])
    assert pulled.bias.tolist() == [0.5]


def test_a_mean_reads_every_token() -> None:
    states = torch.randn(4, 3)
    pick = Pick(torch.arange(4)[None], torch.full((1, 4), 0.25))
    matrix = Linear(torch.randn(2, 3), torch.randn(2))
    logits = states.mean(0, keepdim=True) @ matrix.weight.T + matrix.bias
    pulled = pull_back_head(HeadTrace(states, (pick, matrix), logits), [Target(0, {1: 1.0})])
    torch.testing.assert_close(pulled.covector[0], (matrix.weight[1] / 4).expand(4, 3))


def test_logits_that_come_out_of_no_matrix_are_refused() -> None:
    states = torch.randn(2, 3)
    with pytest.raises(ns.HeadError, match="out of no matrix"):
        pull_back_head(HeadTrace(states, (Activate(GELU, states),), GELU.function(states)), [Target(0, {0: 1.0})])


# ---- capture ---------------------------------------------------------------------------------------------------------


def test_the_output_matrix_of_a_half_precision_model_is_not_converted() -> None:
    model = tiny_head("llama", "LlamaForCausalLM", torch.bfloat16)
    assert isinstance(model, LlamaForCausalLM)
    captured = traces_of(model)[0]
    matrix = captured.steps[-1]
    assert isinstance(matrix, Linear)
    assert captured.states.dtype == torch.float32
    assert matrix.weight.data_ptr() == model.lm_head.weight.data_ptr()
    targets = [Target(2, {4: 1.0}), Target(5, {3: 1.0})]
    pulled = pull_back_head(captured, targets)
    error = (pulled.relevance(captured.states).sum(-1) + pulled.bias - values_of(captured, targets)).abs().max()
    assert error / captured.logits.abs().max() < 0.02


def test_a_listener_hears_a_pass_that_is_not_its_own_and_leaves_it_as_it_is() -> None:
    model = tiny_head("gpt2", "GPT2LMHeadModel")
    ids = torch.tensor([[5, 6, 7, 8]])
    listener = HeadListener(model, family_of("gpt2"), [4], dtype=torch.float32)
    with pytest.raises(ns.HeadError, match="was not reached"):
        listener.traces()
    with torch.no_grad():
        plain = model(ids).logits
        handles = listener.hook()
        heard = model(ids, return_dict=False)
        for handle in handles:
            handle.remove()
    assert torch.equal(heard.logits, plain)
    assert torch.equal(listener.traces()[0].logits, plain[0])


def test_hooks_are_removed_when_a_pass_fails() -> None:
    model = tiny_head("bert", "BertForMaskedLM").train()
    with pytest.raises(IndexError):
        capture_head(model, family_of("bert"), {"input_ids": torch.tensor([[4000]])}, [1], dtype=torch.float32)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.training


@pytest.mark.parametrize(
    ("model_type", "class_name"),
    [
        ("t5", "T5ForConditionalGeneration"),
        ("mbart", "MBartForConditionalGeneration"),
        ("bart", "BartForQuestionAnswering"),
    ],
)
def test_covectors_at_what_a_decoder_reads_go_back_through_the_end_of_the_encoder(
    model_type: str, class_name: str
) -> None:
    model, family = tiny_head(model_type, class_name), family_of(model_type)
    inputs, lengths = head_inputs(family, head_of(model), model)
    sources = inputs["attention_mask"].sum(-1).tolist()
    listener = HeadListener(model, family, lengths, dtype=torch.float32, encoder_lengths=sources)
    with torch.no_grad():
        handles = listener.hook()
        read = model(**inputs, use_cache=False).encoder_last_hidden_state
        for handle in handles:
            handle.remove()
    for sequence, end in enumerate(listener.encoder_ends()):
        covector = torch.randn(3, sources[sequence], read.shape[-1])
        pulled, bias = pull_back_end(end, covector)
        truth = (covector * read[sequence, : sources[sequence]]).sum((1, 2))
        torch.testing.assert_close((pulled * end.states).sum((1, 2)) + bias, truth, rtol=1e-4, atol=1e-4)


def test_an_encoder_whose_end_is_not_described_is_refused() -> None:
    family = family_of("t5")
    with pytest.raises(ns.HeadError, match=r"encoder of the family 'mine' is not described.*bart, .*mbart, .*t5"):
        encoder_end(Family("mine", ("mine",), family.stack, encoder=family.encoder))


@pytest.mark.parametrize("summary", ["last", "mean", "cls_index"])
def test_a_head_that_would_read_padding_is_refused_and_works_alone(summary: str) -> None:
    model, family = tiny_head("electra", "ElectraForMultipleChoice", summary_type=summary), family_of("electra")
    inputs, lengths = head_inputs(family, head_of(model), model)
    with pytest.raises(ns.HeadError, match=r"which is padding\. Run this sequence alone"):
        capture_head(model, family, inputs, lengths, dtype=torch.float32)
    assert_head(model, {"input_ids": inputs["input_ids"][:, :1]}, lengths[:1])


def test_a_token_found_by_its_id_needs_ids() -> None:
    model, family = tiny_head("gpt2", "GPT2ForSequenceClassification"), family_of("gpt2")
    (captured,) = capture_head(model, family, {"inputs_embeds": torch.randn(1, 5, 24)}, [5], dtype=torch.float32)
    assert pull_back_head(captured, [Target(0, {0: 1.0})]).tokens.tolist() == [4]


def test_a_classifier_reads_the_last_token_that_is_not_padding_by_its_id() -> None:
    model, family = tiny_head("gpt2", "GPT2ForSequenceClassification"), family_of("gpt2")
    ids = torch.tensor([[5, 6, 7, model.config.pad_token_id]])
    (captured,) = capture_head(model, family, {"input_ids": ids}, [4], dtype=torch.float32)
    assert pull_back_head(captured, [Target(0, {0: 1.0})]).tokens.tolist() == [2]
    assert_head(model, {"input_ids": ids}, [4])


# ---- heads as data ---------------------------------------------------------------------------------------------------


def test_labels_are_those_of_the_configuration_or_of_the_task() -> None:
    classifier = tiny_head("bert", "BertForSequenceClassification", id2label={0: "no", 1: "maybe", 2: "yes"})
    assert labels_of(classifier) == ("no", "maybe", "yes")
    assert labels_of(tiny_head("bert", "BertForQuestionAnswering")) == ("start", "end")
    assert labels_of(tiny_head("bert", "BertForMaskedLM")) is None


@pytest.mark.parametrize("model_type", ["bert", "llama", "t5", "vit"])
def test_a_bare_model_has_no_head(model_type: str) -> None:
    names = {"bert": "BertModel", "llama": "LlamaModel", "t5": "T5Model", "vit": "ViTModel"}
    with pytest.raises(ns.HeadError, match=f"{names[model_type]} is a bare model: it has no task head"):
        head_of(tiny_head(model_type, names[model_type]))


def test_an_unknown_head_is_refused_with_its_parts_and_can_be_described() -> None:
    class Sentiment(BertPreTrainedModel):
        """A bare BERT with a linear layer on its first token."""

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.bert = AutoModel.from_config(config)
            self.sentiment = nn.Linear(config.hidden_size, 2)
            self.unused = nn.LayerNorm(config.hidden_size)
            self.post_init()

        def forward(self, return_dict: bool = True, **inputs: Any) -> dict[str, Tensor]:
            return {"scores": self.sentiment(self.bert(**inputs).last_hidden_state[:, 0])}

    model = Sentiment(tiny_head("bert", "BertModel").config)
    with pytest.raises(
        ns.HeadError, match=r"head of Sentiment is not described.*bert \(BertModel\), sentiment \(Linear\)"
    ):
        head_of(model)
    head = Head("sequence-classification", (TokenAt(), LinearPart("sentiment")), ("scores",))
    ns.register_head(head, "Sentiment")
    assert_head(model)
    ns.register_head(Head("sequence-classification", (TokenAt(1), LinearPart("sentiment")), ("scores",)), "Sentiment")
    with pytest.raises(AssertionError, match="the logits of sequence 1 are off by"):
        assert_head(model)
    ns.register_head(Head("sequence-classification", (TokenAt(), LinearPart("sentiment"))), "Sentiment")
    with pytest.raises(ns.HeadError, match=r"has no output logits.*Its outputs: scores"):
        assert_head(model)
    ns.register_head(Head("sequence-classification", (LayerNormPart("feeling"),), ("scores",)), "Sentiment")
    with pytest.raises(ns.HeadError, match="Sentiment has no 'feeling'"):
        assert_head(model)
    ns.register_head(Head("sequence-classification", (LinearPart("feeling"),), ("scores",)), "Sentiment")
    with pytest.raises(ns.HeadError, match=r"LinearPart\(module='feeling'\) was not captured"):
        assert_head(model)
    ns.register_head(Head("sequence-classification", (LayerNormPart("unused"),), ("scores",)), "Sentiment")
    with pytest.raises(ns.HeadError, match=r"LayerNormPart\(module='unused'\) was not captured"):
        assert_head(model)


def test_a_subclass_has_the_head_of_its_parent() -> None:
    class Mine(BertForSequenceClassification):
        pass

    assert head_of(Mine(AutoConfig.for_model("bert", num_hidden_layers=1))).task == "sequence-classification"
