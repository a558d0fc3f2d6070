"""Norms of vectors inside a block, against what the model itself outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import EXPERTS, GPT2, GROUPED, LATENT_EXPERTS, tiny
from torch import Tensor

import normscope as ns
from normscope.chain.measure import KeptTraces
from normscope.chain.trace import Expert, FeedForward, Gated
from normscope.inputs import TokenSequence
from normscope.methods.resolve import measure_layers
from normscope.methods.vectors import FeedForwardNorms

IDS = [5, 6, 7, 8, 9]
SEQUENCE = TokenSequence({"input_ids": IDS}, [str(number) for number in IDS], [False] * 5, None, [""] * 5, "")


def clamping_gpt_oss() -> ns.Analyzer:
    """GPT-OSS with a limit that many neurons reach: theirs is seldom met by a tiny random model."""
    model: Any = tiny("gpt_oss", **GROUPED, **EXPERTS)
    for layer in model.layers:
        layer.mlp.experts.limit = 0.5
    return ns.load(model)


def own_outputs(analyzer: ns.Analyzer, blocks: str, module: str) -> list[Tensor]:
    """What a module of every block outputs when the model runs by itself."""
    outputs: list[Tensor] = []

    def note(_: Any, __: Any, output: Any) -> None:
        outputs.append((output if isinstance(output, Tensor) else output[0]).reshape(len(IDS), -1).clone())

    handles = [
        block.get_submodule(module).register_forward_hook(note) for block in analyzer.model.get_submodule(blocks)
    ]
    with torch.no_grad():
        analyzer.model.eval()(torch.tensor([IDS]))
    for handle in handles:
        handle.remove()
    return outputs


def assert_norms_of_the_model(analyzer: ns.Analyzer, blocks: str = "layers") -> None:
    (measured,) = measure_layers(analyzer, [SEQUENCE], [FeedForwardNorms()])
    expected = torch.stack(own_outputs(analyzer, blocks, "mlp")).double().norm(dim=-1)
    np.testing.assert_allclose(measured.main[FeedForwardNorms()][:, 0], expected, rtol=1e-5)


def test_the_feed_forward_norms_of_gpt_oss_are_those_of_its_own_output() -> None:
    analyzer = clamping_gpt_oss()
    assert_norms_of_the_model(analyzer)
    experts = _experts(analyzer)
    assert all(isinstance(expert.network, Gated) and expert.network.up_offset == 1 for expert in experts)
    clamped = [bool((expert.pre_activations[1].abs() > 0.5).any()) for expert in experts]
    assert any(clamped), "no neuron reaches the limit, so that nothing was tested"


def _experts(analyzer: ns.Analyzer) -> list[Expert]:
    (measured,) = measure_layers(analyzer, [SEQUENCE], [KeptTraces()])
    steps = [step for trace in measured.main[KeptTraces()].values() for step in trace.steps]
    return [expert for step in steps if isinstance(step, FeedForward) for expert in step.experts]


@pytest.mark.parametrize(
    ("model_type", "overrides", "blocks"),
    [
        ("llama", GROUPED, "layers"),
        ("mixtral", {**GROUPED, **EXPERTS}, "layers"),
        ("deepseek_v3", LATENT_EXPERTS, "layers"),
        ("gptj", {**GPT2, "rotary_dim": 4}, "h"),
    ],
)
def test_feed_forward_norms_are_those_of_the_output_of_the_model_itself(
    model_type: str, overrides: dict[str, Any], blocks: str
) -> None:
    assert_norms_of_the_model(ns.load(tiny(model_type, **overrides)), blocks)
