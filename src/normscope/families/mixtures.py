"""Decoders of the Llama line with mixtures of experts: Mixtral, Qwen, OLMoE, GPT-OSS, DeepSeek and their kin.

| trap | where |
|---|---|
| experts are stacked tensors, chosen for each token | all |
| the first layers (or every so many) have one network instead of experts | DeepSeek, Qwen, GLM-4, Ernie 4.5 |
| a shared network serves every token beside the experts | DeepSeek, Qwen 2, GLM-4, Ernie 4.5 |
| the shared network is weighed by a sigmoid gate | Qwen 2 |
| values come from a narrow latent state, through a norm | DeepSeek, GLM-4 Lite |
| attention sinks take a share of the weights, so that rows do not sum to one | GPT-OSS |
| norms only after each branch | FlexOlmo |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from normscope.families.llama import ATTENTION, BARE_ATTENTION, CENTRED_ATTENTION, GATED, SECOND_NORM, decoder, pre_norm
from normscope.families.spec import (
    BranchNorm,
    ClampedExpertsPart,
    Config,
    ExpertsPart,
    GatedPart,
    LatentPerHead,
    LayerNormPart,
    PreNorm,
    RmsNormPart,
    ScaledPreNorm,
    SharedExpertsPart,
    Topology,
)

_EXPERTS = ExpertsPart("mlp", "mlp.experts", "mlp.experts.act_fn")


def _shared(name: str, gate: str | None = None) -> SharedExpertsPart:
    """Experts beside the shared network of a name."""
    inside = f"mlp.{name}"
    network = GatedPart(f"{inside}.gate_proj", f"{inside}.up_proj", f"{inside}.act_fn", f"{inside}.down_proj")
    return SharedExpertsPart(_EXPERTS, network, gate)


# ---- which layers have experts -----------------------------------------------------------------------------------------

Sparse = Callable[[Config], list[bool]]
"""Whether each layer has experts."""


def _after_the_first(config: Config) -> list[bool]:
    return [layer >= config.first_k_dense_replace for layer in range(config.num_hidden_layers)]


def _as_listed(config: Config) -> list[bool]:
    return [kind == "sparse" for kind in config.mlp_layer_types]


def _every_so_many(config: Config) -> list[bool]:
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

MIXTRAL = decoder("mixtral", pre_norm(_EXPERTS), *("mixtral", "olmoe", "minimax_m2"))

PHI_MOE = decoder("phimoe", PreNorm(CENTRED_ATTENTION, LayerNormPart(SECOND_NORM), _EXPERTS))

GPT_OSS = decoder("gpt_oss", pre_norm(ClampedExpertsPart("mlp", "mlp.experts")))

SOLAR_OPEN = decoder("solar_open", pre_norm(_shared("shared_experts")))

HUNYUAN_MOE = decoder("hunyuan_v1_moe", pre_norm(_shared("shared_mlp")))

FLEX_OLMO = decoder(
    "flex_olmo",
    BranchNorm(
        attention=BARE_ATTENTION,
        after_attention=RmsNormPart(SECOND_NORM),
        feed_forward=_EXPERTS,
        after_feed_forward=RmsNormPart("post_feedforward_layernorm"),
    ),
)


def _granite_moe_topology(config: Config) -> Topology:
    experts = ExpertsPart("block_sparse_moe", "block_sparse_moe.experts", "block_sparse_moe.experts.act_fn")
    return ScaledPreNorm(ATTENTION, RmsNormPart(SECOND_NORM), experts, factor=config.residual_multiplier)


GRANITE_MOE = decoder("granitemoe", _granite_moe_topology)

# ---- experts in some layers --------------------------------------------------------------------------------------------

QWEN2_MOE = decoder("qwen2_moe", _mixed(pre_norm(_shared("shared_expert", "mlp.shared_expert_gate")), _every_so_many))

QWEN3_MOE = decoder("qwen3_moe", _mixed(pre_norm(_EXPERTS), _every_so_many))

MELLUM = decoder("mellum", _mixed(pre_norm(_EXPERTS), _as_listed))

FLINT = decoder("flint", _mixed(pre_norm(_shared("shared_expert")), _every_so_many))

GLM4_MOE = decoder("glm4_moe", _mixed(pre_norm(_shared("shared_experts")), _after_the_first), "glm4_moe", "dots1")

EXAONE_MOE = decoder("exaone_moe", _mixed(pre_norm(_shared("shared_experts")), _as_listed), "exaone_moe", "hy_v3")


def _ernie_layers(config: Config) -> list[Topology]:
    experts = _shared("shared_experts") if config.moe_num_shared_experts > 0 else _EXPERTS
    return _mixed(pre_norm(experts), _in_a_stretch)(config)


ERNIE_MOE = decoder("ernie4_5_moe", _ernie_layers)

# ---- latent values -----------------------------------------------------------------------------------------------------

_LATENT = PreNorm(
    attention=replace(
        ATTENTION,
        value=LatentPerHead(
            "self_attn.kv_b_proj",
            down="self_attn.kv_a_proj_with_mqa",
            norm=RmsNormPart("self_attn.kv_a_layernorm"),
        ),
    ),
    feed_forward_norm=RmsNormPart(SECOND_NORM),
    feed_forward=_shared("shared_experts"),
)

DEEPSEEK = decoder("deepseek", _mixed(_LATENT, _after_the_first), "deepseek_v2", "deepseek_v3", "mistral4")

GLM4_MOE_LITE = decoder("glm4_moe_lite", _mixed(_LATENT, _as_listed))

YOUTU = decoder("youtu", replace(_LATENT, feed_forward=GATED))

FAMILIES = (
    *(MIXTRAL, PHI_MOE, GPT_OSS, SOLAR_OPEN, HUNYUAN_MOE, FLEX_OLMO, GRANITE_MOE, QWEN2_MOE, QWEN3_MOE, MELLUM),
    *(FLINT, GLM4_MOE, EXAONE_MOE, ERNIE_MOE, DEEPSEEK, GLM4_MOE_LITE, YOUTU),
)
