"""Attentions that show no weights and are run again to see them: in windows, by landmarks, with a convolution.

| trap | where |
|---|---|
| queries, keys and values lie as `[token, batch, d]` inside of the attention | Longformer, LED |
| tokens with global attention have projections of their own, and are refused by the proof | Longformer, LED |
| tokens and channels are mixed by a Fourier transform, padding too, so that texts run alone | FNet |
| half of the heads mix by a kernel that the query makes, the others by attention | ConvBERT |
| a convolution brings the values of neighbours, those of padding too, so that texts run alone | Nyströmformer, ConvBERT |
| the parts of a block lie in lists of their own; the state is written into between the blocks | XLM, FlauBERT |
| blocks are called without their hooks, and states lie as `[batch, d, token]` | SqueezeBERT |
| layers that can be quantised give out pairs, of which the first is the state | I-BERT |
| what a head outputs is divided by its length; hashes may be drawn at random, which is refused | YOSO |
| prompts are keys and values of no token, and are refused | MVP |
| the attention of the encoder may use sums of blocks as tokens, and is refused | LongT5 |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import (
    AttentionPart,
    Config,
    ConfigField,
    DispatchedAttention,
    DispatchedCrossAttention,
    Family,
    FourierMixing,
    GatedPart,
    HookedAttention,
    LayerNormPart,
    NamedActivation,
    PlainPart,
    PostNorm,
    PreNorm,
    ProbedAttention,
    ProbedCrossAttention,
    RmsNormPart,
    Seams,
    SequenceFirst,
    SideBySide,
    SplitHeads,
    Stack,
    positions_after_padding,
    unlimited,
)

# ---- BERT with another attention -------------------------------------------------------------------------------------


def _bert_like(attention: AttentionPart) -> PostNorm:
    return PostNorm(
        attention=attention,
        attention_norm=LayerNormPart("attention.output.LayerNorm"),
        feed_forward=PlainPart("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense"),
        feed_forward_norm=LayerNormPart("output.LayerNorm"),
    )


def _inside(value: SplitHeads | SequenceFirst | SideBySide, heads: Callable[[Config], int]) -> ProbedAttention:
    return ProbedAttention("attention", value, "attention.output.dense", heads=heads)


_BERT_VALUE = SplitHeads("attention.self.value")
_HEADS = ConfigField("num_attention_heads")

LONGFORMER = Family(
    "longformer",
    ("longformer",),
    Stack("encoder.layer.*", _bert_like(_inside(SequenceFirst(_BERT_VALUE), _HEADS))),
    longest=positions_after_padding,
)

NYSTROMFORMER = Family(
    "nystromformer",
    ("nystromformer",),
    Stack("encoder.layer.*", _bert_like(_inside(_BERT_VALUE, _HEADS))),
    alone=True,
)


def _yoso_topology(config: Config) -> PostNorm:
    if not config.use_expectation or config.conv_window is not None:
        raise UnsupportedArchitectureError(
            "This YOSO draws hashes at random, or adds a convolution of its values (use_expectation=False, conv_window): "
            "one with the expected weights (use_expectation=True) and without a convolution is analysed."
        )
    return _bert_like(replace(_inside(_BERT_VALUE, _HEADS), unit_context=2))  # after its queries and its keys


YOSO = Family("yoso", ("yoso",), Stack("encoder.layer.*", _yoso_topology), longest=positions_after_padding, alone=True)


FNET = Family(
    "fnet",
    ("fnet",),
    Stack(
        "encoder.layer.*",
        PostNorm(
            attention=FourierMixing("fourier.self"),
            attention_norm=LayerNormPart("fourier.output.LayerNorm"),
            feed_forward=PlainPart("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense"),
            feed_forward_norm=LayerNormPart("output.LayerNorm"),
        ),
    ),
    alone=True,
)


def _convbert_heads(config: Config) -> int:
    """As many that attend as have a kernel."""
    return 2 * max(1, config.num_attention_heads // config.head_ratio)


_CONVBERT_VALUES = SideBySide(("attention.self.value", "attention.self.conv_out_layer"))

CONVBERT = Family(
    "convbert",
    ("convbert",),
    Stack("encoder.layer.*", _bert_like(_inside(_CONVBERT_VALUES, _convbert_heads))),
    alone=True,
)

# ---- layers that can be quantised, and give out pairs ----------------------------------------------------------------


def _ibert_topology(config: Config) -> PostNorm:
    if config.quant_mode:
        raise UnsupportedArchitectureError(
            "This I-BERT computes with whole numbers (quant_mode), so that its activations and norms are others than those "
            "described. With quant_mode=False, the default, it is analysed."
        )
    return PostNorm(
        attention=HookedAttention("attention.self.dropout", _BERT_VALUE, "attention.output.dense"),
        attention_norm=LayerNormPart("attention.output.LayerNorm"),
        feed_forward=PlainPart("intermediate.dense", NamedActivation("gelu"), "output.dense"),
        feed_forward_norm=LayerNormPart("output.LayerNorm"),
    )


IBERT = Family("ibert", ("ibert",), Stack("encoder.layer.*", _ibert_topology), longest=positions_after_padding)

# ---- blocks in lists, and blocks that are not called -----------------------------------------------------------------


def _xlm_topology(config: Config) -> PostNorm:
    if config.causal or getattr(config, "pre_norm", False):
        raise UnsupportedArchitectureError(
            "This model is causal or has its norms before the branches: XLM and FlauBERT are described as encoders with "
            "norms after the branches (causal=False, pre_norm=False, the defaults)."
        )
    return PostNorm(
        attention=ProbedAttention(
            "attentions", SplitHeads("attentions.v_lin"), "attentions.out_lin", heads=ConfigField("n_heads")
        ),
        attention_norm=LayerNormPart("layer_norm1"),
        feed_forward=PlainPart("ffns.lin1", "ffns.act", "ffns.lin2"),
        feed_forward_norm=LayerNormPart("layer_norm2"),
    )


XLM = Family(
    "xlm",
    ("xlm", "flaubert"),
    Stack(
        "attentions.*&layer_norm1.*&ffns.*&layer_norm2.*",
        _xlm_topology,
        depth=ConfigField("n_layers"),
        seams=Seams("attentions", "layer_norm2"),
    ),
    alone=True,
)

SQUEEZEBERT = Family(
    "squeezebert",
    ("squeezebert",),
    Stack(
        "encoder.layers.*",
        PostNorm(
            attention=HookedAttention("attention.dropout", SplitHeads("attention.value"), "post_attention.conv1d"),
            attention_norm=LayerNormPart("post_attention.layernorm"),
            feed_forward=PlainPart("intermediate.conv1d", "intermediate.act", "output.conv1d"),
            feed_forward_norm=LayerNormPart("output.layernorm"),
        ),
        seams=Seams("attention", "output", axes=(1, 2)),
    ),
)

# ---- encoder-decoders ------------------------------------------------------------------------------------------------

_FEED_FORWARD = PlainPart("fc1", "activation_fn", "fc2")
_ATTENTION_NORM = LayerNormPart("self_attn_layer_norm")
_CROSS_NORM = LayerNormPart("encoder_attn_layer_norm")
_LAST_NORM = LayerNormPart("final_layer_norm")
_OUTPUT = "self_attn.out_proj"
_DECODER_HEADS = ConfigField("decoder_attention_heads")
_ENCODER_HEADS = ConfigField("encoder_attention_heads")

_DECODER = PostNorm(
    ProbedAttention("self_attn", SplitHeads("self_attn.v_proj"), _OUTPUT, heads=_DECODER_HEADS),
    _ATTENTION_NORM,
    _FEED_FORWARD,
    _LAST_NORM,
    cross=(
        ProbedCrossAttention(
            "encoder_attn", SplitHeads("encoder_attn.v_proj"), "encoder_attn.out_proj", heads=_DECODER_HEADS
        ),
        _CROSS_NORM,
    ),
)


def _mvp_decoder(config: Config) -> PostNorm:
    if config.use_prompt:
        raise UnsupportedArchitectureError(
            "This MVP has prompts (use_prompt), which are keys and values of no token. Without them it is analysed."
        )
    return _DECODER


MVP = Family(
    "mvp",
    ("mvp",),
    Stack("decoder.layers.*", _mvp_decoder, causal=True, depth=ConfigField("decoder_layers")),
    encoder=Stack(
        "encoder.layers.*",
        PostNorm(
            ProbedAttention("self_attn", SplitHeads("self_attn.v_proj"), _OUTPUT, heads=_ENCODER_HEADS),
            _ATTENTION_NORM,
            _FEED_FORWARD,
            _LAST_NORM,
        ),
        depth=ConfigField("encoder_layers"),
    ),
)

TROCR = Family(
    "trocr",
    ("trocr",),
    Stack("decoder.layers.*", _DECODER.without_cross(), causal=True, depth=ConfigField("decoder_layers")),
)

_LED_ATTENTION = ProbedAttention(
    "self_attn",
    SequenceFirst(SplitHeads("self_attn.longformer_self_attn.value")),
    "self_attn.output",
    heads=_ENCODER_HEADS,
)

LED = Family(
    "led",
    ("led",),
    Stack("decoder.layers.*", _DECODER, causal=True, depth=ConfigField("decoder_layers")),
    encoder=Stack(
        "encoder.layers.*",
        PostNorm(_LED_ATTENTION, _ATTENTION_NORM, _FEED_FORWARD, _LAST_NORM),
        depth=ConfigField("encoder_layers"),
    ),
    longest=ConfigField("max_encoder_position_embeddings"),
)


def _longt5_feed_forward(config: Config, sublayer: str) -> PlainPart | GatedPart:
    inside = f"{sublayer}.DenseReluDense"
    if config.is_gated_act:
        return GatedPart(f"{inside}.wi_0", f"{inside}.wi_1", f"{inside}.act", f"{inside}.wo")
    return PlainPart(f"{inside}.wi", f"{inside}.act", f"{inside}.wo")


def _longt5_encoder(config: Config) -> PreNorm:
    if config.encoder_attention_type != "local":
        raise UnsupportedArchitectureError(
            f"The encoder of this LongT5 has the attention {config.encoder_attention_type!r}, whose tokens are also sums "
            f"of blocks of tokens. That of encoder_attention_type='local' is analysed."
        )
    inside = "layer.0.LocalSelfAttention"
    attention = ProbedAttention(
        inside,
        SplitHeads(f"{inside}.v"),
        f"{inside}.o",
        norm=RmsNormPart("layer.0.layer_norm"),
        heads=ConfigField("num_heads"),
    )
    return PreNorm(attention, RmsNormPart("layer.1.layer_norm"), _longt5_feed_forward(config, "layer.1"))


def _longt5_decoder(config: Config) -> PreNorm:
    inside, cross = "layer.0.SelfAttention", "layer.1.EncDecAttention"
    return PreNorm(
        DispatchedAttention(inside, SplitHeads(f"{inside}.v"), f"{inside}.o", norm=RmsNormPart("layer.0.layer_norm")),
        RmsNormPart("layer.2.layer_norm"),
        _longt5_feed_forward(config, "layer.2"),
        cross=(
            RmsNormPart("layer.1.layer_norm"),
            DispatchedCrossAttention(cross, SplitHeads(f"{cross}.v"), f"{cross}.o"),
        ),
    )


LONGT5 = Family(
    "longt5",
    ("longt5",),
    Stack("decoder.block.*", _longt5_decoder, causal=True, depth=ConfigField("num_decoder_layers")),
    encoder=Stack("encoder.block.*", _longt5_encoder, depth=ConfigField("num_layers")),
    longest=unlimited,
)

FAMILIES = (LONGFORMER, NYSTROMFORMER, YOSO, FNET, CONVBERT, IBERT, XLM, SQUEEZEBERT, MVP, TROCR, LED, LONGT5)
