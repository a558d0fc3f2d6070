"""A folder for running the code on the pages: tiny models under the names that the pages use, and the files they read."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.chat_model import TEMPLATE
from support.sounds import write_wav
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    CLIPConfig,
    CLIPModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from docs.pages import PAGES
from normscope.corpora import bundled
from normscope.models import source as embedded

KINDS = {
    "HuggingFaceTB/SmolLM2-360M-Instruct": "chat",
    "bert-base-uncased": "masked",
    "google/vit-base-patch16-224": "vision",
    "facebook/wav2vec2-base-960h": "hearing",
    "openai/whisper-tiny": "whisper",
    "openai/clip-vit-base-patch32": "towers",
    "Helsinki-NLP/opus-mt-de-en": "translation",
    "Helsinki-NLP/opus-mt-zh-en": "translation",
    "distilbert/distilbert-base-uncased-finetuned-sst-2-english": "classifier",
}
"""Which kind of tiny model stands for a name; any other is a causal language model."""

_LOADED = re.compile(r'(?:load|from_pretrained|--model|-m)[( ]"?([\w][\w./-]*)"?')
_BERT = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 16, "num_hidden_layers": 2}


def causal(folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    pages = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    tokenizer.train_from_iterator([*bundled().read_text(encoding="utf-8").splitlines(), *pages], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder)
    sizes = {"n_embd": 12, "n_head": 3, "n_layer": 3, "n_positions": 128}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer.get_vocab()), **sizes)).save_pretrained(folder)


def chat(folder: Path) -> None:
    causal(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)


def masked(folder: Path) -> None:
    _embedded_tokenizer(folder)
    BertForMaskedLM(BertConfig(**_BERT)).save_pretrained(folder)


def classifier(folder: Path) -> None:
    _embedded_tokenizer(folder)
    names = {0: "NEGATIVE", 1: "POSITIVE"}
    labels: dict[str, Any] = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    BertForSequenceClassification(BertConfig(**_BERT, **labels)).save_pretrained(folder)


def translation(folder: Path) -> None:
    _embedded_tokenizer(folder)
    side = {"layers": 2, "attention_heads": 3, "ffn_dim": 16}
    sizes = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in side.items()}
    tokens = {"pad_token_id": 0, "bos_token_id": 101, "eos_token_id": 102, "decoder_start_token_id": 102}
    config = BartConfig(vocab_size=30522, d_model=12, max_position_embeddings=64, **sizes, **tokens)
    BartForConditionalGeneration(config).save_pretrained(folder)


def vision(folder: Path) -> None:
    config = ViTConfig(image_size=12, patch_size=4, **_BERT)
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 12, "width": 12}).save_pretrained(folder)


def hearing(folder: Path) -> None:
    waves = {"conv_dim": [8, 8], "conv_kernel": [10, 3], "conv_stride": [160, 2], "num_feat_extract_layers": 2}
    Wav2Vec2ForCTC(
        Wav2Vec2Config(**_BERT, **waves, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=3)
    ).save_pretrained(folder)
    Wav2Vec2FeatureExtractor().save_pretrained(folder)


def whisper(folder: Path) -> None:
    _embedded_tokenizer(folder)
    side = {"layers": 2, "attention_heads": 3, "ffn_dim": 16}
    sizes = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in side.items()}
    tokens = {"pad_token_id": 0, "bos_token_id": 101, "eos_token_id": 102, "decoder_start_token_id": 101}
    heard = {"num_mel_bins": 8, "max_source_positions": 50, "max_target_positions": 64}
    WhisperForConditionalGeneration(
        WhisperConfig(vocab_size=30522, d_model=12, **heard, **sizes, **tokens)
    ).save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(folder)


def towers(folder: Path) -> None:
    """An image tower and a text tower whose texts end with the last token of the embedded tokenizer."""
    text = dict(vocab_size=30522, eos_token_id=102, bos_token_id=101, pad_token_id=0, **_BERT)
    CLIPModel(CLIPConfig(text_config=text, vision_config=dict(image_size=12, patch_size=4, **_BERT))).save_pretrained(
        folder
    )
    ViTImageProcessorPil(size={"height": 12, "width": 12}).save_pretrained(folder)
    _embedded_tokenizer(folder)


def _embedded_tokenizer(folder: Path) -> None:
    AutoTokenizer.from_pretrained(embedded.model_folder()).save_pretrained(folder)


MAKERS: dict[str, Callable[[Path], None]] = {
    "causal": causal,
    "masked": masked,
    "classifier": classifier,
    "translation": translation,
    "vision": vision,
    "chat": chat,
    "hearing": hearing,
    "whisper": whisper,
    "towers": towers,
}


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores the registries after each page."""
    families, heads = import_module("normscope.families"), import_module("normscope.families.heads")
    known = families.supported_models()
    monkeypatch.setattr(families, "_registry", lambda: known)
    monkeypatch.setattr(heads, "_BY_CLASS", heads.heads())


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder of the tiny model that stands for a name, created on first request."""
    folder = tmp_path_factory.mktemp("models")

    def model(name: str) -> Path:
        kind = KINDS.get(name, "causal")
        if not (folder / kind).exists():
            torch.manual_seed(0)
            MAKERS[kind](folder / kind)
        return folder / kind

    return model


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_models: Callable[[str], Path]
) -> Callable[[str], Path]:
    """Prepares the current folder for code: the models that it names are there, a photo and a sound."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)).save("photo.png")
    write_wav(tmp_path / "speech.wav", rng.uniform(-0.5, 0.5, 4000), 16000)

    def prepare(code: str) -> Path:
        for name in set(_LOADED.findall(code)):
            place = tmp_path / name
            if not place.exists():
                shutil.copytree(tiny_models(name), place)
        return tmp_path

    return prepare
