"""Tiny random models of every architecture beyond the BERT line, as they are worth testing. Nothing here is a test."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    CLIPForImageClassification,
    Emu3TextModel,
    MetaClip2ForImageClassification,
    MetaClip2TextModel,
    MetaClip2VisionModel,
    PreTrainedModel,
    SeamlessM4TForTextToText,
    SeamlessM4Tv2ForTextToText,
    Siglip2ForImageClassification,
    Siglip2VisionModel,
    SiglipForImageClassification,
    SiglipTextModel,
    TrOCRForCausalLM,
)

# Deliberately awkward: three heads, a hidden size that divides nothing, a feed-forward of a prime size.
SIZE: dict[str, Any] = {
    **dict(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=37),
    **dict(max_position_embeddings=32, pad_token_id=1, bos_token_id=0, eos_token_id=2),
}
GROUPED = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=6)
GPT2 = dict(n_embd=24, n_layer=2, n_head=3, n_positions=32)
T5 = dict(d_model=24, d_kv=10, d_ff=37, num_layers=2, num_decoder_layers=3, num_heads=3, decoder_start_token_id=1)
BART = dict(
    **dict(d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3, decoder_attention_heads=3),
    **dict(encoder_ffn_dim=37, decoder_ffn_dim=29, decoder_start_token_id=1),
)
# transformers multiplies experts in groups, which wants sizes in multiples of four.
EXPERTS = dict(
    num_local_experts=5, num_experts=5, num_experts_per_tok=2, intermediate_size=36, moe_intermediate_size=20
)
GROUPED_EXPERTS = {**GROUPED, **EXPERTS}
# Six experts in two groups, one shared, none in the first of three layers.
SHARED_EXPERTS = {
    **GROUPED_EXPERTS,
    **dict(num_experts=6, num_local_experts=6, n_routed_experts=6, n_shared_experts=1, n_group=2, topk_group=1),
    **dict(num_hidden_layers=3, first_k_dense_replace=1),
}
LISTED_LAYERS = dict(num_hidden_layers=3, mlp_layer_types=["dense", "sparse", "sparse"])
LATENT = dict(
    **dict(num_attention_heads=4, num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=12),
    **dict(qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5),
)
LATENT_EXPERTS = {**SHARED_EXPERTS, **LATENT, "head_dim": 4, "n_shared_experts": 2, "routed_scaling_factor": 1.5}
INDEXER = dict(index_topk=4, index_head_dim=6, index_n_heads=16)
DBRX = dict(
    **dict(d_model=24, n_heads=4, num_attention_heads=4, n_layers=2, max_seq_len=32),
    ffn_config=dict(ffn_hidden_size=20, moe_num_experts=5, moe_top_k=2),
    attn_config=dict(kv_n_heads=2, clip_qkv=8, rope_theta=10000.0),
)
SECTIONS = dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 1]))
WHOLE_HEAD = dict(rope_parameters={**SECTIONS["rope_parameters"], "partial_rotary_factor": 1.0})
FOUR_SECTIONS = dict(rope_parameters={**SECTIONS["rope_parameters"], "mrope_section": [1, 1, 1, 1]})
T5GEMMA = dict(
    encoder={**SIZE, **GROUPED, "sliding_window": 3},
    decoder={**SIZE, **GROUPED, "sliding_window": 3, "num_hidden_layers": 3, "final_logit_softcapping": 0.7},
    vocab_size=50,
)
SEAMLESS = dict(
    **dict(encoder_layers=2, decoder_layers=3, encoder_attention_heads=3, decoder_attention_heads=2),
    **dict(encoder_ffn_dim=37, decoder_ffn_dim=29),
)
PHI4 = dict(
    vision_config=dict(hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, crop_size=28),
    audio_config=dict(hidden_size=12, num_blocks=1, num_attention_heads=2, intermediate_size=16, nemo_conv_channels=8),
)
MULTIPLIERS = dict(residual_multiplier=0.22, embedding_multiplier=3.0, attention_multiplier=0.3)
ERNIE = {**GROUPED_EXPERTS, "num_hidden_layers": 3, "moe_layer_end_index": 2, "moe_layer_interval": 1}
GEMMA3 = dict(
    text_config={**SIZE, **GROUPED, "sliding_window": 3},
    vision_config=dict(
        **dict(hidden_size=12, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2),
        **dict(image_size=8, patch_size=4),
    ),
)
HYBRID_LAYERS = dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"])
DELTA_RULE = dict(
    **HYBRID_LAYERS,
    **dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5),
    linear_conv_kernel_dim=3,
)
STATE_SPACE = dict(
    **dict(mamba_n_heads=4, mamba_d_head=12, mamba_n_groups=2, mamba_d_state=6, mamba_expand=2),
    **dict(mamba_chunk_size=4, mamba_d_conv=3),
)
FALCON_H1 = {
    **GROUPED,
    **STATE_SPACE,
    **dict(
        mamba_d_ssm=48, ssm_multipliers=[0.35, 0.25, 0.18, 0.5, 0.35], ssm_in_multiplier=1.25, ssm_out_multiplier=0.4
    ),
    **dict(attention_in_multiplier=0.9, attention_out_multiplier=0.94, key_multiplier=0.39, mlp_multipliers=[0.9, 0.4]),
    **dict(embedding_multiplier=5.65, lm_head_multiplier=0.04),
}
CONVOLUTIONS = dict(num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_bias=True)
QWEN3_5 = {**GROUPED, **DELTA_RULE, **SECTIONS, "head_dim": 8}
KIMI_LINEAR = {
    **{**SHARED_EXPERTS, **LATENT, **HYBRID_LAYERS, **LISTED_LAYERS, "routed_scaling_factor": 1.5},
    **dict(linear_num_heads=4, linear_head_dim=6, linear_conv_kernel_dim=3),
}
AFMOE = {**GROUPED_EXPERTS, "num_hidden_layers": 3, "num_dense_layers": 1, "num_shared_experts": 1}
NEMOTRON_H = {
    **GROUPED,
    **dict(layers_block_type=["linear_attention", "moe", "full_attention", "mlp"], head_dim=8),
    **dict(mamba_num_heads=4, mamba_head_dim=6, n_groups=2, ssm_state_size=5, conv_kernel=3, chunk_size=4),
    **dict(n_routed_experts=5, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=12),
    **dict(moe_shared_expert_intermediate_size=20, routed_scaling_factor=1.5),
}
MINIMAX = {
    **{**GROUPED_EXPERTS, **HYBRID_LAYERS, "block_size": 4, "head_dim": 6},
    **dict(full_attn_alpha_factor=1.5, full_attn_beta_factor=0.7, linear_attn_alpha_factor=1.2),
    **dict(linear_attn_beta_factor=0.8, mlp_alpha_factor=1.3, mlp_beta_factor=0.6),
}
GEMMA4 = {
    **{**GROUPED, "head_dim": 8, "global_head_dim": 12, "hidden_size_per_layer_input": 0, "sliding_window": 3},
    **dict(num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"]),
}
MAMBA = dict(state_size=5, expand=2, conv_kernel=3, time_step_rank=4)
JAMBA = {
    **{**GROUPED_EXPERTS, "num_hidden_layers": 3, "attn_layer_period": 2, "attn_layer_offset": 1},
    **dict(expert_layer_period=2, expert_layer_offset=1, mamba_d_state=5, mamba_d_conv=3, mamba_dt_rank=4),
}
LLAMA4 = dict(
    text_config={**SIZE, **GROUPED_EXPERTS, "intermediate_size_mlp": 28, "moe_layers": [1]},
    vision_config=dict(
        **dict(hidden_size=12, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, vision_output_dim=12),
        **dict(projector_input_dim=12, projector_output_dim=12, image_size=8, patch_size=4),
    ),
)
WAVES = dict(
    conv_dim=[8, 8],
    conv_kernel=[5, 3],
    conv_stride=[4, 2],
    num_conv_pos_embeddings=4,
    num_feat_extract_layers=2,
    num_conv_pos_embedding_groups=3,
)
WHISPER = {**BART, "num_mel_bins": 6, "max_source_positions": 11, "max_target_positions": 32}
SPECTROGRAM = dict(max_length=16, num_mel_bins=10, patch_size=4, time_stride=4, frequency_stride=3)
IMAGE = dict(image_size=12, patch_size=4, num_channels=3)
PATCHES = dict(num_patches=16, patch_size=4, num_channels=3)
TOWERS = dict(text_config=SIZE, vision_config={**SIZE, **IMAGE})
CLASSES: dict[str, type[PreTrainedModel]] = {
    "emu3_text_model": Emu3TextModel,
    "trocr": TrOCRForCausalLM,
    "clip": CLIPForImageClassification,
    "siglip": SiglipForImageClassification,
    "metaclip_2": MetaClip2ForImageClassification,
    "siglip2": Siglip2ForImageClassification,
    "siglip2_vision_model": Siglip2VisionModel,
    "siglip_text_model": SiglipTextModel,
    "seamless_m4t": SeamlessM4TForTextToText,
    "seamless_m4t_v2": SeamlessM4Tv2ForTextToText,
    "metaclip_2_text_model": MetaClip2TextModel,
    "metaclip_2_vision_model": MetaClip2VisionModel,
}
"""Types whose `AutoModel` is none, or another one than is meant."""

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", GPT2),
    ("gpt2", {**GPT2, "activation_function": "relu", "n_inner": 31}),
    ("gpt-sw3", GPT2),
    ("gpt_bigcode", {**GPT2, "multi_query": True}),
    ("gpt_bigcode", {**GPT2, "multi_query": False}),
    ("gpt_neo", dict(num_layers=2, num_heads=3, attention_types=[[["global", "local"], 1]], window_size=4)),
    ("gpt_neox", {}),
    ("gpt_neox", dict(use_parallel_residual=False, hidden_act="relu")),
    ("gptj", {**GPT2, "rotary_dim": 4}),
    ("opt", dict(ffn_dim=37, word_embed_proj_dim=24)),
    ("opt", dict(ffn_dim=37, word_embed_proj_dim=24, do_layer_norm_before=False)),
    ("bloom", dict(n_layer=2, n_head=3)),
    ("falcon", dict(multi_query=True, new_decoder_architecture=False, parallel_attn=True)),
    ("falcon", dict(multi_query=False, new_decoder_architecture=False, parallel_attn=False, alibi=True, bias=True)),
    ("falcon", dict(num_attention_heads=4, new_decoder_architecture=True, num_kv_heads=2)),
    ("falcon", dict(num_attention_heads=4, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1)),
    ("phi", dict(hidden_size=32, num_attention_heads=4, partial_rotary_factor=0.5)),
    ("phi3", dict(num_attention_heads=4, num_key_value_heads=2)),
    ("starcoder2", GROUPED),
    ("stablelm", dict(num_attention_heads=4, num_key_value_heads=2)),
    ("stablelm", dict(num_attention_heads=4, num_key_value_heads=2, use_parallel_residual=True)),
    ("biogpt", {}),
    ("xglm", dict(d_model=24, ffn_dim=37, num_layers=2, attention_heads=3)),
    ("cohere", GROUPED),
    ("cohere2", {**GROUPED, "sliding_window": 4}),
    ("llama", dict(num_key_value_heads=1, head_dim=10, attention_bias=True, mlp_bias=True)),
    ("mistral", {**GROUPED, "sliding_window": 3}),
    ("qwen2", GROUPED),
    ("qwen3", GROUPED),
    ("smollm3", GROUPED),
    ("ministral", GROUPED),
    ("ministral3", GROUPED),
    ("cwm", GROUPED),
    ("ernie4_5", GROUPED),
    ("hunyuan_v1_dense", GROUPED),
    ("minimax_m2", GROUPED_EXPERTS),
    ("ernie", {}),
    ("splinter", {}),
    ("bert-generation", {}),
    ("data2vec-text", {}),
    ("mt5", T5),
    ("helium", GROUPED),
    ("seed_oss", GROUPED),
    ("glm", GROUPED),
    ("glm4", GROUPED),
    ("granite", {**GROUPED, **MULTIPLIERS}),
    ("gemma", GROUPED),
    ("gemma2", {**GROUPED, "sliding_window": 3}),
    ("gemma3_text", {**GROUPED, "sliding_window": 3}),
    ("gemma3", GEMMA3),
    ("olmo", GROUPED),
    ("olmo2", GROUPED),
    ("olmo3", GROUPED),
    ("exaone4", GROUPED),
    ("mixtral", GROUPED_EXPERTS),
    ("olmoe", GROUPED_EXPERTS),
    ("phimoe", GROUPED_EXPERTS),
    ("flex_olmo", GROUPED_EXPERTS),
    ("granitemoe", {**GROUPED_EXPERTS, **MULTIPLIERS}),
    ("gpt_oss", {**GROUPED_EXPERTS, "sliding_window": 3}),
    ("hunyuan_v1_moe", {**GROUPED_EXPERTS, "moe_topk": 2}),
    ("solar_open", SHARED_EXPERTS),
    ("qwen2_moe", {**GROUPED_EXPERTS, "num_hidden_layers": 3, "mlp_only_layers": [1]}),
    ("qwen3_moe", GROUPED_EXPERTS),
    ("qwen3_moe", {**GROUPED_EXPERTS, "num_hidden_layers": 3, "decoder_sparse_step": 2}),
    ("flint", {**GROUPED_EXPERTS, "num_hidden_layers": 3, "mlp_only_layers": [0], "decoder_sparse_step": 1}),
    ("mellum", {**GROUPED_EXPERTS, **LISTED_LAYERS}),
    ("glm4_moe", SHARED_EXPERTS),
    ("dots1", {**SHARED_EXPERTS, "first_k_dense_replace": 2}),
    ("exaone_moe", {**SHARED_EXPERTS, **LISTED_LAYERS}),
    ("hy_v3", {**SHARED_EXPERTS, **LISTED_LAYERS}),
    ("ernie4_5_moe", {**ERNIE, "moe_layer_start_index": 1, "moe_num_shared_experts": 2}),
    ("ernie4_5_moe", {**ERNIE, "moe_layer_start_index": 0, "moe_num_shared_experts": 0}),
    ("deepseek_v2", LATENT_EXPERTS),
    ("deepseek_v2", {**LATENT_EXPERTS, "q_lora_rank": None, "topk_method": "greedy", "attention_bias": True}),
    ("deepseek_v3", LATENT_EXPERTS),
    ("mistral4", {key: value for key, value in LATENT_EXPERTS.items() if key != "head_dim"}),
    ("glm4_moe_lite", {**LATENT_EXPERTS, **LISTED_LAYERS}),
    ("youtu", {**LATENT, "head_dim": 4}),
    ("arcee", GROUPED),
    ("apertus", GROUPED),
    ("jais2", GROUPED),
    ("nemotron", GROUPED),
    ("nanochat", GROUPED),
    ("vaultgemma", {**GROUPED, "sliding_window": 3}),
    ("hyperclovax", {**GROUPED, **MULTIPLIERS}),
    ("hyperclovax", {**GROUPED, **MULTIPLIERS, "use_post_norm": False}),
    ("minicpm3", {**LATENT, "head_dim": 4}),
    ("persimmon", dict(hidden_size=32, num_attention_heads=4)),
    ("persimmon", dict(hidden_size=32, num_attention_heads=4, qk_layernorm=False, hidden_act="gelu")),
    ("granite_swa", {**GROUPED, **MULTIPLIERS, "sliding_window": 3}),
    ("granitemoe_swa", {**GROUPED_EXPERTS, **MULTIPLIERS, "sliding_window": 3, "shared_intermediate_size": 12}),
    ("granitemoeshared", {**GROUPED_EXPERTS, **MULTIPLIERS, "shared_intermediate_size": 12}),
    ("granitemoeshared", {**GROUPED_EXPERTS, **MULTIPLIERS, "shared_intermediate_size": 0}),
    ("dbrx", DBRX),
    ("mimo_v2_flash", {**SHARED_EXPERTS, **LISTED_LAYERS, "attention_value_scale": 0.7}),
    ("laguna", {**GROUPED_EXPERTS, **LISTED_LAYERS, "moe_routed_scaling_factor": 1.5}),
    ("cohere2_moe", {**GROUPED_EXPERTS, **LISTED_LAYERS, "prefix_dense_intermediate_size": 28}),
    ("cohere2_moe", {**GROUPED_EXPERTS, "num_shared_experts": 0}),
    ("llama4_text", {**GROUPED_EXPERTS, "intermediate_size_mlp": 28, "moe_layers": [1]}),
    ("llama4", LLAMA4),
    ("aria_text", {**GROUPED_EXPERTS, "moe_num_experts": 5, "moe_topk": 2, "moe_num_shared_experts": 2}),
    ("kolibri1", {**GROUPED_EXPERTS, "shared_expert_intermediate_size": 12}),
    ("emu3_text_model", GROUPED),
    ("deepseek_v32", {**LATENT_EXPERTS, **INDEXER, **LISTED_LAYERS}),
    ("glm_moe_dsa", {**LATENT_EXPERTS, **INDEXER, **LISTED_LAYERS}),
    ("afmoe", AFMOE),
    ("qwen3_next", {**SHARED_EXPERTS, **DELTA_RULE, "mlp_only_layers": [0], "shared_expert_intermediate_size": 12}),
    ("qwen3_5_text", QWEN3_5),
    ("qwen3_5_moe_text", {**GROUPED_EXPERTS, **QWEN3_5, "shared_expert_intermediate_size": 12}),
    ("kimi_linear", KIMI_LINEAR),
    ("mamba2", dict(num_heads=4, head_dim=12, state_size=6, n_groups=2, chunk_size=4, conv_kernel=3)),
    ("bamba", {**GROUPED, **STATE_SPACE, "num_hidden_layers": 3, "attn_layer_indices": [1]}),
    ("falcon_h1", FALCON_H1),
    ("falcon_h1", {**FALCON_H1, "head_dim": 14, "mamba_proj_bias": True, "attention_bias": True, "mlp_bias": True}),
    (
        "granitemoehybrid",
        {**GROUPED_EXPERTS, **MULTIPLIERS, **STATE_SPACE, **HYBRID_LAYERS, "shared_intermediate_size": 12},
    ),
    (
        "granitemoehybrid",
        {
            **GROUPED,
            **MULTIPLIERS,
            **STATE_SPACE,
            **HYBRID_LAYERS,
            "num_local_experts": 0,
            "shared_intermediate_size": 12,
        },
    ),
    ("bailing_hybrid", {**KIMI_LINEAR, "head_dim": 4}),
    ("olmo_hybrid", {**GROUPED, **DELTA_RULE}),
    ("nemotron_h", NEMOTRON_H),
    ("minimax", MINIMAX),
    ("doge", GROUPED),
    ("bitnet", GROUPED),
    ("diffllama", {**GROUPED, "num_attention_heads": 4}),
    ("axk1", {**LATENT_EXPERTS, **LISTED_LAYERS}),
    ("trocr", dict(d_model=24, decoder_layers=2, decoder_attention_heads=3, decoder_ffn_dim=37)),
    ("gemma4_text", GEMMA4),
    ("gemma4_text", {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1}),
    ("gemma4_unified_text", GEMMA4),
    ("mamba", MAMBA),
    ("mamba", {**MAMBA, "use_conv_bias": False, "use_bias": True}),
    ("falcon_mamba", MAMBA),
    ("jamba", JAMBA),
    ("recurrent_gemma", {**GROUPED, "block_types": ["recurrent", "attention"], "lru_width": 20, "conv1d_width": 3}),
    ("lfm2", {**GROUPED, **CONVOLUTIONS, "block_auto_adjust_ff_dim": False}),
    ("lfm2_moe", {**GROUPED_EXPERTS, **CONVOLUTIONS, "num_dense_layers": 1}),
    ("mpt", dict(d_model=24, n_heads=3, n_layers=2, max_seq_len=32, expansion_ratio=2)),
    ("codegen", dict(num_attention_heads=4, rotary_dim=4)),
    ("gpt_neox_japanese", {}),
    ("openai-gpt", GPT2),
    ("ctrl", {**GPT2, "dff": 37}),
    ("qwen2_vl_text", {**GROUPED, **SECTIONS}),
    ("qwen2_5_vl_text", {**GROUPED, **SECTIONS}),
    ("qwen3_vl_text", {**GROUPED, **SECTIONS}),
    ("qwen3_vl_moe_text", {**GROUPED_EXPERTS, **SECTIONS}),
    ("molmo2_text", GROUPED),
    ("hunyuan_vl_text", {**GROUPED, **FOUR_SECTIONS, "head_dim": 8}),
    ("glm4v_text", {**GROUPED, **WHOLE_HEAD}),
    ("glm_image_text", {**GROUPED, **WHOLE_HEAD}),
    ("glm_ocr_text", {**GROUPED, **WHOLE_HEAD}),
    ("glm4v_moe_text", {**SHARED_EXPERTS, **WHOLE_HEAD}),
    ("phi4_multimodal", {**GROUPED, **PHI4}),
    ("markuplm", {}),
    ("tipsv2_text_model", {}),
    ("t5gemma", T5GEMMA),
    ("switch_transformers", {**T5, "num_experts": 3, "encoder_sparse_step": 2, "decoder_sparse_step": 1}),
    (
        "nllb-moe",
        {**BART, "num_experts": 3, "encoder_sparse_step": 2, "decoder_sparse_step": 1, "moe_token_dropout": 0.2},
    ),
    *((model_type, {**SEAMLESS, "num_attention_heads": 3}) for model_type in ("seamless_m4t", "seamless_m4t_v2")),
    ("mvp", BART),
    ("whisper", WHISPER),
    *((name, {**WAVES, "feat_extract_norm": "group"}) for name in ("wav2vec2", "hubert", "unispeech", "unispeech-sat")),
    ("wav2vec2", {**WAVES, "feat_extract_norm": "layer", "do_stable_layer_norm": True}),
    ("wavlm", {**WAVES, "feat_extract_norm": "group", "num_buckets": 8}),
    ("wavlm", {**WAVES, "feat_extract_norm": "layer", "do_stable_layer_norm": True, "num_buckets": 8}),
    ("data2vec-audio", {**WAVES, "conv_pos_kernel_size": 3}),
    ("audio-spectrogram-transformer", SPECTROGRAM),
    ("led", {**BART, "attention_window": 4, "max_encoder_position_embeddings": 32}),
    ("longt5", {**T5, "local_radius": 3, "feed_forward_proj": "gated-gelu"}),
    ("longformer", dict(attention_window=4)),
    ("siglip2", dict(vision_config={**SIZE, **PATCHES})),
    ("siglip2_vision_model", PATCHES),
    ("fnet", {}),
    ("ibert", {}),
    ("data2vec-vision", dict(**IMAGE, use_relative_position_bias=True, layer_scale_init_value=0.1)),
    ("yoso", {}),
    ("nystromformer", dict(conv_kernel_size=3, num_landmarks=8, segment_means_seq_len=8)),
    ("convbert", dict(embedding_size=16, num_attention_heads=4, head_ratio=2, conv_kernel_size=5, num_groups=1)),
    ("convbert", dict(embedding_size=24, num_attention_heads=4, intermediate_size=36, num_groups=2)),
    ("xlm", dict(emb_dim=24, n_layers=2, n_heads=3, gelu_activation=True)),
    ("flaubert", dict(emb_dim=24, n_layers=2, n_heads=3, gelu_activation=False)),
    ("squeezebert", dict(embedding_size=24, q_groups=2, v_groups=4, intermediate_size=36, output_groups=2)),
    ("modernbert", dict(local_attention=4, global_attn_every_n_layers=2)),
    ("modernbert-decoder", dict(local_attention=4, global_attn_every_n_layers=2)),
    ("rembert", dict(input_embedding_size=10, output_embedding_size=14)),
    ("tapas", {}),
    ("visual_bert", dict(visual_embedding_dim=8)),
    ("git", dict(vision_config=dict(**SIZE, **dict(image_size=12, patch_size=4)))),
    ("luke", dict(entity_vocab_size=12, entity_emb_size=8)),
    ("roformer", dict(embedding_size=10, num_attention_heads=4)),
    ("big_bird", dict(attention_type="original_full")),
    ("megatron-bert", {}),
    ("xlm-roberta-xl", {}),
    ("esm", dict(position_embedding_type="rotary")),
    ("esm", dict(position_embedding_type="absolute", token_dropout=True, mask_token_id=4)),
    ("roc_bert", dict(shape_vocab_size=40, pronunciation_vocab_size=40, shape_embed_dim=8, pronunciation_embed_dim=8)),
    ("layoutlm", {}),
    ("jina_embeddings_v3", dict(num_attention_heads=4)),
    ("esmc", dict(num_attention_heads=4, num_key_value_heads=4)),
    ("eurobert", GROUPED),
    ("ultrabert", {**GROUPED, "sliding_window": 3}),
    ("nomic_bert", {}),
    ("gte", {}),
    ("roberta-prelayernorm", {}),
    ("t5", T5),
    ("t5", {**T5, "feed_forward_proj": "gated-gelu"}),
    ("t5", {**T5, "feed_forward_proj": "gated-silu"}),
    ("umt5", T5),
    ("bart", BART),
    ("marian", {**BART, "activation_function": "swish"}),
    ("plbart", BART),
    ("blenderbot-small", BART),
    ("mbart", BART),
    ("pegasus", {**BART, "activation_function": "relu"}),
    ("m2m_100", BART),
    ("blenderbot", BART),
    ("bigbird_pegasus", {**BART, "attention_type": "original_full"}),
    ("vit", IMAGE),
    ("deit", IMAGE),
    ("vit_msn", IMAGE),
    ("ijepa", IMAGE),
    ("beit", IMAGE),
    ("beit", {**IMAGE, "layer_scale_init_value": 0.0, "use_mean_pooling": False, "use_relative_position_bias": True}),
    ("dinov2", {**IMAGE, "mlp_ratio": 2}),
    ("dinov2", {**IMAGE, "use_swiglu_ffn": True}),
    ("dinov2_with_registers", {**IMAGE, "mlp_ratio": 2, "num_register_tokens": 2}),
    ("dinov3_vit", {**IMAGE, "num_register_tokens": 2}),
    ("dinov3_vit", {**IMAGE, "use_gated_mlp": True}),
    ("clip_vision_model", IMAGE),
    ("siglip_vision_model", IMAGE),
    ("metaclip_2_vision_model", IMAGE),
    ("clip_text_model", {}),
    ("metaclip_2_text_model", {}),
    ("siglip_text_model", {}),
    ("clip", TOWERS),
    ("siglip", TOWERS),
    ("metaclip_2", TOWERS),
]


TOWERS_OF_TEXT = {
    **dict(llava="LlavaForConditionalGeneration", qwen3_vl="Qwen3VLForConditionalGeneration"),
    **dict(idefics3="Idefics3ForConditionalGeneration", granite_speech="GraniteSpeechForConditionalGeneration"),
    **dict(fuyu="FuyuForCausalLM", aya_vision="AyaVisionForConditionalGeneration"),
    **dict(qianfan_ocr="QianfanOCRForConditionalGeneration", aria="AriaForConditionalGeneration"),
    **dict(modernvbert="ModernVBertForMaskedLM", ultravbert="UltraVBertForMaskedLM"),
    **dict(shieldgemma2="ShieldGemma2ForImageClassification"),
}
"""Multimodal types with a text tower and their classes, one for each way in which they differ; the others are like these."""


def tiny(model_type: str, auto: Any = AutoModel, **overrides: Any) -> PreTrainedModel:
    """A tiny random model with weights large enough to matter, norms and biases included."""
    known = AutoConfig.for_model(model_type)
    settings = {**{key: value for key, value in SIZE.items() if hasattr(known, key)}, **overrides}
    torch.manual_seed(0)
    auto = CLASSES.get(model_type, auto) if auto is AutoModel else auto
    make = getattr(auto, "from_config", None) or auto._from_config  # an Auto class, or one that is meant
    model = make(AutoConfig.for_model(model_type, **settings))
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model


def ids(*numbers: int) -> dict[str, list[list[int]]]:
    return {"input_ids": [list(numbers)]}
