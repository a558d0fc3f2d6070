"""Decoders of the Llama line with mixtures of experts: Mixtral, Qwen, OLMoE, GPT-OSS, DeepSeek and their kin.

| trap | where |
|---|---|
| experts are stacked tensors, chosen for each token | all |
| the first layers (or every n-th) have one network instead of experts | DeepSeek, Qwen, GLM-4, Ernie 4.5 |
| a shared network serves every token in addition to the experts | DeepSeek, Qwen 2, GLM-4, Ernie 4.5 |
| the shared network is weighed by a sigmoid gate | Qwen 2 |
| values come from a narrow latent state, through a norm | DeepSeek, GLM-4 Lite |
| attention sinks take a share of the weights, so that rows do not sum to one | GPT-OSS |
| norms only after each branch | FlexOlmo |
| the shared network is next to the experts' module, and the block adds the two | Granite |
| an indexer lets every query see a few keys only: the weights of the others are zero | DeepSeek 3.2, GLM-5 |
| experts lie below each other in one matrix, and values may be clipped | DBRX |
| the router's weight multiplies what an expert reads, not what it outputs | Llama 4 |
| a gate multiplies what every head outputs: it belongs to the weights | Laguna |
| attention and experts run side by side, and the mean of experts and shared network counts | Cohere 2 |
| values are multiplied by a number | MiMo V2 |
| the class with a head keeps the blocks in another place than the bare model, the multimodal class in a third | Llama 4 |
| experts are stacked transposed | Aria |
| norms before and after each branch | Kolibri |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from normscope.families.llama import (
    ATTENTION,
    BARE_ATTENTION,
    CENTRED_ATTENTION,
    FIRST_NORM,
    GATED,
    PROBED_ATTENTION,
    SECOND_NORM,
    decoder,
    pre_norm,
    text_layers,
)
from normscope.families.plain_decoders import LATENT_ATTENTION
from normscope.families.spec import (
    BranchNorm,
    ClampedExpertsPart,
    Config,
    DispatchedAttention,
    ExpertsPart,
    Family,
    FlatExpertsPart,
    FusedGatedPart,
    FusedTail,
    GatedPart,
    HeadGate,
    HookedAttention,
    InputScaledExpertsPart,
    LayerNormPart,
    Parallel,
    PreNorm,
    RmsNormPart,
    Sandwich,
    ScaledHeads,
    ScaledPreNorm,
    SharedExpertsPart,
    Stack,
    Topology,
    TransposedExpertsPart,
    unlimited,
)

EXPERTS = ExpertsPart("mlp", "mlp.experts", "mlp.experts.act_fn")


def shared_experts(name: str, gate: str | None = None) -> SharedExpertsPart:
    """Experts and the shared network of a name."""
    inside = f"mlp.{name}"
    network = GatedPart(f"{inside}.gate_proj", f"{inside}.up_proj", f"{inside}.act_fn", f"{inside}.down_proj")
    return SharedExpertsPart(EXPERTS, network, gate)


# ---- which layers have experts -----------------------------------------------------------------------------------------

Sparse = Callable[[Config], list[bool]]
"""Whether each layer has experts."""


def _after_the_first(config: Config) -> list[bool]:
    return [layer >= config.first_k_dense_replace for layer in range(config.num_hidden_layers)]


def _as_listed(config: Config) -> list[bool]:
    return [kind == "sparse" for kind in config.mlp_layer_types]


def every_so_many(config: Config) -> list[bool]:
    return [
        layer - 1 not in config.mlp_only_layers and config.num_experts > 0 and layer % config.decoder_sparse_step == 0
        for layer in range(1, 1 + config.num_hidden_layers)
    ]


def _in_a_stretch(config: Config) -> list[bool]:
    stretch = range(config.moe_layer_start_index, 1 + config.moe_layer_end_index)
    return [
        layer in stretch and (layer + 1) % config.moe_layer_interval == 0 for layer in range(config.num_hidden_layers)
    ]


def _layers(config: Config, *, dense: Topology, sparse: Topology, where: Sparse) -> list[Topology]:
    return [sparse if has_experts else dense for has_experts in where(config)]


def _mixed(sparse: PreNorm, where: Sparse) -> Callable[[Config], list[Topology]]:
    """Blocks with experts in some layers, and with one gated network in the others."""
    return partial(_layers, dense=replace(sparse, feed_forward=GATED), sparse=sparse, where=where)


# ---- experts in every layer --------------------------------------------------------------------------------------------


def _dbrx_layers(config: Config) -> int:
    return config.n_layers


MIXTRAL = decoder("mixtral", pre_norm(EXPERTS), *("mixtral", "olmoe", "minimax_m2"))

PHI_MOE = decoder("phimoe", PreNorm(CENTRED_ATTENTION, LayerNormPart(SECOND_NORM), EXPERTS))

GPT_OSS = decoder("gpt_oss", pre_norm(ClampedExpertsPart("mlp", "mlp.experts")))

SOLAR_OPEN = decoder("solar_open", pre_norm(shared_experts("shared_experts")))

HUNYUAN_MOE = decoder("hunyuan_v1_moe", pre_norm(shared_experts("shared_mlp")))

FLEX_OLMO = decoder(
    "flex_olmo",
    BranchNorm(
        attention=BARE_ATTENTION,
        after_attention=RmsNormPart(SECOND_NORM),
        feed_forward=EXPERTS,
        after_feed_forward=RmsNormPart("post_feedforward_layernorm"),
    ),
)


_GRANITEEXPERTS = ExpertsPart("block_sparse_moe", "block_sparse_moe.experts", "block_sparse_moe.experts.act_fn")
_GRANITE_SHARED = SharedExpertsPart(
    _GRANITEEXPERTS, FusedGatedPart("shared_mlp.input_linear", "shared_mlp.activation", "shared_mlp.output_linear")
)


def _granite_moe_topology(config: Config, attention: DispatchedAttention = ATTENTION) -> Topology:
    experts = _GRANITE_SHARED if getattr(config, "shared_intermediate_size", 0) > 0 else _GRANITEEXPERTS
    return ScaledPreNorm(attention, RmsNormPart(SECOND_NORM), experts, factor=config.residual_multiplier)


GRANITE_MOE = decoder("granitemoe", _granite_moe_topology, "granitemoe", "granitemoeshared")

GRANITE_MOE_SWA = decoder("granitemoe_swa", partial(_granite_moe_topology, attention=PROBED_ATTENTION))

DBRX = Family(
    "dbrx",
    ("dbrx",),
    Stack(
        blocks="blocks.*",
        topology=PreNorm(
            attention=DispatchedAttention(
                "norm_attn_norm.attn",
                FusedTail("norm_attn_norm.attn.Wqkv"),
                "norm_attn_norm.attn.out_proj",
                norm=LayerNormPart("norm_attn_norm.norm_1"),
            ),
            feed_forward_norm=LayerNormPart("norm_attn_norm.norm_2"),
            feed_forward=FlatExpertsPart("ffn", "ffn.experts", "ffn.experts.mlp.activation_fn"),
        ),
        causal=True,
        depth=_dbrx_layers,
    ),
    longest=unlimited,
)

# ---- experts in some layers --------------------------------------------------------------------------------------------

QWEN2_MOE = decoder(
    "qwen2_moe", _mixed(pre_norm(shared_experts("shared_expert", "mlp.shared_expert_gate")), every_so_many)
)

QWEN3_MOE = decoder("qwen3_moe", _mixed(pre_norm(EXPERTS), every_so_many), "qwen3_moe", "qwen3_vl_moe_text")

MELLUM = decoder("mellum", _mixed(pre_norm(EXPERTS), _as_listed))

FLINT = decoder("flint", _mixed(pre_norm(shared_experts("shared_expert")), every_so_many))

GLM4_MOE = decoder(
    "glm4_moe",
    _mixed(pre_norm(shared_experts("shared_experts")), _after_the_first),
    *("glm4_moe", "dots1", "glm4v_moe_text"),
)

EXAONE_MOE = decoder(
    "exaone_moe", _mixed(pre_norm(shared_experts("shared_experts")), _as_listed), "exaone_moe", "hy_v3"
)


_MIMO = replace(
    pre_norm(EXPERTS), attention=replace(ATTENTION, value=ScaledHeads("self_attn.v_proj", "self_attn.v_scale"))
)

MIMO = decoder("mimo_v2_flash", _mixed(_MIMO, _as_listed))


def _laguna_layers(config: Config) -> list[Topology]:
    experts = replace(shared_experts("shared_experts"), routed_factor=config.moe_routed_scaling_factor)
    gated = replace(ATTENTION, gate=HeadGate("self_attn.g_proj", "softplus"))
    return _mixed(replace(pre_norm(experts), attention=gated), _as_listed)(config)


LAGUNA = decoder("laguna", _laguna_layers)


def _cohere2_moe_layers(config: Config) -> list[Topology]:
    factor = 0.5 if config.shared_expert_combination_strategy == "average" else 1.0
    experts = replace(shared_experts("shared_experts"), factor=factor) if config.num_shared_experts > 0 else EXPERTS
    sparse = Parallel(CENTRED_ATTENTION, LayerNormPart(FIRST_NORM), experts)
    return _layers(config, dense=replace(sparse, feed_forward=GATED), sparse=sparse, where=_as_listed)


COHERE2_MOE = decoder("cohere2_moe", _cohere2_moe_layers)


_ARIA = TransposedExpertsPart("mlp", "mlp.experts", "mlp.experts.act_fn")

ARIA = decoder("aria_text", pre_norm(replace(shared_experts("shared_experts"), routed=_ARIA)))

KOLIBRI = decoder(
    "kolibri1",
    Sandwich(
        attention=ATTENTION,
        after_attention=RmsNormPart("post_self_attn_layernorm"),
        before_feed_forward=RmsNormPart(SECOND_NORM),
        feed_forward=shared_experts("shared_experts"),
        after_feed_forward=RmsNormPart("post_mlp_layernorm"),
    ),
)


def _llama4_layers(config: Config) -> list[Topology]:
    inside, text = "feed_forward", config.get_text_config()
    dense = _gated_in(inside)
    sparse = SharedExpertsPart(
        InputScaledExpertsPart(inside, f"{inside}.experts", f"{inside}.router", f"{inside}.experts.act_fn"),
        _gated_in(f"{inside}.shared_expert"),
    )
    return [pre_norm(sparse if layer in text.moe_layers else dense) for layer in range(text.num_hidden_layers)]


def _gated_in(module: str) -> GatedPart:
    return GatedPart(f"{module}.gate_proj", f"{module}.up_proj", f"{module}.activation_fn", f"{module}.down_proj")


LLAMA4 = Family(
    "llama4",
    ("llama4_text", "llama4"),
    Stack(
        "layers.*|model.layers.*|language_model.model.layers.*",
        _llama4_layers,
        causal=True,
        depth=text_layers,
    ),
    longest=unlimited,
)


def _ernie_layers(config: Config) -> list[Topology]:
    experts = shared_experts("shared_experts") if config.moe_num_shared_experts > 0 else EXPERTS
    return _mixed(pre_norm(experts), _in_a_stretch)(config)


ERNIE_MOE = decoder("ernie4_5_moe", _ernie_layers)

# ---- latent values -----------------------------------------------------------------------------------------------------

_LATENT = PreNorm(
    attention=LATENT_ATTENTION,
    feed_forward_norm=RmsNormPart(SECOND_NORM),
    feed_forward=shared_experts("shared_experts"),
)

DEEPSEEK = decoder("deepseek", _mixed(_LATENT, _after_the_first), "deepseek_v2", "deepseek_v3", "mistral4")

GLM4_MOE_LITE = decoder("glm4_moe_lite", _mixed(_LATENT, _as_listed))

# The indexer's choice goes into the mask of eager attention by that name alone.
_INDEXED = replace(
    _LATENT,
    attention=HookedAttention("self_attn", LATENT_ATTENTION.value, "self_attn.o_proj", norm=LATENT_ATTENTION.norm),
)

INDEXED = decoder("deepseek_v32", _mixed(_INDEXED, _as_listed), "deepseek_v32", "glm_moe_dsa")

YOUTU = decoder("youtu", replace(_LATENT, feed_forward=GATED))

FAMILIES = (
    *(MIXTRAL, PHI_MOE, GPT_OSS, SOLAR_OPEN, HUNYUAN_MOE, FLEX_OLMO, GRANITE_MOE, QWEN2_MOE, QWEN3_MOE, MELLUM),
    *(FLINT, GLM4_MOE, EXAONE_MOE, ERNIE_MOE, DEEPSEEK, GLM4_MOE_LITE, INDEXED, YOUTU, DBRX, GRANITE_MOE_SWA, MIMO),
    *(LAGUNA, COHERE2_MOE, LLAMA4, ARIA, KOLIBRI),
)
