"""Seconds of CPU until a command line has answered, or the package is imported."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from measuring import Column, Row, Section

COMMAND = str(Path(sys.executable).with_name("normscope"))
COMMANDS = {
    "normscope --version": [COMMAND, "--version"],
    "normscope --help": [COMMAND, "--help"],
    "normscope map --help": [COMMAND, "map", "--help"],
    "normscope map (a usage error)": [COMMAND, "map"],
    "normscope mapp (no such command)": [COMMAND, "mapp"],
    "normscope map, the default model": [COMMAND, "map", "The opera singer caught a soap bubble."],
    "import torch": ["-c", "import torch"],
    "import transformers.modeling_utils": ["-c", "import transformers.modeling_utils"],
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
