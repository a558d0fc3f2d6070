"""Benchmark of explanations: what an attribution of a logit costs beside a plain forward pass, and beside other tools.

    python benchmarks/explain.py [--models bert-base llama-like] [--lengths 128] [--out bench-output]

Prints a table and writes it as JSON. All tasks of a row are measured in one process, in turn, several times, and the
smallest time of each counts, so that ratios mean something on a busy machine. captum and inseq are measured where they
are installed. Memory is the peak of a process of its own above that of the forward pass.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import normscope as ns
from normscope.explain.pulling import PullRequest, pull_back
from normscope.explain.question import LogitQuestion, Wanted
from normscope.files import replacing
from normscope.inputs import read_inputs
from normscope.measures.projection import Projections

Inputs = dict[str, torch.Tensor]

MANY = 16
"""How many targets of one text are explained together."""

STEPS = 50
"""Steps of integrated gradients."""

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert-base": lambda: BertForMaskedLM(BertConfig()),
    "llama-like": lambda: LlamaForCausalLM(
        LlamaConfig(
            **dict(vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12),
            **dict(num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=2048),
        )
    ),
}


def make(name: str) -> ns.Analyzer:
    torch.manual_seed(0)
    return ns.load(MODELS[name]().eval())


def ids(length: int) -> Inputs:
    torch.manual_seed(0)
    return {"input_ids": torch.randint(1000, 30000, (1, length))}


# ---- what is measured ------------------------------------------------------------------------------------------------


def forward(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    with torch.no_grad():
        analyzer.model(**inputs)


def one_target(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    analyzer.explain(inputs, target=2000, at=-1)


def one_target_heads(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    analyzer.explain(inputs, target=2000, at=-1, heads=True)


def many_targets(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    """The last tokens of one text, each explained by its own row, in one way back."""
    (sequence,), _ = read_inputs(inputs, None, None, words=False, truncate=False)
    rows = [(len(sequence) - 1 - place, Wanted(2000 + place)) for place in range(MANY)]
    pull_back(analyzer, sequence, LogitQuestion(analyzer, rows), PullRequest())


def projections(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    (sequence,), _ = read_inputs(inputs, None, None, words=False, truncate=False)
    scopes = tuple(scope for scope in analyzer.scopes if scope.quantity == "norm")
    analyzer.measure([sequence], [Projections(scopes, heads=True)])


def backward(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    """The gradient of the logit with respect to the embeddings: what gradient x input needs."""
    embeddings = analyzer.model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = analyzer.model(inputs_embeds=embeddings).logits
    torch.autograd.grad(logits[0, -1, 2000], embeddings)


def captum_integrated_gradients(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    from captum.attr import IntegratedGradients  # noqa: PLC0415  (only where it is installed)

    embeddings = analyzer.model.get_input_embeddings()(inputs["input_ids"]).detach()

    def logit(values: torch.Tensor) -> torch.Tensor:
        return analyzer.model(inputs_embeds=values).logits[:, -1, 2000]

    IntegratedGradients(logit).attribute(embeddings, n_steps=STEPS, internal_batch_size=1)


TASKS: dict[str, Callable[[ns.Analyzer, Inputs], None]] = {
    "forward": forward,
    "explain": one_target,
    "explain, heads": one_target_heads,
    f"explain, {MANY} targets": many_targets,
    "projections": projections,
    "backward": backward,
    **({f"captum IG, {STEPS} steps": captum_integrated_gradients} if importlib.util.find_spec("captum") else {}),
}


TEXT, WORD = "Once upon a time there was a little", " girl"
INSEQ_METHODS = ("input_x_gradient", "integrated_gradients")
"""inseq 0.7.1 has more, of which some (attention, value zeroing) fail on transformers 5."""


def beside_inseq(folder: str, repeats: int) -> dict[str, Any]:
    """The next word of a causal model with a tokenizer, explained here and by inseq, as multiples of a forward pass."""
    import inseq  # noqa: PLC0415  (only where it is installed)

    analyzer = ns.load(folder)
    assert analyzer.tokenizer is not None
    encoding: Any = analyzer.tokenizer(TEXT, return_tensors="pt")
    tasks: dict[str, Callable[[], Any]] = {
        "forward": lambda: forward(analyzer, dict(encoding)),
        "explain": lambda: analyzer.explain(TEXT, target=WORD),
    }
    for method in INSEQ_METHODS:
        model: Any = inseq.load_model(analyzer.model, method, tokenizer=folder)
        options = {"n_steps": STEPS} if method == "integrated_gradients" else {}
        tasks[f"inseq {method}"] = lambda model=model, options=options: model.attribute(
            TEXT, TEXT + WORD, show_progress=False, attr_pos_start=encoding["input_ids"].shape[1], **options
        )
    times = seconds(tasks, repeats)
    return {"model": Path(folder).name, "ratios": {name: value / times["forward"] for name, value in times.items()}}


def seconds(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The smallest time of each task, measured in turn; what takes long is run once."""
    smallest: dict[str, float] = {}
    for turn in range(repeats):
        for name, task in tasks.items():
            if turn > 0 and smallest[name] > 20:
                continue
            start = time.perf_counter()
            task()
            smallest[name] = min(smallest.get(name, float("inf")), time.perf_counter() - start)
    return smallest


def peak_megabytes(model: str, length: int, task: str) -> float:
    """The peak memory of a process that does nothing else."""
    command = [sys.executable, __file__, "--peak", task, "--models", model, "--lengths", str(length)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def _print_peak(model: str, length: int, task: str) -> None:
    """Megabytes at the most while doing a task, loading left out: the kernel's high-water mark is reset before it."""
    analyzer, inputs = make(model), ids(length)
    _ = analyzer.facts
    Path("/proc/self/clear_refs").write_text("5")
    TASKS[task](analyzer, inputs)
    print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024)


def measure(model: str, length: int, repeats: int) -> dict[str, Any]:
    analyzer, inputs = make(model), ids(length)
    times = seconds({name: lambda task=task: task(analyzer, inputs) for name, task in TASKS.items()}, repeats)
    ratios = {name: value / times["forward"] for name, value in times.items()}
    ratios[f"explain, {MANY} targets"] /= MANY
    memory = {task: peak_megabytes(model, length, task) for task in ("forward", "explain")}
    return {"model": model, "tokens": length, "seconds": times, "ratios": ratios, "megabytes": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--lengths", nargs="+", type=int, default=[128])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("bench-output"))
    parser.add_argument("--inseq", metavar="FOLDER", help="a causal model with its tokenizer, to compare with inseq")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        _print_peak(arguments.models[0], arguments.lengths[0], arguments.peak)
        return
    if arguments.inseq:
        result = beside_inseq(arguments.inseq, arguments.repeats)
        Console().print(result["model"], {name: round(ratio, 2) for name, ratio in result["ratios"].items()})
        return
    rows = [measure(model, length, arguments.repeats) for model in arguments.models for length in arguments.lengths]
    table = Table("model", "tokens", "forward s", *(f"{name} x" for name in TASKS if name != "forward"), "explain MB")
    for row in rows:
        ratios = [f"{row['ratios'][name]:.2f}" for name in TASKS if name != "forward"]
        extra = row["megabytes"]["explain"] - row["megabytes"]["forward"]
        table.add_row(row["model"], str(row["tokens"]), f"{row['seconds']['forward']:.3f}", *ratios, f"{extra:.0f}")
    Console(width=160).print(table)
    Console().print(f"x: times a plain forward pass; of {MANY} targets, for each. MB: above the forward pass.")
    arguments.out.mkdir(exist_ok=True)
    with replacing(arguments.out / "explain.json") as path:
        path.write_text(json.dumps({"threads": torch.get_num_threads(), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
