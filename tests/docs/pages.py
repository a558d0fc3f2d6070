"""The pages of the documentation, and the blocks of code on them. Nothing here is a test."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r'^([A-Z]+)="([^"]*)"', re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: where it is, what language it says it has, and its text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found[2], found[3])


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in ("python", "py")]


def command_lines(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Every command on a page, with where it stands: continued lines are joined, variables of the block are filled in."""
    for block in blocks(page):
        if block.language not in ("", "sh", "bash", "console", "shell"):
            continue
        variables = {name: " ".join(value.split()) for name, value in _ASSIGNMENT.findall(block.text)}
        for line in block.text.replace("\\\n", " ").splitlines():
            for name, value in variables.items():
                line = line.replace(f"${name}", value)  # noqa: PLW2901
            words = _words(line.strip().removeprefix("$ ").removeprefix("!"))
            if words:
                yield block.where, words


def _words(line: str) -> list[str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a line of output, with an apostrophe
        return []
    for stop in (">", "|", "&&", ";"):
        if stop in words:
            words = words[: words.index(stop)]
    return words
