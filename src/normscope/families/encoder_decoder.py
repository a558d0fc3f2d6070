"""Encoder-decoder models: T5 (pre-norm, RMS), BART and Marian (post-norm), mBART and Pegasus (pre-norm).

| trap | where |
|---|---|
| a block is a list of sublayers, each with its own norm and residual; blocks give out tuples | T5 |
| the feed-forward is plain or gated by configuration | T5 |
| the number of layers differs between encoder and decoder | all |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.families.spec import (
    Config,
    DispatchedAttention,
    DispatchedCrossAttention,
    Family,
    GatedPart,
    LayerNormPart,
    PlainPart,
    PostNorm,
    PreNorm,
    RmsNormPart,
    SplitHeads,
    Stack,
    Topology,
    unlimited,
)


def _encoder_layers(config: Config) -> int:
    return config.encoder_layers


def _decoder_layers(config: Config) -> int:
    return config.decoder_layers


# ---- BART and its kin ------------------------------------------------------------------------------------------------

_ATTENTION = DispatchedAttention("self_attn", SplitHeads("self_attn.v_proj"), "self_attn.out_proj")
_CROSS = DispatchedCrossAttention("encoder_attn", SplitHeads("encoder_attn.v_proj"), "encoder_attn.out_proj")
_FEED_FORWARD = PlainPart("fc1", "activation_fn", "fc2")
_ATTENTION_NORM = LayerNormPart("self_attn_layer_norm")
_CROSS_NORM = LayerNormPart("encoder_attn_layer_norm")
_LAST_NORM = LayerNormPart("final_layer_norm")
_NORMED_ATTENTION = replace(_ATTENTION, norm=_ATTENTION_NORM)


def _bart_like(name: str, encoder: Topology, decoder: Topology, *model_types: str) -> Family:
    return Family(
        name,
        model_types,
        Stack("decoder.layers.*", decoder, causal=True, depth=_decoder_layers),
        encoder=Stack("encoder.layers.*", encoder, depth=_encoder_layers),
    )


BART = _bart_like(
    "bart",
    PostNorm(_ATTENTION, _ATTENTION_NORM, _FEED_FORWARD, _LAST_NORM),
    PostNorm(_ATTENTION, _ATTENTION_NORM, _FEED_FORWARD, _LAST_NORM, cross=(_CROSS, _CROSS_NORM)),
    *("bart", "marian", "plbart", "blenderbot-small"),
)

MBART = _bart_like(
    "mbart",
    PreNorm(_NORMED_ATTENTION, _LAST_NORM, _FEED_FORWARD),
    PreNorm(_NORMED_ATTENTION, _LAST_NORM, _FEED_FORWARD, cross=(_CROSS_NORM, _CROSS)),
    *("mbart", "pegasus", "m2m_100", "blenderbot"),
)

# ---- T5 --------------------------------------------------------------------------------------------------------------


_T5_ATTENTION = DispatchedAttention(
    "layer.0.SelfAttention",
    SplitHeads("layer.0.SelfAttention.v"),
    "layer.0.SelfAttention.o",
    norm=RmsNormPart("layer.0.layer_norm"),
)

_T5_CROSS = DispatchedCrossAttention(
    "layer.1.EncDecAttention", SplitHeads("layer.1.EncDecAttention.v"), "layer.1.EncDecAttention.o"
)


def _t5_feed_forward(config: Config, sublayer: str) -> PlainPart | GatedPart:
    inside = f"{sublayer}.DenseReluDense"
    if config.is_gated_act:
        return GatedPart(f"{inside}.wi_0", f"{inside}.wi_1", f"{inside}.act", f"{inside}.wo")
    return PlainPart(f"{inside}.wi", f"{inside}.act", f"{inside}.wo")


def _t5_encoder(config: Config) -> Topology:
    return PreNorm(_T5_ATTENTION, RmsNormPart("layer.1.layer_norm"), _t5_feed_forward(config, "layer.1"))


def _t5_decoder(config: Config) -> Topology:
    return PreNorm(
        attention=_T5_ATTENTION,
        feed_forward_norm=RmsNormPart("layer.2.layer_norm"),
        feed_forward=_t5_feed_forward(config, "layer.2"),
        cross=(RmsNormPart("layer.1.layer_norm"), _T5_CROSS),
    )


def _t5_encoder_layers(config: Config) -> int:
    return config.num_layers


def _t5_decoder_layers(config: Config) -> int:
    return config.num_decoder_layers


T5 = Family(
    "t5",
    ("t5", "mt5", "umt5"),
    Stack("decoder.block.*", _t5_decoder, causal=True, depth=_t5_decoder_layers),
    encoder=Stack("encoder.block.*", _t5_encoder, depth=_t5_encoder_layers),
    longest=unlimited,
)

FAMILIES = (BART, MBART, T5)
