"""Every family, from tiny random configurations, against the float64 oracle and against the model itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_models import ENCODERS, FIRST_ID, HEADS, SIZES, VARIANTS, padded, tiny, token_ids, traces, variants
from transformers import PreTrainedModel

import normscope as ns
from normscope.chain.trace import Attention, LayerTrace
from normscope.families import family_of
from normscope.families.bert import BERT
from normscope.testing import assert_family
from normscope.testing.oracle import oracle, oracle_weights

LENGTHS = (7, 1, 4)
"""Of the sequences of a batch: two need padding, one has a single token."""

RELATIVE_ERROR = 1e-5

ENCODER_SCOPES = ["AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes", "AttnResLnFfResLn"]

EVERY_VARIANT = pytest.mark.parametrize("name", list(variants()))
EVERY_ENCODER = pytest.mark.parametrize("model_type", ENCODERS)


@dataclass(frozen=True)
class Case:
    """A tiny model, a batch for it, and what one analysis and one capture of that batch gave."""

    model: PreTrainedModel
    sequences: list[list[int]]
    analyses: list[ns.Analysis]
    traced: dict[tuple[int, int], LayerTrace]

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        return padded(self.sequences, self.model.config.pad_token_id or 0)


@cache
def case(name: str) -> Case:
    """The case of a variant; computed once, used by several tests."""
    model_type, changes = variants()[name]
    model, sequences = tiny(model_type, attention="eager", **changes), token_ids(*LENGTHS)
    return Case(model, sequences, analyze_all(model, sequences, heads=True), traces(model, sequences))


def analyze_all(model: PreTrainedModel, sequences: list[list[int]], **options: Any) -> list[ns.Analysis]:
    """Analyses of a batch of token ids, as a list also where there is only one."""
    analyses = ns.load(model).analyze(padded(sequences, model.config.pad_token_id or 0), **options)
    return [analyses] if isinstance(analyses, ns.Analysis) else analyses


def assert_equals_oracle(analysis: ns.Analysis, traced: dict[int, LayerTrace], *, value_bias: str = "token") -> None:
    """Every map and mixing ratio of an analysis, in every layer, against the oracle on that layer's trace."""
    assert analysis.layers == sorted(traced)
    for layer, trace in traced.items():
        truth, weights = oracle(trace, value_bias=value_bias), oracle_weights(trace)
        assert {*truth, *weights, "AttnResW"} == set(analysis.scopes)
        for scope, result in truth.items():
            ratio = analysis.mixing_ratio(scope).sel(layer=layer)
            np.testing.assert_allclose(ratio, result.mixing_ratio, RELATIVE_ERROR, atol=1e-7, err_msg=scope)
        for scope, expected in {**{scope: result.map for scope, result in truth.items()}, **weights}.items():
            found = analysis.map(scope).sel(layer=layer)
            np.testing.assert_allclose(found, expected, RELATIVE_ERROR, atol=1e-7, err_msg=f"{scope} in {layer}")


def of_sequence(found: dict[tuple[int, int], LayerTrace], sequence: int) -> dict[int, LayerTrace]:
    return {layer: trace for (layer, place), trace in found.items() if place == sequence}


def test_the_table_of_tiny_models_covers_every_supported_architecture() -> None:
    assert set(SIZES) == set(VARIANTS) <= set(ns.supported_models())


# ---- against the oracle ------------------------------------------------------------------------------------------------


@EVERY_VARIANT
def test_maps_and_mixing_ratios_of_a_padded_batch_equal_the_oracle_at_every_scope(name: str) -> None:
    for place, analysis in enumerate(case(name).analyses):
        assert_equals_oracle(analysis, of_sequence(case(name).traced, place))


@EVERY_VARIANT
def test_maps_of_single_heads_equal_attention_weight_times_value_norm(name: str) -> None:
    analysis = case(name).analyses[0]
    for layer, trace in of_sequence(case(name).traced, 0).items():
        (attention,) = [step for step in trace.steps if isinstance(step, Attention)]
        vectors = torch.einsum("hke,hed->hkd", attention.values.double(), attention.output.double())
        expected = attention.weights.double() * vectors.norm(dim=-1)[:, None]
        found = analysis.map("Attn", heads=True).sel(layer=layer)
        np.testing.assert_allclose(found, expected, RELATIVE_ERROR, atol=1e-7)


@pytest.mark.parametrize("length", [33, 40])
@pytest.mark.parametrize("model_type", ["bert", "deberta"])
def test_maps_of_more_tokens_than_one_tile_holds_equal_the_oracle(model_type: str, length: int) -> None:
    model, sequences = tiny(model_type, num_hidden_layers=1), token_ids(length)
    (analysis,) = analyze_all(model, sequences)
    assert_equals_oracle(analysis, of_sequence(traces(model, sequences), 0))


@pytest.mark.parametrize("model_type", ["bert", "distilbert", "albert", "mpnet", "deberta", "deberta-v2"])
def test_the_value_bias_counted_as_bias_equals_the_oracle(model_type: str) -> None:
    model, sequences = tiny(model_type), token_ids(5)
    (analysis,) = analyze_all(model, sequences, value_bias="bias")
    traced = of_sequence(traces(model, sequences, below_attention=True), 0)
    assert_equals_oracle(analysis, traced, value_bias="bias")


@pytest.mark.parametrize("model_type", ["bert", "distilbert", "albert", "mpnet", "deberta", "deberta-v2"])
def test_the_value_bias_is_what_the_projection_adds_to_every_value(model_type: str) -> None:
    """With all but the value biases zero, every value is the bias, so nothing is left for the tokens."""
    model = tiny(model_type)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("value.weight", "v_lin.weight", "attn.v.weight", "in_proj.weight", "value_proj.weight")):
                parameter.zero_()
    (as_token,) = analyze_all(model, token_ids(5), scopes="Attn")
    (as_bias,) = analyze_all(model, token_ids(5), scopes="Attn", value_bias="bias")
    assert float(as_token.map("Attn").min()) > 0
    np.testing.assert_allclose(as_bias.map("Attn"), 0, atol=1e-6)


@EVERY_VARIANT
def test_a_family_passes_the_battery_that_third_parties_use(name: str) -> None:
    model_type, changes = variants()[name]
    assert_family(family_of(model_type), tiny(model_type, **changes))


# ---- against the model -------------------------------------------------------------------------------------------------


@EVERY_VARIANT
def test_attention_weights_are_those_that_the_model_returns_itself(name: str) -> None:
    with torch.no_grad():
        weights = case(name).model(**case(name).inputs, output_attentions=True).attentions
    for place, analysis in enumerate(case(name).analyses):
        heads = analysis.map("AttnW", heads=True)
        assert len(analysis.layers) == len(weights)
        for layer, expected in enumerate(weights, start=1):
            own = expected[place, :, : LENGTHS[place], : LENGTHS[place]]
            np.testing.assert_allclose(heads.sel(layer=layer), own, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(analysis.map("AttnW").sel(layer=layer), own.mean(0), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in variants() if "conv_kernel_size" not in name])
def test_parts_and_bias_add_up_to_the_hidden_states_that_the_model_returns(name: str) -> None:
    with torch.no_grad():
        states = case(name).model(**case(name).inputs, output_hidden_states=True).hidden_states
    assert {layer for layer, _ in case(name).traced} == set(range(1, len(states)))
    for (layer, place), trace in case(name).traced.items():
        *_, rebuilt = [result.state for result in oracle(trace).values()]
        np.testing.assert_allclose(rebuilt, states[layer][place, : LENGTHS[place]], rtol=1e-4, atol=1e-5)


def test_the_convolution_of_deberta_v2_lies_between_its_first_two_blocks() -> None:
    model = tiny("deberta-v2", conv_kernel_size=3, num_hidden_layers=2)
    (sequence,) = token_ids(6)
    with torch.no_grad():
        states = model(torch.tensor([sequence]), output_hidden_states=True).hidden_states
    found = traces(model, [sequence])
    before, after = oracle(found[1, 0])["AttnResLnFfResLn"].state, found[2, 0].hidden
    np.testing.assert_allclose(after, states[1][0], rtol=1e-4, atol=1e-5)
    assert float((before - after).norm()) > 0.1
    np.testing.assert_allclose(oracle(found[2, 0])["AttnResLnFfResLn"].state, states[2][0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", list(HEADS))
@EVERY_ENCODER
def test_a_model_with_a_task_head_gives_what_its_bare_model_gives(model_type: str, head: str) -> None:
    model, sequences = tiny(model_type, auto=HEADS[head]), token_ids(5)
    assert model is not model.base_model
    (with_head,), (bare,) = analyze_all(model, sequences), analyze_all(model.base_model, sequences)
    np.testing.assert_array_equal(with_head.dataset["map"], bare.dataset["map"])
    np.testing.assert_array_equal(with_head.dataset["mixing_ratio"], bare.dataset["mixing_ratio"])


# ---- what a family says of itself --------------------------------------------------------------------------------------


@EVERY_ENCODER
def test_an_encoder_has_the_six_scopes_of_a_post_norm_block_and_its_attention_weights(model_type: str) -> None:
    assert ns.load(tiny(model_type)).scopes == ENCODER_SCOPES


@EVERY_ENCODER
def test_the_longest_input_is_the_longest_that_the_model_itself_takes(model_type: str) -> None:
    model = tiny(model_type, max_position_embeddings=9)
    longest = ns.load(model).longest
    assert longest is not None
    with torch.no_grad():
        model(torch.full((1, longest), FIRST_ID))
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.full((1, longest + 1), FIRST_ID))
    assert len(analyze_all(model, token_ids(longest))[0].tokens) == longest
    with pytest.raises(ns.InputError, match=rf"{longest + 1} tokens.* at most {longest}\b.*truncate=True"):
        analyze_all(model, token_ids(longest + 1))


@pytest.mark.parametrize("model_type", ["deberta", "deberta-v2"])
def test_relative_positions_alone_set_no_limit(model_type: str) -> None:
    model = tiny(
        model_type,
        max_position_embeddings=6,
        relative_attention=True,
        position_biased_input=False,
        pos_att_type=["c2p", "p2c"],
    )
    assert ns.load(model).longest is None
    (analysis,) = analyze_all(model, token_ids(11))
    assert_equals_oracle(analysis, of_sequence(traces(model, token_ids(11)), 0))


def test_albert_counts_a_layer_for_every_call_of_a_shared_block() -> None:
    model = tiny("albert", num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2)
    assert ns.load(model).layers == [1, 2, 3, 4, 5, 6, 7, 8]
    (analysis,) = analyze_all(model, token_ids(5))
    maps = analysis.map("AttnResLnFfResLn").values
    assert len({layer.tobytes() for layer in maps}) == 8


# ---- adding a family ---------------------------------------------------------------------------------------------------


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """No family is known, until the end of the test."""
    registry: dict[str, ns.Family] = {}
    monkeypatch.setattr(sys.modules["normscope.families"], "_registry", lambda: registry)


@pytest.mark.usefixtures("empty_registry")
def test_a_registered_family_is_used_for_its_model_type() -> None:
    model = tiny("bert")
    with pytest.raises(
        ns.UnsupportedArchitectureError, match=r"'bert' is not supported.*normscope\.register_family\(\)"
    ):
        ns.load(model, family="registered")
    mine = ns.register_family(replace(BERT, name="mine", model_types=("bert",)))
    assert ns.supported_models() == {"bert": mine}
    (analysis,) = analyze_all(model, token_ids(4))
    assert analysis.attrs["family"] == "mine"
