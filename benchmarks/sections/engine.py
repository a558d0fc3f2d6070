"""The engine: the time of each kind of analysis relative to a plain forward pass, how close it comes to the machine's rate
of matrix multiplication, and how much memory it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from measuring import (
    BERT,
    MINILM,
    SUBJECT,
    Column,
    Inputs,
    Row,
    Section,
    attention_scopes,
    floor,
    forward,
    ids,
    made,
    models,
    multiplication_rate,
    peak_megabytes,
    print_peak,
    sizes,
    smallest,
)

import normscope as ns

TASKS: dict[str, Callable[[ns.Analyzer, Inputs], Any]] = {
    "forward": forward,
    "attention": lambda analyzer, inputs: analyzer.analyze(inputs, scopes=attention_scopes(analyzer)),
    "mixing": lambda analyzer, inputs: analyzer.mixing_ratios(inputs),
    "maps": lambda analyzer, inputs: analyzer.analyze(inputs),
}

REMEMBERED = (MINILM, BERT)
"""The models whose peaks of memory are measured."""


def rows(quick: bool) -> Iterator[Row]:
    for name in models():
        for length in (32, 128) if quick else (32, 128, 512):
            row = _row(name, length)
            if name in REMEMBERED and length >= 128 and not quick:
                peaks = {task: peak_megabytes("sections.engine:peak", [name, str(length), task]) for task in TASKS}
                row |= {f"{task}_megabytes": peaks[task] - peaks["forward"] for task in ("attention", "maps")}
            yield row


def _row(name: str, length: int) -> Row:
    analyzer, inputs = made(name), ids(length)
    times = smallest({task: lambda run=run: run(analyzer, inputs) for task, run in TASKS.items()})
    rate = multiplication_rate(*sizes(analyzer)[1:])
    return {
        **dict(model=name, tokens=length, forward=times["forward"]),
        **{task: times[task] / times["forward"] for task in ("attention", "mixing", "maps")},
        "share": 100 * floor(analyzer, length) / times["maps"] / rate,
    }


def peak(name: str, length: str, task: str) -> None:
    print_peak(made(name), int(length), TASKS[task])


SECTION = Section(
    "The engine, as multiples of a plain forward pass",
    (
        *SUBJECT,
        Column("forward", "forward", "{:.3f} s"),
        Column("attention", "attention-block maps", "{:.2f}x"),
        Column("mixing", "mixing ratios, all scopes", "{:.2f}x"),
        Column("maps", "all maps", "{:.1f}x"),
        Column("share", "all maps: share of the multiplication peak", "{:.0f} %"),
        Column("attention_megabytes", "attention-block maps: memory above the forward pass", "{:.0f} MB"),
        Column("maps_megabytes", "all maps: memory above the forward pass", "{:.0f} MB"),
    ),
    rows,
    drawn="share",
)
