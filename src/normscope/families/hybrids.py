"""Decoders whose attention is gated, or replaced in some layers by mixers that are linear in their values.

| trap | where |
|---|---|
| a sigmoid gate multiplies every channel of what attention outputs | AFMoE, Qwen3-Next, Qwen 3.5 |
| the gated delta rule: values come by a short convolution and SiLU, and are normalised, head by head, and gated | Qwen |
| values lie between keys and gates in one projection, key head by key head | Qwen3-Next |
| a convolution of three tokens is all that mixes; what enters and what leaves it is gated | LFM2 |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.families.llama import ATTENTION, BARE_ATTENTION, FIRST_NORM, GATED, SECOND_NORM, UNIT_ATTENTION, decoder
from normscope.families.mixtures import every_so_many, shared_experts
from normscope.families.plain_decoders import LATENT_ATTENTION
from normscope.families.spec import (
    NO_NORM,
    AttentionPart,
    ChannelGate,
    Config,
    ContextNormPart,
    DispatchedAttention,
    ExpertsPart,
    FeedForwardPart,
    FusedPerHead,
    FusedRange,
    FusedTail,
    GatedPart,
    HeadGate,
    LinearMixer,
    NamedActivation,
    PreNorm,
    RmsNormPart,
    Sandwich,
    ShortConvolution,
    SplitHeads,
    Topology,
    UnitRmsNormPart,
    Value,
)

# ---- gated attention ---------------------------------------------------------------------------------------------------


def _afmoe_layers(config: Config) -> list[Topology]:
    dense = Sandwich(
        attention=replace(ATTENTION, gate=ChannelGate(SplitHeads("self_attn.gate_proj"))),
        after_attention=RmsNormPart(SECOND_NORM),
        before_feed_forward=RmsNormPart("pre_mlp_layernorm"),
        feed_forward=GATED,
        after_feed_forward=RmsNormPart("post_mlp_layernorm"),
    )
    sparse = replace(dense, feed_forward=shared_experts("shared_experts"))
    return [sparse if layer >= config.num_dense_layers else dense for layer in range(config.num_hidden_layers)]


AFMOE = decoder("afmoe", _afmoe_layers)

# ---- the gated delta rule ----------------------------------------------------------------------------------------------

_GATED_ATTENTION = replace(UNIT_ATTENTION, gate=ChannelGate(FusedPerHead("self_attn.q_proj")))


def _delta_rule(config: Config, value: Value) -> LinearMixer:
    return LinearMixer(
        module="linear_attn",
        function="torch_chunk_gated_delta_rule",
        value=value,
        output="linear_attn.out_proj",
        heads=config.linear_num_value_heads,
        norm=UnitRmsNormPart(FIRST_NORM),
        convolution=ShortConvolution("linear_attn.conv1d", activation=config.hidden_act),
        output_norm=ContextNormPart("linear_attn.norm", gate="silu"),
    )


def either(config: Config, mixer: LinearMixer, attention: AttentionPart) -> list[AttentionPart]:
    """The mixer of every layer."""
    kinds = config.layer_types or ["full_attention"] * config.num_hidden_layers  # a configuration may not say
    return [attention if kind == "full_attention" else mixer for kind in kinds]


def _qwen_layers(config: Config, value: Value, feed_forwards: list[FeedForwardPart]) -> list[Topology]:
    mixers = either(config, _delta_rule(config, value), _GATED_ATTENTION)
    norm = UnitRmsNormPart(SECOND_NORM)
    return [PreNorm(mixer, norm, each) for mixer, each in zip(mixers, feed_forwards, strict=True)]


_SHARED = shared_experts("shared_expert", "mlp.shared_expert_gate")


def _qwen3_next_layers(config: Config) -> list[Topology]:
    keys, group = config.linear_num_key_heads, config.linear_num_value_heads // config.linear_num_key_heads
    width = group * config.linear_value_head_dim
    value = FusedRange("linear_attn.in_proj_qkvz", 2 * config.linear_key_head_dim, width, blocks=keys)
    return _qwen_layers(config, value, [_SHARED if sparse else GATED for sparse in every_so_many(config)])


_QKV = FusedTail("linear_attn.in_proj_qkv")


def _qwen3_5_layers(config: Config) -> list[Topology]:
    return _qwen_layers(config, _QKV, [GATED] * config.num_hidden_layers)


def _qwen3_5_moe_layers(config: Config) -> list[Topology]:
    return _qwen_layers(config, _QKV, [_SHARED] * config.num_hidden_layers)


QWEN3_NEXT = decoder("qwen3_next", _qwen3_next_layers)
QWEN3_5 = decoder("qwen3_5_text", _qwen3_5_layers)
QWEN3_5_MOE = decoder("qwen3_5_moe_text", _qwen3_5_moe_layers)


def _kimi_layers(config: Config) -> list[Topology]:
    """The decay of the delta rule differs by channel of the keys, which is all inside its function. In Ling 2.5 (Bailing),
    a gate multiplies what every head of an attention outputs."""
    inside = "self_attn"
    mixer = LinearMixer(
        module=inside,
        function="chunk_kimi_delta_attention",
        value=SplitHeads(f"{inside}.v_proj"),
        output=f"{inside}.o_proj",
        heads=config.linear_num_heads,
        norm=RmsNormPart(FIRST_NORM),
        convolution=ShortConvolution(f"{inside}.conv1d", activation=config.hidden_act),
        output_norm=ContextNormPart(f"{inside}.o_norm", gate="sigmoid"),
    )
    sparse, norm = shared_experts("shared_experts"), RmsNormPart(SECOND_NORM)
    gate = HeadGate(f"{inside}.g_proj", "sigmoid") if config.model_type == "bailing_hybrid" else None
    kinds = zip(either(config, mixer, replace(LATENT_ATTENTION, gate=gate)), config.mlp_layer_types, strict=True)
    return [PreNorm(mixes, norm, sparse if network == "sparse" else GATED) for mixes, network in kinds]


KIMI_LINEAR = decoder("kimi_linear", _kimi_layers, "kimi_linear", "bailing_hybrid")


def _olmo_layers(config: Config) -> list[Topology]:
    """A delta rule has its norms before the branches, an attention after them: what a layer has not, it skips."""
    mixer = replace(
        _delta_rule(config, SplitHeads("linear_attn.v_proj")),
        output="linear_attn.o_proj",
        norm=RmsNormPart(FIRST_NORM),
        output_norm=ContextNormPart("linear_attn.o_norm", gate="silu"),
    )
    mixes = Sandwich(mixer, NO_NORM, RmsNormPart(SECOND_NORM), GATED, NO_NORM)
    after = RmsNormPart("post_feedforward_layernorm")
    attends = Sandwich(BARE_ATTENTION, RmsNormPart(SECOND_NORM), NO_NORM, GATED, after)
    return [attends if kind == "full_attention" else mixes for kind in config.layer_types]


OLMO_HYBRID = decoder("olmo_hybrid", _olmo_layers)

# ---- short convolutions ------------------------------------------------------------------------------------------------

_LFM2_NORM = RmsNormPart("operator_norm")
_LFM2_ATTENTION = DispatchedAttention(
    "self_attn", SplitHeads("self_attn.v_proj"), "self_attn.out_proj", norm=_LFM2_NORM
)


def _short_convolution(config: Config) -> LinearMixer:
    """`C * conv(B * x)`: the projection makes `B`, `C` and `x`."""
    d, projection = config.hidden_size, "conv.in_proj"
    return LinearMixer(
        module="conv",
        function=None,
        value=FusedRange(projection, 2 * d, d),
        output="conv.out_proj",
        heads=1,
        norm=_LFM2_NORM,
        convolution=ShortConvolution(
            "conv.conv", activation=None, gate=ChannelGate(FusedRange(projection, 0, d), activation=None)
        ),
        gate=ChannelGate(FusedRange(projection, d, d), activation=None),
    )


def _lfm2_layers(config: Config) -> list[Topology]:
    inside = "feed_forward"
    dense = GatedPart(f"{inside}.w1", f"{inside}.w3", NamedActivation("silu"), f"{inside}.w2")
    experts = ExpertsPart(inside, f"{inside}.experts", f"{inside}.experts.act_fn")
    first = getattr(config, "num_dense_layers", config.num_hidden_layers)
    mixers = either(config, _short_convolution(config), _LFM2_ATTENTION)
    norm = RmsNormPart("ffn_norm")
    return [PreNorm(mixer, norm, dense if layer < first else experts) for layer, mixer in enumerate(mixers)]


LFM2 = decoder("lfm2", _lfm2_layers, "lfm2", "lfm2_moe")

FAMILIES = (AFMOE, QWEN3_NEXT, QWEN3_5, QWEN3_5_MOE, KIMI_LINEAR, OLMO_HYBRID, LFM2)
