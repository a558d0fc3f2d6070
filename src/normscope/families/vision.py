"""Vision Transformers: pre-norm encoders whose tokens are patches of an image."""

from __future__ import annotations

from normscope.families.spec import (
    DispatchedAttention,
    Family,
    LayerNormPart,
    PlainPart,
    PreNorm,
    SplitHeads,
    Stack,
    unlimited,
)

VIT = Family(
    "vit",
    ("vit", "deit"),
    Stack(
        blocks="layers.*",
        topology=PreNorm(
            attention=DispatchedAttention(
                "attention",
                SplitHeads("attention.v_proj"),
                "attention.o_proj",
                norm=LayerNormPart("layernorm_before"),
            ),
            feed_forward_norm=LayerNormPart("layernorm_after"),
            feed_forward=PlainPart("mlp.fc1", "mlp.activation_fn", "mlp.fc2"),
        ),
    ),
    longest=unlimited,
    reads="image",
)

FAMILIES = (VIT,)
