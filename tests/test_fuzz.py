"""The fuzzer tells a result from a refusal and both from a mistake, and a few of its attempts of every kind end well."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import normscope as ns

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tool, which imports its modules by their names."""
    monkeypatch.syspath_prepend(str(TOOLS))
    return import_module("fuzz")


def test_a_result_is_told_from_a_refusal(fuzz: Any) -> None:
    def refuse() -> None:
        raise ns.InputError("This text is empty: give another.")

    assert fuzz.attempt("a call", lambda: 3) == ("done", 3)
    assert fuzz.attempt("a call", refuse)[0] == "refused"


@pytest.mark.parametrize("error", [KeyError("layer"), ns.InputError(""), ns.CompletenessError("They do not add up.")])
def test_other_errors_empty_messages_and_failed_proofs_of_honest_models_are_found(fuzz: Any, error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(fuzz.Fooled, match="a call"):
        fuzz.attempt("a call", fail)


def test_the_table_goes_into_the_page(fuzz: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "errors.md"
    page.write_text(f"Before.\n{fuzz.BEGIN}\nold\n{fuzz.END}\nAfter.\n", encoding="utf-8")
    monkeypatch.setattr(fuzz, "PAGE", page)
    report = fuzz.Report("files", seconds=2.0)
    report.outcomes.update(done=3, refused=4)
    fuzz.write_page(fuzz.table([report], 7))
    text = page.read_text(encoding="utf-8")
    assert "| files | 7 | 3 | 4 | 0 | 2 |" in text
    assert "old" not in text
    assert text.startswith("Before.")


@pytest.mark.slow
def test_a_few_attempts_of_every_target_end_well() -> None:
    command = [sys.executable, str(TOOLS / "fuzz.py"), "--attempts", "20", "--seconds", "60", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
