"""Encoder-decoder models: T5 (pre-norm, RMS), BART and Marian (post-norm), mBART and Pegasus (pre-norm).

| trap | where |
|---|---|
| a block is a list of sublayers, each with its own norm and residual; blocks output tuples | T5 |
| the feed-forward is plain or gated by configuration | T5 |
| the number of layers differs between encoder and decoder | all |
| some layers have experts that are plain networks, and no expert may serve a token | Switch Transformers, NLLB-MoE |
| what experts give is multiplied by the share of tokens that training kept | NLLB-MoE |
| one model of texts and sounds: the towers of texts are analysed | SeamlessM4T |
| norms before and after each branch, the cross-attention's too; two configurations inside another | T5Gemma |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import (
    Config,
    DispatchedAttention,
    DispatchedCrossAttention,
    Family,
    GatedPart,
    HookedAttention,
    LayerNormPart,
    PlainExpertsPart,
    PlainPart,
    PostNorm,
    PreNorm,
    RmsNormPart,
    Sandwich,
    SplitHeads,
    Stack,
    Topology,
    UnitRmsNormPart,
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


Described = Topology | Callable[[Config], Sequence[Topology]]


def _bart_like(name: str, encoder: Described, decoder: Described, *model_types: str) -> Family:
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


def _big_bird_encoder(config: Config) -> list[Topology]:
    if config.attention_type != "original_full":
        raise UnsupportedArchitectureError(
            f"This BigBird-Pegasus has the attention {config.attention_type!r}, which has no weights of queries and keys. "
            f"Load it with attention_type='original_full', which is what it uses itself for short inputs."
        )
    inside = "self_attn.self"
    attention = HookedAttention(
        f"{inside}.dropout", SplitHeads(f"{inside}.value"), "self_attn.output", norm=_ATTENTION_NORM
    )
    return [PreNorm(attention, _LAST_NORM, _FEED_FORWARD)] * config.encoder_layers


BIG_BIRD_PEGASUS = _bart_like(
    "bigbird_pegasus",
    _big_bird_encoder,
    PreNorm(_NORMED_ATTENTION, _LAST_NORM, _FEED_FORWARD, cross=(_CROSS_NORM, _CROSS)),
    "bigbird_pegasus",
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

# ---- T5 with experts ------------------------------------------------------------------------------------------------


def _switch_feed_forwards(step: int, depth: int, sublayer: str) -> list[PlainPart | PlainExpertsPart]:
    """Those of every layer: every n-th has experts."""
    inside = f"{sublayer}.mlp"
    plain = PlainPart(f"{inside}.wi", f"{inside}.act", f"{inside}.wo")
    experts = PlainExpertsPart(inside, f"{inside}.experts", PlainPart("wi", "act", "wo"), masked=True)
    return [experts if step == 1 or (step > 0 and layer % step == 1) else plain for layer in range(depth)]


def _switch_encoder(config: Config) -> list[Topology]:
    networks = _switch_feed_forwards(config.encoder_sparse_step, config.num_layers, "layer.1")
    return [PreNorm(_T5_ATTENTION, RmsNormPart("layer.1.layer_norm"), network) for network in networks]


def _switch_decoder(config: Config) -> list[Topology]:
    networks = _switch_feed_forwards(config.decoder_sparse_step, config.num_decoder_layers, "layer.2")
    cross = (RmsNormPart("layer.1.layer_norm"), _T5_CROSS)
    return [PreNorm(_T5_ATTENTION, RmsNormPart("layer.2.layer_norm"), network, cross) for network in networks]


SWITCH = Family(
    "switch_transformers",
    ("switch_transformers",),
    Stack("decoder.block.*", _switch_decoder, causal=True, depth=_t5_decoder_layers),
    encoder=Stack("encoder.block.*", _switch_encoder, depth=_t5_encoder_layers),
    longest=unlimited,
)

# ---- NLLB with experts ----------------------------------------------------------------------------------------------

_NLLB_CROSS = DispatchedCrossAttention(
    "cross_attention", SplitHeads("cross_attention.v_proj"), "cross_attention.out_proj"
)


def _nllb_layers(config: Config, step: int, depth: int, cross: bool) -> list[Topology]:
    dense = PreNorm(
        attention=_NORMED_ATTENTION,
        feed_forward_norm=LayerNormPart("ff_layer_norm"),
        feed_forward=PlainPart("ffn.fc1", "ffn.act", "ffn.fc2"),
        cross=(LayerNormPart("cross_attention_layer_norm"), _NLLB_CROSS) if cross else None,
    )
    kept = 1 - config.moe_token_dropout
    sparse = replace(
        dense, feed_forward=PlainExpertsPart("ffn", "ffn.experts", PlainPart("fc1", "act", "fc2"), factor=kept)
    )
    return [sparse if step > 0 and (layer + 1) % step == 0 else dense for layer in range(depth)]


def _nllb_encoder(config: Config) -> list[Topology]:
    return _nllb_layers(config, config.encoder_sparse_step, config.encoder_layers, cross=False)


def _nllb_decoder(config: Config) -> list[Topology]:
    return _nllb_layers(config, config.decoder_sparse_step, config.decoder_layers, cross=True)


NLLB_MOE = _bart_like("nllb-moe", _nllb_encoder, _nllb_decoder, "nllb-moe")

# ---- SeamlessM4T, its text towers -------------------------------------------------------------------------------------


def _seamless(cross: tuple[LayerNormPart, DispatchedCrossAttention] | None = None) -> PreNorm:
    return PreNorm(
        _NORMED_ATTENTION,
        feed_forward_norm=LayerNormPart("ffn_layer_norm"),
        feed_forward=PlainPart("ffn.fc1", "ffn.act", "ffn.fc2"),
        cross=cross,
    )


SEAMLESS = Family(
    "seamless_m4t",
    ("seamless_m4t", "seamless_m4t_v2"),
    Stack(
        "text_decoder.layers.*",
        _seamless((LayerNormPart("cross_attention_layer_norm"), _NLLB_CROSS)),
        causal=True,
        depth=_decoder_layers,
    ),
    encoder=Stack("text_encoder.layers.*", _seamless(), depth=_encoder_layers),
)

# ---- T5Gemma --------------------------------------------------------------------------------------------------------

_T5GEMMA_ENCODER = Sandwich(
    attention=DispatchedAttention(
        "self_attn",
        SplitHeads("self_attn.v_proj"),
        "self_attn.o_proj",
        norm=UnitRmsNormPart("pre_self_attn_layernorm"),
    ),
    after_attention=UnitRmsNormPart("post_self_attn_layernorm"),
    before_feed_forward=UnitRmsNormPart("pre_feedforward_layernorm"),
    feed_forward=GatedPart("mlp.gate_proj", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj"),
    after_feed_forward=UnitRmsNormPart("post_feedforward_layernorm"),
)
_T5GEMMA_DECODER = replace(
    _T5GEMMA_ENCODER,
    cross=(
        UnitRmsNormPart("pre_cross_attn_layernorm"),
        DispatchedCrossAttention("cross_attn", SplitHeads("cross_attn.v_proj"), "cross_attn.o_proj"),
        UnitRmsNormPart("post_cross_attn_layernorm"),
    ),
)


def _t5gemma_encoder_layers(config: Config) -> int:
    return config.encoder.num_hidden_layers


def _t5gemma_decoder_layers(config: Config) -> int:
    return config.decoder.num_hidden_layers


T5GEMMA = Family(
    "t5gemma",
    ("t5gemma",),
    Stack("decoder.layers.*", _T5GEMMA_DECODER, causal=True, depth=_t5gemma_decoder_layers),
    encoder=Stack("encoder.layers.*", _T5GEMMA_ENCODER, depth=_t5gemma_encoder_layers),
    longest=unlimited,
)

FAMILIES = (BART, MBART, BIG_BIRD_PEGASUS, T5, SWITCH, NLLB_MOE, SEAMLESS, T5GEMMA)
