"""The GPT line and its kin: causal decoders with LayerNorm and a plain feed-forward, pre-norm or parallel.

| trap | where |
|---|---|
| projections are `Conv1D`, stored `[in, out]`; query, key and value are one projection | GPT-2 |
| attention does not go through the attention interface | GPT-Neo, GPT-J, Bloom, Falcon, XGLM, MPT, CodeGen, GPT, CTRL |
| query, key and value are fused head by head | GPT-NeoX, Bloom, Falcon, GPT-BigCode without multi-query |
| attention and feed-forward run side by side, or one after the other, by configuration | GPT-NeoX, Falcon |
| the feed-forward module outputs its result with the residual already in it | Bloom |
| the mask holds ALiBi already, and eager attention adds it once more, so that it differs from sdpa | Falcon |
| states are added up in place, so what is captured must be copied | Falcon |
| one value head for all heads, or for groups of them | Falcon |
| norms come after each branch in one size (350m), and the feed-forward sees two-dimensional tensors | OPT |
| values are the second of three in each of four shards of one projection | CodeGen |
| the block adds the bias of the output projection, in the last layer only | GPT-NeoX Japanese |
| norms come after each branch | the first GPT |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.families.spec import (
    Config,
    DispatchedAttention,
    Family,
    FusedPerHead,
    FusedShards,
    FusedTail,
    HookedAttention,
    LayerNormPart,
    Parallel,
    PlainPart,
    PostNorm,
    PreNorm,
    SplitHeads,
    Stack,
    Topology,
    unlimited,
)

_GPT2_BLOCK = PreNorm(
    attention=DispatchedAttention("attn", FusedTail("attn.c_attn"), "attn.c_proj", norm=LayerNormPart("ln_1")),
    feed_forward_norm=LayerNormPart("ln_2"),
    feed_forward=PlainPart("mlp.c_fc", "mlp.act", "mlp.c_proj"),
)

GPT2 = Family("gpt2", ("gpt2", "gpt-sw3"), Stack("h.*", _GPT2_BLOCK, causal=True))


def _gpt_bigcode_topology(config: Config) -> Topology:
    if config.multi_query:
        return _GPT2_BLOCK
    return replace(_GPT2_BLOCK, attention=replace(_GPT2_BLOCK.attention, value=FusedPerHead("attn.c_attn")))


GPT_BIGCODE = Family("gpt_bigcode", ("gpt_bigcode",), Stack("h.*", _gpt_bigcode_topology, causal=True))


def _gpt_neo_heads(config: Config) -> int:
    return config.num_heads


GPT_NEO = Family(
    "gpt_neo",
    ("gpt_neo",),
    Stack(
        blocks="h.*",
        topology=PreNorm(
            attention=HookedAttention(
                "attn.attention.attn_dropout",
                SplitHeads("attn.attention.v_proj"),
                "attn.attention.out_proj",
                norm=LayerNormPart("ln_1"),
                value_heads=_gpt_neo_heads,
            ),
            feed_forward_norm=LayerNormPart("ln_2"),
            feed_forward=PlainPart("mlp.c_fc", "mlp.act", "mlp.c_proj"),
        ),
        causal=True,
    ),
)


def _gpt_neox_topology(config: Config) -> Topology:
    attention = DispatchedAttention(
        "attention", FusedPerHead("attention.query_key_value"), "attention.dense", norm=LayerNormPart("input_layernorm")
    )
    feed_forward = PlainPart("mlp.dense_h_to_4h", "mlp.act", "mlp.dense_4h_to_h")
    topology = Parallel if config.use_parallel_residual else PreNorm
    return topology(attention, LayerNormPart("post_attention_layernorm"), feed_forward)


GPT_NEOX = Family("gpt_neox", ("gpt_neox",), Stack("layers.*", _gpt_neox_topology, causal=True), longest=unlimited)

GPTJ = Family(
    "gptj",
    ("gptj",),
    Stack(
        blocks="h.*",
        topology=Parallel(
            attention=HookedAttention(
                "attn.attn_dropout", SplitHeads("attn.v_proj"), "attn.out_proj", norm=LayerNormPart("ln_1")
            ),
            norm=LayerNormPart("ln_1"),
            feed_forward=PlainPart("mlp.fc_in", "mlp.act", "mlp.fc_out"),
        ),
        causal=True,
    ),
)


def _opt_topology(config: Config) -> Topology:
    attention = DispatchedAttention("self_attn", SplitHeads("self_attn.v_proj"), "self_attn.out_proj")
    feed_forward = PlainPart("fc1", "activation_fn", "fc2")
    first_norm, last_norm = LayerNormPart("self_attn_layer_norm"), LayerNormPart("final_layer_norm")
    if config.do_layer_norm_before:
        return PreNorm(replace(attention, norm=first_norm), last_norm, feed_forward)
    return PostNorm(attention, first_norm, feed_forward, last_norm)


OPT = Family("opt", ("opt",), Stack("decoder.layers.*", _opt_topology, causal=True))

BLOOM = Family(
    "bloom",
    ("bloom",),
    Stack(
        blocks="h.*",
        topology=PreNorm(
            attention=HookedAttention(
                "self_attention.attention_dropout",
                FusedPerHead("self_attention.query_key_value"),
                "self_attention.dense",
                norm=LayerNormPart("input_layernorm"),
            ),
            feed_forward_norm=LayerNormPart("post_attention_layernorm"),
            feed_forward=PlainPart("mlp.dense_h_to_4h", "mlp.gelu_impl", "mlp.dense_4h_to_h"),
        ),
        causal=True,
    ),
    longest=unlimited,
)


def _falcon_value_heads(config: Config) -> int:
    if config.new_decoder_architecture:
        return config.num_kv_heads
    return 1 if config.multi_query else config.num_attention_heads


def _falcon_topology(config: Config) -> Topology:
    two_norms = config.new_decoder_architecture and config.num_ln_in_parallel_attn == 2
    attention = HookedAttention(
        "self_attention",
        FusedPerHead("self_attention.query_key_value"),
        "self_attention.dense",
        norm=LayerNormPart("ln_attn" if two_norms else "input_layernorm"),
        value_heads=_falcon_value_heads,
        zeroed="alibi" if config.alibi and config._attn_implementation == "sdpa" else None,
    )
    feed_forward = PlainPart("mlp.dense_h_to_4h", "mlp.act", "mlp.dense_4h_to_h")
    if config.new_decoder_architecture or config.parallel_attn:
        return Parallel(attention, LayerNormPart("ln_mlp" if two_norms else "input_layernorm"), feed_forward)
    return PreNorm(attention, LayerNormPart("post_attention_layernorm"), feed_forward)


FALCON = Family("falcon", ("falcon",), Stack("h.*", _falcon_topology, causal=True), longest=unlimited)

PHI = Family(
    "phi",
    ("phi",),
    Stack(
        blocks="layers.*",
        topology=Parallel(
            attention=DispatchedAttention(
                "self_attn",
                SplitHeads("self_attn.v_proj"),
                "self_attn.dense",
                norm=LayerNormPart("input_layernorm"),
            ),
            norm=LayerNormPart("input_layernorm"),
            feed_forward=PlainPart("mlp.fc1", "mlp.activation_fn", "mlp.fc2"),
        ),
        causal=True,
    ),
    longest=unlimited,
)

STARCODER2 = Family(
    "starcoder2",
    ("starcoder2",),
    Stack(
        blocks="layers.*",
        topology=PreNorm(
            attention=DispatchedAttention(
                "self_attn",
                SplitHeads("self_attn.v_proj"),
                "self_attn.o_proj",
                norm=LayerNormPart("input_layernorm"),
            ),
            feed_forward_norm=LayerNormPart("post_attention_layernorm"),
            feed_forward=PlainPart("mlp.c_fc", "mlp.act", "mlp.c_proj"),
        ),
        causal=True,
    ),
    longest=unlimited,
)

BIOGPT = Family(
    "biogpt",
    ("biogpt",),
    Stack(
        blocks="layers.*",
        topology=PreNorm(
            attention=DispatchedAttention(
                "self_attn",
                SplitHeads("self_attn.v_proj"),
                "self_attn.out_proj",
                norm=LayerNormPart("self_attn_layer_norm"),
            ),
            feed_forward_norm=LayerNormPart("final_layer_norm"),
            feed_forward=PlainPart("fc1", "activation_fn", "fc2"),
        ),
        causal=True,
    ),
)


def _mpt_heads(config: Config) -> int:
    return config.n_heads


def _mpt_layers(config: Config) -> int:
    return config.n_layers


XGLM = Family(
    "xglm",
    ("xglm",),
    Stack(
        blocks="layers.*",
        topology=PreNorm(
            attention=HookedAttention(
                "self_attn",
                SplitHeads("self_attn.v_proj"),
                "self_attn.out_proj",
                norm=LayerNormPart("self_attn_layer_norm"),
            ),
            feed_forward_norm=LayerNormPart("final_layer_norm"),
            feed_forward=PlainPart("fc1", "activation_fn", "fc2"),
        ),
        causal=True,
    ),
)

MPT = Family(
    "mpt",
    ("mpt",),
    Stack(
        blocks="blocks.*",
        topology=PreNorm(
            attention=HookedAttention(
                "attn", FusedTail("attn.Wqkv"), "attn.out_proj", norm=LayerNormPart("norm_1"), value_heads=_mpt_heads
            ),
            feed_forward_norm=LayerNormPart("norm_2"),
            feed_forward=PlainPart("ffn.up_proj", "ffn.act", "ffn.down_proj"),
        ),
        causal=True,
        depth=_mpt_layers,
    ),
    longest=unlimited,
)

_CODEGEN_SHARDS = 4

CODEGEN = Family(
    "codegen",
    ("codegen",),
    Stack(
        blocks="h.*",
        topology=Parallel(
            attention=HookedAttention(
                "attn.attn_dropout",
                FusedShards("attn.qkv_proj", _CODEGEN_SHARDS),
                "attn.out_proj",
                norm=LayerNormPart("ln_1"),
            ),
            norm=LayerNormPart("ln_1"),
            feed_forward=PlainPart("mlp.fc_in", "mlp.act", "mlp.fc_out"),
        ),
        causal=True,
    ),
)


def _neox_japanese_layers(config: Config) -> list[Topology]:
    """The output projection has a bias in the last layer only, which the block adds."""
    attention = HookedAttention(
        "attention.attention_dropout",
        FusedPerHead("attention.query_key_value"),
        "attention.dense",
        norm=LayerNormPart("input_layernorm"),
    )
    feed_forward = PlainPart("mlp.dense_h_to_4h", "mlp.act", "mlp.dense_4h_to_h")
    block = PreNorm(attention, LayerNormPart("post_attention_layernorm"), feed_forward)
    last = replace(block, attention=replace(attention, output_bias="attention.dense_bias"))
    return [*[block] * (config.num_hidden_layers - 1), last]


GPT_NEOX_JAPANESE = Family(
    "gpt_neox_japanese",
    ("gpt_neox_japanese",),
    Stack("layers.*", _neox_japanese_layers, causal=True),
    longest=unlimited,
)

OPENAI_GPT = Family(
    "openai-gpt",
    ("openai-gpt",),
    Stack(
        blocks="h.*",
        topology=PostNorm(
            attention=HookedAttention("attn.attn_dropout", FusedTail("attn.c_attn"), "attn.c_proj"),
            attention_norm=LayerNormPart("ln_1"),
            feed_forward=PlainPart("mlp.c_fc", "mlp.act", "mlp.c_proj"),
            feed_forward_norm=LayerNormPart("ln_2"),
        ),
        causal=True,
    ),
)

CTRL = Family(
    "ctrl",
    ("ctrl",),
    Stack(
        blocks="h.*",
        topology=PreNorm(
            attention=HookedAttention(
                "multi_head_attention",
                SplitHeads("multi_head_attention.Wv"),
                "multi_head_attention.dense",
                norm=LayerNormPart("layernorm1"),
            ),
            feed_forward_norm=LayerNormPart("layernorm2"),
            feed_forward=PlainPart("ffn.0", "ffn.1", "ffn.2"),
        ),
        causal=True,
    ),
)

FAMILIES = (
    *(MPT, CODEGEN, GPT_NEOX_JAPANESE, OPENAI_GPT, CTRL, STARCODER2, BIOGPT, GPT2, GPT_BIGCODE, GPT_NEO, GPT_NEOX),
    *(GPTJ, OPT, BLOOM, FALCON, PHI, XGLM),
)
