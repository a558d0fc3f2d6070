"""Explanations: what an attribution of a logit costs relative to a plain forward pass, and how much memory it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from measuring import (
    BERT,
    GATED,
    LLAMA,
    SUBJECT,
    WIDE,
    Column,
    Inputs,
    Row,
    Section,
    forward,
    ids,
    peak_megabytes,
    print_peak,
    smallest,
)
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import normscope as ns
from normscope.explain.pulling import PullRequest, pull_back
from normscope.explain.question import LogitQuestion, Wanted
from normscope.inputs import read_inputs
from normscope.methods.projections import Projections
from normscope.methods.resolve import measure_layers
from normscope.options import Weights

MANY = 16
"""How many targets of one text are explained together."""

TARGET = 2000

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    BERT: lambda: BertForMaskedLM(BertConfig(**WIDE, num_hidden_layers=4)),
    GATED: lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, num_hidden_layers=4)),
}


def with_head(name: str) -> ns.Analyzer:
    torch.manual_seed(0)
    return ns.load(MODELS[name]().eval())


def many_targets(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    """The last tokens of one text, each explained by its own row, in one way back."""
    (sequence,), _ = read_inputs(inputs, None, None)
    asked = [(len(sequence) - 1 - place, Wanted(TARGET + place)) for place in range(MANY)]
    pull_back(analyzer, sequence, LogitQuestion(analyzer, asked), PullRequest())


def projections(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    (sequence,), _ = read_inputs(inputs, None, None)
    scopes = tuple(scope for scope in analyzer.scopes if scope.quantity == "norm")
    measure_layers(analyzer, [sequence], [Projections(scopes, heads=True)])


def backward(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    """The gradient of the logit with respect to the embeddings: what gradient x input needs."""
    embeddings = analyzer.model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    torch.autograd.grad(analyzer.model(inputs_embeds=embeddings).logits[0, -1, TARGET], embeddings)


RULES: tuple[Weights, ...] = ("half", "players", "joint")
"""For attention weights, beside that of `explain`, which takes them as constants."""


def explained(analyzer: ns.Analyzer, inputs: Inputs, weights: Weights = "constant") -> None:
    analyzer.explain(inputs, target=TARGET, at=-1, weights=weights)


TASKS: dict[str, Callable[[ns.Analyzer, Inputs], Any]] = {
    "forward": forward,
    "explain": explained,
    **{rule: partial(explained, weights=rule) for rule in RULES},
    "heads": lambda analyzer, inputs: analyzer.explain(inputs, target=TARGET, at=-1, heads=True),
    "many": many_targets,
    "projections": projections,
    "backward": backward,
}


def rows(quick: bool) -> Iterator[Row]:
    for name in MODELS:
        for length in (128,) if quick else (128, 512):
            yield _row(name, length)


def _row(name: str, length: int) -> Row:
    analyzer, inputs = with_head(name), ids(length)
    times = smallest({task: lambda run=run: run(analyzer, inputs) for task, run in TASKS.items()})
    ratios = {task: times[task] / times["forward"] for task in TASKS if task != "forward"}
    ratios["many"] /= MANY
    peaks = [peak_megabytes("sections.explain:peak", [name, str(length), task]) for task in ("explain", "forward")]
    return dict(model=name, tokens=length, forward=times["forward"]) | ratios | {"megabytes": peaks[0] - peaks[1]}


def peak(name: str, length: str, task: str) -> None:
    print_peak(with_head(name), int(length), TASKS[task])


SECTION = Section(
    "Explanations, as multiples of a plain forward pass",
    (
        *SUBJECT,
        Column("forward", "forward", "{:.3f} s"),
        Column("explain", "explain", "{:.2f}x"),
        *(Column(rule, f'explain, weights="{rule}"', "{:.2f}x") for rule in RULES),
        Column("heads", "explain, heads", "{:.2f}x"),
        Column("many", f"explain, each of {MANY} targets", "{:.2f}x"),
        Column("projections", "projection maps", "{:.2f}x"),
        Column("backward", "gradient", "{:.2f}x"),
        Column("megabytes", "explain: memory above the forward pass", "{:.0f} MB"),
    ),
    rows,
    drawn="explain",
)
