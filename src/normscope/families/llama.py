"""Llama and its kin: causal decoders with RMS norms, gated feed-forwards and grouped values; and Cohere, Mixtral, GPT-OSS.

| trap | where |
|---|---|
| one value head serves a group of heads | all but the oldest |
| query, key and value are one projection; gate and up another | Phi-3 |
| the norm's weight counts from one | Gemma |
| norms before and after each branch | Gemma 2, Gemma 3 |
| norms only after each branch | OLMo 2 |
| the norm centres although it has no bias; attention and feed-forward run side by side | Cohere |
| attention sinks take a share of the weights, so that rows do not sum to one | GPT-OSS |
| experts are stacked tensors, chosen for each token | Mixtral, GPT-OSS |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from normscope.families.spec import (
    BranchNorm,
    ClampedExpertsPart,
    Config,
    DispatchedAttention,
    ExpertsPart,
    Family,
    FeedForwardPart,
    FusedGatedPart,
    FusedTail,
    GatedPart,
    LayerNormPart,
    Parallel,
    PreNorm,
    RmsNormPart,
    Sandwich,
    SplitHeads,
    Stack,
    Topology,
    UnitRmsNormPart,
    unlimited,
)

_FIRST_NORM, _SECOND_NORM = "input_layernorm", "post_attention_layernorm"
_BARE_ATTENTION = DispatchedAttention("self_attn", SplitHeads("self_attn.v_proj"), "self_attn.o_proj")
_ATTENTION = replace(_BARE_ATTENTION, norm=RmsNormPart(_FIRST_NORM))
_CENTRED_ATTENTION = replace(_BARE_ATTENTION, norm=LayerNormPart(_FIRST_NORM))
_UNIT_ATTENTION = replace(_BARE_ATTENTION, norm=UnitRmsNormPart(_FIRST_NORM))
_GATED = GatedPart("mlp.gate_proj", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj")


def _pre_norm(feed_forward: FeedForwardPart) -> PreNorm:
    return PreNorm(_ATTENTION, RmsNormPart(_SECOND_NORM), feed_forward)


def _family(
    name: str, topology: Topology | Callable[[Config], Topology], *model_types: str, blocks: str = "layers.*"
) -> Family:
    """Positions are rotary in this line, so that no table limits the input."""
    return Family(name, model_types or (name,), Stack(blocks, topology, causal=True), longest=unlimited)


LLAMA = _family(
    "llama",
    _pre_norm(_GATED),
    *("llama", "mistral", "qwen2", "qwen3", "smollm3", "ministral", "ministral3", "helium", "cwm", "ernie4_5"),
    *("seed_oss", "hunyuan_v1_dense"),
)

PHI3 = _family(
    "phi3",
    PreNorm(
        attention=replace(_ATTENTION, value=FusedTail("self_attn.qkv_proj")),
        feed_forward_norm=RmsNormPart(_SECOND_NORM),
        feed_forward=FusedGatedPart("mlp.gate_up_proj", "mlp.activation_fn", "mlp.down_proj"),
    ),
)

GLM = _family(
    "glm",
    PreNorm(
        attention=_ATTENTION,
        feed_forward_norm=RmsNormPart(_SECOND_NORM),
        feed_forward=FusedGatedPart("mlp.gate_up_proj", "mlp.activation_fn", "mlp.down_proj"),
    ),
)

GEMMA = _family("gemma", PreNorm(_UNIT_ATTENTION, UnitRmsNormPart(_SECOND_NORM), _GATED))

_GEMMA_SANDWICH = Sandwich(
    attention=_UNIT_ATTENTION,
    after_attention=UnitRmsNormPart(_SECOND_NORM),
    before_feed_forward=UnitRmsNormPart("pre_feedforward_layernorm"),
    feed_forward=_GATED,
    after_feed_forward=UnitRmsNormPart("post_feedforward_layernorm"),
)

GEMMA2 = _family("gemma2", _GEMMA_SANDWICH, "gemma2", "gemma3_text")

OLMO2 = _family(
    "olmo2",
    BranchNorm(
        attention=_BARE_ATTENTION,
        after_attention=RmsNormPart(_SECOND_NORM),
        feed_forward=_GATED,
        after_feed_forward=RmsNormPart("post_feedforward_layernorm"),
    ),
    *("olmo2", "olmo3", "exaone4"),
)

_COHERE_PARALLEL = Parallel(_CENTRED_ATTENTION, LayerNormPart(_FIRST_NORM), _GATED)

COHERE = _family("cohere", _COHERE_PARALLEL, "cohere", "cohere2")


def _stablelm_topology(config: Config) -> Topology:
    if config.use_parallel_residual:
        return _COHERE_PARALLEL
    return PreNorm(_CENTRED_ATTENTION, LayerNormPart(_SECOND_NORM), _GATED)


STABLELM = _family("stablelm", _stablelm_topology)

MIXTRAL = _family(
    "mixtral",
    _pre_norm(ExpertsPart("mlp", "mlp.gate", "mlp.experts", "mlp.experts.act_fn")),
    *("mixtral", "olmoe", "qwen3_moe", "minimax_m2"),
)

GPT_OSS = _family("gpt_oss", _pre_norm(ClampedExpertsPart("mlp", "mlp.router", "mlp.experts")))

FAMILIES = (LLAMA, PHI3, GLM, STABLELM, GEMMA, GEMMA2, OLMO2, COHERE, MIXTRAL, GPT_OSS)
