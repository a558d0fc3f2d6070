"""The folder that every attempt starts from: tiny models, results, corpora and a finished run, all made here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

import normscope as ns
from normscope.runs import run

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "opera", "singer", "caught", "a", "soap", "bubble", ".")
TEXT = "the opera singer caught a soap bubble ."
MODELS = ("classifier", "causal", "seq2seq")

Contents = dict[str, str]
"""What is in a folder: a digest for every file, the kind of everything else."""


def make(folder: Path) -> Path:
    """Make the folder of samples."""
    torch.manual_seed(0)
    for name, model in _models().items():
        model.save_pretrained(folder / name)
        _tokenizer().save_pretrained(folder / name)
    (folder / "texts.txt").write_text(f"{TEXT}\n\nthe singer caught the bubble .\n" * 4)
    rows = [{"text": TEXT, "label": index % 2} for index in range(6)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "damaged.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(range(256)))
    analyzer = ns.load(folder / "classifier")
    analysis = analyzer.analyze(TEXT)
    analysis.save(folder / "result.nc")
    analyzer.explain(TEXT).save(folder / "explanation.nc")
    analyzer.analyze(TEXT, scopes="AttnResLn", out=folder / "result.zarr")
    run(["mixing-ratio"], model=analyzer, corpus=str(folder / "texts.txt"), out=folder / "finished", shard_size=2)
    return folder


def add_odd_files(folder: Path) -> None:
    """What is no regular file, but has the name of one: outputs must leave it alone."""
    os.mkfifo(folder / "fifo.svg")
    (folder / "folder.nc").mkdir()
    (folder / "link.svg").symlink_to("behind-the-link.svg")
    (folder / "loop.svg").symlink_to("loop.svg")


def copy(samples: Path, folder: Path) -> Path:
    """A fresh copy of the samples, with the odd files."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(samples, folder)
    add_odd_files(folder)
    return folder


def contents(folder: Path) -> Contents:
    """What a folder holds, to compare before with after."""
    found: Contents = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        with suppress(FileNotFoundError):
            regular = path.is_file() and not path.is_symlink()
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if regular else oct(path.lstat().st_mode)
    return found


def _models() -> dict[str, PreTrainedModel]:
    """An encoder with a classifier, a causal model, and an encoder-decoder, that know the words."""
    size = {"vocab_size": len(WORDS), "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    bert = BertConfig(**size, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)
    bert.max_position_embeddings = 48
    gpt = GPT2Config(**size, n_embd=12, n_layer=2, n_head=3, n_positions=48)
    bart = BartConfig(
        **size,
        d_model=12,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=20,
        decoder_ffn_dim=20,
        max_position_embeddings=48,
        decoder_start_token_id=2,
    )
    return {
        "classifier": BertForSequenceClassification(bert),
        "causal": GPT2LMHeadModel(gpt),
        "seq2seq": BartForConditionalGeneration(bart),
    }


def _tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "eos": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=words, **{f"{name}_token": token for name, token in names.items()})
