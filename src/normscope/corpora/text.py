"""Plain text: a line or a paragraph (lines up to an empty one) is a sequence, or each text of a list in memory.

Packing is done after tokenizing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from normscope.corpora.lines import read_lines
from normscope.corpora.problems import Problems
from normscope.corpora.record import Record


def read_text_lines(path: Path, problems: Problems) -> Iterator[Record]:
    for number, line in read_lines(path, problems):
        if line.strip():
            yield Record(f"{path}:{number}", text=line.strip())
        else:
            problems.left_out("empty line")


def read_paragraphs(path: Path, problems: Problems) -> Iterator[Record]:
    start, gathered = 0, list[str]()
    for number, line in read_lines(path, problems):
        if line.strip():
            start = number if not gathered else start
            gathered.append(line.strip())
        elif gathered:
            yield Record(f"{path}:{start}", text=" ".join(gathered))
            gathered = []
    if gathered:
        yield Record(f"{path}:{start}", text=" ".join(gathered))


def read_texts(texts: Sequence[str], problems: Problems) -> Iterator[Record]:
    """Texts in memory, as they are."""
    for number, text in enumerate(texts, 1):
        if text.strip():
            yield Record(f"text {number}", text=text)
        else:
            problems.left_out("empty text")
