"""Approximate maps beside exact ones: time on BERT-base width, and what is reached on the embedded model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import BERT, MINILM, Column, Row, Section, ids, made, smallest

import normscope as ns
from normscope.corpora import bundled
from normscope.decompose import Approximation

EXACT = "exact"
SETTINGS = (Approximation(0.2), Approximation(1.0, 64), Approximation(0.2, 64), Approximation(0.2, 128))


def rows(quick: bool) -> Iterator[Row]:
    yield from _wide((128,) if quick else (128, 1024))
    yield from _reached()


def _wide(lengths: tuple[int, ...]) -> Iterator[Row]:
    wide = made(BERT, layers=1)
    for length in lengths:
        tasks = {EXACT: lambda n=length: wide.analyze(ids(n))}
        for near in SETTINGS:
            name = f"{near.name} (neurons {near.neurons:g}, directions {near.directions or 'all'})"
            tasks[name] = lambda n=length, near=near: wide.analyze(ids(n), approximate=near)
        times = smallest(tasks)
        for name, seconds in times.items():
            yield dict(model=BERT, tokens=length, what=name, seconds=seconds, ratio=times[EXACT] / seconds)


def _reached() -> Iterator[Row]:
    small = ns.load()
    text = Path(bundled()).read_text()[:600]
    length = len(small.analyze(text, truncate=True, scopes="AttnW").tokens)
    names = ("slopes", "sketch", "both", "fast")
    tasks = {EXACT: lambda: small.analyze(text, truncate=True)}
    tasks |= {name: lambda name=name: small.analyze(text, truncate=True, approximate=name) for name in names}
    times = smallest(tasks)
    for name, seconds in times.items():
        facts = tasks[name]().attrs
        reached = {key: facts.get(f"approximate_{key}") for key in ("spearman", "error")}
        row = dict(model=MINILM, tokens=length, what=name, seconds=seconds, ratio=times[EXACT] / seconds)
        yield row | reached


SECTION = Section(
    "Approximate maps: times faster than exact ones",
    (
        Column("model", "model"),
        Column("tokens", "n"),
        Column("what", "maps"),
        Column("seconds", "time", "{:.3f} s"),
        Column("ratio", "times faster", "{:.2f}"),
        Column("spearman", "rank correlation reached", "{:.4f}"),
        Column("error", "error reached", "{:.4f}"),
    ),
    rows,
)
