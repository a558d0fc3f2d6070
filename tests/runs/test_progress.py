"""Progress of a run where there is no terminal."""

from __future__ import annotations

import pytest

from normscope.runs import driver


def test_a_log_has_a_line_now_and_then_and_none_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr(driver.time, "monotonic", lambda: next(clock))
    counts = [10] * 6
    assert list(driver.reported(counts, total=100, done=40, progress=None)) == counts
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "Analysed 60 of 100 sequences, about 1.3 minutes left.",
        "Analysed 80 of 100 sequences, about 0.7 minutes left.",
    ]


def test_nothing_is_said_where_no_progress_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(driver.reported([1, 2], total=3, done=0, progress=False)) == [1, 2]
    assert capsys.readouterr().err == ""
