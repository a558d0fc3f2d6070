"""Peaks of memory of long inputs, each in a process of its own, above what the loaded model takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from measuring import BERT, SUBJECT, Column, Inputs, Row, Section, attention_scopes, models, peak_megabytes, print_peak

import normscope as ns

LONGEST = 4096
QUERIES = 8

Options = dict[str, Any]
TASKS: dict[str, Callable[[ns.Analyzer, int], Options]] = {
    "all maps": lambda analyzer, length: {},
    "attention-block maps": lambda analyzer, length: {"scopes": attention_scopes(analyzer)},
    f"all maps of {QUERIES} queries": lambda analyzer, length: {"queries": list(range(0, length, length // QUERIES))},
    "all maps of one layer, sketched": lambda analyzer, length: {"layers": [1], "approximate": "sketch"},
}
"""The options of each analysis."""


def rows(quick: bool) -> Iterator[Row]:
    analyzer = model()
    for what, options in TASKS.items():
        longest = 512 if what == "all maps" else LONGEST
        length = longest // 4 if quick else longest
        whole, before = (peak_megabytes("sections.memory:peak", [task, str(length)]) for task in (what, ""))
        result = megabytes(analyzer, length, **options(analyzer, length))
        yield dict(model=BERT, tokens=length, what=what, megabytes=whole - before, result=result)


def model() -> ns.Analyzer:
    torch.manual_seed(0)
    return models(positions=LONGEST)[BERT]()


def megabytes(analyzer: ns.Analyzer, length: int, **options: Any) -> float:
    """The size of the maps that an analysis gives."""
    scopes, layers = options.get("scopes", analyzer.scopes), options.get("layers", analyzer.layers)
    queries = len(options.get("queries", range(length)))
    return len(scopes) * len(layers) * queries * length * 4 / 2**20


def peak(what: str, length: str) -> None:
    """The peak of a task, or, without one, what the model takes by itself."""

    def task(analyzer: ns.Analyzer, inputs: Inputs) -> None:
        if what:
            analyzer.analyze(inputs, **TASKS[what](analyzer, int(length)))

    print_peak(model(), int(length), task)


SECTION = Section(
    "Memory above the model",
    (
        *SUBJECT,
        Column("what", "what"),
        Column("megabytes", "peak above the model", "{:.0f} MB"),
        Column("result", "of which the result", "{:.0f} MB"),
    ),
    rows,
    drawn="megabytes",
)
