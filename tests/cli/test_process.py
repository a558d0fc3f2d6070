"""The command line as a process of its own."""

from __future__ import annotations

from pathlib import Path

from .samples import TEXT, process


def test_a_process_prints_its_result_and_nothing_of_other_libraries(tmp_path: Path) -> None:
    done = process("map", TEXT, "--layer", "1", "--scope", "AttnW", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("AttnW, layer 1: attention weight")


def test_a_process_that_fails_says_why_on_stderr_without_a_traceback(tmp_path: Path) -> None:
    done = process("map", TEXT, "--model", str(tmp_path / "nowhere"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: No model was found under")
    assert "Traceback" not in done.stderr
