"""A command line that is run in an empty folder, with the embedded model loaded once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import normscope as ns
from normscope.cli import console as session
from normscope.cli import main
from normscope.models.options import ModelOptions

from .samples import Output


@pytest.fixture
def loaded(analyzer: ns.Analyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model is loaded once for all tests that do not name a model."""
    actual = ns.Analyzer.from_options

    def load(options: ModelOptions) -> ns.Analyzer:
        return analyzer if options.model is None and options.dtype is None else actual(options)

    monkeypatch.setattr("normscope.analyzer.Analyzer.from_options", load)


@pytest.fixture
def run(
    loaded: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Output]:
    """Runs a command line in an empty folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(session, "quiet", lambda: None)  # it changes the whole process, which is the tests' here

    def run_command(*arguments: str) -> Output:
        with pytest.raises(SystemExit) as exit_info:
            main(arguments)
        captured = capsys.readouterr()
        return int(exit_info.value.code or 0), captured.out, captured.err

    return run_command
