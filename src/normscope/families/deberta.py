"""DeBERTa, versions 1 and 2 (version 3 is a DeBERTa-v2): post-norm encoders with disentangled attention.

| trap | where |
|---|---|
| attention does not go through the attention interface, so its dropout shows the weights | both |
| query, key and value are fused head by head, and the value's bias is a parameter apart | version 1 |
| a convolution may follow the first block; it lies between blocks, so no block's chain changes | version 2 |
| positions may be relative only, and then the table of positions is no limit | both |
"""

from __future__ import annotations

from normscope.families.spec import (
    Config,
    Family,
    FusedPerHeadWithBias,
    HookedAttention,
    LayerNormPart,
    PlainPart,
    PostNorm,
    SplitHeads,
    Stack,
    Value,
)


def _absolute_positions(config: Config) -> int | None:
    return config.max_position_embeddings if config.position_biased_input else None


def _stack(value: Value) -> Stack:
    return Stack(
        blocks="encoder.layer.*",
        topology=PostNorm(
            attention=HookedAttention("attention.self.dropout", value, "attention.output.dense"),
            attention_norm=LayerNormPart("attention.output.LayerNorm"),
            feed_forward=PlainPart("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense"),
            feed_forward_norm=LayerNormPart("output.LayerNorm"),
        ),
        between="encoder.conv",
    )


DEBERTA = Family(
    "deberta",
    ("deberta",),
    _stack(FusedPerHeadWithBias("attention.self.in_proj", bias="attention.self.v_bias")),
    longest=_absolute_positions,
)

DEBERTA_V2 = Family(
    "deberta-v2", ("deberta-v2",), _stack(SplitHeads("attention.self.value_proj")), longest=_absolute_positions
)

FAMILIES = (DEBERTA, DEBERTA_V2)
