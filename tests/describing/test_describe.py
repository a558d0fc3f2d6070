"""A description that writes itself: the same maps as the family that was held back, and nothing for a tampered model."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.tiny_architectures import GROUPED, GROUPED_EXPERTS, VARIANTS, tiny
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PaliGemmaConfig, PaliGemmaModel, PreTrainedModel
from typer.testing import CliRunner

import normscope as ns
from normscope.cli.application import application
from normscope.describing import describe_model
from normscope.families import family_of
from normscope.families.heads import head_of
from normscope.models.options import ModelOptions
from normscope.testing import assert_explained
from normscope.testing.tiny import model_of, shrunk

QUICK = (
    *("bert", "distilbert", "albert", "gpt2", "gpt_neox", "gptj", "bloom", "phi", "cohere", "llama", "qwen3", "gemma2"),
    *("olmo", "olmo2", "nemotron", "granite", "mixtral", "vit"),
)
"""Types that differ in topology, norms, values, attention, feed-forward or input."""

IDS = {"input_ids": torch.tensor([[5, 9, 7, 6, 11, 8]])}


@pytest.fixture(autouse=True)
def _expected_warnings(recwarn: pytest.WarningsRecorder) -> None:
    """A model of an unknown type is loaded with a warning."""


def _input(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    if model.main_input_name == "input_ids":
        return IDS
    config: Any = model.config
    size = config.image_size
    return {"pixel_values": torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))}


def _maps(analyzer: ns.Analyzer) -> dict[str, np.ndarray[Any, Any]]:
    analysis = analyzer.analyze(_input(analyzer.model))
    assert isinstance(analysis, ns.Analysis)
    return {str(scope): analysis.map(scope).values for scope in analyzer.scopes}


def _assert_same_maps(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for scope, values in expected.items():
        scale = np.nanmax(np.abs(values))
        np.testing.assert_allclose(found[scope], values, rtol=0, atol=1e-5 * scale, err_msg=scope)


def _settings(model_type: str) -> dict[str, Any]:
    return next((settings for name, settings in VARIANTS if name == model_type), {})


@pytest.mark.parametrize("model_type", QUICK)
def test_a_family_that_is_held_back_is_found_again(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(model_type, **_settings(model_type))
    expected = _maps(ns.load(model))
    monkeypatch.delitem(import_module("normscope.families")._registry(), model_type)
    with pytest.warns(UserWarning, match=f"{model_type!r} is not registered.*states within"):
        analyzer = ns.load(model)
    _assert_same_maps(_maps(analyzer), expected)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "bert", "gemma2"])
def test_the_head_is_found_with_the_blocks(model_type: str) -> None:
    classes = {"gpt2": "GPT2LMHeadModel", "bert": "BertForMaskedLM", "gemma2": "Gemma2ForCausalLM"}
    model = model_of(classes.get(model_type, "LlamaForCausalLM"), shrunk(model_type))
    description = ns.describe(model)
    assert description.head == head_of(model)


def test_the_source_registers_the_family_and_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = import_module("normscope.families")._registry()
    known = import_module("normscope.families.heads")._BY_CLASS
    model = model_of("LlamaForCausalLM", shrunk("llama"))
    expected, source = _maps(ns.load(model)), ns.describe(model).source
    monkeypatch.delitem(registry, "llama")
    monkeypatch.delitem(known, "LlamaForCausalLM")
    exec(source, {})
    assert family_of("llama").longest.__name__ == "unlimited"
    _assert_same_maps(_maps(ns.load(model)), expected)
    assert_explained(model)


def test_layers_of_different_kinds_are_listed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**GROUPED_EXPERTS, "num_hidden_layers": 3, "mlp_only_layers": [1]}
    model = tiny("qwen2_moe", **settings)
    expected, source = _maps(ns.load(model)), describe_model(model).source
    assert "LayerByLayer" in source
    monkeypatch.delitem(import_module("normscope.families")._registry(), "qwen2_moe")
    exec(source, {})
    _assert_same_maps(_maps(ns.load(model)), expected)


def test_a_prediction_of_an_unknown_type_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("GPT2LMHeadModel", shrunk("gpt2"))
    expected = ns.load(model).explain(IDS)
    monkeypatch.delitem(import_module("normscope.families")._registry(), "gpt2")
    monkeypatch.delitem(import_module("normscope.families.heads")._BY_CLASS, "GPT2LMHeadModel")
    with pytest.warns(UserWarning, match="described automatically"):
        found = ns.load(model).explain(IDS)
    assert isinstance(found, ns.Explanation)
    assert isinstance(expected, ns.Explanation)
    np.testing.assert_allclose(found.shares.values, expected.shares.values, rtol=1e-4, atol=1e-5)


# ---- not fooled --------------------------------------------------------------------------------------------------------


def _scaled(_: nn.Module, __: Any, output: Any) -> Any:
    return (1.1 * output[0], *output[1:]) if isinstance(output, tuple) else 1.1 * output


def _mixed(_: nn.Module, __: Any, output: Any) -> Any:
    states = output[0] if isinstance(output, tuple) else output
    states = states + 0.1 * states.roll(1, dims=1)
    return (states, *output[1:]) if isinstance(output, tuple) else states


@pytest.mark.parametrize(
    ("path", "hook"),
    [
        ("layers.0", _mixed),
        ("layers.1", _mixed),
        ("layers.0.mlp", _scaled),
        ("layers.0.mlp", _mixed),
        ("layers.1.self_attn.o_proj", _scaled),
        ("layers.1.self_attn.v_proj", _mixed),
        ("layers.0.input_layernorm", _mixed),
        ("layers.0.mlp.down_proj", _mixed),
        ("embed_tokens", _mixed),
    ],
)
def test_a_tampered_model_is_not_described(path: str, hook: Any) -> None:
    model = tiny("llama", **GROUPED)
    handle = model.get_submodule(path).register_forward_hook(hook)
    with pytest.raises(ns.NormscopeError):
        describe_model(model)
    handle.remove()
    assert describe_model(model).completeness < 1e-5


def test_a_block_that_mixes_tokens_elsewhere_is_not_described() -> None:
    class Mixing(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            return self.inner(states + 0.1 * states.roll(1, dims=1))

    model = tiny("llama", **GROUPED)
    layer: Any = model.get_submodule("layers.1")
    layer.mlp = Mixing(layer.mlp)
    with pytest.raises(ns.UnsupportedArchitectureError, match="could not be described automatically"):
        describe_model(model)


# ---- what a user sees --------------------------------------------------------------------------------------------------


def test_a_model_whose_mask_depends_on_its_attention_implementation_is_not_described() -> None:
    """PaliGemma's fast attention reads a text without padding in both directions, its eager attention in one."""
    text = {"model_type": "gemma", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "vocab_size": 99}
    image = {"model_type": "siglip_vision_model", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    image |= {"intermediate_size": 48, "image_size": 16, "patch_size": 8}
    torch.manual_seed(0)
    model = PaliGemmaModel(PaliGemmaConfig(text_config=text, vision_config=image, projection_dim=32)).eval()
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"captured pass against the plain one.* without padding"):
        describe_model(model)


def test_registered_forbids_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama", **GROUPED)
    monkeypatch.delitem(import_module("normscope.families")._registry(), "llama")
    with pytest.raises(ns.UnsupportedArchitectureError, match="'llama' is not supported"):
        ns.load(model, family="registered")


def test_another_choice_is_refused() -> None:
    with pytest.raises(ns.InputError, match="auto, registered"):
        ns.load(tiny("llama", **GROUPED), family="any")
    with pytest.raises(ns.InputError, match="auto, registered"):
        ModelOptions(family="any")


def test_a_refusal_has_the_known_reason_and_what_was_found() -> None:
    model = model_of("RwkvModel", shrunk("rwkv"))
    with pytest.raises(
        ns.UnsupportedArchitectureError, match=r"recurrence.*could not be described automatically.*missing is"
    ):
        ns.load(model)


def test_a_large_model_is_described_by_a_tiny_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normscope.describing.LARGEST_COPY", 1000)
    config = AutoConfig.for_model(
        "llama", vocab_size=60, hidden_size=48, num_hidden_layers=5, num_attention_heads=6, intermediate_size=50
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    description = describe_model(model)
    assert description.family.stack.topologies(config) == family_of("llama").stack.topologies(config)
    assert description.head == head_of(model)


def test_the_command_prints_python_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_of("GPT2LMHeadModel", shrunk("gpt2")).save_pretrained(tmp_path / "model")
    result = CliRunner().invoke(application("models"), ["describe", str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    monkeypatch.delitem(import_module("normscope.families")._registry(), "gpt2")
    exec(result.stdout, {})
    assert family_of("gpt2").stack.blocks == "h.*"


@pytest.mark.slow
def test_most_registered_types_are_found_again_and_none_with_other_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    hold_back = import_module("held_back").hold_back
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = {model_type: hold_back(model_type) for model_type in ns.supported_models()}
    assert [name for name, outcome in outcomes.items() if outcome.kind == "different"] == []
    assert sum(outcome.kind == "found" for outcome in outcomes.values()) >= 160
