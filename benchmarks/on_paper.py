"""What the planner counts for models and machines that are not here: every number is computed, none is measured.

    python benchmarks/on_paper.py

Models are made on the meta device, which holds shapes and no numbers. The machines are a rate of matrix products and
nothing else: half of a peak of 312 Tflop/s (one accelerator with bfloat16 products) and 72 of them.
"""

from __future__ import annotations

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModel, LlamaConfig

import normscope as ns
from normscope.estimate.estimate import duration, quantity, size

ONE, RACK = 156e12, 72 * 156e12
SIZES = {
    "7B": LlamaConfig(max_position_embeddings=131072),
    "70B": LlamaConfig(
        **dict(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64),
        **dict(num_key_value_heads=8, max_position_embeddings=131072),
    ),
}


def main() -> None:
    table = Table(title="Computed by the planner, not measured")
    for column in ("model", "tokens", "what", "operations", "memory above the model", "one accelerator", "rack of 72"):
        table.add_column(column)
    for name, config in SIZES.items():
        with torch.device("meta"):
            analyzer = ns.load(AutoModel.from_config(config))
        attention = [scope for scope in analyzer.scopes if "Ff" not in scope]
        for tokens in (4096, 32768, 131072):
            for what, options in {
                "mixing ratios": {"maps": False},
                "maps of attention, one layer": {"scopes": attention, "layers": 1},
                "all maps, 16 queries": {"queries": list(range(16))},
                "all maps": {},
            }.items():
                counted = analyzer.estimate(tokens, timed=False, **options)
                times = [duration(counted.flops / rate) for rate in (ONE, RACK)]
                table.add_row(name, str(tokens), what, quantity(counted.flops, "flop"), size(counted.memory), *times)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
