"""What the planner foretells beside what is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from measuring import Column, Row, Section, attention_scopes, ids, made, models, smallest

import normscope as ns


def rows(quick: bool) -> Iterator[Row]:
    for name in models():
        analyzer = made(name)
        for length in (64,) if quick else (32, 128):
            for row in _kinds(analyzer, length):
                yield dict(model=name, tokens=length) | row


def _kinds(analyzer: ns.Analyzer, length: int) -> Iterator[Row]:
    inputs, attention = ids(length), attention_scopes(analyzer)
    kinds: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
        "all maps": ({}, lambda: analyzer.analyze(inputs)),
        "attention-block maps": ({"scopes": attention}, lambda: analyzer.analyze(inputs, scopes=attention)),
        "mixing ratios": ({"maps": False}, lambda: analyzer.mixing_ratios(inputs)),
    }
    for kind, (options, task) in kinds.items():
        foretold = analyzer.estimate(length, clock=time.process_time, **options).seconds
        measured = smallest({kind: task})[kind]
        assert foretold is not None
        yield dict(what=kind, seconds=measured, foretold=foretold, ratio=foretold / measured)


SECTION = Section(
    "The planner: time foretold over time measured",
    (
        Column("model", "model"),
        Column("tokens", "n"),
        Column("what", "what"),
        Column("foretold", "foretold", "{:.3f} s"),
        Column("seconds", "measured", "{:.3f} s"),
        Column("ratio", "foretold / measured", "{:.2f}"),
    ),
    rows,
)
