"""Seconds of CPU until a command line has answered, or the package is imported."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator

from measuring import Column, Row, Section

COMMANDS = {
    "normscope --version": ["-m", "normscope.cli", "--version"],
    "normscope --help": ["-m", "normscope.cli", "--help"],
    "normscope map --help": ["-m", "normscope.cli", "map", "--help"],
    "normscope map (a usage error)": ["-m", "normscope.cli", "map"],
    "import normscope": ["-c", "import normscope"],
    "python alone": ["-c", "pass"],
}


def rows(quick: bool) -> Iterator[Row]:
    for what, arguments in COMMANDS.items():
        yield dict(what=what, seconds=min(_seconds(arguments) for _ in range(2 if quick else 5)))


def _seconds(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


SECTION = Section(
    "Start-up, seconds of CPU", (Column("what", "what"), Column("seconds", "time", "{:.2f} s")), rows, drawn="seconds"
)
