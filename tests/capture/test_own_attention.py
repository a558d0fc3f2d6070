"""Attention that is not that of transformers: what capture shows has to be what the model itself computes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.tiny_architectures import tiny as tiny_architecture
from support.tiny_models import tiny, token_ids
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations import flex_attention, sdpa_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert import modeling_bert

import normscope as ns

IDS = torch.tensor(token_ids(5))


@functools.wraps(sdpa_attention_forward)  # which also gives it the name of a function of transformers
def sharper(module: Any, query: Tensor, *rest: Any, **options: Any) -> Any:
    return sdpa_attention_forward(module, 3 * query, *rest, **options)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The functions of transformers in their places again."""
    mappings = (AttentionInterface._global_mapping, AttentionMaskInterface._global_mapping)
    before = [dict(mapping) for mapping in mappings]
    yield
    for mapping, own in zip(mappings, before, strict=True):
        mapping.clear()
        mapping.update(own)
    ALL_ATTENTION_FUNCTIONS._local_mapping.clear()


def assert_refused(model: Any, name: str) -> None:
    analyzer = ns.load(model)
    for ask in (
        lambda: analyzer.analyze(IDS, scopes="AttnW"),
        lambda: analyzer.mixing_ratios(IDS),
        lambda: analyzer.explain(IDS, direction="state", at=1),
    ):
        with pytest.raises(
            ns.ModelError, match=rf"uses the \S.* '{name}', which is .*set_attn_implementation\('eager'\)"
        ):
            ask()


def test_an_attention_function_of_somebody_else_is_refused() -> None:
    AttentionInterface.register("mine", sharper)
    AttentionMaskInterface.register("mine", sdpa_mask)
    for model in (tiny("bert"), tiny_architecture("llama")):
        model.set_attn_implementation("mine")
        assert_refused(model, "mine")
        model.set_attn_implementation("eager")
        assert ns.load(model).analyze(IDS, scopes="AttnW").map("AttnW").size


def test_an_attention_function_in_the_place_of_a_known_one_is_refused() -> None:
    model = tiny("bert", attention="sdpa")
    ns.load(model).analyze(IDS, scopes="AttnW")
    AttentionInterface.register("sdpa", sharper)
    assert_refused(model, "sdpa")


def test_an_attention_function_in_the_place_of_a_known_one_in_one_file_is_refused() -> None:
    ALL_ATTENTION_FUNCTIONS["sdpa"] = sharper
    assert_refused(tiny("bert", attention="sdpa"), "sdpa")


def test_a_partial_function_is_refused() -> None:
    AttentionInterface.register("sdpa", functools.partial(sdpa_attention_forward, scaling=3.0))
    assert_refused(tiny("bert", attention="sdpa"), "sdpa")


def test_a_function_that_is_registered_as_eager_is_refused() -> None:
    AttentionInterface.register("eager", sharper)
    assert_refused(tiny("bert", attention="eager"), "eager")


def test_a_mask_function_of_somebody_else_is_refused() -> None:
    def sees_all(*rest: Any, **options: Any) -> Any:
        return None

    AttentionMaskInterface.register("sdpa", sees_all)
    assert_refused(tiny_architecture("llama"), "sdpa")


def test_a_replaced_product_of_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.nn.functional.scaled_dot_product_attention

    def product(query: Tensor, *rest: Any, **options: Any) -> Tensor:
        return own(3 * query, *rest, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", product)
    assert_refused(tiny("bert", attention="sdpa"), "sdpa")


@pytest.mark.parametrize(
    ("implementation", "name"),
    [
        ("flex_attention", "compile_friendly_flex_attention"),
        ("flex_attention", "flex_attention"),
        ("flex_attention", "repeat_kv"),
        ("sdpa", "repeat_kv"),
    ],
)
def test_a_replaced_function_that_a_known_one_calls_is_refused(
    implementation: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = {"sdpa": sdpa_attention, "flex_attention": flex_attention}[implementation]
    own = getattr(module, name)

    @functools.wraps(own)
    def sharper_states(states: Tensor, *rest: Any, **options: Any) -> Any:
        return own(3 * states, *rest, **options)

    for model in (tiny("bert"), tiny_architecture("llama")):
        model.set_attn_implementation(implementation)
        assert ns.load(model).analyze(IDS, scopes="AttnW").map("AttnW").size
        with monkeypatch.context() as patch:
            patch.setattr(module, name, sharper_states)
            assert_refused(model, implementation)


def test_one_layer_with_a_setting_of_its_own_is_heard_or_refused() -> None:
    model = tiny("bert", attention="sdpa")
    expected = ns.load(model).analyze(IDS, scopes="AttnW").map("AttnW")
    attention = model.encoder.layer[1].attention.self
    attention.config = copy.deepcopy(model.config)
    attention.config._attn_implementation_internal = "eager"
    torch.testing.assert_close(ns.load(model).analyze(IDS, scopes="AttnW").map("AttnW").values, expected.values)
    assert attention.config._attn_implementation_internal == "eager"
    AttentionInterface.register("mine", sharper)
    attention.config._attn_implementation_internal = "mine"
    assert_refused(model, "mine")


def test_a_replaced_eager_attention_is_shown_where_the_model_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = modeling_bert.eager_attention_forward

    def patched(module: Any, query: Tensor, *rest: Any, **options: Any) -> Any:
        return own(module, 3 * query, *rest, **options)

    eager, sdpa = tiny("bert", attention="eager"), tiny("bert", attention="sdpa")
    monkeypatch.setattr(modeling_bert, "eager_attention_forward", patched)
    with torch.no_grad():
        weights = torch.stack(eager(IDS, output_attentions=True).attentions)[:, 0].mean(1)
    torch.testing.assert_close(
        torch.tensor(ns.load(eager).analyze(IDS, scopes="AttnW").map("AttnW").values), weights, atol=1e-6, rtol=1e-5
    )
    assert_refused(sdpa, "eager")


def test_an_attention_that_computes_by_itself_is_refused_with_a_sentence() -> None:
    model = tiny("bert")
    attention = model.encoder.layer[0].attention.self
    attention.forward = lambda states, *rest, **options: (attention.value(states), None)
    with pytest.raises(ns.ModelError, match=r"module 'attention\.self' of a block was not heard"):
        ns.load(model).analyze(IDS, scopes="AttnW")


def test_a_compiled_attention_is_heard() -> None:
    model = tiny("bert")
    expected = ns.load(model).analyze(IDS, scopes="AttnW").map("AttnW")
    module = model.encoder.layer[0].attention.self
    model.encoder.layer[0].attention.self = torch.compile(module, backend="eager")
    torch.testing.assert_close(ns.load(model).analyze(IDS, scopes="AttnW").map("AttnW").values, expected.values)


def test_blocks_inside_of_a_compiled_module_are_refused_with_a_sentence() -> None:
    model = tiny("bert")
    model.encoder = torch.compile(model.encoder, backend="eager")
    with pytest.raises(ns.ModelError, match=r"lie inside of 'encoder', which was compiled.*torch\.compile\(model\)"):
        ns.load(model)
