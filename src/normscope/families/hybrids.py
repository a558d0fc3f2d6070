"""Decoders whose attention is gated, or replaced in some layers by mixers that are linear in their values.

| trap | where |
|---|---|
| a sigmoid gate multiplies every channel of what attention outputs | AFMoE, Qwen3-Next, Qwen 3.5 |
| the gated delta rule: values come by a short convolution and SiLU, and are normalised, head by head, and gated | Qwen |
| values lie between keys and gates in one projection, key head by key head | Qwen3-Next |
| a state space (Mamba-2): the norm comes after the gate | Bamba, Granite 4, Mamba-2 |
| a convolution of three tokens is all that mixes; what enters and what leaves it is gated | LFM2 |
| a block is a mixer alone, without a feed-forward | Mamba-2 |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.families.llama import ATTENTION, FIRST_NORM, GATED, SECOND_NORM, UNIT_ATTENTION, decoder
from normscope.families.mixtures import every_so_many, shared_experts
from normscope.families.plain_decoders import LATENT_ATTENTION
from normscope.families.spec import (
    AttentionPart,
    ChannelGate,
    Config,
    ContextNormPart,
    DispatchedAttention,
    ExpertsPart,
    FeedForwardPart,
    FusedGatedPart,
    FusedPerHead,
    FusedRange,
    FusedTail,
    GatedPart,
    LinearMixer,
    MixerAlone,
    NamedActivation,
    PreNorm,
    RmsNormPart,
    Sandwich,
    ScaledPreNorm,
    SharedExpertsPart,
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


def _either(config: Config, mixer: LinearMixer, attention: AttentionPart) -> list[AttentionPart]:
    """The mixer of every layer."""
    kinds = config.layer_types or ["full_attention"] * config.num_hidden_layers  # a configuration may not say
    return [attention if kind == "full_attention" else mixer for kind in kinds]


def _qwen_layers(config: Config, value: Value, feed_forwards: list[FeedForwardPart]) -> list[Topology]:
    mixers = _either(config, _delta_rule(config, value), _GATED_ATTENTION)
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
    """The decay of the delta rule differs by channel of the keys, which is all inside its function."""
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
    kinds = zip(_either(config, mixer, LATENT_ATTENTION), config.mlp_layer_types, strict=True)
    return [PreNorm(mixes, norm, sparse if network == "sparse" else GATED) for mixes, network in kinds]


KIMI_LINEAR = decoder("kimi_linear", _kimi_layers)

# ---- state spaces ------------------------------------------------------------------------------------------------------


def _state_space(inside: str, inner: int, heads: int, norm: str) -> LinearMixer:
    """A Mamba-2: its projection makes the gate, then what is mixed."""
    return LinearMixer(
        module=inside,
        function="mamba2_chunk_scan",
        values="hidden_states",
        value=FusedRange(f"{inside}.in_proj", inner, inner),
        output=f"{inside}.out_proj",
        heads=heads,
        norm=RmsNormPart(norm),
        convolution=ShortConvolution(f"{inside}.conv1d", values_first=True),
        output_norm=ContextNormPart(f"{inside}.norm", gate="silu", gated_first=True),
    )


def _mamba2_topology(config: Config) -> Topology:
    mixer = _state_space("mixer", int(config.expand * config.hidden_size), config.num_heads, "norm")
    return MixerAlone(mixer)


MAMBA2 = decoder("mamba2", _mamba2_topology)


def _mamba(config: Config) -> LinearMixer:
    return _state_space("mamba", config.mamba_expand * config.hidden_size, config.mamba_n_heads, FIRST_NORM)


def _bamba_layers(config: Config) -> list[Topology]:
    inside = "feed_forward"
    network = GatedPart(f"{inside}.gate_proj", f"{inside}.up_proj", f"{inside}.act_fn", f"{inside}.down_proj")
    norm = RmsNormPart("pre_ff_layernorm")
    return [PreNorm(mixer, norm, network) for mixer in _either(config, _mamba(config), ATTENTION)]


BAMBA = decoder("bamba", _bamba_layers)


def _granite_layers(config: Config) -> list[Topology]:
    network = FusedGatedPart("shared_mlp.input_linear", "shared_mlp.activation", "shared_mlp.output_linear")
    inside = "block_sparse_moe"
    experts = ExpertsPart(inside, f"{inside}.experts", f"{inside}.experts.act_fn")
    feed_forward = SharedExpertsPart(experts, network) if config.num_local_experts > 0 else network
    norm, factor = RmsNormPart(SECOND_NORM), config.residual_multiplier
    return [ScaledPreNorm(mixer, norm, feed_forward, factor) for mixer in _either(config, _mamba(config), ATTENTION)]


GRANITE_HYBRID = decoder("granitemoehybrid", _granite_layers)

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
    mixers = _either(config, _short_convolution(config), _LFM2_ATTENTION)
    norm = RmsNormPart("ffn_norm")
    return [PreNorm(mixer, norm, dense if layer < first else experts) for layer, mixer in enumerate(mixers)]


LFM2 = decoder("lfm2", _lfm2_layers, "lfm2", "lfm2_moe")

FAMILIES = (AFMOE, QWEN3_NEXT, QWEN3_5, QWEN3_5_MOE, KIMI_LINEAR, MAMBA2, BAMBA, GRANITE_HYBRID, LFM2)
