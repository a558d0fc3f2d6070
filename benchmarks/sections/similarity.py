"""Similarities: what the shares of tokens and the whole table of two texts cost, relative to plain forward passes of both
and to integrated gradients of the same cosine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import torch
from measuring import MINILM, Column, Inputs, Row, Section, forward, ids, smallest

import normscope as ns
from normscope.inputs import read_inputs
from normscope.similarity.comparing import Comparison
from normscope.similarity.encoders import Encoders
from normscope.similarity.texts import TextInput

LENGTHS = (32, 32), (128, 128), (512, 16)
STEPS = 50


def _account(analyzer: ns.Analyzer, texts: tuple[Inputs, Inputs], *, table: bool) -> None:
    """The similarity of two texts of any length: the limit of 256 tokens is the folder's, and not the model's."""
    first, second = (TextInput("", "", None, read_inputs(text, None, None)[0][0]) for text in texts)
    comparison = Comparison(analyzer, Encoders.of(analyzer, None), "cosine", with_table=table)
    list(comparison.datasets(first, [second]))


def _integrated_gradients(analyzer: ns.Analyzer, texts: tuple[Inputs, Inputs]) -> None:
    """What every token of both texts does for the cosine of their mean last states, by captum, from zero embeddings."""
    from captum.attr import IntegratedGradients  # noqa: PLC0415  (only where it is installed)

    model = analyzer.model

    def cosine(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        means = [model(inputs_embeds=embedded).last_hidden_state.mean(1) for embedded in (first, second)]
        return torch.nn.functional.cosine_similarity(*means)

    words = model.get_input_embeddings()
    embedded = tuple(words(text["input_ids"]).detach() for text in texts)
    IntegratedGradients(cosine).attribute(embedded, n_steps=STEPS, internal_batch_size=1)


def _tasks(analyzer: ns.Analyzer, texts: tuple[Inputs, Inputs]) -> dict[str, Callable[[], None]]:
    def passes() -> None:
        for text in texts:
            forward(analyzer, text)

    tasks: dict[str, Callable[[], None]] = {
        "forward": passes,
        "shares": lambda: _account(analyzer, texts, table=False),
        "table": lambda: _account(analyzer, texts, table=True),
    }
    if find_spec("captum") is not None:
        tasks["gradients"] = lambda: _integrated_gradients(analyzer, texts)
    return tasks


def rows(quick: bool) -> Iterator[Row]:
    analyzer = ns.load()
    for first, second in LENGTHS[:1] if quick else LENGTHS:
        times = smallest(_tasks(analyzer, (ids(first), ids(second))))
        ratios = {task: time / times["forward"] for task, time in times.items() if task != "forward"}
        yield {
            "model": MINILM,
            "tokens": f"{first} x {second}",
            "forward": times["forward"],
            "seconds": times["table"],
        } | ratios


SECTION = Section(
    "Similarities, as multiples of plain forward passes of both texts",
    (
        Column("model", "model"),
        Column("tokens", "tokens of both texts"),
        Column("forward", "forward passes", "{:.3f} s"),
        Column("shares", "shares of tokens", "{:.1f}x"),
        Column("table", "whole table", "{:.1f}x"),
        Column("seconds", "whole table", "{:.2f} s"),
        Column("gradients", f"captum: integrated gradients, {STEPS} steps", "{:.1f}x"),
    ),
    rows,
    drawn="table",
)
