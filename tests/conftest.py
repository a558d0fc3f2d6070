"""Set up before any test module is imported: checked shapes and types, no network, no display."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"

import torch
from jaxtyping import install_import_hook

# From here on every function of normscope checks its annotations when called; in the tests only, as it costs time.
install_import_hook("normscope", "beartype.beartype")

torch.set_num_threads(2)
