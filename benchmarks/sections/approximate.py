"""Approximate maps next to exact ones: time on BERT-base width, and what is reached on the embedded model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import BERT, MINILM, SUBJECT, Column, Row, Section, ids, made, smallest

import normscope as ns
from normscope.corpora import bundled
from normscope.decompose import Approximation

EXACT = "exact"
SETTINGS = {
    128: (
        Approximation(0.2),
        *(Approximation(1.0, directions) for directions in (48, 64, 96)),
        Approximation(0.2, 96),
    ),
    1024: (Approximation(1.0, 96), Approximation(1.0, 64, patterns=128), Approximation(1.0, 96, patterns=128)),
}
"""What is tried for a number of tokens: what may be worth it there."""


def rows(quick: bool) -> Iterator[Row]:
    yield from _wide((128,) if quick else (128, 1024))
    yield from _reached(600, ("slopes", "sketch", "both", "fast"))
    if not quick:
        yield from _reached(None, ("sketch", "patterns", "fast"))


def _wide(lengths: tuple[int, ...]) -> Iterator[Row]:
    wide = made(BERT, layers=1)
    for length in lengths:
        tasks = {EXACT: lambda n=length: wide.analyze(ids(n))}
        for near in SETTINGS[length]:
            tasks[_described(near)] = lambda n=length, near=near: wide.analyze(ids(n), approximate=near)
        times = smallest(tasks)
        for name, seconds in times.items():
            yield dict(model=BERT, tokens=length, what=name, seconds=seconds, ratio=times[EXACT] / seconds)


def _described(near: Approximation) -> str:
    numbers = {
        "neurons": near.neurons if near.neurons < 1 else None,
        "directions": near.directions,
        "patterns": near.patterns,
    }
    return f"{near.name} ({', '.join(f'{name} {number:g}' for name, number in numbers.items() if number is not None)})"


def _reached(characters: int | None, names: tuple[str, ...]) -> Iterator[Row]:
    """On the embedded model, reading so many characters (default: as much as it takes)."""
    small = ns.load()
    text = Path(bundled()).read_text(encoding="utf-8")[:characters]
    length = len(small.analyze(text, truncate=True, scopes="AttnW").tokens)
    tasks = {EXACT: lambda: small.analyze(text, truncate=True)}
    tasks |= {name: lambda name=name: small.analyze(text, truncate=True, approximate=name) for name in names}
    facts: dict[str, dict[str, Any]] = {}
    times = smallest(
        {name: lambda name=name, task=task: facts.update({name: task().attrs}) for name, task in tasks.items()}
    )
    for name, seconds in times.items():
        reached = {key: facts[name].get(f"approximate_{key}") for key in ("spearman", "error")}
        row = dict(model=MINILM, tokens=length, what=name, seconds=seconds, ratio=times[EXACT] / seconds)
        yield row | reached


SECTION = Section(
    "Approximate maps: times faster than exact ones",
    (
        *SUBJECT,
        Column("what", "maps"),
        Column("seconds", "time", "{:.3f} s"),
        Column("ratio", "times faster", "{:.2f}"),
        Column("spearman", "rank correlation reached", "{:.4f}"),
        Column("error", "error reached", "{:.4f}"),
    ),
    rows,
)
