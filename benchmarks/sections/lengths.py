"""Explanations of a real language model by length: what long inputs cost, and short ones in a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from measuring import SUBJECT, Column, Inputs, Row, Section, forward, ids, peak_megabytes, print_peak, smallest

import normscope as ns

MODEL = "smollm2"
TARGET = 2000
TEXTS = 32
"""How many short texts a list has."""


def explain(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    analyzer.explain(inputs, target=TARGET, at=-1)


TASKS = {"forward": forward, "explain": explain}


def rows(quick: bool) -> Iterator[Row]:
    for length in (512,) if quick else (512, 2048, 8192):
        yield _by_length(length)
    for name in (None, MODEL):
        yield _in_a_list(name)


def _by_length(length: int) -> Row:
    analyzer, inputs = ns.load(MODEL), ids(length)
    times = smallest({task: lambda run=run: run(analyzer, inputs) for task, run in TASKS.items()})
    peaks = [peak_megabytes("sections.lengths:peak", [str(length), task]) for task in ("explain", "forward")]
    ratio = times["explain"] / times["forward"]
    return dict(
        model=analyzer.name, tokens=length, seconds=times["explain"], ratio=ratio, megabytes=peaks[0] - peaks[1]
    )


def _in_a_list(name: str | None) -> Row:
    """Seconds for each text of a list, and of one by itself; texts of 8 to 15 tokens, all different."""
    analyzer = ns.load(name)
    texts = [" ".join(["soap", "bubble", "opera", "singer"][: 1 + k % 4] * 2) + f" {k} sang." for k in range(TEXTS)]
    about: dict[str, Any] = {} if name else {"direction": "state", "at": 0}

    def alone() -> None:
        for text in texts[:4]:
            analyzer.explain(text, **about)

    def together() -> None:
        analyzer.explain(texts, **about)

    times = smallest({"alone": alone, "together": together})
    each, single = times["together"] / TEXTS, times["alone"] / 4
    return dict(model=analyzer.name, tokens=f"a list of {TEXTS}", seconds=each, of_alone=each / single)


def peak(length: str, task: str) -> None:
    print_peak(ns.load(MODEL), int(length), TASKS[task])


SECTION = Section(
    "Explanations by length, and in a list",
    (
        *SUBJECT,
        Column("seconds", "explain, each input", "{:.3f} s"),
        Column("ratio", "relative to the forward pass", "{:.2f}x"),
        Column("of_alone", "relative to one input alone", "{:.2f}x"),
        Column("megabytes", "memory above the forward pass", "{:.0f} MB"),
    ),
    rows,
)
