"""The command line as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import Processes

from .samples import TEXT, process

PROGRAM = "from normscope.cli import main; main()"


def test_a_process_prints_its_result_and_nothing_of_other_libraries(tmp_path: Path) -> None:
    done = process("map", TEXT, "--layer", "1", "--scope", "AttnW", cwd=tmp_path)
    assert done.returncode == 0
    assert set(done.stderr.splitlines()) <= {"Loading the model…", "Analysing…"}, (
        "said where that takes more than two seconds"
    )
    assert done.stdout.startswith("AttnW, layer 1: attention weight")


def test_a_process_that_fails_says_why_on_stderr_without_a_traceback(tmp_path: Path) -> None:
    done = process("map", TEXT, "--model", str(tmp_path / "nowhere"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: No model was found under")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("typed", "completed"), [("ma", "map"), ("map --sco", "--scope"), ("run --eng", "--engine")])
def test_a_shell_completes_commands_and_options(typed: str, completed: str) -> None:
    words = ["normscope", *typed.split()]
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1), "_NORMSCOPE_COMPLETE": "complete_bash"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [completed]


def test_an_explanation_is_printed_by_a_process_that_has_done_nothing_else(processes: Processes) -> None:
    done = processes.run(PROGRAM, "explain", TEXT, "--state", "--at", "singer")
    assert done.returncode == 0, done.stderr
    assert "singer" in done.stdout and "conservation error" in done.stdout
    assert processes.run(PROGRAM, "explain", TEXT, "--state", "--at", "3").stdout == done.stdout
