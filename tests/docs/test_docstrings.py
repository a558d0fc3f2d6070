"""Every public name says what it is, with an example that works."""

from __future__ import annotations

import doctest
import pickle
import re
from pathlib import Path

import pytest

import normscope as ns
from docs.pages import ROOT
from normscope.errors import PAGE

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


def error_names() -> set[str]:
    """Every class of the package that is an error, read from its sources: importing all of them would take long."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    bases = dict(pair for text in texts for pair in re.findall(r"^class (\w+)\((\w+)", text, re.MULTILINE))
    known = {"NormscopeError"}
    while below := {name for name, base in bases.items() if base in known} - known:
        known |= below
    return known


def test_every_error_has_its_section_on_the_page_of_errors() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE)
    assert error_names() >= {*ERRORS, "CorpusError", "QueueFull"}
    assert sorted(headings) == sorted(error_names())


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_names_its_section(name: str) -> None:
    kind = getattr(ns, name)
    error = pickle.loads(pickle.dumps(kind("something")))  # as it comes from another process
    assert error.__notes__ == [f"More: {PAGE}#{name.lower()}"]
    assert str(error) == "something" and kind.__doc__
