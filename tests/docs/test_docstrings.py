"""Every public name says what it is, with an example that works."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import normscope as ns

ERRORS = [name for name in ns.__all__ if name.endswith("Error")]
OTHERS = [name for name in ns.__all__ if name not in ERRORS]


@pytest.mark.parametrize("name", OTHERS)
def test_a_public_name_has_an_example_that_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = doctest.DocTestParser().get_doctest(getattr(ns, name).__doc__ or "", {}, name, None, None)
    assert example.examples, f"{name} has no example"
    said: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert results.failed == 0, "".join(said)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_has_its_section_on_the_page_of_errors(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
    assert getattr(ns, name).__doc__
    assert f"## {name}" in page or name == "NormscopeError"
