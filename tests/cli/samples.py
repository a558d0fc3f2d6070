"""What the tests of the command line share."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import torch
from transformers import BertConfig, BertModel

TEXT = "The opera singer caught a soap bubble."

Output = tuple[int, str, str]


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "normscope", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)


def tiny_bert() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    return BertModel(config).eval()
