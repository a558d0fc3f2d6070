"""A model of a layer or more with random weights, for tests of what happens around an analysis. Nothing here is a test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

from normscope.runs import run


def save_model(folder: Path, tokenizer: Any, seed: int = 0, layers: int = 1) -> Path:
    """Write the model with that seed, and a tokenizer, into a folder."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tables(folder: Path) -> dict[str, bytes]:
    """The tables of a run, as they are on disk."""
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}


def tables_of(model: Any, experiments: Sequence[str], texts: Sequence[str], folder: Path) -> dict[str, bytes]:
    """The tables of an undisturbed run, a text a shard."""
    run(list(experiments), model=model, corpus=list(texts), out=folder, shard_size=1)
    return tables(folder)
