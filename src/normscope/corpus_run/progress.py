"""Progress of a run: sequences done, rate and time left, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} sequences/s", style="progress.data.speed")


def shown(counts: Iterable[int], *, total: int, done: int, progress: bool | None) -> Iterator[int]:
    """Pass counts of finished sequences on, showing them unless standard error is no terminal (or as asked)."""
    visible = sys.stderr.isatty() if progress is None else progress
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
