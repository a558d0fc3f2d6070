"""Vision models whose tokens are merged from stage to stage: each stage has blocks and tokens of its own."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import HieraConfig, HieraForPreTraining, PreTrainedModel

import normscope as ns
from normscope.experiments.expansion import ExpansionRate
from normscope.testing import assert_explained, assert_family, assert_head
from normscope.testing.tiny import model_of, shrunk

WINDOWED = {
    "swin": "SwinForImageClassification",
    "swinv2": "Swinv2ForImageClassification",
    "donut-swin": "DonutSwinForImageClassification",
}
CONVOLVING = {"pvt_v2": "PvtV2ForImageClassification", "segformer": "SegformerForImageClassification"}
HIERA = {"hiera": "HieraForImageClassification"}
LEVIT = {"levit": "LevitForImageClassification"}
REDUCED = {"pvt": "PvtForImageClassification", **CONVOLVING}
CLASSIFIERS = {**WINDOWED, **REDUCED, **HIERA, **LEVIT}
SIZES = {"levit": 128}
"""Of the images that a type reads, where they are not of 32 pixels."""


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


@pytest.mark.parametrize("model_type", WINDOWED)
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


@pytest.mark.parametrize("model_type", ["swin", "hiera", "pvt"])
def test_expansion_rates_of_a_stage_are_those_of_its_own_heads(model_type: str) -> None:
    (rates,) = ExpansionRate().from_model(ns.load(pyramid(model_type))).moments.values()
    assert (rates.mean() > 0).all()


def test_levit_has_no_expansion_rate() -> None:
    analyzer = ns.load(pyramid("levit"))
    with pytest.raises(ns.UnsupportedArchitectureError, match="activates what its heads output"):
        ExpansionRate().from_model(analyzer)


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


@pytest.mark.parametrize("model_type", REDUCED)
def test_a_stage_whose_attention_looks_at_merged_tokens_is_refused(model_type: str) -> None:
    model = pyramid(model_type)
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"stage 1 of 2 .* a convolution makes of several tokens"):
        ns.load(model, stage=1)
    every = {"sequence_reduction_ratios" if model_type == "pvt" else "sr_ratios": [1, 1]}
    assert_family(ns.supported_models()[model_type], pyramid(model_type, **every))


def test_a_class_token_comes_before_the_tokens_of_the_last_stage() -> None:
    assert analysed(pyramid("pvt"), size=32).tokens[:3] == ["[CLS]", "0,0", "0,1"]


@pytest.mark.parametrize("model_type", CONVOLVING)
def test_a_feed_forward_with_a_convolution_is_a_layer_that_reads_neighbours_alone(model_type: str) -> None:
    analysis = analysed(pyramid(model_type), size=32)
    assert analysis.dataset.sizes["layer"] == 4
    maps = analysis.map("Attn")
    row, column = np.divmod(np.arange(16), 4)
    near = (abs(row[:, None] - row) <= 1) & (abs(column[:, None] - column) <= 1)
    assert (maps.sel(layer=[1, 3]).values > 0).all()
    for layer in (2, 4):
        assert (maps.sel(layer=layer).values[near] > 0).all() and not maps.sel(layer=layer).values[~near].any()


def test_parts_of_a_convolving_feed_forward_are_those_of_its_own_modules() -> None:
    model = pyramid("segformer").double()
    block = model.get_submodule("segformer.stages.1.blocks.0")
    entering: list[torch.Tensor] = []
    block.get_submodule("layernorm_after").register_forward_pre_hook(lambda _, read: entering.append(read[0]))
    found = analysed(model, size=32).map("Attn").sel(layer=2).values
    norm, first, convolution, activation, second = (
        block.get_submodule(path)
        for path in ("layernorm_after", "mlp.fc1", "mlp.dwconv.dwconv", "mlp.activation_fn", "mlp.fc2")
    )
    with torch.no_grad():
        neurons = first(norm(entering[-1]))[0]
        whole = convolution(neurons.T.view(1, -1, 4, 4)).flatten(2)[0].T
        slope = activation(whole) / whole
        for key in range(16):
            alone = torch.zeros_like(neurons)
            alone[key] = neurons[key]
            brought = convolution(alone.T.view(1, -1, 4, 4)).flatten(2)[0].T - convolution.bias
            brought[key] += convolution.bias
            norms = ((slope * brought) @ second.weight.T).norm(dim=-1)
            np.testing.assert_allclose(found[:, key], norms.numpy(), rtol=1e-9, atol=1e-9 * found.max())


@pytest.mark.parametrize("model_type", CONVOLVING)
def test_a_logit_is_explained_through_attentions_and_convolutions(model_type: str) -> None:
    model = pyramid(model_type)
    explanation = ns.load(model).explain(pixels(32), target=1, objective="logit")
    assert isinstance(explanation, ns.Explanation)
    own = float(model(**pixels(32)).logits.detach()[0, 1])
    assert float(explanation.value) == pytest.approx(own, rel=1e-4, abs=1e-5)
    assert float(explanation.shares.sum()) + sum(explanation.biases) == pytest.approx(own, rel=1e-4, abs=1e-5)


def test_a_convolution_that_does_not_keep_the_grid_is_refused() -> None:
    model = pyramid("segformer")
    convolution: Any = model.get_submodule("segformer.stages.1.blocks.0.mlp.dwconv.dwconv")
    convolution.padding, convolution.dilation = (2, 2), (2, 2)
    with pytest.raises(ns.UnsupportedArchitectureError, match="does not keep the grid"):
        analysed(model, size=32)


def test_states_between_the_halves_of_a_block_cannot_be_replaced() -> None:
    model = pyramid("segformer")
    with pytest.raises(ns.UnsupportedArchitectureError, match="cannot be replaced"):
        ns.load(model).explain(pixels(32), target=1, method="leave-one-out")


def trained_levit(**changes: Any) -> PreTrainedModel:
    """With statistics in its batch norms, as training leaves them."""
    model = pyramid("levit", **changes)
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.5, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
    return model


def test_batch_norms_of_levit_use_the_statistics_of_training() -> None:
    model = trained_levit()
    assert_family(ns.supported_models()["levit"], model)
    assert_head(model)
    assert_explained(model)


def test_layers_of_levit_are_attentions_and_networks_in_turn() -> None:
    model = trained_levit()
    tokens = {stage: len(analysed(model, stage, 128).tokens) for stage in (1, 2, 3)}
    assert tokens == {1: 64, 2: 16, 3: 4}
    analysis = analysed(model, 2, 128)
    assert analysis.dataset.sizes["layer"] == 4
    weights = analysis.map("AttnW").values
    np.testing.assert_allclose(weights[[0, 2]].sum(-1), 1, rtol=1e-5)
    assert not weights[[1, 3]].any()
    assert analysed(trained_levit(mlp_ratio=[0, 0, 0]), 2, 128).dataset.sizes["layer"] == 2


def test_what_the_heads_of_levit_output_goes_through_an_activation() -> None:
    model = trained_levit().double()
    attention: Any = model.get_submodule("levit.encoder.stages.2.layers.2.module")
    read: list[torch.Tensor] = []

    def note(_: torch.nn.Module, states: tuple[torch.Tensor, ...]) -> None:
        read.append(states[0])

    attention.register_forward_pre_hook(note)
    found = analysed(model, size=128).map("Attn").sel(layer=3).values
    with torch.no_grad():
        made = attention.queries_keys_values(read[-1])[0].unflatten(-1, (attention.num_attention_heads, -1))
        query, key, value = (part.transpose(0, 1) for part in made.split([4, 4, 8], dim=-1))
        weights = (
            query @ key.mT * attention.scale + attention.attention_biases[:, attention.attention_bias_idxs]
        ).softmax(-1)
        mixed = (weights @ value).transpose(0, 1).flatten(1)
        slope = attention.activation(mixed) / mixed
        norm = attention.projection.batch_norm
        output = (norm.weight / (norm.running_var + norm.eps).sqrt())[:, None] * attention.projection.linear.weight
        for query_token in range(4):
            for key_token in range(4):
                part = (weights[:, query_token, key_token, None] * value[:, key_token]).flatten()
                own = float((output @ (part * slope[query_token])).norm())
                assert found[query_token, key_token] == pytest.approx(own, rel=1e-9)


def test_a_head_of_levit_that_had_a_teacher_is_explained() -> None:
    model = model_of("LevitForImageClassificationWithTeacher", shrunk("levit"))
    assert_head(model)
    assert_explained(model)


def test_the_last_stage_of_hiera_has_the_blocks_after_the_one_that_merges() -> None:
    model = pyramid("hiera")
    analysis = analysed(model, size=32)
    assert analysis.dataset.sizes["layer"] == 2
    assert analysis.tokens == ["0,0", "0,1", "1,0", "1,1"]
    own = model(**pixels(32), output_attentions=True).attentions[-1][0, :, 0].mean(0)  # [head, window, query, key]
    np.testing.assert_allclose(analysis.map("AttnW").sel(layer=2).values, own.detach().numpy(), rtol=1e-5)


def test_tokens_of_hiera_lie_row_by_row_in_the_last_stage() -> None:
    model = pyramid("hiera", image_size=[32, 64])
    given = {"pixel_values": torch.randn(1, 3, 32, 64, generator=torch.Generator().manual_seed(0))}
    own = model(**given, output_hidden_states=True)
    analysis = ns.load(model).analyze(given)
    assert isinstance(analysis, ns.Analysis)
    assert analysis.tokens == ["0,0", "0,1", "0,2", "0,3", "1,0", "1,1", "1,2", "1,3"]
    torch.testing.assert_close(own.reshaped_hidden_states[-1].flatten(1, 2), own.hidden_states[-1], rtol=0, atol=0)


def test_stages_of_hiera_with_tokens_in_groups_or_without_blocks_of_their_own_are_refused() -> None:
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"stage 2 of 3 .* do not lie row by row"):
        ns.load(pyramid("hiera"), stage=2)
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"stage 3 of 3 .* do not lie row by row"):
        ns.load(pyramid("hiera", num_query_pool=1))
    with pytest.raises(ns.UnsupportedArchitectureError, match="a single block, which merges"):
        ns.load(pyramid("hiera", depths=[1, 1, 1]))


def test_a_hiera_that_leaves_out_tokens_at_random_is_refused() -> None:
    config = cast(HieraConfig, shrunk("hiera", decoder_hidden_size=16, decoder_depth=1, decoder_num_heads=2))
    model = HieraForPreTraining(config).eval()
    with pytest.raises(ns.UnsupportedArchitectureError, match="leaves out most of an image's tokens"):
        analysed(model, size=32)


@pytest.mark.parametrize("model_type", CLASSIFIERS)
def test_images_are_converted_to_the_precision_of_the_model(model_type: str) -> None:
    for dtype, limit in ((torch.float64, 1e-12), (torch.bfloat16, 0.05)):
        analysis = analysed(cast(Any, pyramid(model_type)).to(dtype), size=SIZES.get(model_type, 32))
        assert float(analysis.completeness.max()) < limit


def test_windows_of_many_tokens_are_found_in_half_precision() -> None:
    single, half = (
        analysed(cast(Any, pyramid("swin", image_size=64)).to(dtype), stage=1, size=64).map("AttnW").sel(layer=2).values
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert half.shape == (1024, 1024) and ((half > 1e-6) == (single > 1e-6)).all()
