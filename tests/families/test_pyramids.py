"""Vision models whose tokens are merged from stage to stage: each stage has blocks and tokens of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import normscope as ns
from normscope.testing import assert_explained, assert_family, assert_head
from normscope.testing.tiny import model_of, shrunk

CLASSIFIERS = {
    "swin": "SwinForImageClassification",
    "swinv2": "Swinv2ForImageClassification",
    "donut-swin": "DonutSwinForImageClassification",
}


def pyramid(model_type: str, **changes: Any) -> PreTrainedModel:
    return model_of(CLASSIFIERS[model_type], shrunk(model_type, **changes))


def analysed(model: PreTrainedModel, stage: int | None = None, size: int = 16) -> ns.Analysis:
    analysis = ns.load(model, stage=stage).analyze(pixels(size))
    assert isinstance(analysis, ns.Analysis)
    return analysis


def twice(_: torch.nn.Module, __: object, output: torch.Tensor) -> torch.Tensor:
    return 2 * output


def pixels(size: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))}


@pytest.mark.parametrize("model_type", CLASSIFIERS)
def test_every_stage_passes_the_battery(model_type: str) -> None:
    model = pyramid(model_type)
    assert_family(ns.supported_models()[model_type], model)
    assert_head(model)
    assert_explained(model)


@pytest.mark.parametrize("model_type", CLASSIFIERS)
def test_windows_that_are_not_shifted_attend_to_blocks_of_the_grid(model_type: str) -> None:
    analysis = analysed(pyramid(model_type), stage=1)
    weights = analysis.map("AttnW").sel(layer=1).values
    window = np.arange(64) // 8 // 2 * 4 + np.arange(64) % 8 // 2
    same = window[:, None] == window[None, :]
    assert (weights[same] > 0).all() and not weights[~same].any()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


def test_attention_weights_are_those_that_the_model_shows() -> None:
    model = pyramid("swin", depths=[1, 2])
    analysis = analysed(model, stage=1)
    model.set_attn_implementation("eager")
    own = model(**pixels(16), output_attentions=True).attentions[0].mean(1)  # [window, member, member]
    first = [0, 1, 8, 9]
    found = analysis.map("AttnW").sel(layer=1).values[np.ix_(first, first)]
    np.testing.assert_allclose(found, own[0].detach().numpy(), rtol=1e-5)


def test_a_stage_has_layers_and_tokens_of_its_own() -> None:
    model = pyramid("swin", depths=[2, 3])
    first, last = ns.load(model, stage=1), ns.load(model)
    assert (first.layers, last.layers) == ([1, 2], [1, 2, 3])
    assert len(analysed(model, stage=1).tokens) == 64
    analysis = analysed(model)
    assert analysis.tokens[:5] == ["0,0", "0,1", "0,2", "0,3", "1,0"] and len(analysis.tokens) == 16
    assert analysis.scopes == analysed(model, stage=2).scopes


def test_a_stage_that_is_not_there_is_refused(llama: ns.Analyzer) -> None:
    with pytest.raises(ns.SelectionError, match="no stage 3: the model has stages 1 to 2"):
        ns.load(pyramid("swin"), stage=3)
    with pytest.raises(ns.SelectionError, match="no stages"):
        ns.load(llama.model, stage=1)


def test_logits_are_explained_by_the_last_stage_and_states_by_any() -> None:
    model = pyramid("swin")
    first = ns.load(model, stage=1)
    with pytest.raises(ns.HeadError, match="stage 1 of 2"):
        first.explain(pixels(16))
    state = first.explain(pixels(16), direction="state", at=0)
    assert isinstance(state, ns.Explanation)
    assert float(state.shares.sum()) + sum(state.biases) == pytest.approx(1, abs=1e-5)
    explanation = ns.load(model).explain(pixels(16), target=1, objective="logit")
    assert isinstance(explanation, ns.Explanation)
    own = float(model(**pixels(16)).logits.detach()[0, 1])
    assert float(explanation.value) == pytest.approx(own, rel=1e-4, abs=1e-5)


def test_windows_that_the_tokens_do_not_fill_are_refused() -> None:
    model = pyramid("swin", image_size=20, window_size=4)
    with pytest.raises(ns.UnsupportedArchitectureError, match="100 tokens do not fill the windows of 16"):
        analysed(model, stage=1, size=20)


def test_a_hook_in_an_earlier_stage_is_refused() -> None:
    model = pyramid("swin")
    model.get_submodule("swin.encoder.layers.0.downsample").register_forward_hook(twice)
    with pytest.raises(ns.CompletenessError, match="a hook changes"):
        analysed(model)
