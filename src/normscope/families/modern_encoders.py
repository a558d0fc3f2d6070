"""Encoders of the gated generation: ModernBERT and EuroBERT (pre-norm), Nomic BERT and GTE (post-norm); and
ModernBERT as a decoder.

| trap | where |
|---|---|
| query, key and value are one projection; both halves of the gate another, the activated one first | ModernBERT |
| the first layer has no norm before its attention | ModernBERT |
| layers alternate between sliding windows and full attention | ModernBERT |
| what a branch adds is divided by a number that depends on the depth | ESM C |
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from normscope.families.spec import (
    Config,
    DispatchedAttention,
    Family,
    FusedGatedPart,
    FusedTail,
    GatedPart,
    LayerNormPart,
    PlainPart,
    PostNorm,
    PreNorm,
    RmsNormPart,
    ScaledPreNorm,
    SplitHeads,
    Stack,
    Value,
    unlimited,
)

_MODERNBERT_FEED_FORWARD = FusedGatedPart("mlp.Wi", "mlp.act", "mlp.Wo")
_MODERNBERT_NORM = LayerNormPart("mlp_norm")


def _modernbert_layers(config: Config, value: Value) -> list[PreNorm]:
    """The embeddings are normalised already, so that the first layer has no norm before its attention."""
    first = PreNorm(DispatchedAttention("attn", value, "attn.Wo"), _MODERNBERT_NORM, _MODERNBERT_FEED_FORWARD)
    later = replace(first, attention=replace(first.attention, norm=LayerNormPart("attn_norm")))
    return [first, *[later] * (config.num_hidden_layers - 1)]


MODERNBERT = Family(
    "modernbert",
    ("modernbert",),
    Stack("layers.*", partial(_modernbert_layers, value=FusedTail("attn.Wqkv"))),
    longest=unlimited,
)

MODERNBERT_DECODER = Family(
    "modernbert-decoder",
    ("modernbert-decoder",),
    Stack("layers.*", partial(_modernbert_layers, value=SplitHeads("attn.v_proj")), causal=True),
    longest=unlimited,
)

EUROBERT = Family(
    "eurobert",
    ("eurobert", "ultrabert"),
    Stack(
        blocks="layers.*",
        topology=PreNorm(
            attention=DispatchedAttention(
                "self_attn",
                SplitHeads("self_attn.v_proj"),
                "self_attn.o_proj",
                norm=RmsNormPart("input_layernorm"),
            ),
            feed_forward_norm=RmsNormPart("post_attention_layernorm"),
            feed_forward=GatedPart("mlp.gate_proj", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj"),
        ),
    ),
    longest=unlimited,
)

NOMIC_BERT = Family(
    "nomic_bert",
    ("nomic_bert", "gte"),
    Stack(
        blocks="layers.*",
        topology=PostNorm(
            attention=DispatchedAttention("self_attn", SplitHeads("self_attn.v_proj"), "self_attn.o_proj"),
            attention_norm=LayerNormPart("post_attention_layernorm"),
            feed_forward=GatedPart("mlp.gate_proj", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj"),
            feed_forward_norm=LayerNormPart("post_mlp_layernorm"),
        ),
    ),
    longest=unlimited,
)

JINA = Family(
    "jina_embeddings_v3",
    ("jina_embeddings_v3",),
    Stack(
        blocks="layers.*",
        topology=PostNorm(
            attention=DispatchedAttention("self_attn", SplitHeads("self_attn.v_proj"), "self_attn.o_proj"),
            attention_norm=LayerNormPart("post_attention_layernorm"),
            feed_forward=PlainPart("mlp.fc1", "mlp.activation_fn", "mlp.fc2"),
            feed_forward_norm=LayerNormPart("post_mlp_layernorm"),
        ),
    ),
    longest=unlimited,
)

_ESMC_DEPTH = 36


def _esmc_topology(config: Config) -> ScaledPreNorm:
    """What a branch adds is divided by a number that depends on the depth."""
    attention = DispatchedAttention(
        "self_attn", SplitHeads("self_attn.v_proj"), "self_attn.o_proj", norm=LayerNormPart("input_layernorm")
    )
    feed_forward = GatedPart("mlp.gate_proj", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj")
    factor = (_ESMC_DEPTH / config.num_hidden_layers) ** 0.5
    return ScaledPreNorm(attention, LayerNormPart("post_attention_layernorm"), feed_forward, factor)


ESMC = Family("esmc", ("esmc",), Stack("layers.*", _esmc_topology), longest=unlimited)

FAMILIES = (MODERNBERT, MODERNBERT_DECODER, EUROBERT, NOMIC_BERT, JINA, ESMC)
