"""Where the time of all maps goes: what is not the multiplication that exact maps cannot do without."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import SUBJECT, Column, Row, Section, floor, ids, made, models, multiplication_rate, sizes, spent

PLACES: dict[str, tuple[str, ...]] = {
    "write": ("expand.py:write",),
    "neurons": ("expand.py:_hidden",),
    "projected": ("expand.py:by_group",),
    "folded": ("expand.py:_folded",),
    "parts": ("dense.py:add", "dense.py:normalise", "dense.py:maps"),
    "attention": ("factored.py:norms", "factored.py:attend"),
}
"""The functions whose time is added up, with what they call; none of them calls another of its line."""


def rows(quick: bool) -> Iterator[Row]:
    for name in models():
        for length in (128,) if quick else (128, 512):
            yield _row(name, length)


def _row(name: str, length: int) -> Row:
    analyzer, inputs = made(name), ids(length)
    spent(lambda: analyzer.analyze(inputs, scopes=["AttnW"]))
    profile = cProfile.Profile(time.process_time)
    profile.runcall(analyzer.analyze, inputs)
    statistics = pstats.Stats(profile)
    whole = statistics.total_tt  # pyright: ignore[reportAttributeAccessIssue]
    seconds = {place: _seconds(statistics, functions) for place, functions in PLACES.items()}
    assert seconds["projected"] + seconds["folded"], "the functions of PLACES are not those of the engine"
    shares = {
        "product": seconds["write"] - seconds["neurons"] - seconds["folded"],
        "neurons": seconds["neurons"] - seconds["projected"],
        "folding": seconds["projected"] + seconds["folded"],
        **{place: seconds[place] for place in ("parts", "attention")},
    }
    ideal = floor(analyzer, length) / multiplication_rate(*sizes(analyzer)[1:])
    return {
        **dict(model=name, tokens=length, seconds=whole, floor=100 * ideal / whole),
        **{place: 100 * value / whole for place, value in shares.items()},
        "rest": 100 * (whole - sum(shares.values())) / whole,
    }


def _seconds(statistics: pstats.Stats, functions: tuple[str, ...]) -> float:
    """The time in some functions of the engine, with what they call."""
    profiled: dict[tuple[str, int, str], tuple[Any, ...]] = statistics.stats  # pyright: ignore[reportAttributeAccessIssue]
    return sum(
        cumulative
        for (path, _, name), (_, _, _, cumulative, _) in profiled.items()
        if Path(path).parent.name == "decompose" and f"{Path(path).name}:{name}" in functions
    )


SECTION = Section(
    "Where the time of all maps goes, in % of it",
    (
        *SUBJECT,
        Column("seconds", "all maps", "{:.2f} s"),
        Column("product", "second matrix", "{:.0f} %"),
        Column("neurons", "into the neurons, times slopes", "{:.0f} %"),
        Column("folding", "folding matrices", "{:.0f} %"),
        Column("parts", "residual, norm and norms of parts", "{:.0f} %"),
        Column("attention", "attention block", "{:.0f} %"),
        Column("rest", "forward pass, capture, proof", "{:.0f} %"),
        Column("floor", "the floor at the machine's rate", "{:.0f} %"),
    ),
    rows,
    drawn="product",
)
