"""Decoders of the Llama line that differ from it in one thing: a plain feed-forward, another norm, norms in other places.

| trap | where |
|---|---|
| the feed-forward is plain, with a squared ReLU | Arcee, Nemotron, Jais 2, NanoChat |
| the activation has parameters of its own in every layer (xIELU) | Apertus |
| the norms have other names | Apertus, VaultGemma |
| the norm centres, and its weight counts from one | Nemotron |
| the norms have no weight | NanoChat |
| what a branch adds is multiplied by a constant, after a norm where the configuration says so | HyperCLOVA X |
| values come from a narrow latent state, and branches are multiplied by a constant | MiniCPM 3 |
| query, key and value are fused head by head | Persimmon |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.families.llama import (
    ATTENTION,
    BARE_ATTENTION,
    CENTRED_ATTENTION,
    FIRST_NORM,
    GATED,
    SECOND_NORM,
    UNIT_ATTENTION,
    decoder,
    pre_norm,
)
from normscope.families.spec import (
    Config,
    DispatchedAttention,
    FusedPerHead,
    LatentPerHead,
    LayerNormPart,
    PlainPart,
    PreNorm,
    RmsNormPart,
    Sandwich,
    ScaledPreNorm,
    Topology,
    UnitLayerNormPart,
    UnitRmsNormPart,
)

_PLAIN = PlainPart("mlp.up_proj", "mlp.act_fn", "mlp.down_proj")

ARCEE = decoder("arcee", pre_norm(_PLAIN))

APERTUS = decoder(
    "apertus",
    PreNorm(
        attention=replace(BARE_ATTENTION, norm=RmsNormPart("attention_layernorm")),
        feed_forward_norm=RmsNormPart("feedforward_layernorm"),
        feed_forward=_PLAIN,
    ),
)

JAIS2 = decoder("jais2", PreNorm(CENTRED_ATTENTION, LayerNormPart(SECOND_NORM), _PLAIN))

NEMOTRON = decoder(
    "nemotron",
    PreNorm(replace(BARE_ATTENTION, norm=UnitLayerNormPart(FIRST_NORM)), UnitLayerNormPart(SECOND_NORM), _PLAIN),
)

NANOCHAT = decoder("nanochat", pre_norm(PlainPart("mlp.fc1", "mlp.activation_fn", "mlp.fc2")))

VAULTGEMMA = decoder("vaultgemma", PreNorm(UNIT_ATTENTION, UnitRmsNormPart("pre_feedforward_layernorm"), GATED))


def _hyperclovax_topology(config: Config) -> Topology:
    before, factor = RmsNormPart(SECOND_NORM), config.residual_multiplier
    if not config.use_post_norm:
        return ScaledPreNorm(ATTENTION, before, GATED, factor)
    return Sandwich(ATTENTION, RmsNormPart("post_norm1"), before, GATED, RmsNormPart("post_norm2"), factor)


HYPERCLOVAX = decoder("hyperclovax", _hyperclovax_topology)

LATENT_ATTENTION = replace(
    ATTENTION,
    value=LatentPerHead(
        "self_attn.kv_b_proj",
        down="self_attn.kv_a_proj_with_mqa",
        norm=RmsNormPart("self_attn.kv_a_layernorm"),
    ),
)


def _minicpm3_topology(config: Config) -> Topology:
    factor = config.scale_depth / config.num_hidden_layers**0.5
    return ScaledPreNorm(LATENT_ATTENTION, RmsNormPart(SECOND_NORM), GATED, factor)


MINICPM3 = decoder("minicpm3", _minicpm3_topology)

PERSIMMON = decoder(
    "persimmon",
    PreNorm(
        attention=DispatchedAttention(
            "self_attn",
            FusedPerHead("self_attn.query_key_value"),
            "self_attn.dense",
            norm=LayerNormPart(FIRST_NORM),
        ),
        feed_forward_norm=LayerNormPart(SECOND_NORM),
        feed_forward=PlainPart("mlp.dense_h_to_4h", "mlp.act", "mlp.dense_4h_to_h"),
    ),
)

FAMILIES = (ARCEE, APERTUS, JAIS2, NEMOTRON, NANOCHAT, VAULTGEMMA, HYPERCLOVAX, MINICPM3, PERSIMMON)
