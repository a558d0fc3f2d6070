"""Benchmark of the engine: how long each kind of analysis takes beside a plain forward pass, and how much memory.

    python benchmarks/engine.py [--models bert-base ...] [--lengths 128 512] [--out bench-output]

Prints a table and writes it as JSON. All times of one row are measured in one process, in turn, so that their ratios mean
something on a busy machine; each memory figure is the peak of a process of its own. The machine's matrix-multiply rate is
that of the multiplication the maps need, `[rows, F] @ [F, d]`, in the same process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel, PreTrainedModel

import normscope as ns
from normscope.capture import capture
from normscope.files import replacing
from normscope.trace import Attention, FeedForward, LayerTrace, Normalise, Plain

LENGTHS = (16, 32, 64, 128, 256, 512)
LONG = 10.0
"""What takes this many seconds is run once; the rest is warmed up and repeated."""

NAIVE_LIMIT = 1.5e9
"""The naive method is run where one of its `n x n x F` tensors stays below this many bytes."""

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "minilm": lambda: ns.load().model,
    "bert-base": lambda: BertModel(BertConfig(), add_pooling_layer=False),
    "gpt2": lambda: GPT2Model(GPT2Config()),
    "llama-like": lambda: LlamaModel(
        LlamaConfig(
            **dict(vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12),
            **dict(num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=2048),
        )
    ),
}


def make(name: str) -> ns.Analyzer:
    torch.manual_seed(0)
    return ns.load(MODELS[name]().eval())


def ids(analyzer: ns.Analyzer, length: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {"input_ids": torch.randint(1000, 30000, (1, length))}


def attention_block(analyzer: ns.Analyzer) -> list[str]:
    """The scopes up to where the feed-forward begins."""
    return [scope for scope in analyzer.scopes if "Ff" not in scope]


# ---- what is measured ------------------------------------------------------------------------------------------------


def plain_forward(analyzer: ns.Analyzer, inputs: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        analyzer.model(**inputs)


def attention_maps(analyzer: ns.Analyzer, inputs: dict[str, torch.Tensor]) -> None:
    analyzer.analyze(inputs, scopes=attention_block(analyzer))


def all_maps(analyzer: ns.Analyzer, inputs: dict[str, torch.Tensor]) -> None:
    analyzer.analyze(inputs)


def mixing(analyzer: ns.Analyzer, inputs: dict[str, torch.Tensor]) -> None:
    analyzer.mixing_ratios(inputs)


def naive(analyzer: ns.Analyzer, inputs: dict[str, torch.Tensor]) -> None:
    """As the papers' code does: every vector of every pair of tokens, through every component, in float32."""
    length = inputs["input_ids"].shape[1]
    capture(
        analyzer.model,
        analyzer.family,
        {**inputs, "attention_mask": torch.ones_like(inputs["input_ids"])},
        [length],
        analyzer.layers,
        lambda _layer, _sequence, trace: _materialise(trace),
        dtype=torch.float32,
    )


def _materialise(trace: LayerTrace) -> list[torch.Tensor]:
    """Post-norm blocks with a plain feed-forward only, which is what the papers' code covers."""
    norms: list[torch.Tensor] = []
    parts = torch.zeros(0)
    bypass = parts
    own = torch.arange(len(trace.queries))
    for step in trace.steps:
        match step:
            case Attention():
                vectors = torch.einsum("hke,hed->hkd", step.values, step.output)
                parts = torch.einsum("hqk,hkd->qkd", step.weights, vectors)
            case Normalise():
                deviation = (step.state_before.var(-1, correction=0) + step.norm.epsilon).sqrt()[:, None, None]
                parts = (parts - parts.mean(-1, keepdim=True)) * step.norm.weight / deviation
                bypass = parts
            case FeedForward():
                network, (z,) = step.experts[0].network, step.experts[0].pre_activations
                assert isinstance(network, Plain)
                slope = network.activation.slope(z)[:, None]
                parts = ((parts @ network.first.weight.T) * slope) @ network.second.weight.T
            case _ if step.name == "Res":
                if len(bypass):
                    parts = parts + bypass
                else:
                    parts[own, own] += trace.hidden
            case _:
                continue
        norms.append(parts.norm(dim=-1))
    return norms


TASKS: dict[str, Callable[[ns.Analyzer, dict[str, torch.Tensor]], None]] = {
    "forward": plain_forward,
    "attention maps": attention_maps,
    "mixing": mixing,
    "all maps": all_maps,
    "naive": naive,
}


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


def runs_naive(analyzer: ns.Analyzer, length: int) -> bool:
    return analyzer.family.name == "bert" and 4.0 * length**2 * sizes(analyzer)[2] < NAIVE_LIMIT


def possible(analyzer: ns.Analyzer, length: int, chosen: list[str]) -> list[str]:
    """The tasks to run: the forward pass always, the naive method only where it can."""
    return [t for t in TASKS if t == "forward" or (t in chosen and (t != "naive" or runs_naive(analyzer, length)))]


# ---- measuring -------------------------------------------------------------------------------------------------------


def best_of(repeats: int, task: Callable[[], Any]) -> float:
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        task()
        times.append(time.perf_counter() - start)
    return min(times)


def multiply_rate(d: int, width: int) -> float:
    """Operations per second of the best large multiplication of the shape that the maps need."""
    left, right, out = torch.randn(4096, width), torch.randn(d, width), torch.empty(4096, d)
    torch.mm(left, right.T, out=out)
    return 2.0 * 4096 * width * d / best_of(5, lambda: torch.mm(left, right.T, out=out))


def measure(name: str, length: int, repeats: int, chosen: list[str]) -> dict[str, Any]:
    """One row: times in turn, over and over, and the best of each."""
    analyzer = make(name)
    inputs = ids(analyzer, length)
    _, d, width = sizes(analyzer)
    tasks = {task: TASKS[task] for task in possible(analyzer, length, chosen)}
    times = dict.fromkeys(tasks, float("inf"))
    rate = multiply_rate(d, width)
    for task, run in tasks.items():
        first = best_of(1, lambda run=run: run(analyzer, inputs))
        times[task] = first if first > LONG else times[task]
    for _ in range(repeats):
        for task, run in tasks.items():
            if times[task] <= LONG or times[task] == float("inf"):
                again = best_of(3 if task == "forward" else 1, lambda run=run: run(analyzer, inputs))
                times[task] = min(times[task], again)
        rate = max(rate, multiply_rate(d, width))
    return {
        **dict(model=name, length=length, rate=rate, seconds=times),
        "ratio": {task: seconds / times["forward"] for task, seconds in times.items()},
        "share of peak": floor(analyzer, length) / times["all maps"] / rate if "all maps" in times else None,
    }


def peak_of_this_process(name: str, length: int, task: str) -> float:
    """Megabytes at the most while doing a task, loading left out: the kernel's high-water mark is reset before it."""
    analyzer = make(name)
    _ = analyzer.facts
    inputs = ids(analyzer, length)
    Path("/proc/self/clear_refs").write_text("5")
    TASKS[task](analyzer, inputs)
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def peak_megabytes(name: str, length: int, task: str) -> float:
    """The peak resident memory of a process that does one task, after loading the model (Linux only)."""
    command = [sys.executable, __file__, "--memory-of", task, "--models", name, "--lengths", str(length)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def memory(name: str, length: int, chosen: list[str]) -> dict[str, float]:
    tasks = possible(make(name), length, chosen)
    return {task: peak_megabytes(name, length, task) for task in tasks}


# ---- showing ---------------------------------------------------------------------------------------------------------


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"Times as multiples of a plain forward pass, {torch.get_num_threads()} threads")
    columns = (
        "model",
        "n",
        "forward",
        "attention maps",
        "mixing",
        "all maps",
        "naive",
        "of GEMM peak",
        "GEMM",
        "memory above forward (MB)",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        ratio, above = row["ratio"], row["memory above forward"]
        table.add_row(
            *(row["model"], str(row["length"]), f"{1e3 * row['seconds']['forward']:.0f} ms"),
            *(
                f"{ratio[task]:.2f}x" if task in ratio else "-"
                for task in ("attention maps", "mixing", "all maps", "naive")
            ),
            *(
                "-" if row["share of peak"] is None else f"{100 * row['share of peak']:.0f} %",
                f"{row['rate'] / 1e9:.0f} Gflop/s",
            ),
            ", ".join(f"{task} {value:.0f}" for task, value in above.items()),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("bench-output"))
    parser.add_argument("--memory-of", choices=list(TASKS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    if options.memory_of:
        print(peak_of_this_process(options.models[0], options.lengths[0], options.memory_of))
        return
    console, rows = Console(width=180), []
    for name in options.models:
        for length in options.lengths:
            row = measure(name, length, options.repeats, options.tasks)
            peaks = memory(name, length, options.tasks)
            row["memory"] = peaks
            row["memory above forward"] = {
                task: peak - peaks["forward"] for task, peak in peaks.items() if task != "forward"
            }
            rows.append(row)
            console.print(table_of([row]))
    console.print(table_of(rows))
    options.out.mkdir(parents=True, exist_ok=True)
    with replacing(options.out / "engine.json") as temporary:
        temporary.write_text(json.dumps(rows, indent=2))
    console.print(f"Written to {options.out / 'engine.json'}")


if __name__ == "__main__":
    main()
