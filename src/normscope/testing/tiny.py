"""Tiny random models of any type that transformers registers, made by shrinking its default configuration.

Sizes are found by the names of fields, in nested configurations too. What cannot be found that way is in `SPECIAL`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel

PARAMETER_LIMIT = 6_000_000

_SAME: dict[str, tuple[str, ...]] = {
    "32": (
        *("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim", "embedding_size", "word_embed_proj_dim"),
        *("projection_dim", "embedding_dim", "conv_dim", "encoder_hidden_size", "decoder_hidden_size", "width"),
        *("attention_hidden_size", "adapter_hidden_size", "output_dim", "mlp_dim", "input_embedding_size"),
    ),
    "48": (
        *("intermediate_size", "d_ff", "ffn_dim", "n_inner", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"),
        *(
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            "intermediate_size_mlp",
            "dense_intermediate_size",
        ),
        *("shared_intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size", "prefix_dense_intermediate_size"),
        *("ff_expand_size", "text_intermediate_size", "expert_intermediate_size"),
    ),
    "2": (
        *("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers", "depth"),
        *(
            "num_decoder_layers",
            "num_encoder_layers",
            "num_key_value_heads",
            "num_experts_per_tok",
            "moe_top_k",
            "moe_topk",
        ),
        *("num_kv_heads", "n_kv_heads", "moe_k", "decoder_num_hidden_layers", "encoder_num_hidden_layers"),
        *("num_encoder_blocks", "num_selected_experts", "num_blocks", "n_group", "topk_group", "eos_token_id"),
    ),
    "4": (
        *(
            "num_attention_heads",
            "n_head",
            "num_heads",
            "n_heads",
            "encoder_attention_heads",
            "decoder_attention_heads",
        ),
        *("attention_heads", "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "rotary_dim"),
        *("sliding_window", "qk_rope_head_dim", "index_topk", "patch_size", "encoder_num_attention_heads"),
        *("dff", "decoder_num_attention_heads", "attention_window", "local_attention"),
    ),
    "8": (
        *("head_dim", "d_kv", "kv_channels", "qk_nope_head_dim", "v_head_dim", "qk_head_dim", "index_head_dim"),
        *("global_head_dim", "attention_head_dim", "mamba_d_head", "linear_key_head_dim", "linear_value_head_dim"),
        *("d_head", "mamba_head_dim", "head_size"),
    ),
    "16": ("q_lora_rank", "kv_lora_rank", "image_size", "mamba_d_state", "mamba_d_ssm"),
    "64": (
        *("vocab_size", "max_position_embeddings", "n_positions", "max_sequence_length", "max_source_positions"),
        *("max_target_positions", "n_ctx", "max_seq_len", "vocab_size_per_layer_input"),
    ),
    "1": ("pad_token_id", "decoder_start_token_id", "n_shared_experts", "num_shared_experts", "first_k_dense_replace"),
    "0": ("bos_token_id",),
}
TINY: dict[str, Any] = {name: int(size) for size, names in _SAME.items() for name in names}
"""Sizes by the name of the field."""

_LATENT = {"num_key_value_heads": 4}
"""Values from a latent state are there for every head."""
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8}
_TWO_KINDS = {"layer_types": ["linear_attention", "full_attention"]}
"""A layer of each kind, which a default configuration has in a stack of more than two layers only."""
_DELTA_RULE = {**_TWO_KINDS, "linear_num_key_heads": 2, "linear_num_value_heads": 4}

_PYRAMID = {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 2}
"""Two stages, with windows that are shifted in the second block of each."""

_REDUCED = {
    **{"num_encoder_blocks": 2, "depths": [2, 2], "strides": [4, 2], "patch_sizes": [7, 3], "image_size": 32},
    **{"hidden_sizes": [16, 32], "num_attention_heads": [2, 4], "mlp_ratios": [2, 2], "sr_ratios": [2, 1]},
}
"""Two stages, of which the first attends to merged tokens."""

_LEVIT = {
    **{"image_size": 128, "patch_size": 16, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 4]},
    **{"depths": [1, 2, 2], "key_dim": [4, 4, 4], "attention_ratio": [2, 3, 2], "mlp_ratio": [2, 2, 2]},
}
"""Three stages of 64, 16 and 4 tokens."""

_HIERA = {
    **{"image_size": [32, 32], "patch_size": [7, 7], "patch_stride": [4, 4], "patch_padding": [3, 3], "embed_dim": 16},
    **{"depths": [1, 2, 3], "num_heads": [1, 2, 4], "num_query_pool": 2, "masked_unit_size": [4, 4]},
    "masked_unit_attention": [True, True, False],
}
"""Three stages; the last one has two blocks after the one that merges."""

_SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}

_WHOLE_HEAD = {"rope_parameters": {**_SECTIONS["rope_parameters"], "partial_rotary_factor": 1.0}}
"""Sections of positions that rotate all of a head."""

SPECIAL: dict[str, dict[str, Any]] = {
    "audio-spectrogram-transformer": {
        **{"max_length": 24, "num_mel_bins": 12},
        **{"time_stride": 4, "frequency_stride": 4},
    },
    "axk1": {**_LATENT, "head_dim": 4},
    "axk2": {**_LATENT, "head_dim": 4},
    "bailing_hybrid": {**_LATENT, **_TWO_KINDS, "mlp_layer_types": ["sparse", "dense"]},
    "bamba": {**_MAMBA, "attn_layer_indices": [1]},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "cvt": {"embed_dim": [16, 24, 32], "num_heads": [1, 3, 4], "depth": [1, 2, 3]},
    "dbrx": {
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
    },
    "deepseek_v2": _LATENT,
    "deepseek_v3": {**_LATENT, "head_dim": 4},
    "deepseek_v32": _LATENT,
    "emu3": {"vocabulary_map": {"<image>": 5}},
    "emu3_vqgan": {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1, "codebook_size": 16},
    "esmc": {"num_key_value_heads": 4},
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 64},
    "gemma4_text": {"hidden_size_per_layer_input": 0},
    "glm4_moe_lite": _LATENT,
    **dict.fromkeys(("glm4v_text", "glm4v_moe_text", "glm_image_text", "glm_ocr_text"), _WHOLE_HEAD),
    "glm_moe_dsa": _LATENT,
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "granitemoehybrid": {**_MAMBA, **_TWO_KINDS},
    "hiera": _HIERA,
    "hunyuan_vl_text": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 1, 1]}
    },
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {**_LATENT, **_TWO_KINDS, "linear_num_heads": 4, "linear_head_dim": 8},
    "levit": _LEVIT,
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "luke": {"entity_vocab_size": 16, "entity_emb_size": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2},
    "minicpm3": _LATENT,
    "mistral4": _LATENT,
    "neomme": {"head_dim": 16},
    "rembert": {"output_embedding_size": 16, "input_embedding_size": 16},
    "perceiver": {
        **{"num_latents": 4, "d_latents": 32, "num_self_attends_per_block": 2, "qk_channels": 32, "v_channels": 32},
        **{"num_self_attention_heads": 4, "num_cross_attention_heads": 4},
    },
    "plbart": {"decoder_start_token_id": 1},
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text"), _DELTA_RULE),
    "qwen2_vl_text": _SECTIONS,
    "qwen2_5_vl_text": _SECTIONS,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {"axial_pos_embds_dim": (16, 16), "axial_pos_shape": (8, 8)},
    "roc_bert": {"shape_vocab_size": 64, "pronunciation_vocab_size": 64},
    "shieldgemma2": {"yes_token_index": 7, "no_token_index": 9},
    "splinter": {"question_token_id": 7},
    **dict.fromkeys(("swin", "swinv2", "donut-swin"), _PYRAMID),
    "pvt": {**_REDUCED, "patch_sizes": [4, 2], "sequence_reduction_ratios": [2, 1]},
    **dict.fromkeys(("pvt_v2", "segformer"), _REDUCED),
    "xmod": {"default_language": "en_XX"},
    "youtu": {**_LATENT, "head_dim": 4},
    "zaya": {"num_experts_per_tok": 1},
}
"""What a type needs in addition to the sizes."""


def shrunk(model_type: str, **changes: Any) -> PreTrainedConfig:
    """The default configuration of a type with every size made small."""
    return _of_class(CONFIG_MAPPING[model_type], changes)


def _of_class(config_class: type[PreTrainedConfig], changes: dict[str, Any]) -> PreTrainedConfig:
    changes = {**SPECIAL.get(config_class.model_type, {}), **changes}
    known = config_class()
    other_names = {name: getattr(known, name) for name, own in known.attribute_map.items() if hasattr(known, own)}
    fields = {**known.to_dict(), **other_names}
    settings = {name: value for name, value in TINY.items() if name in fields and _is_size(fields[name])}
    inner: dict[str, Any] = dict(known.sub_configs)
    for name, sub in inner.items():
        own = getattr(known, name, None)
        if isinstance(own, PreTrainedConfig):
            settings[name] = _of_class(type(own), {}).to_dict()
        elif own is not None and sub is not transformers.AutoConfig:
            settings[name] = _of_class(sub, {}).to_dict()
    return config_class(**{**settings, **changes})


def shrunk_like(config: PreTrainedConfig) -> PreTrainedConfig:
    """A configuration like one that is there, its kind of layers included, with every size made small."""
    fields = config.to_dict()
    sizes = {name: value for name, value in TINY.items() if _is_size(fields.get(name)) and fields.get(name) is not None}
    listed = {name for name, value in fields.items() if isinstance(value, list)}  # one entry for each layer, mostly
    own = {name: value for name, value in fields.items() if name not in sizes and name not in listed}
    inner: dict[str, Any] = {}
    for name in config.sub_configs:
        sub = getattr(config, name, None)
        if isinstance(sub, PreTrainedConfig):
            inner[name] = shrunk_like(sub).to_dict()
    return type(config)(**{**own, **sizes, **SPECIAL.get(config.model_type, {}), **inner})


def _is_size(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def model_of(class_name: str, config: PreTrainedConfig, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A random model of a class; raises `ValueError` for one that is not tiny."""
    if any(word in class_name for word in ("CausalLM", "LMHead")) and hasattr(config, "is_decoder"):
        config.is_decoder = True
    made = getattr(transformers, class_name)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in made._from_config(config).parameters())
    if size > PARAMETER_LIMIT:
        raise ValueError(f"not tiny: {size} parameters")
    torch.manual_seed(0)
    model = made._from_config(config)
    for name, tensor in drawn(model):
        tensor.data.normal_(0, 0.3)
        if name.endswith(("logit_scale", "temperature")):
            tensor.data.fill_(1.0)
    return model.to(dtype).eval()


def drawn(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter, and the bias of the logits that some models keep as a buffer."""
    yield from model.named_parameters()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name.endswith("final_logits_bias"))
