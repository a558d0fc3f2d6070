"""Progress of a run: sequences done, rate and time left, on standard error.

A terminal has a bar; a log file has a line now and then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

_SECONDS_BETWEEN_LINES = 30


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} sequences/s", style="progress.data.speed")


def reported(counts: Iterable[int], *, total: int, done: int, progress: bool | None) -> Iterator[int]:
    """Passes on counts of finished sequences, with a progress bar if requested and standard error can show it."""
    if progress is None and not sys.stderr.isatty():
        return _printed(counts, total, done)
    return _bar(counts, total, done, visible=progress is not False)


def _printed(counts: Iterable[int], total: int, done: int) -> Iterator[int]:
    start = last = time.monotonic()
    now_done = done
    for count in counts:
        now_done += count
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES and now_done < total:
            rate, last = (now_done - done) / (now - start), now
            left = f", about {(total - now_done) / rate / 60:.1f} minutes left" if rate else ""
            print(f"Analysed {now_done} of {total} sequences{left}.", file=sys.stderr, flush=True)
        yield count


def _bar(counts: Iterable[int], total: int, done: int, *, visible: bool) -> Iterator[int]:
    columns = (
        TextColumn("Analysing"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TextColumn("time left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not visible, transient=True) as bar:
        task = bar.add_task("", total=total, completed=done)
        for count in counts:
            bar.advance(task, count)
            yield count
