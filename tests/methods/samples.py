"""Tiny float64 models of every topology, and how the tests ask them. Nothing here is a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import (
    BART,
    CONVOLUTIONS,
    GPT2,
    GROUPED,
    GROUPED_EXPERTS,
    LATENT_EXPERTS,
    MULTIPLIERS,
    QWEN3_5,
    STATE_SPACE,
    T5,
    tiny,
)
from torch import Tensor
from transformers import AutoModel

import normscope as ns
from normscope.chain.trace import LayerTrace

MODELS: dict[str, dict[str, Any]] = {
    "bert": {},
    "gpt2": GPT2,
    "llama": {**GROUPED, "attention_bias": True, "mlp_bias": True},
    "gptj": {**GPT2, "rotary_dim": 4},
    "gpt_neox": {},
    "gemma2": {**GROUPED, "sliding_window": 3},
    "olmo2": GROUPED,
    "granite": {**GROUPED, **MULTIPLIERS},
    "mixtral": GROUPED_EXPERTS,
    "gpt_oss": {**GROUPED_EXPERTS, "sliding_window": 3},
    "deepseek_v3": LATENT_EXPERTS,
    "modernbert": {"local_attention": 4, "global_attn_every_n_layers": 2},
    "qwen3_5_text": QWEN3_5,
    "bamba": {**GROUPED, **STATE_SPACE, "num_hidden_layers": 3, "attn_layer_indices": [1]},
    "lfm2": {**GROUPED, **CONVOLUTIONS, "block_auto_adjust_ff_dim": False},
    "bart": BART,
    "t5": T5,
}
"""Post-norm, pre-norm with plain and gated networks, parallel (one norm and two), sandwich, norm on branch, scaled branches,
experts (with sinks, with shared experts and latent values), mixers without softmax between gated attentions, and
encoder-decoders of both kinds."""

IDS = {"input_ids": [[5, 6, 7, 8, 9, 10]]}
TARGET = {"input_ids": [[9, 10, 11, 2]]}
TOLERANCE = 2e-6
"""Some norms compute in float32 whatever the weights are, and some models all of it."""

every_model = pytest.mark.parametrize("name", list(MODELS))


SIGNED_WEIGHTS = ("qwen3_5_text", "bamba")
"""Their mixers have weights of either sign."""

FLOAT32 = ("mixtral", "gpt_oss", "deepseek_v3", "qwen3_5_text", "bamba")
"""Their grouped products or recurrences know no float64: the weights stay float32, and the arithmetic of the analysis is
float64."""


def double(name: str, auto: Any = AutoModel, **overrides: Any) -> ns.Analyzer:
    """A tiny model in float64, as far as transformers has one."""
    model = tiny(name, auto, **{**MODELS.get(name, {}), **overrides})
    return ns.load(model if name in FLOAT32 else model.double())


def asked(analyzer: ns.Analyzer) -> dict[str, Any]:
    """What to give next to the input: a decoder reads a text."""
    target = {} if analyzer.family.encoder is None else {"decoder_text": TARGET}
    return {**target, "dtype": torch.float64}


def traces(analyzer: ns.Analyzer) -> list[LayerTrace]:
    return analyzer.traces(IDS, decoder_text=asked(analyzer).get("decoder_text"))


def assert_close(values: Any, truth: Tensor | np.ndarray, tolerance: float = TOLERANCE) -> None:
    """Missing at the same places, and elsewhere equal relative to the largest value."""
    expected = truth.numpy() if isinstance(truth, Tensor) else truth
    value, expected = np.asarray(values, dtype=np.float64), expected.astype(np.float64)
    scale = np.nanmax(np.abs(expected))
    np.testing.assert_allclose(value / scale, expected / scale, rtol=0, atol=tolerance)
