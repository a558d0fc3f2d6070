"""Every public name says what it is, with an example that works."""

from __future__ import annotations

import doctest
import inspect
import pickle
import pkgutil
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import normscope as ns
from docs.pages import DOCS, ROOT
from normscope.corpora import Corpus
from normscope.errors import PAGE
from normscope.results.spans import Spans

ERRORS = [name for name in ns.__all__ if name.endswith("Error")]
OTHERS = [name for name in ns.__all__ if name not in ERRORS]


_ENTRY = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)


def entries() -> Iterator[tuple[str, Any]]:
    """What the page of the API lists, with its name: functions, classes and their public members, except errors."""
    for name, settings in _ENTRY.findall((DOCS / "reference" / "api.md").read_text(encoding="utf-8")):
        entry, options = pkgutil.resolve_name(name), (yaml.safe_load(settings) or {}).get("options", {})
        if name == "normscope.errors":
            continue
        if not inspect.ismodule(entry):
            yield name, entry
        if inspect.ismodule(entry) or inspect.isclass(entry):
            for member in options.get("members") or _public(entry):
                look = getattr if inspect.ismodule(entry) else inspect.getattr_static  # modules may be lazy
                yield f"{name}.{member}", look(entry, member)


def _public(entry: Any) -> list[str]:
    """The members that a page shows by itself: those of a module, and of a class those that normscope wrote."""
    if inspect.ismodule(entry):
        return list(entry.__all__)
    written = [vars(kind) for kind in entry.__mro__ if kind.__module__.startswith("normscope.")]
    fields = getattr(entry, "__dataclass_fields__", {})
    members = [(name, member) for kind in written for name, member in kind.items() if name not in fields]
    return [name for name, member in members if not name.startswith("_") and _described(member)]


def _described(member: Any) -> bool:
    return callable(member) or isinstance(member, property | cached_property | classmethod)


def _docstring(entry: Any) -> str:
    return inspect.getdoc(entry) or ""


ENTRIES = dict(entries())
CALLED = [name for name, entry in ENTRIES.items() if not isinstance(entry, property | cached_property)]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the example of a class names, and those of its members and of the functions around it use."""
    analyzer = ns.load()
    return {
        "ns": ns,
        "analyzer": analyzer,
        "analysis": analyzer.analyze("The opera singer caught a soap bubble."),
        "explanation": analyzer.explain("The opera singer sang.", direction="state", at=3),
        **answered(analyzer),
        "similarity": analyzer.similarity("A man plays a guitar.", "Someone makes music with a guitar."),
        "Corpus": Corpus,
    }


def answered(analyzer: ns.Analyzer) -> dict[str, Any]:
    """The answer and the spans that the examples of their classes make."""
    made: dict[str, Any] = {"analyzer": analyzer}
    for kind in (ns.Answer, Spans):
        example = doctest.DocTestParser().get_doctest(_docstring(kind), made, kind.__name__, None, None)
        torch.manual_seed(0)  # random models are the same whatever ran before
        doctest.DocTestRunner(verbose=False).run(example, clear_globs=False)
        made |= example.globs
    return {name: made[name] for name in ("answer", "spans")}


@pytest.mark.parametrize("name", sorted({*CALLED, *(f"normscope.{name}" for name in OTHERS)}))
def test_a_public_name_has_an_example_that_works(
    name: str, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    documentation = _docstring(ENTRIES[name] if name in ENTRIES else getattr(ns, name.removeprefix("normscope.")))
    example = doctest.DocTestParser().get_doctest(documentation, dict(names), name, None, None)
    assert example.examples, f"{name} has no example"
    printed: list[str] = []
    torch.manual_seed(0)
    results = doctest.DocTestRunner(verbose=False).run(example, out=printed.append)
    assert results.failed == 0, "".join(printed)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_public_name_says_what_it_is_and_the_shape_of_an_array(name: str) -> None:
    entry = ENTRIES[name]
    documentation = _docstring(entry)
    assert documentation, f"{name} has no docstring"
    getter = entry.fget if isinstance(entry, property) else getattr(entry, "func", entry)
    if "DataArray" in str(getattr(getter, "__annotations__", {}).get("return", "")):
        assert re.search(r"`\[\w+", documentation), f"{name} does not say what the shape of its array is"


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
