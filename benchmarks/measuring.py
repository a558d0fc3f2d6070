"""What all benchmarks share: models, inputs, seconds of CPU, peaks of memory, and the facts of the machine.

Times are seconds of CPU, which a busy machine hardly changes. Tasks whose ratio counts are measured in turn, in one process,
several times, and the smallest time of each counts.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

import normscope as ns

Row = dict[str, Any]
Inputs = dict[str, torch.Tensor]

LONG = 10.0
"""What takes this many seconds is run once."""

WIDE = dict(vocab_size=30522, hidden_size=768, num_attention_heads=12)
LLAMA = dict(**WIDE, intermediate_size=2048, num_key_value_heads=4)
MINILM, BERT, GPT, GATED = "MiniLM", "BERT-base width", "GPT-2 width", "Llama-like"


@dataclass(frozen=True)
class Column:
    """A column of a section's table: the key of its rows, its heading, and how a number is written."""

    key: str
    heading: str
    form: str = "{}"


SUBJECT = Column("model", "model"), Column("tokens", "n")
"""The columns with which most tables begin."""


@dataclass(frozen=True)
class Section:
    """A part of the benchmarks: what it measures, the columns of its rows, and the column that the figure shows."""

    title: str
    columns: tuple[Column, ...]
    rows: Callable[[bool], Iterator[Row]]
    """Measures; told whether to be quick."""
    drawn: str = "ratio"


def models(layers: int = 2, positions: int = 1024) -> dict[str, Callable[[], ns.Analyzer]]:
    """The models of the grid: the embedded one, and others of BERT-base width with a few random layers."""
    bert = BertConfig(**WIDE, num_hidden_layers=layers, max_position_embeddings=positions)
    llama = LlamaConfig(**LLAMA, num_hidden_layers=layers)
    return {
        MINILM: ns.load,
        BERT: lambda: ns.load(BertModel(bert, add_pooling_layer=False).eval()),
        GPT: lambda: ns.load(GPT2Model(GPT2Config(n_layer=layers)).eval()),
        GATED: lambda: ns.load(LlamaModel(llama).eval()),
    }


def made(name: str, layers: int = 2) -> ns.Analyzer:
    torch.manual_seed(0)
    return models(layers)[name]()


def ids(length: int) -> Inputs:
    torch.manual_seed(0)
    return {"input_ids": torch.randint(1000, 30000, (1, length))}


def forward(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    with torch.no_grad():
        analyzer.model(**inputs)


def attention_scopes(analyzer: ns.Analyzer) -> list[str]:
    """The scopes up to where the feed-forward begins."""
    return [scope for scope in analyzer.scopes if "Ff" not in scope]


def sizes(analyzer: ns.Analyzer) -> tuple[int, int, int]:
    """Layers, hidden size and feed-forward size."""
    config = analyzer.model.config
    width = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None) or 4 * config.hidden_size
    return len(analyzer.layers), config.hidden_size, width


def floor(analyzer: ns.Analyzer, length: int) -> float:
    """The operations that exact maps cannot do without: `2 F d` for each pair of tokens that exists."""
    layers, d, width = sizes(analyzer)
    pairs = length * (length + 1) / 2 if analyzer.family.stack.causal else length * length
    return layers * 2.0 * pairs * width * d


# ---- time ------------------------------------------------------------------------------------------------------------


def spent(task: Callable[[], Any]) -> float:
    """The seconds of CPU of one run."""
    started = time.process_time()
    task()
    return time.process_time() - started


def smallest(tasks: Mapping[str, Callable[[], Any]], repeats: int = 3) -> dict[str, float]:
    """The smallest time of each task, measured in turn; what takes long is run once."""
    times: dict[str, float] = {}
    for _ in range(repeats):
        for name, task in tasks.items():
            if times.get(name, 0.0) <= LONG:
                times[name] = min(times.get(name, float("inf")), spent(task))
    return times


def multiplication_rate(d: int, width: int) -> float:
    """Operations a second of the best large multiplication of the shape that the maps need, `[rows, F] @ [F, d]`."""
    left, right, out = torch.randn(4096, width), torch.randn(d, width), torch.empty(4096, d)
    best = min(spent(lambda: torch.mm(left, right.T, out=out)) for _ in range(5))
    return 2.0 * 4096 * width * d / best


# ---- memory ----------------------------------------------------------------------------------------------------------


def peak_megabytes(task: str, arguments: Sequence[str]) -> float:
    """The peak memory (Linux only) of a process of its own: `python -c` of a function `module:name` of the benchmarks."""
    module, name = task.split(":")
    code = f"import sys; from {module} import {name}; {name}(*sys.argv[1:])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *arguments]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(answer.stdout.split()[-1])


def print_peak(analyzer: ns.Analyzer, length: int, task: Callable[[ns.Analyzer, Inputs], Any]) -> None:
    """Megabytes at the most while doing a task: the kernel's high-water mark is reset before it."""
    inputs, _ = ids(length), analyzer.facts
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    task(analyzer, inputs)
    print(int(Path("/proc/self/status").read_text(encoding="utf-8").split("VmHWM:")[1].split()[0]) / 1024)


# ---- the machine -----------------------------------------------------------------------------------------------------


def machine() -> Row:
    """What the numbers depend on."""
    return {
        **dict(processor=_processor(), cores=os.cpu_count(), threads=torch.get_num_threads()),
        **dict(system=platform.system(), python=platform.python_version()),
        **{name: version(name) for name in ("torch", "transformers", "numpy")},
        **dict(gigaflops=round(multiplication_rate(768, 3072) / 1e9, 1), load=round(os.getloadavg()[0], 1)),
    }


def _processor() -> str:
    """The instruction sets that matter: the name of a processor says less, and not every machine tells it."""
    flags = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()}, {flags}"
