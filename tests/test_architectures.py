"""Every architecture beyond the BERT line, from tiny random models, by the same battery that third parties use."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_models import SIZES
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    BartForCausalLM,
    BlenderbotForCausalLM,
    BlenderbotSmallForCausalLM,
    MarianForCausalLM,
    MBartForCausalLM,
    MT5EncoderModel,
    PegasusForCausalLM,
    PLBartForCausalLM,
    PreTrainedModel,
    T5EncoderModel,
    UMT5EncoderModel,
    ViTModel,
)
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import normscope as ns
from normscope.capture import module_between
from normscope.experiments.expansion import ExpansionRate
from normscope.families import families, family_of
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
from normscope.testing import assert_family

# Deliberately awkward: three heads, a hidden size that divides nothing, a feed-forward of a prime size.
SIZE: dict[str, Any] = {
    **dict(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=37),
    **dict(max_position_embeddings=32, pad_token_id=1, bos_token_id=0, eos_token_id=2),
}
GROUPED = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=6)
GPT2 = dict(n_embd=24, n_layer=2, n_head=3, n_positions=32)
T5 = dict(d_model=24, d_kv=10, d_ff=37, num_layers=2, num_decoder_layers=3, num_heads=3, decoder_start_token_id=1)
BART = dict(
    **dict(d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3, decoder_attention_heads=3),
    **dict(encoder_ffn_dim=37, decoder_ffn_dim=29, decoder_start_token_id=1),
)
# transformers multiplies experts in groups, which wants sizes in multiples of four.
EXPERTS = dict(
    num_local_experts=5, num_experts=5, num_experts_per_tok=2, intermediate_size=36, moe_intermediate_size=20
)
GROUPED_EXPERTS = {**GROUPED, **EXPERTS}
# Six experts in two groups, one shared, none in the first of three layers.
SHARED_EXPERTS = {
    **GROUPED_EXPERTS,
    **dict(num_experts=6, num_local_experts=6, n_routed_experts=6, n_shared_experts=1, n_group=2, topk_group=1),
    **dict(num_hidden_layers=3, first_k_dense_replace=1),
}
LISTED_LAYERS = dict(num_hidden_layers=3, mlp_layer_types=["dense", "sparse", "sparse"])
LATENT = dict(
    **dict(num_attention_heads=4, num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=12),
    **dict(qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5),
)
LATENT_EXPERTS = {**SHARED_EXPERTS, **LATENT, "head_dim": 4, "n_shared_experts": 2, "routed_scaling_factor": 1.5}
MULTIPLIERS = dict(residual_multiplier=0.22, embedding_multiplier=3.0, attention_multiplier=0.3)
ERNIE = {**GROUPED_EXPERTS, "num_hidden_layers": 3, "moe_layer_end_index": 2, "moe_layer_interval": 1}
GEMMA3 = dict(
    text_config={**SIZE, **GROUPED, "sliding_window": 3},
    vision_config=dict(
        **dict(hidden_size=12, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2),
        **dict(image_size=8, patch_size=4),
    ),
)
IMAGE = dict(image_size=12, patch_size=4, num_channels=3)

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", GPT2),
    ("gpt2", {**GPT2, "activation_function": "relu", "n_inner": 31}),
    ("gpt-sw3", GPT2),
    ("gpt_bigcode", {**GPT2, "multi_query": True}),
    ("gpt_bigcode", {**GPT2, "multi_query": False}),
    ("gpt_neo", dict(num_layers=2, num_heads=3, attention_types=[[["global", "local"], 1]], window_size=4)),
    ("gpt_neox", {}),
    ("gpt_neox", dict(use_parallel_residual=False, hidden_act="relu")),
    ("gptj", {**GPT2, "rotary_dim": 4}),
    ("opt", dict(ffn_dim=37, word_embed_proj_dim=24)),
    ("opt", dict(ffn_dim=37, word_embed_proj_dim=24, do_layer_norm_before=False)),
    ("bloom", dict(n_layer=2, n_head=3)),
    ("falcon", dict(multi_query=True, new_decoder_architecture=False, parallel_attn=True)),
    ("falcon", dict(multi_query=False, new_decoder_architecture=False, parallel_attn=False, alibi=True, bias=True)),
    ("falcon", dict(num_attention_heads=4, new_decoder_architecture=True, num_kv_heads=2)),
    ("falcon", dict(num_attention_heads=4, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1)),
    ("phi", dict(hidden_size=32, num_attention_heads=4, partial_rotary_factor=0.5)),
    ("phi3", dict(num_attention_heads=4, num_key_value_heads=2)),
    ("starcoder2", GROUPED),
    ("stablelm", dict(num_attention_heads=4, num_key_value_heads=2)),
    ("stablelm", dict(num_attention_heads=4, num_key_value_heads=2, use_parallel_residual=True)),
    ("biogpt", {}),
    ("xglm", dict(d_model=24, ffn_dim=37, num_layers=2, attention_heads=3)),
    ("cohere", GROUPED),
    ("cohere2", {**GROUPED, "sliding_window": 4}),
    ("llama", dict(num_key_value_heads=1, head_dim=10, attention_bias=True, mlp_bias=True)),
    ("mistral", {**GROUPED, "sliding_window": 3}),
    ("qwen2", GROUPED),
    ("qwen3", GROUPED),
    ("smollm3", GROUPED),
    ("ministral", GROUPED),
    ("ministral3", GROUPED),
    ("cwm", GROUPED),
    ("ernie4_5", GROUPED),
    ("hunyuan_v1_dense", GROUPED),
    ("minimax_m2", GROUPED_EXPERTS),
    ("ernie", {}),
    ("splinter", {}),
    ("bert-generation", {}),
    ("data2vec-text", {}),
    ("mt5", T5),
    ("helium", GROUPED),
    ("seed_oss", GROUPED),
    ("glm", GROUPED),
    ("glm4", GROUPED),
    ("granite", {**GROUPED, **MULTIPLIERS}),
    ("gemma", GROUPED),
    ("gemma2", {**GROUPED, "sliding_window": 3}),
    ("gemma3_text", {**GROUPED, "sliding_window": 3}),
    ("gemma3", GEMMA3),
    ("olmo", GROUPED),
    ("olmo2", GROUPED),
    ("olmo3", GROUPED),
    ("exaone4", GROUPED),
    ("mixtral", GROUPED_EXPERTS),
    ("olmoe", GROUPED_EXPERTS),
    ("phimoe", GROUPED_EXPERTS),
    ("flex_olmo", GROUPED_EXPERTS),
    ("granitemoe", {**GROUPED_EXPERTS, **MULTIPLIERS}),
    ("gpt_oss", {**GROUPED_EXPERTS, "sliding_window": 3}),
    ("hunyuan_v1_moe", {**GROUPED_EXPERTS, "moe_topk": 2}),
    ("solar_open", SHARED_EXPERTS),
    ("qwen2_moe", {**GROUPED_EXPERTS, "num_hidden_layers": 3, "mlp_only_layers": [1]}),
    ("qwen3_moe", GROUPED_EXPERTS),
    ("qwen3_moe", {**GROUPED_EXPERTS, "num_hidden_layers": 3, "decoder_sparse_step": 2}),
    ("flint", {**GROUPED_EXPERTS, "num_hidden_layers": 3, "mlp_only_layers": [0], "decoder_sparse_step": 1}),
    ("mellum", {**GROUPED_EXPERTS, **LISTED_LAYERS}),
    ("glm4_moe", SHARED_EXPERTS),
    ("dots1", {**SHARED_EXPERTS, "first_k_dense_replace": 2}),
    ("exaone_moe", {**SHARED_EXPERTS, **LISTED_LAYERS}),
    ("hy_v3", {**SHARED_EXPERTS, **LISTED_LAYERS}),
    ("ernie4_5_moe", {**ERNIE, "moe_layer_start_index": 1, "moe_num_shared_experts": 2}),
    ("ernie4_5_moe", {**ERNIE, "moe_layer_start_index": 0, "moe_num_shared_experts": 0}),
    ("deepseek_v2", LATENT_EXPERTS),
    ("deepseek_v2", {**LATENT_EXPERTS, "q_lora_rank": None, "topk_method": "greedy", "attention_bias": True}),
    ("deepseek_v3", LATENT_EXPERTS),
    ("mistral4", {key: value for key, value in LATENT_EXPERTS.items() if key != "head_dim"}),
    ("glm4_moe_lite", {**LATENT_EXPERTS, **LISTED_LAYERS}),
    ("youtu", {**LATENT, "head_dim": 4}),
    ("modernbert", dict(local_attention=4, global_attn_every_n_layers=2)),
    ("modernbert-decoder", dict(local_attention=4, global_attn_every_n_layers=2)),
    ("eurobert", GROUPED),
    ("ultrabert", {**GROUPED, "sliding_window": 3}),
    ("nomic_bert", {}),
    ("gte", {}),
    ("roberta-prelayernorm", {}),
    ("t5", T5),
    ("t5", {**T5, "feed_forward_proj": "gated-gelu"}),
    ("t5", {**T5, "feed_forward_proj": "gated-silu"}),
    ("umt5", T5),
    ("bart", BART),
    ("marian", {**BART, "activation_function": "swish"}),
    ("plbart", BART),
    ("blenderbot-small", BART),
    ("mbart", BART),
    ("pegasus", {**BART, "activation_function": "relu"}),
    ("m2m_100", BART),
    ("blenderbot", BART),
    ("vit", IMAGE),
    ("deit", IMAGE),
]
IDS = [f"{name}-{index}" for index, (name, _) in enumerate(VARIANTS)]


def tiny(model_type: str, auto: Any = AutoModel, **overrides: Any) -> PreTrainedModel:
    """A tiny random model with weights large enough to matter, norms and biases included."""
    known = AutoConfig.for_model(model_type)
    settings = {**{key: value for key, value in SIZE.items() if hasattr(known, key)}, **overrides}
    torch.manual_seed(0)
    make = getattr(auto, "from_config", None) or auto._from_config  # an Auto class, or one that is meant
    model = make(AutoConfig.for_model(model_type, **settings))
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("model_type", "overrides"), VARIANTS, ids=IDS)
def test_a_family_passes_the_whole_battery(model_type: str, overrides: dict[str, Any]) -> None:
    assert_family(family_of(model_type), tiny(model_type, **overrides))


def test_every_registered_architecture_but_the_bert_line_is_in_the_battery() -> None:
    covered = {model_type for model_type, _ in VARIANTS} | set(SIZES)
    assert {model_type for model_type in families() if model_type != "my-llama"} <= covered


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
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"not what self_attn\.v_proj gives out.*clipping"):
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


def test_a_third_party_family_is_registered_by_a_call() -> None:
    attention = DispatchedAttention("self_attn", family_of("llama").stack.topology.attention.value, "self_attn.o_proj")  # type: ignore[union-attr]
    family = Family("mine", ("my-llama",), Stack("layers.*", PreNorm(attention, *_rest_of_llama()), causal=True))
    ns.register(family)
    assert family_of("my-llama") is family


def _rest_of_llama() -> tuple[Any, Any]:
    topology = family_of("llama").stack.topology
    assert isinstance(topology, PreNorm)
    return topology.feed_forward_norm, topology.feed_forward


# ---- one stack of an encoder-decoder ---------------------------------------------------------------------------------

ALONE = [
    (T5EncoderModel, "t5", T5, ["AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes"]),
    (MT5EncoderModel, "mt5", {**T5, "feed_forward_proj": "gated-gelu"}, None),
    (UMT5EncoderModel, "umt5", T5, None),
    (BartForCausalLM, "bart", BART, ["AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes"]),
    (MarianForCausalLM, "marian", BART, None),
    (PLBartForCausalLM, "plbart", BART, None),
    (BlenderbotSmallForCausalLM, "blenderbot-small", BART, None),
    (MBartForCausalLM, "mbart", BART, None),
    (PegasusForCausalLM, "pegasus", BART, None),
    (BlenderbotForCausalLM, "blenderbot", BART, None),
]


def alone(model_class: Any, model_type: str, sizes: dict[str, Any]) -> PreTrainedModel:
    """A class that holds one stack of an encoder-decoder."""
    return tiny(model_type, model_class, **sizes)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("model_class", "model_type", "sizes", "scopes"), ALONE)
def test_an_encoder_or_a_decoder_alone_passes_the_whole_battery(
    model_class: Any, model_type: str, sizes: dict[str, Any], scopes: list[str] | None
) -> None:
    assert_family(family_of(model_type), alone(model_class, model_type, sizes))


@pytest.mark.parametrize(("model_class", "model_type", "sizes", "scopes"), ALONE)
def test_an_encoder_or_a_decoder_alone_is_analysed_without_a_target(
    model_class: Any, model_type: str, sizes: dict[str, Any], scopes: list[str] | None
) -> None:
    model = alone(model_class, model_type, sizes)
    analyzer, decodes = ns.load(model), model_class.__name__.endswith("CausalLM")
    assert scopes is None or analyzer.scopes[: len(scopes)] == scopes
    assert not any("Cross" in scope for scope in analyzer.scopes)
    assert len(analyzer.layers) == (3 if decodes else 2)
    analysis = analyzer.analyze(ids(5, 6, 7, 2))
    assert bool(np.isnan(analysis.map("Attn").values[0, 0, 1])) == decodes
    with pytest.raises(ns.InputError, match="no encoder"):
        analyzer.analyze(ids(5, 6), target=ids(5, 6))


def test_the_encoder_alone_gives_what_it_gives_inside_the_whole_model() -> None:
    whole = tiny("t5", AutoModelForSeq2SeqLM, **T5)
    encoder = alone(T5EncoderModel, "t5", T5)
    encoder.load_state_dict(whole.state_dict(), strict=False)
    inside = ns.load(whole).analyze(ids(5, 6, 7, 2), target=ids(9, 2)).encoder
    outside = ns.load(encoder).analyze(ids(5, 6, 7, 2))
    np.testing.assert_array_equal(inside.map("AttnResLnFfRes").values, outside.map("AttnResLnFfRes").values)


# ---- between blocks --------------------------------------------------------------------------------------------------


def test_the_module_between_blocks_is_named_where_there_is_one() -> None:
    stack = family_of("deberta-v2").stack
    assert module_between(tiny("deberta-v2", conv_kernel_size=3), stack) == "encoder.conv"
    assert module_between(tiny("deberta-v2"), stack) is None
    assert module_between(tiny("llama", **GROUPED), family_of("llama").stack) is None


def test_the_battery_refuses_a_family_that_keeps_silent_about_a_module_between_blocks() -> None:
    family = family_of("deberta-v2")
    silent = replace(family, stack=replace(family.stack, between=None))
    with pytest.raises(AssertionError, match="input of layer 2 of the stack against the output of the layer before"):
        assert_family(silent, tiny("deberta-v2", conv_kernel_size=3))


# ---- causal ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama() -> ns.Analyzer:
    return ns.load(tiny("llama", AutoModelForCausalLM, num_key_value_heads=1))


def ids(*numbers: int) -> dict[str, list[list[int]]]:
    return {"input_ids": [list(numbers)]}


def test_keys_after_the_query_are_missing(llama: ns.Analyzer) -> None:
    analysis = llama.analyze(ids(5, 6, 7, 8), heads=True)
    for scope in llama.scopes:
        missing = np.isnan(analysis.map(scope).values)
        assert (missing == np.triu(np.ones((4, 4), bool), 1)).all(), scope
    assert np.isnan(analysis.map("Attn", heads=True).values[..., 0, 1]).all()


def test_one_query_costs_one_row_and_equals_that_of_the_whole(llama: ns.Analyzer) -> None:
    whole, row = llama.analyze(ids(5, 6, 7, 8)), llama.analyze(ids(5, 6, 7, 8), queries=-1)
    assert row.map("Attn").sizes["query"] == 1
    for scope in llama.scopes:
        np.testing.assert_allclose(row.map(scope).values[:, 0], whole.map(scope).values[:, -1], rtol=1e-4, atol=1e-6)


def test_left_and_right_padding_give_the_same(llama: ns.Analyzer) -> None:
    left = llama.analyze({"input_ids": [[1, 1, 5, 6, 7]], "attention_mask": [[0, 0, 1, 1, 1]]})
    right = llama.analyze({"input_ids": [[5, 6, 7, 1, 1]], "attention_mask": [[1, 1, 1, 0, 0]]})
    np.testing.assert_array_equal(left.map("AttnResLnFfRes").values, right.map("AttnResLnFfRes").values)


def test_cached_generation_is_unaffected_by_an_analysis(llama: ns.Analyzer) -> None:
    prompt = torch.tensor([[5, 6, 7]])
    generate = lambda: llama.model.generate(prompt, max_new_tokens=5, do_sample=False, use_cache=True)  # noqa: E731  # type: ignore[operator]
    before = generate()
    llama.analyze(ids(5, 6, 7, 8))
    assert torch.equal(generate(), before)


def test_attention_sinks_keep_their_lost_mass_visible() -> None:
    analyzer = ns.load(tiny("gpt_oss", **GROUPED, **EXPERTS))
    sums = analyzer.analyze(ids(5, 6, 7, 8), scopes="AttnW").map("AttnW").sum("key").values
    assert (sums < 0.999).all()


def test_a_target_for_a_decoder_only_model_is_refused(llama: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="no encoder"):
        llama.analyze(ids(5, 6), target=ids(5, 6))


def test_a_scope_that_the_topology_lacks_is_refused_with_those_it_has() -> None:
    analyzer = ns.load(tiny("gptj", **GPT2, rotary_dim=4))
    with pytest.raises(ns.ScopeError, match="AttnW, Attn, AttnFf, AttnFfRes"):
        analyzer.analyze(ids(5, 6), scopes="AttnResLnFf")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_analysed_in_float32(dtype: torch.dtype) -> None:
    model = tiny("llama", **GROUPED).to(dtype)
    analysis = ns.load(model).analyze(ids(5, 6, 7, 8, 9))
    assert analysis.map("Attn").dtype == np.float32
    assert float(analysis.completeness.max()) < analysis.attrs["tolerance"]


def test_a_quantised_model_is_probed_for_its_hidden_matrices() -> None:
    model = tiny("llama", **GROUPED)
    expected = ns.load(model).analyze(ids(5, 6, 7), scopes="AttnRes").map("AttnRes").values
    for layer in model.layers:  # type: ignore[union-attr]
        layer.self_attn.o_proj = _HiddenLinear(layer.self_attn.o_proj)
    found = ns.load(model).analyze(ids(5, 6, 7), scopes="AttnRes").map("AttnRes").values
    np.testing.assert_allclose(found, expected, rtol=1e-4)


class _HiddenLinear(torch.nn.Module):
    """A linear layer that does not show its matrix, as packed and quantised ones do not."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.packed = torch.nn.Parameter(linear.weight.detach().flatten())

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states @ self.packed.view(-1, self.in_features).T


# ---- encoder-decoder -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bart() -> ns.Analyzer:
    return ns.load(tiny("bart", AutoModelForSeq2SeqLM, **BART))


def test_a_decoder_has_target_and_source_keys_after_the_cross_attention(bart: ns.Analyzer) -> None:
    analysis = bart.analyze(ids(5, 6, 7, 8, 2), target=ids(9, 10, 2))
    groups = analysis.dataset["key_group"].values.tolist()
    assert groups == ["target"] * 3 + ["source"] * 5
    assert analysis.tokens == ["1", "9", "10", "5", "6", "7", "8", "2"]
    assert analysis.dataset["query_output_token"].values.tolist() == ["9", "10", "2"]
    exists = ~np.isnan(analysis.dataset["map"].values)
    scopes = analysis.dataset["scope"].values.tolist()
    before, cross, after = (exists[scopes.index(s)] for s in ("AttnResLn", "AttnResLnCross", "AttnResLnCrossRes"))
    assert not before[..., 3:].any()
    assert not cross[..., :3].any() and cross[..., 3:].all()
    assert after[..., 3:].all() and (after[..., :3] == np.tril(np.ones((3, 3), bool))).all()


def test_cross_is_short_for_the_cross_attention_alone(bart: ns.Analyzer) -> None:
    analysis = bart.analyze(ids(5, 6, 2), target=ids(9, 2), heads=True)
    np.testing.assert_array_equal(analysis.map("Cross").values, analysis.map("AttnResLnCross").values)
    assert analysis.map("CrossW", heads=True).sizes["head"] == 3
    np.testing.assert_allclose(
        analysis.map("CrossW", heads=True).mean("head").values, analysis.map("CrossW").values, rtol=1e-5
    )


def test_the_encoder_has_an_analysis_of_its_own(bart: ns.Analyzer) -> None:
    encoder = bart.analyze(ids(5, 6, 7, 2), target=ids(9, 2)).encoder
    assert encoder.tokens == ["5", "6", "7", "2"]
    assert encoder.map("AttnResLnFfResLn").shape == (2, 4, 4)
    assert float(encoder.completeness.max()) < 1e-5


def test_only_the_decoder_is_followed_when_only_its_scopes_are_asked_for(bart: ns.Analyzer) -> None:
    analysis = bart.analyze(ids(5, 6, 2), target=ids(9, 2), scopes="Cross")
    assert analysis.scopes == ["AttnResLnCross"]
    with pytest.raises(ns.SelectionError, match="no encoder here"):
        _ = analysis.encoder


def test_mixing_shares_of_own_others_and_source_add_up(bart: ns.Analyzer) -> None:
    analysis = bart.analyze(ids(5, 6, 2), target=ids(9, 10, 2))
    shares = analysis.mixing_shares("AttnResLnCrossRes")
    np.testing.assert_allclose(shares.sum("share").values, 1, rtol=1e-6)
    assert (shares.sel(share="source").values > 0).all()
    assert (analysis.mixing_shares("AttnRes").sel(share="source").values == 0).all()


def test_without_a_target_the_model_generates_one(bart: ns.Analyzer) -> None:
    generated = bart.model.generate(torch.tensor([[5, 6, 7, 2]]), do_sample=False, num_beams=1, max_new_tokens=31)  # type: ignore[operator]
    analysis = bart.analyze(ids(5, 6, 7, 2))
    outputs = [int(token) for token in analysis.dataset["query_output_token"].values]
    assert outputs == generated[0, 1:].tolist()


def test_a_model_that_cannot_generate_asks_for_a_target() -> None:
    with pytest.raises(ns.ModelError, match="target="):
        ns.load(tiny("bart", **BART)).analyze(ids(5, 6, 2))


def test_sources_and_targets_must_be_as_many(bart: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="2 sources but 1 targets"):
        bart.analyze({"input_ids": [[5, 6], [7, 8]]}, target=ids(9, 2))


def test_an_encoder_decoder_analysis_survives_saving(bart: ns.Analyzer, tmp_path: Path) -> None:
    analysis = bart.analyze(ids(5, 6, 2), target=ids(9, 2))
    analysis.save(tmp_path / "both.nc")
    opened = ns.open(tmp_path / "both.nc")
    assert opened.dataset.identical(analysis.dataset)
    assert opened.encoder.dataset.identical(analysis.encoder.dataset)


def test_a_batch_of_pairs_equals_each_pair_alone(bart: ns.Analyzer) -> None:
    sources, targets = [[5, 6, 7, 2], [8, 2, 1, 1]], [[9, 2, 1], [10, 11, 2]]
    both = bart.analyze(
        {"input_ids": sources, "attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0]]},
        target={"input_ids": targets, "attention_mask": [[1, 1, 0], [1, 1, 1]]},
    )
    alone = [bart.analyze(ids(5, 6, 7, 2), target=ids(9, 2)), bart.analyze(ids(8, 2), target=ids(10, 11, 2))]
    for one, other in zip(both, alone, strict=True):
        for scope in one.scopes:
            np.testing.assert_allclose(one.map(scope).values, other.map(scope).values, rtol=1e-4, atol=1e-5)


# ---- vision ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vit")
    model = tiny("vit", **IMAGE)
    assert isinstance(model, ViTModel)
    model.save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 12, "width": 12}).save_pretrained(folder)
    return folder


def test_an_image_gives_patches_with_rows_and_columns(vit_folder: Path, tmp_path: Path) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 40, 3), dtype=np.uint8))
    picture.save(tmp_path / "picture.png")
    analyzer = ns.load(vit_folder)
    analysis = analyzer.analyze(tmp_path / "picture.png")
    assert analysis.tokens[:5] == ["[CLS]", "0,0", "0,1", "0,2", "1,0"]
    assert analysis.dataset["key_row"].values.tolist() == [-1, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert analysis.dataset["key_column"].values.tolist() == [-1, 0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert analysis.dataset["image"].shape == (12, 12, 3)
    for same in (picture, np.asarray(picture), str(tmp_path / "picture.png")):
        np.testing.assert_array_equal(analyzer.analyze(same).map("Attn").values, analysis.map("Attn").values)
    assert not math.isnan(float(analysis.completeness.max()))


def test_a_file_that_is_no_image_is_refused(vit_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "no.png").write_text("no")
    with pytest.raises(ns.InputError, match="not an image"):
        ns.load(vit_folder).analyze(tmp_path / "no.png")


def test_an_image_for_a_text_model_is_refused(llama: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="reads text"):
        llama.analyze(Image.new("RGB", (4, 4)))


def test_the_plot_of_an_image_lays_the_map_over_it(vit_folder: Path) -> None:
    analysis = ns.load(vit_folder).analyze(np.full((20, 20, 3), 128, dtype=np.uint8))
    figure = analysis.plot("AttnRes", layer=2, query=0)
    image, overlay = figure.axes[0].get_images()
    assert image.get_array().shape == (12, 12, 3)  # type: ignore[union-attr]
    row = analysis.map("AttnRes").sel(layer=2, query=0).values[1:]
    np.testing.assert_array_equal(overlay.get_array(), row.reshape(3, 3))
