"""Every architecture beyond the BERT line, by the same battery that third parties use."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import (
    EXPERTS,
    GEMMA3,
    GROUPED,
    GROUPED_EXPERTS,
    LATENT,
    LATENT_EXPERTS,
    MULTIPLIERS,
    TOWERS,
    TOWERS_OF_TEXT,
    VARIANTS,
    ids,
    tiny,
)
from support.tiny_models import SIZES
from transformers import AutoModel, AutoModelForImageTextToText, CLIPConfig, CLIPModel

import normscope as ns
from normscope.experiments.expansion import ExpansionRate
from normscope.families import family_of, supported_models
from normscope.families.multimodal import TEXT_TOWER
from normscope.families.refused import refused_models
from normscope.families.spec import (
    DispatchedAttention,
    Family,
    GatedPart,
    Parallel,
    PreNorm,
    RmsNormPart,
    SharedExpertsPart,
    Stack,
    UnitRmsNormPart,
)
from normscope.testing import assert_family, assert_head
from normscope.testing.tiny import model_of, shrunk

IDS = [f"{name}-{index}" for index, (name, _) in enumerate(VARIANTS)]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("model_type", "overrides"), VARIANTS, ids=IDS)
def test_a_family_passes_the_whole_battery(model_type: str, overrides: dict[str, Any]) -> None:
    assert_family(family_of(model_type), tiny(model_type, **overrides))


def test_every_registered_architecture_but_the_bert_line_is_in_the_battery() -> None:
    covered = (
        {model_type for model_type, _ in VARIANTS} | set(SIZES) | set(TEXT_TOWER.model_types) | set(TOWERS_OF_TEXT)
    )
    pyramids = {model_type for model_type, family in supported_models().items() if family.pyramid}  # test_pyramids.py
    assert set(supported_models()) <= covered | pyramids


@pytest.mark.parametrize("model_type", TOWERS_OF_TEXT)
def test_the_text_tower_of_a_multimodal_model_passes_the_batteries(model_type: str) -> None:
    model = model_of(TOWERS_OF_TEXT[model_type], shrunk(model_type))
    assert_family(family_of(model_type), model)
    assert_head(model)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", [each for each in TEXT_TOWER.model_types if each not in TOWERS_OF_TEXT])
def test_the_text_tower_of_every_multimodal_model_passes_the_battery(model_type: str) -> None:
    config = shrunk(model_type)
    assert_family(family_of(model_type), model_of(type(AutoModel.from_config(config)).__name__, config))


def test_a_model_of_two_towers_is_refused_as_a_whole_and_its_towers_are_analysed() -> None:
    model = CLIPModel(CLIPConfig(**TOWERS))
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"CLIPModel.*model\.vision_model or model\.text_model"):
        ns.load(model).analyze({"pixel_values": torch.zeros(1, 3, 12, 12)})
    with pytest.raises(ns.UnsupportedArchitectureError, match="CLIPModel is not analysed as a whole"):
        assert_family(family_of("clip"), model)
    assert ns.load(model.text_model).family.name == "clip-text"
    tokens = ns.load(model.vision_model).analyze({"pixel_values": torch.zeros(1, 3, 12, 12)}).tokens
    assert tokens[:3] == ["[CLS]", "0,0", "0,1"]


def test_no_type_is_both_described_and_refused() -> None:
    assert set(supported_models()) & set(refused_models()) == set()


def test_gates_that_differ_inside_of_a_head_are_refused() -> None:
    model = tiny("laguna", **GROUPED_EXPERTS, gating="per-element")
    with pytest.raises(ns.UnsupportedArchitectureError, match="gates differ inside of a head"):
        ns.load(model).analyze(ids(5, 6, 7))


def test_the_battery_refuses_a_family_that_leaves_out_a_norm() -> None:
    llama = family_of("llama").stack.topology
    assert isinstance(llama, PreNorm)
    wrong = Parallel(llama.attention, RmsNormPart("input_layernorm"), llama.feed_forward)  # type: ignore[arg-type]
    with pytest.raises(ns.UnsupportedArchitectureError, match="side by side"):
        assert_family(Family("wrong", ("llama",), Stack("layers.*", wrong, causal=True)), tiny("llama", **GROUPED))


def test_the_battery_refuses_a_bidirectional_model_described_as_causal() -> None:
    family = family_of("eurobert")
    wrong = Family("wrong", ("eurobert",), Stack("layers.*", family.stack.topology, causal=True))
    with pytest.raises(ns.UnsupportedArchitectureError, match="causal"):
        assert_family(wrong, tiny("eurobert", **GROUPED))


def test_the_battery_refuses_a_wrong_norm() -> None:
    with pytest.raises(AssertionError, match="not complete after AttnResLn "):
        assert_family(family_of("llama"), tiny("gemma", **GROUPED))


def test_the_battery_refuses_a_family_that_leaves_out_the_norm_before_attention() -> None:
    llama = family_of("llama")
    topology = llama.stack.topology
    assert isinstance(topology, PreNorm)
    without = replace(topology, attention=replace(topology.attention, norm=None))
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"v_proj does not read what its family says.*no step"):
        assert_family(replace(llama, stack=replace(llama.stack, topology=without)), tiny("llama", **GROUPED))


def test_the_battery_refuses_the_wrong_kind_of_norm_before_attention() -> None:
    llama = family_of("llama")
    topology = llama.stack.topology
    assert isinstance(topology, PreNorm)
    wrong = replace(topology, attention=replace(topology.attention, norm=UnitRmsNormPart("input_layernorm")))
    with pytest.raises(AssertionError, match="values of Attn recomputed from the states before it in layer 1"):
        assert_family(replace(llama, stack=replace(llama.stack, topology=wrong)), tiny("llama", **GROUPED))


def test_values_that_are_clipped_are_analysed_but_not_followed_below_attention() -> None:
    analyzer = ns.load(tiny("olmoe", **GROUPED, **EXPERTS, clip_qkv=0.1))
    assert float(analyzer.analyze(ids(5, 6, 7)).completeness.max()) < 1e-5
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"clipped to 0\.1, so they cannot be followed"):
        analyzer.analyze(ids(5, 6, 7), value_bias="bias")


def test_the_first_layers_of_a_mixture_may_have_one_network_and_the_same_scopes() -> None:
    model = tiny("deepseek_v3", **LATENT_EXPERTS)
    kinds = [type(topology.chain()[5]) for topology in family_of("deepseek_v3").stack.topologies(model.config)]
    assert kinds == [GatedPart, SharedExpertsPart, SharedExpertsPart]
    analyzer = ns.load(model)
    assert analyzer.scopes == ["AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes"]
    assert analyzer.analyze(ids(5, 6, 7), layers=[2]).layers == [2]


def test_values_from_a_latent_state_have_no_expansion_rate() -> None:
    analyzer = ns.load(tiny("youtu", **LATENT, head_dim=4))
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"through a norm \(self_attn\.kv_a_layernorm\)"):
        ExpansionRate().from_model(analyzer)


def test_a_scaled_branch_adds_no_scope() -> None:
    analyzer = ns.load(tiny("granite", **GROUPED, **MULTIPLIERS))
    assert analyzer.scopes == ns.load(tiny("llama", **GROUPED)).scopes
    analysis = analyzer.analyze(ids(5, 6, 7), scopes=["Attn", "AttnRes"])
    off_diagonal = analysis.map("AttnRes").values[:, 2, 0] / analysis.map("Attn").values[:, 2, 0]
    np.testing.assert_allclose(off_diagonal, MULTIPLIERS["residual_multiplier"], rtol=1e-5)


def test_the_text_tower_of_a_multimodal_model_reads_text() -> None:
    analyzer = ns.load(tiny("gemma3", AutoModelForImageTextToText, **GEMMA3))
    assert analyzer.layers == [1, 2]
    analysis = analyzer.analyze(ids(5, 6, 7, 8))
    assert analysis.map("AttnLnResLnFfLnRes").shape == (2, 4, 4)


def test_layers_with_other_components_than_the_rest_are_refused() -> None:
    llama = family_of("llama")
    first = llama.stack.topology
    assert isinstance(first, PreNorm)
    second = Parallel(first.attention, RmsNormPart("input_layernorm"), first.feed_forward)  # type: ignore[arg-type]
    family = replace(llama, stack=replace(llama.stack, topology=lambda _: (first, second)))
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"Attn Ff Res / Attn Res Ln Ff Res.*scopes in common"):
        assert_family(family, tiny("llama", **GROUPED))


def test_a_description_of_too_few_layers_is_refused() -> None:
    llama = family_of("llama")
    family = replace(llama, stack=replace(llama.stack, topology=lambda _: (llama.stack.topology,)))
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"describes 1 layers.* has 2"):
        assert_family(family, tiny("llama", **GROUPED))


def test_a_third_party_family_is_registered_by_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = import_module("normscope.families")._registry()
    monkeypatch.setitem(registry, "my-llama", None)  # so that it is gone afterwards
    attention = DispatchedAttention("self_attn", family_of("llama").stack.topology.attention.value, "self_attn.o_proj")  # type: ignore[union-attr]
    family = Family("mine", ("my-llama",), Stack("layers.*", PreNorm(attention, *_rest_of_llama()), causal=True))
    ns.register_family(family)
    assert family_of("my-llama") is family


def _rest_of_llama() -> tuple[Any, Any]:
    topology = family_of("llama").stack.topology
    assert isinstance(topology, PreNorm)
    return topology.feed_forward_norm, topology.feed_forward


def test_labels_that_are_rows_of_a_language_models_matrix_are_explained() -> None:
    model = model_of("ShieldGemma2ForImageClassification", shrunk("shieldgemma2"))
    analyzer = ns.load(model)
    explanation = analyzer.explain(ids(5, 6, 7, 8), target="No", objective="logit")
    assert isinstance(explanation, ns.Explanation)
    own = model(input_ids=torch.tensor([[5, 6, 7, 8]])).logits.detach()[0, 1]
    assert float(explanation.value) == pytest.approx(float(own), rel=1e-5)
    assert float(explanation.shares.sum()) + sum(explanation.biases) == pytest.approx(float(own), rel=1e-4)
