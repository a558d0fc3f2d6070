"""Code on the pages works: Python runs, command lines are understood, corpora that are shown can be read."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from docs.pages import DOCS, PAGES, ROOT, blocks, command_lines, python_blocks
from normscope.cli.application import application
from normscope.corpora import Corpus, Problems


@pytest.mark.parametrize(
    "page", [page for page in PAGES if python_blocks(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_python_on_a_page_runs(
    page: Path, workplace: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in python_blocks(page):
        source = workplace(block.text) / "page.py"
        source.write_text(block.text, encoding="utf-8")
        module.__file__ = str(source)  # transformers reads the file of a model's class
        exec(compile("\n" * block.line + block.text, str(page), "exec"), module.__dict__)


COMMANDS: dict[str, Any] = dict(typer.main.get_command(application()).commands)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_is_understood(page: Path) -> None:
    for where, words in command_lines(page):
        if words[0] != "normscope" or words[1:2] in ([], ["COMMAND"]) or words[1].startswith("-"):
            continue
        name, arguments = words[1], words[2:]
        assert name in COMMANDS, f"{where}: there is no command {name}"
        if "--help" not in arguments:
            try:
                COMMANDS[name].make_context(name, arguments)
            except Exception as error:
                pytest.fail(f"{where}: {' '.join(words)}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_target_of_make_and_every_script_on_a_page_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for where, words in command_lines(page):
        if words[0] == "make":
            targets = [word for word in words[1:] if "=" not in word]
            assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets), where
        elif words[0].endswith("python") and len(words) > 1 and words[1].endswith(".py"):
            assert (ROOT / words[1]).exists(), where


def test_every_command_has_its_place_on_the_page_of_the_command_line() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("heading", "name", "options", "records"),
    [
        ("Plain text", "alice.txt", {}, 4),
        ("Plain text", "alice.txt", {"unit": "paragraph"}, 2),
        ("JSONL", "texts.jsonl", {}, 5),
        ("CSV and TSV", "pairs.csv", {"field": "sentence1", "pair_field": "sentence2"}, 4),
        ("CSV and TSV", "texts.tsv", {}, 4),
        ("CoNLL", "eng.conll", {}, 1),
        ("Sentence pairs with gold alignments", "de-en.src-tgt", {"gold": "de-en.gold"}, 5),
        ("Token lists", "clark.json", {}, 3),
        ("Token ids", "ids.jsonl", {}, 5),
        ("Words that are evidence", "ioi.csv", {"format": "evidence"}, 4),
        ("Texts to compare", "pairs.tsv", {"format": "text-pairs"}, 3),
        ("Questions about sentences", "answers.jsonl", {"format": "answers"}, 3),
    ],
)
def test_a_corpus_that_is_shown_can_be_read(
    heading: str, name: str, options: dict[str, Any], records: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / "corpora.md"
    text = page.read_text(encoding="utf-8")
    start = text[: text.index(f"\n## {heading}\n")].count("\n") + 1
    shown = [block for block in blocks(page) if block.line > start]
    example = next(block for block in shown if Path(name).suffix != ".tsv" or "\t" in block.text)
    Path(name).write_text(example.text, encoding="utf-8")
    if "gold" in options:
        Path(options["gold"]).write_text(shown[1].text, encoding="utf-8")
    problems = Problems("refuse")
    assert len(list(Corpus(name, **options).records(problems))) == records
