"""Encoders of the gated generation: ModernBERT (pre-norm) and Nomic BERT (post-norm).

| trap | where |
|---|---|
| query, key and value are one projection; both halves of the gate another, the activated one first | ModernBERT |
| the first layer has no norm before its attention | ModernBERT |
| layers alternate between sliding windows and full attention | ModernBERT |
"""

from __future__ import annotations

from normscope.families.spec import (
    DispatchedAttention,
    Family,
    FusedGatedPart,
    FusedTail,
    GatedPart,
    LayerNormPart,
    PostNorm,
    PreNorm,
    SplitHeads,
    Stack,
    unlimited,
)

MODERNBERT = Family(
    "modernbert",
    ("modernbert",),
    Stack(
        blocks="layers.*",
        topology=PreNorm(
            attention=DispatchedAttention("attn", FusedTail("attn.Wqkv"), "attn.Wo"),
            feed_forward_norm=LayerNormPart("mlp_norm"),
            feed_forward=FusedGatedPart("mlp.Wi", "mlp.act", "mlp.Wo"),
        ),
    ),
    longest=unlimited,
)

NOMIC_BERT = Family(
    "nomic_bert",
    ("nomic_bert",),
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

FAMILIES = (MODERNBERT, NOMIC_BERT)
