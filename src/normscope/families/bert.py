"""BERT and its direct descendants, DistilBERT, ALBERT and MPNet: post-norm encoders with a plain feed-forward.

DeBERTa, versions 1 and 2 (version 3 is a DeBERTa-v2), has disentangled attention.

| trap | where |
|---|---|
| positions start after the padding index | RoBERTa, XLM-RoBERTa, CamemBERT, MPNet |
| one module is called once per layer, so layers are told apart by call order | ALBERT |
| attention does not go through the attention interface, so its dropout shows the weights | MPNet, RemBERT, LUKE, DeBERTa |
| norms come before each branch, and one after the last block | RoBERTa with pre-norm, Megatron, XLM-RoBERTa-XL, ESM |
| the activation belongs to no module | ESM |
| values are rotated by their positions where the configuration says so, which is refused | RoFormer |
| attention between blocks of tokens has no weights of queries and keys, and is refused | BigBird |
| the feed-forward may run in chunks of the sequence (`chunk_size_feed_forward`) | BERT, RoBERTa, ELECTRA, ALBERT |
| query, key and value are fused head by head, and the value's bias is a separate parameter | DeBERTa, version 1 |
| a convolution may follow the first block; it lies between blocks, so no block's chain changes | DeBERTa, version 2 |
| positions may be relative only, and then the table of positions is no limit | DeBERTa |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import (
    Config,
    DispatchedAttention,
    Family,
    FusedPerHeadWithBias,
    HookedAttention,
    LayerNormPart,
    NamedActivation,
    PlainPart,
    PostNorm,
    PreNorm,
    SplitHeads,
    Stack,
    Value,
    positions_after_padding,
)

_BERT_FEED_FORWARD = PlainPart("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense")

_BERT_ATTENTION = DispatchedAttention("attention.self", SplitHeads("attention.self.value"), "attention.output.dense")

_BERT_STACK = Stack(
    blocks="encoder.layer.*",
    topology=PostNorm(
        attention=_BERT_ATTENTION,
        attention_norm=LayerNormPart("attention.output.LayerNorm"),
        feed_forward=_BERT_FEED_FORWARD,
        feed_forward_norm=LayerNormPart("output.LayerNorm"),
    ),
)

BERT = Family("bert", ("bert", "electra", "ernie", "splinter", "bert-generation", "roc_bert", "layoutlm"), _BERT_STACK)

ROBERTA = Family(
    "roberta",
    ("roberta", "xlm-roberta", "camembert", "data2vec-text", "markuplm"),
    _BERT_STACK,
    longest=positions_after_padding,
)

DISTILBERT = Family(
    "distilbert",
    ("distilbert",),
    Stack(
        blocks="transformer.layer.*",
        topology=PostNorm(
            attention=DispatchedAttention("attention", SplitHeads("attention.v_lin"), "attention.out_lin"),
            attention_norm=LayerNormPart("sa_layer_norm"),
            feed_forward=PlainPart("ffn.lin1", "ffn.activation", "ffn.lin2"),
            feed_forward_norm=LayerNormPart("output_layer_norm"),
        ),
    ),
)


def _albert_depth(config: Config) -> int:
    return config.num_hidden_layers * config.inner_group_num


ALBERT = Family(
    "albert",
    ("albert",),
    Stack(
        blocks="encoder.albert_layer_groups.*.albert_layers.*",
        topology=PostNorm(
            attention=DispatchedAttention("attention", SplitHeads("attention.value"), "attention.dense"),
            attention_norm=LayerNormPart("attention.LayerNorm"),
            feed_forward=PlainPart("ffn", "activation", "ffn_output"),
            feed_forward_norm=LayerNormPart("full_layer_layer_norm"),
        ),
        depth=_albert_depth,
    ),
)

MPNET = Family(
    "mpnet",
    ("mpnet",),
    Stack(
        blocks="encoder.layer.*",
        topology=PostNorm(
            attention=HookedAttention("attention.attn.dropout", SplitHeads("attention.attn.v"), "attention.attn.o"),
            attention_norm=LayerNormPart("attention.LayerNorm"),
            feed_forward=_BERT_FEED_FORWARD,
            feed_forward_norm=LayerNormPart("output.LayerNorm"),
        ),
    ),
    longest=positions_after_padding,
)


def _pre_norm(attention_norm: str, feed_forward_norm: str, feed_forward: PlainPart = _BERT_FEED_FORWARD) -> Stack:
    """The parts of BERT, with a norm before each of them."""
    attention = replace(_BERT_ATTENTION, norm=LayerNormPart(attention_norm))
    return Stack("encoder.layer.*", PreNorm(attention, LayerNormPart(feed_forward_norm), feed_forward))


ROBERTA_PRE_NORM = Family(
    "roberta-prelayernorm",
    ("roberta-prelayernorm",),
    _pre_norm("attention.LayerNorm", "intermediate.LayerNorm"),
    longest=positions_after_padding,
)

# ---- DeBERTa ---------------------------------------------------------------------------------------------------------


def _absolute_positions(config: Config) -> int | None:
    return config.max_position_embeddings if config.position_biased_input else None


def _deberta_stack(value: Value) -> Stack:
    return Stack(
        blocks="encoder.layer.*",
        topology=PostNorm(
            attention=HookedAttention("attention.self.dropout", value, "attention.output.dense"),
            attention_norm=LayerNormPart("attention.output.LayerNorm"),
            feed_forward=_BERT_FEED_FORWARD,
            feed_forward_norm=LayerNormPart("output.LayerNorm"),
        ),
        between="encoder.conv",
    )


DEBERTA = Family(
    "deberta",
    ("deberta",),
    _deberta_stack(FusedPerHeadWithBias("attention.self.in_proj", bias="attention.self.v_bias")),
    longest=_absolute_positions,
)

DEBERTA_V2 = Family(
    "deberta-v2", ("deberta-v2",), _deberta_stack(SplitHeads("attention.self.value_proj")), longest=_absolute_positions
)


_HOOKED = PostNorm(
    attention=HookedAttention("attention.self.dropout", SplitHeads("attention.self.value"), "attention.output.dense"),
    attention_norm=LayerNormPart("attention.output.LayerNorm"),
    feed_forward=_BERT_FEED_FORWARD,
    feed_forward_norm=LayerNormPart("output.LayerNorm"),
)

HOOKED_BERT = Family("rembert", ("rembert", "tapas", "visual_bert"), Stack("encoder.layer.*", _HOOKED))

GIT = Family("git", ("git",), Stack("encoder.layer.*", _HOOKED, causal=True))

LUKE = Family("luke", ("luke",), Stack("encoder.layer.*", _HOOKED), longest=positions_after_padding)


def _roformer_topology(config: Config) -> PostNorm:
    if config.rotary_value:
        raise UnsupportedArchitectureError(
            "This RoFormer rotates its values by their positions (rotary_value), so that they are no projection of the "
            "states. Models with rotary_value=False, the default, are analysed."
        )
    return _HOOKED


ROFORMER = Family("roformer", ("roformer",), Stack("encoder.layer.*", _roformer_topology))


def _big_bird_topology(config: Config) -> PostNorm:
    if config.attention_type != "original_full":
        raise UnsupportedArchitectureError(
            f"This BigBird has the attention {config.attention_type!r}, which does not compute weights of queries and keys. "
            f"Load it with attention_type='original_full', which is what it uses itself for inputs below 705 tokens."
        )
    return _HOOKED


BIG_BIRD = Family("big_bird", ("big_bird",), Stack("encoder.layer.*", _big_bird_topology))

MEGATRON_BERT = Family(
    "megatron-bert",
    ("megatron-bert",),
    Stack(
        blocks="encoder.layer.*",
        topology=PreNorm(
            attention=HookedAttention(
                "attention.self.dropout",
                SplitHeads("attention.self.value"),
                "attention.output.dense",
                norm=LayerNormPart("attention.ln"),
            ),
            feed_forward_norm=LayerNormPart("ln"),
            feed_forward=_BERT_FEED_FORWARD,
        ),
    ),
)

XLM_ROBERTA_XL = Family(
    "xlm-roberta-xl",
    ("xlm-roberta-xl",),
    _pre_norm("attention.self_attn_layer_norm", "LayerNorm"),
    longest=positions_after_padding,
)


def _esm_positions(config: Config) -> int | None:
    return positions_after_padding(config) if config.position_embedding_type == "absolute" else None


ESM = Family(
    "esm",
    ("esm",),
    _pre_norm(
        "attention.LayerNorm", "LayerNorm", PlainPart("intermediate.dense", NamedActivation("gelu"), "output.dense")
    ),
    longest=_esm_positions,
)

FAMILIES = (
    *(BERT, GIT, ROBERTA, ROBERTA_PRE_NORM, DISTILBERT, ALBERT, MPNET, HOOKED_BERT, LUKE, ROFORMER, BIG_BIRD),
    *(MEGATRON_BERT, XLM_ROBERTA_XL, ESM, DEBERTA, DEBERTA_V2),
)
