"""A model that does anything else than its description says gives no result at all, in any precision; an honest one does."""

from __future__ import annotations

import functools
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
from torch.nn.modules.module import register_module_forward_hook

import normscope as ns
from normscope.capture import hooks
from normscope.chain.rounding import Computed

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
    """Let a module output something else."""

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


@pytest.mark.parametrize("look", ["analyze", "mixing ratios", "explain"])
def test_a_decoder_that_reads_other_states_than_the_encoder_gives_out_gives_no_result(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_refuse_global_hooks", lambda _: None)  # which is refused before anything is proved
    analyzer = analyzer_of("decoder of mBART", torch.float32)
    encoder = analyzer.model.get_submodule("model.encoder")

    def roll(module: nn.Module, _: Any, output: Any) -> Any:
        if module is encoder:
            output.last_hidden_state = output.last_hidden_state.roll(1, dims=1)
        return output

    handle = register_module_forward_hook(roll)  # on all modules: none has a hook of its own
    try:
        with pytest.raises(ns.CompletenessError, match="What the decoder reads is not what the end of the encoder"):
            asked_of(analyzer, "decoder of mBART")[look]()
    finally:
        handle.remove()


@pytest.mark.parametrize("look", ["analyze", "mixing ratios"])
def test_layers_that_read_different_states_of_the_encoder_give_no_map(look: str) -> None:
    analyzer = analyzer_of("decoder of mBART", torch.float32)
    layer = analyzer.model.get_submodule("model.decoder.layers.1")

    def roll(_: nn.Module, args: Any, kwargs: Any) -> Any:
        return (args[0], args[1], args[2].roll(1, dims=1), *args[3:]), kwargs

    handle = layer.register_forward_pre_hook(roll, with_kwargs=True)
    try:
        with pytest.raises(ns.UnsupportedArchitectureError, match=r"Layer 2 .* reads other states of the encoder than"):
            asked_of(analyzer, "decoder of mBART")[look]()
    finally:
        handle.remove()


# ---- states that are not those of their tokens ---------------------------------------------------------------------------


EMBEDDINGS = {
    "bert": ("bert.embeddings", "bert.embeddings.word_embeddings"),
    "llama": ("model.embed_tokens", "model.embed_tokens"),
    "gpt2": ("transformer.drop", "transformer.wte"),
    "decoder of mBART": ("model.decoder.layernorm_embedding", "model.encoder.embed_tokens"),
}
"""The module whose output enters the first block (or a stack's), and the table of a stack that reads the ids."""


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embeddings_of_other_tokens_give_no_result(name: str) -> None:
    analyzer = analyzer_of(name, torch.float32)
    leaving, reading = (analyzer.model.get_submodule(path) for path in EMBEDDINGS[name])

    def roll_in_place(_: nn.Module, __: Any, output: Tensor) -> None:
        output.copy_(output.roll(1, dims=1))

    def by(method: str) -> Callable[[], object]:
        return lambda: analyzer.explain(IDS, method=method, **SUBJECTS[name].asked)

    asked = [*asked_of(analyzer, name).values(), *map(by, ("gradient-x-input", "leave-one-out"))]
    for register in (
        lambda: leaving.register_forward_hook(lambda _, __, output: output.roll(1, dims=1)),
        lambda: leaving.register_forward_hook(roll_in_place),
        lambda: reading.register_forward_pre_hook(lambda _, given: (given[0].roll(1, dims=1),)),
    ):
        handle = register()
        try:
            for ask in asked:
                with pytest.raises(ns.CompletenessError, match=r"a hook changes the input or output of '.*'"):
                    ask()
        finally:
            handle.remove()


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2"])
def test_a_forward_pass_outside_of_the_blocks_that_was_replaced_gives_no_result(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyzer = analyzer_of(name, torch.float32)
    module = analyzer.model.get_submodule(EMBEDDINGS[name][0])
    own, of_class = module.forward, type(module).forward

    @functools.wraps(of_class)
    def rolled(_: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
        return own(*args, **kwargs).roll(1, dims=1)

    for target, forward in ((module, functools.partial(rolled, module)), (type(module), rolled)):
        with monkeypatch.context() as patch:
            patch.setattr(target, "forward", forward)
            for ask in asked_of(analyzer, name).values():
                with pytest.raises(ns.ModelError, match=r"the forward pass of '.*' is .*rolled and not that of"):
                    ask()


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "decoder of mBART"])
def test_states_that_change_between_two_blocks_give_no_result(name: str) -> None:
    analyzer = analyzer_of(name, torch.float32)
    block = analyzer.model.get_submodule(SUBJECTS[name].block)

    def roll(_: nn.Module, args: Any, kwargs: Any) -> Any:
        return (args[0].roll(1, dims=1), *args[1:]), kwargs

    def roll_in_place(_: nn.Module, args: Any) -> None:
        args[0].copy_(args[0].roll(1, dims=1))

    for handle in (
        lambda: block.register_forward_pre_hook(roll, with_kwargs=True),
        lambda: block.register_forward_pre_hook(roll_in_place),
    ):
        hook = handle()
        try:
            for ask in asked_of(analyzer, name).values():
                with pytest.raises(
                    ns.UnsupportedArchitectureError, match="What enters layer 2 is not what leaves layer 1"
                ):
                    ask()
        finally:
            hook.remove()


def test_hooks_that_change_nothing_are_no_concern() -> None:
    analyzer = analyzer_of("bert", torch.float32)
    expected = analyzer.analyze(IDS).map("AttnW")
    modules = [analyzer.model.get_submodule(path) for path in ("bert", "bert.embeddings", "bert.encoder")]
    seen: list[Any] = []
    handles = [module.register_forward_hook(lambda _, __, output: seen.append(output)) for module in modules]
    handles += [module.register_forward_pre_hook(lambda _, given: seen.append(given)) for module in modules]
    try:
        assert analyzer.analyze(IDS).map("AttnW").equals(expected)
        assert seen
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("path", ["model.layers.0.mlp", "model.layers.0.mlp.down_proj"])
def test_one_number_that_is_all_of_a_wide_state_is_not_lost_among_the_others(path: str, dtype: torch.dtype) -> None:
    sizes = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 16}
    model = tiny_head("llama", "LlamaForCausalLM", dtype, hidden_size=9216, num_hidden_layers=1, **sizes)
    with torch.no_grad():
        model.get_submodule("model.layers.0.mlp.down_proj").weight[7] *= 200
    analyzer = ns.load(model)
    assert analyzer.mixing_ratios(IDS) is not None

    def without_the_largest(output: Tensor) -> Tensor:
        return output.index_fill(-1, torch.tensor([7]), 0.0)

    with changed(model, path, without_the_largest):
        for ask in (analyzer.mixing_ratios, analyzer.explain):
            with pytest.raises(ns.CompletenessError, match="In layer 1 the state after"):
                ask(IDS)


def test_rows_of_zeros_and_of_the_largest_and_smallest_numbers_are_compared() -> None:
    for size in (0.0, 1e-38, 1e37):
        states = torch.full((2, 6), size)
        assert Computed.from_model(states).error(states, torch.finfo(torch.float32).tiny).tolist() == [[0.0], [0.0]]
    halved = Computed.from_model(torch.full((1, 6), 1e37)).error(torch.full((1, 6), 5e36), 1e-38)
    torch.testing.assert_close(halved, torch.full((1, 1), 0.5))


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
