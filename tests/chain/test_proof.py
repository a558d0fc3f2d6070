"""A model that does anything else than its description says gives no result at all, in any precision; an honest one does."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from support.tiny_architectures import EXPERTS, GROUPED, VARIANTS, ids, tiny
from support.tiny_heads import tiny_head
from torch import Tensor, nn

import normscope as ns

IDS = {"input_ids": torch.tensor([[5, 9, 7, 30, 12, 8, 21]])}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
IN_EVERY_PRECISION = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))

Change = Callable[[Tensor], Tensor]


# ---- the models, and where their parts are -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A tiny model with a head, and the paths of its parts: of a block in the middle, and of the head."""

    model_type: str
    class_name: str
    block: str
    values: str
    attention: str
    feed_forward: str
    head: tuple[str, ...]
    asked: dict[str, Any]


BERT = ("bert.encoder.layer.1", "attention.self.value", "attention.output.dense", "output.dense")
DECODED: dict[str, Any] = {"target": [6, 7, 8, 9]}
SUBJECTS = {
    "bert": Subject("bert", "BertForMaskedLM", *BERT, ("cls.predictions.transform.dense",), {"at": 2}),
    "classifier": Subject("bert", "BertForSequenceClassification", *BERT, ("bert.pooler.dense", "classifier"), {}),
    "llama": Subject(
        *("llama", "LlamaForCausalLM", "model.layers.1", "self_attn.v_proj", "self_attn", "mlp"),
        *(("model.norm", "lm_head"), {}),
    ),
    "gpt2": Subject(
        *("gpt2", "GPT2LMHeadModel", "transformer.h.1", "attn.c_attn", "attn", "mlp"),
        *(("transformer.ln_f", "lm_head"), {}),
    ),
    "decoder of mBART": Subject(
        *("mbart", "MBartForConditionalGeneration", "model.decoder.layers.1", "encoder_attn.v_proj", "encoder_attn"),
        *("fc2", ("model.decoder.layer_norm", "lm_head"), DECODED),
    ),
    "encoder of T5": Subject(
        *("t5", "T5ForConditionalGeneration", "encoder.block.1", "layer.0.SelfAttention.v", "layer.0.SelfAttention"),
        *("layer.1.DenseReluDense", ("encoder.final_layer_norm", "decoder.final_layer_norm"), DECODED),
    ),
}
EVERY_SUBJECT = pytest.mark.parametrize("name", SUBJECTS)


@cache
def analyzer_of(name: str, dtype: torch.dtype) -> ns.Analyzer:
    subject = SUBJECTS[name]
    return ns.load(tiny_head(subject.model_type, subject.class_name, dtype, spread=0.25))


@contextmanager
def changed(model: nn.Module, path: str, change: Change) -> Generator[None]:
    """Let a module give out something else."""

    def hook(_: nn.Module, __: Any, output: Any) -> Any:
        return change(output) if isinstance(output, Tensor) else (change(output[0]), *output[1:])

    handle = model.get_submodule(path).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def of_one_token(factor: float) -> Change:
    """One token's row times a factor."""

    def change(output: Tensor) -> Tensor:
        output = output.clone()
        output[:, 2] *= factor
        return output

    return change


def of_the_token_before(output: Tensor) -> Tensor:
    return output.roll(1, dims=1)


def values_of_the_token_before(output: Tensor) -> Tensor:
    """Of fused queries, keys and values, the values alone."""
    queries, keys, values = output.chunk(3, dim=-1)
    return torch.cat([queries, keys, values.roll(1, dims=1)], dim=-1)


ATTACKS: dict[str, tuple[str, Change]] = {
    "the feed-forward of one token is zero": ("feed_forward", of_one_token(0)),
    "values are those of other tokens": ("values", of_the_token_before),
    "the value of one token is zero": ("values", of_one_token(0)),
    "attention times 1.3": ("attention", lambda output: 1.3 * output),
    "the block's output is that of other tokens": ("block", of_the_token_before),
    "the block's output of one token times 0.9": ("block", of_one_token(0.9)),
}


@contextmanager
def attacked(name: str, attack: str, dtype: torch.dtype) -> Generator[ns.Analyzer]:
    subject, analyzer = SUBJECTS[name], analyzer_of(name, dtype)
    part, change = ATTACKS[attack]
    if name == "gpt2" and change is of_the_token_before and part == "values":
        change = values_of_the_token_before
    path = subject.block if part == "block" else f"{subject.block}.{getattr(subject, part)}"
    with changed(analyzer.model, path, change):
        yield analyzer


# ---- the same for all ways to look at a model ----------------------------------------------------------------------------


def asked_of(analyzer: ns.Analyzer, name: str) -> dict[str, Callable[[], object]]:
    decoded = {"decoder_text": ids(*DECODED["target"])} if SUBJECTS[name].asked is DECODED else {}
    return {
        "analyze": lambda: analyzer.analyze(IDS, **decoded),
        "mixing ratios": lambda: analyzer.mixing_ratios(IDS, **decoded),
        "explain": lambda: analyzer.explain(IDS, **SUBJECTS[name].asked),
    }


@IN_EVERY_PRECISION
@EVERY_SUBJECT
def test_an_honest_model_is_analysed_and_explained(name: str, dtype: torch.dtype) -> None:
    for ask in asked_of(analyzer_of(name, dtype), name).values():
        assert ask() is not None


@IN_EVERY_PRECISION
@pytest.mark.parametrize("attack", ATTACKS)
@EVERY_SUBJECT
def test_a_block_that_does_something_else_gives_no_result(name: str, attack: str, dtype: torch.dtype) -> None:
    with attacked(name, attack, dtype) as analyzer:
        asked = asked_of(analyzer, name)
        if name == "encoder of T5":  # mixing ratios are those of the decoder
            del asked["mixing ratios"]
        for ask in asked.values():
            with pytest.raises(ns.CompletenessError, match="In layer 2 "):
                ask()


@IN_EVERY_PRECISION
@pytest.mark.parametrize("change", [of_the_token_before, lambda output: output + 0.5], ids=["rolled", "shifted"])
@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name, each in SUBJECTS.items() for path in each.head if name != "classifier"]
)
def test_a_head_that_does_something_else_gives_no_explanation(
    name: str, path: str, change: Change, dtype: torch.dtype
) -> None:
    analyzer = analyzer_of(name, dtype)
    with changed(analyzer.model, path, change), pytest.raises(ns.CompletenessError):
        analyzer.explain(IDS, **SUBJECTS[name].asked)


@IN_EVERY_PRECISION
@pytest.mark.parametrize("path", SUBJECTS["classifier"].head)
def test_a_classifier_that_does_something_else_gives_no_explanation(path: str, dtype: torch.dtype) -> None:
    analyzer = analyzer_of("classifier", dtype)
    with changed(analyzer.model, path, lambda output: 1.3 * output), pytest.raises(ns.CompletenessError):
        analyzer.explain(IDS)


@pytest.mark.parametrize("method", ["alti-logit", "decompx", "value-zeroing", "attention-rollout"])
def test_methods_that_explain_by_traces_ask_for_the_same_proof(method: str) -> None:
    attack = attacked("llama", "values are those of other tokens", torch.float32)
    with attack as analyzer, pytest.raises(ns.CompletenessError, match="the values of Attn"):
        analyzer.explain(IDS, method=method)


def test_selected_queries_and_blocks_of_rows_are_proved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normscope.passes.LONG", 2)
    monkeypatch.setattr("normscope.capture.ROWS_AT_ONCE", 3)
    monkeypatch.setattr("normscope.capture._PAIRS_AT_ONCE", 3)
    with attacked("llama", "the value of one token is zero", torch.float32) as analyzer:
        for options in ({}, {"queries": [6]}, {"scopes": "AttnW"}):
            with pytest.raises(ns.CompletenessError, match="the values of Attn"):
                analyzer.analyze(IDS, **options)


def test_values_that_read_other_tokens_are_refused_by_all_ways_to_look_at_a_model() -> None:
    analyzer = analyzer_of("bert", torch.float32)
    values = analyzer.model.get_submodule("bert.encoder.layer.1.attention.self.value")
    handle = values.register_forward_pre_hook(lambda _, given: (given[0].roll(1, dims=1),))
    try:
        for ask in asked_of(analyzer, "bert").values():
            with pytest.raises(ns.UnsupportedArchitectureError, match="does not read what its family says"):
                ask()
    finally:
        handle.remove()


def test_a_cross_attention_that_reads_other_tokens_than_its_block_is_given_is_refused() -> None:
    analyzer = analyzer_of("decoder of mBART", torch.float32)
    values = analyzer.model.get_submodule("model.decoder.layers.1.encoder_attn.v_proj")
    handle = values.register_forward_pre_hook(lambda _, given: (given[0].roll(1, dims=1),))
    try:
        with pytest.raises(ns.UnsupportedArchitectureError, match="does not read what its family says"):
            analyzer.analyze(IDS, decoder_text=ids(6, 7))
    finally:
        handle.remove()


def test_a_decoder_that_reads_other_states_than_the_encoder_gives_out_is_not_explained() -> None:
    analyzer = analyzer_of("decoder of mBART", torch.float32)
    encoder = analyzer.model.get_submodule("model.encoder")

    def roll(_: nn.Module, __: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state.roll(1, dims=1)
        return output

    handle = encoder.register_forward_hook(roll)
    try:
        with pytest.raises(ns.CompletenessError, match="What the decoder reads is not what the end of the encoder"):
            analyzer.explain(IDS, **DECODED)
    finally:
        handle.remove()


def test_what_is_too_small_to_be_rounded_to_all_digits_is_no_difference() -> None:
    model = tiny_head("bert", "BertForMaskedLM", torch.float16, spread=0.002)
    assert ns.load(model).analyze(IDS).layers == [1, 2]


def test_clipped_values_are_proved_as_they_are_clipped() -> None:
    analyzer = ns.load(tiny("olmoe", **{**GROUPED, **EXPERTS}, clip_qkv=0.1))
    assert analyzer.analyze(IDS).layers == [1, 2]
    attack = changed(analyzer.model, "layers.1.self_attn.v_proj", of_the_token_before)
    with attack, pytest.raises(ns.CompletenessError, match="the values of Attn"):
        analyzer.analyze(IDS)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("model_type", "changes"), VARIANTS, ids=[f"{name}-{place}" for place, (name, _) in enumerate(VARIANTS)]
)
def test_rounding_is_no_difference_in_any_architecture(
    model_type: str, changes: dict[str, Any], dtype: torch.dtype
) -> None:
    model = tiny(model_type, **changes).to(dtype).eval()
    if hasattr(
        model, "set_experts_implementation"
    ):  # the grouped product of experts wants other sizes in half precision
        model.set_experts_implementation("eager")
    analyzer = ns.load(model)
    encoded = {"decoder_text": ids(6, 7, 8)} if analyzer.family.encoder is not None else {}
    given = {"pixel_values": torch.randn(1, 3, 12, 12)} if analyzer.family.reads == "image" else IDS
    assert analyzer.mixing_ratios(given, **encoded) is not None


# ---- numbers that are none -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["pull-back", "gradient-norm", "gradient-x-input", "leave-one-out", "random", "decompx"]
)
@pytest.mark.parametrize("infinite", ["model.layers.1.mlp.down_proj", "model.layers.0.self_attn.k_proj"])
def test_infinite_weights_give_no_explanation_by_any_method(method: str, infinite: str) -> None:
    model = tiny_head("llama", "LlamaForCausalLM", torch.float32)
    with torch.no_grad():
        model.get_submodule(infinite).weight[1, 2] = torch.inf
    with pytest.raises(ns.NormscopeError):
        ns.load(model).explain(IDS, method=method)


def test_a_token_that_cannot_be_left_out_still_has_no_share() -> None:
    explanation = analyzer_of("llama", torch.float32).explain(IDS, method="leave-one-out", at=0)
    assert bool(explanation.attribution.isnull().any())
