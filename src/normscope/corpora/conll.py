"""CoNLL columns: a word a line, its entity tag in the last column, an empty line between sequences.

IOB1 and IOB2 are read by one rule that is right for both: `B-X` starts an entity; `I-X` continues one of type X just before
it, and starts one otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from normscope.corpora.record import Problems, Record
from normscope.corpora.text import read_lines, split

_TAG = re.compile(r"O|[BI]-\S+")
_DOCUMENT = "-DOCSTART-"


def read_conll(path: Path, problems: Problems, word_column: int = 0, tag_column: int = -1) -> Iterator[Record]:
    sentence = _Sentence()
    last = 0
    for number, line in read_lines(path, problems):
        sentence.broken |= number != last + 1  # a row that could not be decoded
        last = number
        columns = split(line) if line.strip() else []
        if not columns or columns[0] == _DOCUMENT:
            yield from sentence.record(path)
            sentence = _Sentence()
            continue
        sentence.start = sentence.start or number
        try:
            word, tag = columns[word_column], columns[tag_column]
        except IndexError:
            problems.bad_row(f"{path}:{number}", "malformed row", f"{len(columns)} columns are too few: {line!r:.60}.")
            sentence.broken = True
            continue
        if len(columns) < 2 or not _TAG.fullmatch(tag):
            what = f"{tag!r:.40} is not an IOB tag (O, B-TYPE or I-TYPE)."
            problems.bad_row(f"{path}:{number}", "malformed row", what)
            sentence.broken = True
            continue
        sentence.add(word, tag)
    yield from sentence.record(path)


class _Sentence:
    """The words of a sequence so far."""

    def __init__(self) -> None:
        self.start = 0
        self.broken = False
        self.words: list[str] = []
        self.entities: list[int] = []
        self.previous = "O"
        self.count = 0

    def add(self, word: str, tag: str) -> None:
        self.words.append(word)
        if tag == "O":
            self.entities.append(-1)
        else:
            self.count += tag.startswith("B-") or self.previous[2:] != tag[2:]
            self.entities.append(self.count - 1)
        self.previous = tag

    def record(self, path: Path) -> Iterator[Record]:
        """The sequence, unless a row of it was bad: what is left would not be the sentence."""
        if self.words and not self.broken:
            yield Record(f"{path}:{self.start}", words=tuple(self.words), entities=tuple(self.entities))
