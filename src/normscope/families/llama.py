"""Llama and its kin: causal decoders with gated feed-forwards and grouped values, most of them with RMS norms.

| trap | where |
|---|---|
| one value head serves a group of heads | all but the oldest |
| query, key and value are one projection; gate and up another | Phi-3 |
| the norm's weight counts from one | Gemma |
| norms before and after each branch | Gemma 2, Gemma 3, GLM-4 |
| norms only after each branch | OLMo 2 |
| the norm centres although it has no bias; attention and feed-forward run side by side | Cohere |
| the norm centres, has neither weight nor bias, and does not tell its epsilon | OLMo |
| what a branch adds is multiplied by a constant | Granite |
| a sink takes a share of what attention outputs, after its weights | Granite SWA |
| the decoder is inside a multimodal model, its configuration inside another | Gemma 3 |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from normscope.families.spec import (
    BranchNorm,
    Config,
    DispatchedAttention,
    Family,
    FeedForwardPart,
    FixedLayerNormPart,
    FusedGatedPart,
    FusedTail,
    GatedPart,
    LayerNormPart,
    Parallel,
    PreNorm,
    RmsNormPart,
    Sandwich,
    ScaledPreNorm,
    SplitHeads,
    Stack,
    Topology,
    UnitRmsNormPart,
    unlimited,
)

FIRST_NORM, SECOND_NORM = "input_layernorm", "post_attention_layernorm"
BARE_ATTENTION = DispatchedAttention("self_attn", SplitHeads("self_attn.v_proj"), "self_attn.o_proj")
ATTENTION = replace(BARE_ATTENTION, norm=RmsNormPart(FIRST_NORM))
CENTRED_ATTENTION = replace(BARE_ATTENTION, norm=LayerNormPart(FIRST_NORM))
UNIT_ATTENTION = replace(BARE_ATTENTION, norm=UnitRmsNormPart(FIRST_NORM))
GATED = GatedPart("mlp.gate_proj", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj")


_FUSED_GATED = FusedGatedPart("mlp.gate_up_proj", "mlp.activation_fn", "mlp.down_proj")


def pre_norm(feed_forward: FeedForwardPart) -> PreNorm:
    return PreNorm(ATTENTION, RmsNormPart(SECOND_NORM), feed_forward)


def decoder(
    name: str, topology: Topology | Callable[[Config], Topology | Sequence[Topology]], *model_types: str
) -> Family:
    """Positions are rotary in this line, so that no table limits the input."""
    return Family(name, model_types or (name,), Stack("layers.*", topology, causal=True), longest=unlimited)


LLAMA = decoder(
    "llama",
    pre_norm(GATED),
    *("llama", "mistral", "qwen2", "qwen3", "smollm3", "ministral", "ministral3", "helium", "cwm", "ernie4_5"),
    *(
        "seed_oss",
        "hunyuan_v1_dense",
        "qwen2_vl_text",
        "qwen2_5_vl_text",
        "qwen3_vl_text",
        "molmo2_text",
        "emu3_text_model",
        "hunyuan_vl_text",
    ),
)

PHI3 = decoder(
    "phi3",
    PreNorm(
        attention=replace(ATTENTION, value=FusedTail("self_attn.qkv_proj")),
        feed_forward_norm=RmsNormPart(SECOND_NORM),
        feed_forward=_FUSED_GATED,
    ),
    *("phi3", "phi4_multimodal"),
)

GLM = decoder("glm", pre_norm(_FUSED_GATED))

GLM4 = decoder(
    "glm4",
    Sandwich(
        attention=ATTENTION,
        after_attention=RmsNormPart("post_self_attn_layernorm"),
        before_feed_forward=RmsNormPart(SECOND_NORM),
        feed_forward=_FUSED_GATED,
        after_feed_forward=RmsNormPart("post_mlp_layernorm"),
    ),
    *("glm4", "glm4v_text", "glm_image_text", "glm_ocr_text"),
)

GEMMA = decoder("gemma", PreNorm(UNIT_ATTENTION, UnitRmsNormPart(SECOND_NORM), GATED))

_GEMMA_SANDWICH = Sandwich(
    attention=UNIT_ATTENTION,
    after_attention=UnitRmsNormPart(SECOND_NORM),
    before_feed_forward=UnitRmsNormPart("pre_feedforward_layernorm"),
    feed_forward=GATED,
    after_feed_forward=UnitRmsNormPart("post_feedforward_layernorm"),
)

GEMMA2 = decoder("gemma2", _GEMMA_SANDWICH, "gemma2", "gemma3_text")


def text_layers(config: Config) -> int:
    return config.get_text_config().num_hidden_layers


GEMMA3 = Family(
    "gemma3",
    ("gemma3",),
    Stack("language_model.layers.*", _GEMMA_SANDWICH, causal=True, depth=text_layers),
    longest=unlimited,
)

SHIELDGEMMA2 = replace(
    GEMMA3,
    name="shieldgemma2",
    model_types=("shieldgemma2",),
    stack=replace(GEMMA3.stack, blocks=f"model.{GEMMA3.stack.blocks}"),
)

OLMO_EPSILON = 1e-5

OLMO = decoder(
    "olmo",
    PreNorm(
        attention=replace(BARE_ATTENTION, norm=FixedLayerNormPart(FIRST_NORM, OLMO_EPSILON)),
        feed_forward_norm=FixedLayerNormPart(SECOND_NORM, OLMO_EPSILON),
        feed_forward=GATED,
    ),
)

OLMO2 = decoder(
    "olmo2",
    BranchNorm(
        attention=BARE_ATTENTION,
        after_attention=RmsNormPart(SECOND_NORM),
        feed_forward=GATED,
        after_feed_forward=RmsNormPart("post_feedforward_layernorm"),
    ),
    *("olmo2", "olmo3", "exaone4"),
)

_COHERE_PARALLEL = Parallel(CENTRED_ATTENTION, LayerNormPart(FIRST_NORM), GATED)

COHERE = decoder("cohere", _COHERE_PARALLEL, "cohere", "cohere2")


def _stablelm_topology(config: Config) -> Topology:
    if config.use_parallel_residual:
        return _COHERE_PARALLEL
    return PreNorm(CENTRED_ATTENTION, LayerNormPart(SECOND_NORM), GATED)


STABLELM = decoder("stablelm", _stablelm_topology)


PROBED_ATTENTION = replace(ATTENTION, probed=True)
"""Eager attention multiplies what the softmax's weights give by the share that a sink leaves."""


def _granite_topology(config: Config, attention: DispatchedAttention = ATTENTION) -> Topology:
    return ScaledPreNorm(attention, RmsNormPart(SECOND_NORM), GATED, factor=config.residual_multiplier)


GRANITE = decoder("granite", _granite_topology)

GRANITE_SWA = decoder("granite_swa", partial(_granite_topology, attention=PROBED_ATTENTION))

FAMILIES = (
    LLAMA,
    PHI3,
    GLM,
    GLM4,
    STABLELM,
    GEMMA,
    GEMMA2,
    GEMMA3,
    SHIELDGEMMA2,
    OLMO,
    OLMO2,
    COHERE,
    GRANITE,
    GRANITE_SWA,
)
