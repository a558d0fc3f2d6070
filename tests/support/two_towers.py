"""Tiny models of images and texts, with a tokenizer, an image processor and an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    MetaClip2Config,
    MetaClip2Model,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipModel,
)

from support.tiny_architectures import TOWERS

MODELS: dict[str, tuple[Any, Any]] = {
    "clip": (CLIPModel, CLIPConfig),
    "metaclip_2": (MetaClip2Model, MetaClip2Config),
    "siglip": (SiglipModel, SiglipConfig),
}
END = 9
WORDS = ["[pad]", "[unk]", "a", "photo", "of", "cat", "dog", "on", "the", "[end]"]


def made(name: str) -> PreTrainedModel:
    """A tiny model with weights that are far from those it begins with."""
    torch.manual_seed(1)
    model_class, config_class = MODELS[name]
    settings = {key: {**value} for key, value in TOWERS.items()}
    settings["text_config"] |= {"eos_token_id": END, "max_position_embeddings": 8}
    model = model_class(config_class(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 1))
    return model


def saved(name: str, tmp_path: Path) -> tuple[Path, Path]:
    """A model in a folder, with a tokenizer and an image processor, and an image beside it."""
    folder = tmp_path / name
    made(name).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[unk]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing("$A [end]", special_tokens=[("[end]", END)])
    special = dict(unk_token="[unk]", pad_token="[pad]", eos_token="[end]", model_max_length=8)
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
    CLIPImageProcessorPil(size=dict(height=12, width=12), crop_size=dict(height=12, width=12)).save_pretrained(folder)
    picture = tmp_path / "cat.png"
    random = np.random.default_rng(3)
    Image.fromarray(random.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(picture)
    return folder, picture
