"""Tiny random models of every family, and what the tests read off them.

`SIZES` says how a model type spells a tiny size; `VARIANTS` lists the configurations in which it is worth testing. To cover
a new family, add a line to each. Nothing here is a test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

import normscope as ns
from normscope.capture import capture
from normscope.chain.trace import LayerTrace

Consumer = Callable[[int, int, LayerTrace], None]

VOCABULARY = 40
FIRST_ID = 5
"""Ids below are padding and other special tokens in some family."""

_BERT_SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 12,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "max_position_embeddings": 48,
}
_DISTILBERT_SIZE = {
    "vocab_size": VOCABULARY,
    "dim": 12,
    "n_heads": 3,
    "hidden_dim": 20,
    "n_layers": 2,
    "max_position_embeddings": 48,
}

SIZES: dict[str, dict[str, Any]] = {
    "albert": {**_BERT_SIZE, "embedding_size": 6},
    "bert": _BERT_SIZE,
    "camembert": _BERT_SIZE,
    "deberta": _BERT_SIZE,
    "deberta-v2": _BERT_SIZE,
    "distilbert": _DISTILBERT_SIZE,
    "electra": {**_BERT_SIZE, "embedding_size": 6},
    "mpnet": _BERT_SIZE,
    "roberta": _BERT_SIZE,
    "xlm-roberta": _BERT_SIZE,
}
"""A tiny size of each model type: three heads of four, neither a power of two."""

_RELATIVE = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"]}

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "albert": [
        {},
        {"num_hidden_layers": 4, "num_hidden_groups": 2},
        {"num_hidden_layers": 3, "num_hidden_groups": 2, "inner_group_num": 2},
        {"chunk_size_feed_forward": 1},
    ],
    "bert": [
        {},
        {"hidden_size": 10, "num_attention_heads": 5, "intermediate_size": 7},
        {"hidden_size": 7, "num_attention_heads": 1, "intermediate_size": 33},
        {"chunk_size_feed_forward": 1},
        *({"hidden_act": name} for name in ("relu", "silu", "gelu_new", "gelu_fast", "quick_gelu", "tanh", "sigmoid")),
    ],
    "camembert": [{}],
    "deberta": [
        {},
        {**_RELATIVE},
        {**_RELATIVE, "pos_att_type": ["c2p"], "position_biased_input": True},
        {**_RELATIVE, "pos_att_type": ["p2c"], "max_relative_positions": 4, "hidden_size": 15},
    ],
    "deberta-v2": [
        {},
        {**_RELATIVE},
        {**_RELATIVE, "share_att_key": True, "position_buckets": 4, "norm_rel_ebd": "layer_norm"},
        {**_RELATIVE, "pos_att_type": ["c2p"], "conv_kernel_size": 3, "conv_act": "gelu", "num_hidden_layers": 3},
        {"embedding_size": 6, "type_vocab_size": 2, "hidden_act": "relu"},
    ],
    "distilbert": [
        {},
        {"sinusoidal_pos_embds": True, "activation": "relu"},
        {"n_heads": 1, "dim": 9, "chunk_size_feed_forward": 1},
    ],
    "electra": [{}, {"embedding_size": 12, "hidden_act": "silu", "chunk_size_feed_forward": 1}],
    "mpnet": [{}, {"hidden_size": 15, "num_attention_heads": 5, "hidden_act": "relu"}],
    "roberta": [{}, {"hidden_act": "gelu_new", "num_attention_heads": 1, "chunk_size_feed_forward": 1}],
    "xlm-roberta": [{}],
}
"""What to change in the tiny size, for each configuration that is tested."""

ENCODERS = tuple(SIZES)
"""Post-norm encoders, which share scopes and task heads."""

HEADS = {
    "masked LM": AutoModelForMaskedLM,
    "sequence classification": AutoModelForSequenceClassification,
    "token classification": AutoModelForTokenClassification,
}
"""Task heads that every encoder has."""


def variants() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every model type with every one of its configurations, by a name that says what is special."""
    return {
        f"{model_type}({', '.join(f'{key}={value}' for key, value in changes.items())})": (model_type, changes)
        for model_type, listed in VARIANTS.items()
        for changes in listed
    }


def tiny(
    model_type: str,
    *,
    auto: Any = AutoModel,
    attention: str | None = None,
    seed: int = 0,
    spread: float = 0.3,
    **overrides: Any,
) -> PreTrainedModel:
    """A tiny model in evaluation mode, with every parameter (norms and biases too) drawn from `normal(0, spread)`.

    Hugging Face's own initialisation is too tame: with small weights, no biases and norms all alike, mistakes stay small.
    """
    config = AutoConfig.for_model(model_type, **{**SIZES.get(model_type, _BERT_SIZE), **overrides})
    model = auto.from_config(config) if attention is None else auto.from_config(config, attn_implementation=attention)
    return shaken(model, spread, seed)


def shaken(model: Any, spread: float = 0.3, seed: int = 0) -> Any:
    """The model in evaluation mode, with every parameter drawn anew, so that biases and norms count."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random) * spread)
    return model.eval()


def token_ids(*lengths: int, seed: int = 0) -> list[list[int]]:
    """Random token ids of some lengths, none of them special in any family."""
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(FIRST_ID, VOCABULARY, (length,), generator=random).tolist() for length in lengths]


def padded(sequences: Sequence[list[int]], pad_id: int = 1) -> dict[str, Tensor]:
    """Sequences padded on the right, with their mask, as a tokenizer gives them."""
    longest = max(len(sequence) for sequence in sequences)
    missing = [longest - len(sequence) for sequence in sequences]
    return {
        "input_ids": torch.tensor([s + [pad_id] * gap for s, gap in zip(sequences, missing, strict=True)]),
        "attention_mask": torch.tensor([[1] * len(s) + [0] * gap for s, gap in zip(sequences, missing, strict=True)]),
    }


def capture_with(
    model: PreTrainedModel, sequences: Sequence[list[int]], consume: Consumer, *, below_attention: bool = False
) -> None:
    """Capture all layers of one padded batch: `consume` is told the layer (from 1), the sequence (from 0) and the trace."""
    analyzer = ns.load(model)
    lengths = [len(sequence) for sequence in sequences]
    inputs = padded(sequences, model.config.pad_token_id or 0)
    dtype = torch.promote_types(model.dtype, torch.float32)
    capture(
        model, analyzer.family, inputs, lengths, analyzer.layers, consume, dtype=dtype, below_attention=below_attention
    )


def traces(
    model: PreTrainedModel, sequences: Sequence[list[int]], *, below_attention: bool = False
) -> dict[tuple[int, int], LayerTrace]:
    """The traces of every layer (from 1) and sequence (from 0), as they are captured from one padded batch."""
    found: dict[tuple[int, int], LayerTrace] = {}

    def keep(layer: int, sequence: int, trace: LayerTrace) -> None:
        found[layer, sequence] = trace

    capture_with(model, sequences, keep, below_attention=below_attention)
    return found
