"""Corpus runs with one and two processes: seconds by the clock, since processes are there to shorten these."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from measuring import MINILM, SUBJECT, Column, Row, Section

from normscope.corpora import bundled
from normscope.runs import run

EXPERIMENTS = ("scope-similarity", "mixing-ratio")


def rows(quick: bool) -> Iterator[Row]:
    tokens, sequences = (32, 32) if quick else (128, 32)
    texts = [Path(bundled()).read_text(encoding="utf-8")] * 8
    seconds: dict[int, float] = {}
    for workers in (1, 2):
        started = time.monotonic()
        result = run(
            EXPERIMENTS,
            **dict(corpus=texts, unit="packed", max_tokens=tokens, limit=sequences),
            **dict(jobs=workers, shard_size=4),
        )
        assert result.manifest["sequences"] == sequences
        seconds[workers] = time.monotonic() - started
        yield {
            **dict(model=MINILM, tokens=tokens, workers=workers, sequences=sequences, seconds=seconds[workers]),
            **dict(rate=sequences * tokens / seconds[workers], ratio=seconds[1] / seconds[workers]),
        }


SECTION = Section(
    "Corpus runs with one and two workers, by the clock, loading included",
    (
        *SUBJECT,
        Column("sequences", "sequences"),
        Column("workers", "workers"),
        Column("seconds", "time", "{:.1f} s"),
        Column("rate", "tokens a second", "{:.0f}"),
        Column("ratio", "times faster than one", "{:.2f}"),
    ),
    rows,
)
