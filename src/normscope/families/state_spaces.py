"""Decoders some or all of whose layers mix by a state space or a recurrence: Mamba, Bamba, Granite 4, Jamba, RecurrentGemma.

| trap | where |
|---|---|
| the norm of what heads output comes after the gate | Mamba-2 and all that have it |
| an attention works side by side with the state space; all is multiplied by configured numbers | Falcon-H1 |
| a block is a mixer alone, without a feed-forward | Mamba, Mamba-2, Falcon Mamba |
| weights differ by channel, so that every channel is a head | Mamba, Falcon Mamba, Jamba, RecurrentGemma |
| what enters the recurrence is multiplied by gates of its own token | RecurrentGemma |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.errors import UnsupportedArchitectureError
from normscope.families.hybrids import either
from normscope.families.llama import ATTENTION, FIRST_NORM, SECOND_NORM, decoder
from normscope.families.spec import (
    AttentionBesideMixer,
    ChangedBypass,
    ChannelGate,
    ChannelScan,
    Config,
    ContextNormPart,
    DispatchedAttention,
    ExpertsPart,
    FusedGatedPart,
    FusedRange,
    GatedPart,
    LinearMixer,
    MixerAlone,
    NamedActivation,
    PreNorm,
    RmsNormPart,
    ScaledPreNorm,
    SharedExpertsPart,
    ShortConvolution,
    SplitHeads,
    Topology,
    UnitRmsNormPart,
)

# ---- Mamba-2 -----------------------------------------------------------------------------------------------------------


def state_space(inside: str, inner: int, heads: int, norm: str) -> LinearMixer:
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
    mixer = state_space("mixer", int(config.expand * config.hidden_size), config.num_heads, "norm")
    return MixerAlone(mixer)


MAMBA2 = decoder("mamba2", _mamba2_topology)


def _mamba(config: Config) -> LinearMixer:
    return state_space("mamba", config.mamba_expand * config.hidden_size, config.mamba_n_heads, FIRST_NORM)


_INSIDE = "feed_forward"
_NETWORK = GatedPart(f"{_INSIDE}.gate_proj", f"{_INSIDE}.up_proj", f"{_INSIDE}.act_fn", f"{_INSIDE}.down_proj")
_BEFORE_NETWORK = RmsNormPart("pre_ff_layernorm")


def _bamba_layers(config: Config) -> list[Topology]:
    return [PreNorm(mixer, _BEFORE_NETWORK, _NETWORK) for mixer in either(config, _mamba(config), ATTENTION)]


BAMBA = decoder("bamba", _bamba_layers)


def _granite_layers(config: Config) -> list[Topology]:
    network = FusedGatedPart("shared_mlp.input_linear", "shared_mlp.activation", "shared_mlp.output_linear")
    inside = "block_sparse_moe"
    experts = ExpertsPart(inside, f"{inside}.experts", f"{inside}.experts.act_fn")
    feed_forward = SharedExpertsPart(experts, network) if config.num_local_experts > 0 else network
    norm, factor = RmsNormPart(SECOND_NORM), config.residual_multiplier
    return [ScaledPreNorm(mixer, norm, feed_forward, factor) for mixer in either(config, _mamba(config), ATTENTION)]


GRANITE_HYBRID = decoder("granitemoehybrid", _granite_layers)


def _falcon_h1_topology(config: Config) -> Topology:
    if config.mamba_rms_norm:
        raise UnsupportedArchitectureError(
            "The state spaces of this model normalise what they output (mamba_rms_norm), beside an attention that does not: "
            "no component describes that."
        )
    heads, inner = config.mamba_n_heads, config.mamba_n_heads * config.mamba_d_head
    gate, entering, *_ = config.ssm_multipliers
    projection = FusedRange("mamba.in_proj", inner, inner, factor=entering)
    mixer = replace(
        state_space("mamba", inner, heads, FIRST_NORM),
        value=projection,
        gate=ChannelGate(replace(projection, start=0, factor=gate), activation="silu"),
        output_norm=None,
        entering=config.ssm_in_multiplier,
    )
    attention = replace(ATTENTION, entering=config.attention_in_multiplier)
    of_gate, of_network = config.mlp_multipliers
    return ChangedBypass(
        AttentionBesideMixer(attention, mixer, (config.attention_out_multiplier, config.ssm_out_multiplier)),
        _BEFORE_NETWORK,
        replace(_NETWORK, gate_factor=of_gate),
        around=((), ()),
        factors=(1.0, of_network),
    )


FALCON_H1 = decoder("falcon_h1", _falcon_h1_topology)

# ---- Mamba-1 -----------------------------------------------------------------------------------------------------------


def _selective_scan(inside: str, inner: int, norm: str) -> LinearMixer:
    """A Mamba-1: its projection makes what is mixed, then the gate."""
    return LinearMixer(
        module=inside,
        function=ChannelScan("mamba_selective_scan", channels_first=True, without=("z",)),
        value=FusedRange(f"{inside}.in_proj", 0, inner),
        output=f"{inside}.out_proj",
        heads=inner,
        norm=RmsNormPart(norm),
        convolution=ShortConvolution(f"{inside}.conv1d"),
        gate=ChannelGate(FusedRange(f"{inside}.in_proj", inner, inner), activation="silu"),
    )


def _mamba_topology(config: Config) -> Topology:
    return MixerAlone(_selective_scan("mixer", config.intermediate_size, "norm"))


MAMBA = decoder("mamba", _mamba_topology, "mamba", "falcon_mamba")


def _jamba_layers(config: Config) -> list[Topology]:
    mixers = either(config, _selective_scan("mamba", config.mamba_expand * config.hidden_size, FIRST_NORM), ATTENTION)
    experts = ExpertsPart(_INSIDE, f"{_INSIDE}.experts", f"{_INSIDE}.experts.act_fn")
    counts = zip(mixers, config.layers_num_experts, strict=True)
    return [PreNorm(mixer, _BEFORE_NETWORK, experts if count > 1 else _NETWORK) for mixer, count in counts]


JAMBA = decoder("jamba", _jamba_layers)

# ---- the real-gated linear recurrent unit ------------------------------------------------------------------------------


def _recurrent_gemma_layers(config: Config) -> list[Topology]:
    inside, norm = "temporal_block", UnitRmsNormPart("temporal_pre_norm")
    recurrence = LinearMixer(
        module=inside,
        function=ChannelScan("rg_lru._rnn_scan", gates_values=True),
        value=SplitHeads(f"{inside}.linear_x"),
        output=f"{inside}.linear_out",
        heads=config.lru_width,
        norm=norm,
        convolution=ShortConvolution(f"{inside}.conv_1d", activation=None),
        gate=ChannelGate(SplitHeads(f"{inside}.linear_y"), activation=NamedActivation(config.hidden_activation)),
    )
    attention = DispatchedAttention(inside, SplitHeads(f"{inside}.v_proj"), f"{inside}.o_proj", norm=norm)
    network = GatedPart("mlp_block.gate_proj", "mlp_block.up_proj", "mlp_block.act_fn", "mlp_block.down_proj")
    kinds = {"recurrent": recurrence, "attention": attention}
    before = UnitRmsNormPart("channel_pre_norm")
    return [PreNorm(kinds[kind], before, network) for kind in config.layers_block_type]


RECURRENT_GEMMA = decoder("recurrent_gemma", _recurrent_gemma_layers)

FAMILIES = (MAMBA2, BAMBA, GRANITE_HYBRID, FALCON_H1, MAMBA, JAMBA, RECURRENT_GEMMA)
