"""Live adapters: a model with adapters in it gives the maps of the model that they are merged into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import GROUPED, ids, tiny
from transformers import AutoModelForCausalLM

import normscope as ns

peft = pytest.importorskip("peft", reason="adapters are made with PEFT, which is not installed")

TARGETS = ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]

ADAPTERS = {
    "LoRA": lambda: peft.LoraConfig(r=3, lora_alpha=5, target_modules=TARGETS),
    "DoRA": lambda: peft.LoraConfig(r=3, lora_alpha=5, target_modules=TARGETS, use_dora=True),
    "IA3": lambda: peft.IA3Config(target_modules=TARGETS, feedforward_modules=["down_proj"]),
    "OFT": lambda: peft.OFTConfig(r=2, oft_block_size=0, target_modules=["q_proj", "v_proj", "o_proj"]),
    "LoHa": lambda: peft.LoHaConfig(r=3, alpha=5, target_modules=TARGETS),
}


def adapted(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    """A tiny Llama with adapters whose weights are large enough to matter."""
    model = peft.get_peft_model(tiny("llama", AutoModelForCausalLM, **GROUPED).to(dtype), config)
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model.eval()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_model_with_live_adapters_has_the_maps_of_the_merged_model(name: str) -> None:
    model = adapted(ADAPTERS[name]())
    bare = ns.load(tiny("llama", AutoModelForCausalLM, **GROUPED)).analyze(ids(5, 6, 7, 8))
    live = ns.load(model.get_base_model()).analyze(ids(5, 6, 7, 8))
    merged = ns.load(model.merge_and_unload()).analyze(ids(5, 6, 7, 8))
    scale = float(np.nanmax(merged.dataset["map"]))
    np.testing.assert_allclose(live.dataset["map"], merged.dataset["map"], rtol=0, atol=1e-4 * scale)
    assert float(np.nanmax(abs(live.dataset["map"] - bare.dataset["map"]))) > 1e-2 * scale


def test_a_prediction_of_a_model_with_live_adapters_adds_up_to_its_own_logit() -> None:
    model = adapted(ADAPTERS["LoRA"]())
    explanation = ns.load(model.get_base_model()).explain(ids(5, 6, 7, 8))
    assert explanation.completeness < 1e-4


def test_adapters_of_a_model_in_bfloat16_are_analysed_within_its_rounding() -> None:
    analyzer = ns.load(adapted(ADAPTERS["LoRA"](), torch.bfloat16).get_base_model())
    assert float(analyzer.analyze(ids(5, 6, 7, 8)).dataset["component_error"].max()) < analyzer.tolerance
