"""Decoders of the Llama line with a component that the others do not have.

| trap | where |
|---|---|
| a block is one component alone: a state space, an attention, a network or experts | Nemotron-H |
| weights are products of queries and keys that decay; residuals go around the branches normalised and scaled | MiniMax |
| the residual is multiplied by a vector | Doge |
| a norm lies inside the attention and inside the network, before their last projections | BitNet |
| weights are the difference of two softmaxes, and what a pair of heads outputs is normalised | DiffLlama |
| a norm follows the experts, but no other network | A.X K1 |
| values are normalised, or made by the projection of keys; what leaves a block is multiplied by a number | Gemma 4 |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.errors import UnsupportedArchitectureError
from normscope.families.llama import ATTENTION, FIRST_NORM, GATED, SECOND_NORM, decoder
from normscope.families.mixtures import EXPERTS, shared_experts
from normscope.families.plain_decoders import LATENT_ATTENTION
from normscope.families.spec import (
    NO_ATTENTION,
    NO_FEED_FORWARD,
    NO_NORM,
    AbsentPart,
    AttentionPart,
    ChangedBypass,
    ChannelGate,
    Config,
    ContextNormPart,
    DecayedProducts,
    Difference,
    DispatchedAttention,
    EndScaled,
    ExpertsPart,
    FeedForwardPart,
    FusedPerHead,
    LinearMixer,
    NormedHeads,
    PairedHeads,
    PlainPart,
    PreNorm,
    RmsNormPart,
    Sandwich,
    ScalePart,
    SharedExpertsPart,
    SplitHeads,
    StretchPart,
    Topology,
    UngatedExpertsPart,
)
from normscope.families.state_spaces import state_space

# ---- blocks of one component -------------------------------------------------------------------------------------------

_NORM = RmsNormPart("norm")


def _nemotron_h_layers(config: Config) -> list[Topology]:
    mixer = state_space("mixer", config.mamba_num_heads * config.mamba_head_dim, config.mamba_num_heads, "norm")
    mixer = replace(
        mixer, output_norm=ContextNormPart("mixer.norm", "silu", gated_first=True, group_width="group_size")
    )
    attention = DispatchedAttention("mixer", SplitHeads("mixer.v_proj"), "mixer.o_proj", norm=_NORM)
    inside = "mixer.shared_experts"
    kinds: dict[str, AttentionPart | FeedForwardPart] = {
        "linear_attention": mixer,
        "full_attention": attention,
        "mlp": PlainPart("mixer.up_proj", "mixer.act_fn", "mixer.down_proj"),
        "moe": SharedExpertsPart(
            UngatedExpertsPart("mixer", "mixer.experts", "mixer.experts.act_fn"),
            PlainPart(f"{inside}.up_proj", f"{inside}.act_fn", f"{inside}.down_proj"),
        ),
    }
    return [_alone(kinds[kind]) for kind in config.layers_block_type]


def _alone(part: AttentionPart | FeedForwardPart) -> PreNorm:
    if isinstance(part, AttentionPart):
        return PreNorm(part, NO_NORM, NO_FEED_FORWARD)
    return PreNorm(NO_ATTENTION, _NORM, part)


NEMOTRON_H = decoder("nemotron_h", _nemotron_h_layers)

# ---- residuals that change on their way --------------------------------------------------------------------------------


def _minimax_layers(config: Config) -> list[Topology]:
    lightning = LinearMixer(
        module="self_attn",
        function=DecayedProducts("self_attn.qkv_proj", "self_attn.slope_rate", config.hidden_act),
        value=FusedPerHead("self_attn.qkv_proj"),
        output="self_attn.out_proj",
        heads=config.num_attention_heads,
        norm=RmsNormPart(FIRST_NORM),
        gate=ChannelGate(SplitHeads("self_attn.output_gate")),
        output_norm=ContextNormPart("self_attn.norm"),
    )
    kinds = {"full_attention": (ATTENTION, "full_attn"), "linear_attention": (lightning, "linear_attn")}
    return [_minimax_layer(config, *kinds[kind]) for kind in config.layer_types]


def _minimax_layer(config: Config, attention: AttentionPart, name: str) -> ChangedBypass:
    around = (
        (RmsNormPart(FIRST_NORM), ScalePart(float(getattr(config, f"{name}_alpha_factor")))),
        (RmsNormPart(SECOND_NORM), ScalePart(float(config.mlp_alpha_factor))),
    )
    factors = float(getattr(config, f"{name}_beta_factor")), float(config.mlp_beta_factor)
    return ChangedBypass(attention, RmsNormPart(SECOND_NORM), EXPERTS, around, factors)


MINIMAX = decoder("minimax", _minimax_layers)

DOGE = decoder(
    "doge",
    ChangedBypass(
        ATTENTION,
        RmsNormPart(SECOND_NORM),
        GATED,
        around=((StretchPart("input_residual"),), (StretchPart("post_attention_residual"),)),
    ),
)

# ---- norms in other places ---------------------------------------------------------------------------------------------

BITNET = decoder(
    "bitnet",
    PreNorm(
        replace(ATTENTION, output_norm=ContextNormPart("self_attn.attn_sub_norm")),
        RmsNormPart(SECOND_NORM),
        replace(GATED, inner_norm=RmsNormPart("mlp.ffn_sub_norm")),
    ),
)


def _axk1_layers(config: Config) -> list[Topology]:
    shared = shared_experts("shared_experts")
    experts = replace(shared, routed=ExpertsPart("mlp.experts", "mlp.experts", "mlp.experts.act_fn"))
    after: dict[bool, RmsNormPart | AbsentPart] = {True: RmsNormPart("mlp.post_mlp_layernorm"), False: NO_NORM}
    sparse = [kind == "sparse" for kind in config.mlp_layer_types]
    before = RmsNormPart(SECOND_NORM)
    return [Sandwich(LATENT_ATTENTION, NO_NORM, before, experts if each else GATED, after[each]) for each in sparse]


DIFF_LLAMA = decoder(
    "diffllama",
    PreNorm(
        replace(
            ATTENTION,
            value=PairedHeads("self_attn.v_proj"),
            difference=Difference("self_attn"),
            output_norm=ContextNormPart("self_attn.groupnorm"),
        ),
        RmsNormPart(SECOND_NORM),
        GATED,
    ),
)

AXK1 = decoder("axk1", _axk1_layers)


def _gemma4_layers(config: Config) -> list[Topology]:
    for name, what in _NOT_IN_GEMMA4.items():
        if getattr(config, name, None):
            raise UnsupportedArchitectureError(
                f"This Gemma 4 ({name}={getattr(config, name)}) is not analysed: {what}."
            )
    return [_gemma4_layer(config, kind) for kind in config.layer_types]


_NOT_IN_GEMMA4 = {
    "num_kv_shared_layers": "its last layers take keys and values of an earlier layer, made of other states",
    "hidden_size_per_layer_input": "an embedding of the token enters every layer by a network after the feed-forward",
    "enable_moe_block": "a network and experts stand side by side, each with norms of its own",
}
"""What the larger models of the family do not have, by the field of the configuration that says so."""


def _gemma4_layer(config: Config, kind: str) -> EndScaled:
    shares = config.attention_k_eq_v and kind == "full_attention"
    value = NormedHeads("self_attn.k_proj" if shares else "self_attn.v_proj", "self_attn.v_norm")
    return EndScaled(
        attention=replace(ATTENTION, value=value),
        after_attention=RmsNormPart(SECOND_NORM),
        before_feed_forward=RmsNormPart("pre_feedforward_layernorm"),
        feed_forward=GATED,
        after_feed_forward=RmsNormPart("post_feedforward_layernorm"),
        factor="layer_scalar",
    )


GEMMA4 = decoder("gemma4", _gemma4_layers, "gemma4_text", "gemma4_unified_text")

FAMILIES = (NEMOTRON_H, MINIMAX, DOGE, BITNET, DIFF_LLAMA, AXK1, GEMMA4)
