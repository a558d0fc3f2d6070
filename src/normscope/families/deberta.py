"""DeBERTa, versions 1 and 2 (version 3 is a DeBERTa-v2): post-norm encoders with disentangled attention.

| trap | where |
|---|---|
| attention does not go through the attention interface, so its dropout shows the weights | both |
| query, key and value are fused head by head, and the value's bias is a parameter apart | version 1 |
| a convolution may follow the first block; it lies between blocks, so no block's chain changes | version 2 |
| positions may be relative only, and then the table of positions is no limit | both |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.families.spec import (
    Config,
    Family,
    FusedPerHead,
    HookedAttention,
    PlainPart,
    PostNorm,
    SplitHeads,
)


def _absolute_positions(config: Config) -> int | None:
    return config.max_position_embeddings if config.position_biased_input else None


_TOPOLOGY = PostNorm(
    attention=HookedAttention(
        weights="attention.self.dropout",
        value=FusedPerHead("attention.self.in_proj", "attention.self.v_bias"),
        output="attention.output.dense",
    ),
    attention_norm="attention.output.LayerNorm",
    feed_forward=PlainPart("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense"),
    feed_forward_norm="output.LayerNorm",
)

DEBERTA = Family(
    name="deberta",
    model_types=("deberta",),
    blocks="encoder.layer.*",
    topology=_TOPOLOGY,
    longest=_absolute_positions,
)

DEBERTA_V2 = replace(
    DEBERTA,
    name="deberta-v2",
    model_types=("deberta-v2",),
    topology=replace(
        _TOPOLOGY,
        attention=HookedAttention(
            weights="attention.self.dropout",
            value=SplitHeads("attention.self.value_proj"),
            output="attention.output.dense",
        ),
    ),
)

FAMILIES = (DEBERTA, DEBERTA_V2)
