"""Plain text: a line or a paragraph (lines up to an empty one) is a sequence, or each text of a list in memory.

Packing is done after tokenizing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
    """Lines up to an empty one; a paragraph that lost a line, which could not be decoded, is left out as a whole."""
    paragraph = _Paragraph()
    last = 0
    for number, line in read_lines(path, problems):
        paragraph.whole &= number == last + 1
        last = number
        if line.strip():
            paragraph.start = paragraph.start or number
            paragraph.lines.append(line.strip())
        else:
            yield from paragraph.record(path)
            paragraph = _Paragraph()
    yield from paragraph.record(path)


@dataclass
class _Paragraph:
    """The lines of a paragraph so far."""

    start: int = 0
    whole: bool = True
    lines: list[str] = field(default_factory=list[str])

    def record(self, path: Path) -> Iterator[Record]:
        if self.lines and self.whole:
            yield Record(f"{path}:{self.start}", text=" ".join(self.lines))


def read_texts(texts: Sequence[str], problems: Problems) -> Iterator[Record]:
    """Texts in memory, as they are."""
    for number, text in enumerate(texts, 1):
        if text.strip():
            yield Record(f"text {number}", text=text)
        else:
            problems.left_out("empty text")
