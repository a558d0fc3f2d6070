"""Every public name says what it is, with an example that works."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import normscope as ns
from docs.pages import ROOT
from normscope.errors import PAGE, NormscopeError

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


def error_modules() -> set[str]:
    """The modules of the package that define an error, which are few: importing them all would take long."""
    package = ROOT / "src"
    paths = [
        path for path in package.rglob("*.py") if re.search(r"^class \w+\(\w*Error\b", path.read_text(), re.MULTILINE)
    ]
    return {".".join(path.relative_to(package).with_suffix("").parts) for path in paths}


def error_kinds(kind: type[NormscopeError] = NormscopeError) -> Iterator[type[NormscopeError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from error_kinds(below)


def test_every_error_names_its_section_on_the_page_of_errors() -> None:
    for module in error_modules():
        import_module(module)
    lines = (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    anchors = {f"{PAGE}#{line.removeprefix('## ').lower()}" for line in lines if line.startswith("## ")}
    kinds = [kind for kind in error_kinds() if kind.__module__.startswith("normscope.")]
    assert {kind.__name__ for kind in kinds} >= {*ERRORS, "CorpusError", "QueueFull"}
    for kind in kinds:
        (note,) = kind("something").__notes__
        assert note.removeprefix("More: ") in anchors, kind
        assert kind.__doc__
