"""Lines of a text file, decoded one by one: a line that is not UTF-8 is a problem of that line, not of the file.

A line ends with a line feed and with nothing else, so its number is the one that every editor shows. Words are separated by
spaces and tabs: a no-break space, or a line separator of Unicode, is a character of a word.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from normscope.corpora.record import CorpusError, Label, Problems, Record

_SPACES = re.compile(r"[ \t\r\f\v]+")
_NOT_UTF8 = "not UTF-8"
_UNDECODED = re.compile("[\udc80-\udcff]")


def read_lines(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 with their text, without the line end. Lines that cannot be decoded are noted and left out."""
    for number, raw in _raw_lines(path):
        try:
            yield number, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            what = f"byte {error.start + 1} of the line is not UTF-8 ({error.reason})."
            problems.bad_row(f"{path}:{number}", _NOT_UTF8, what)


def split(line: str) -> list[str]:
    """The words of a line."""
    return [word for word in _SPACES.split(line) if word]


def read_separated_rows(path: Path, problems: Problems, separator: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of a CSV or TSV file, the header first, each with the position of its first line.

    A TSV has no quoting: a quotation mark is a character like any other. A row that cannot be read does not end the file,
    unless it is the header.
    """
    quoting = csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE
    lines = (raw.decode("utf-8", "surrogateescape") + "\n" for _, raw in _raw_lines(path))
    reader = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
    while True:
        where = f"{path}:{reader.line_num + 1}"
        wrong = problems.bad_row if reader.line_num else _raise_for_header
        try:
            values = next(reader, None)
        except csv.Error as error:
            wrong(where, "malformed row", f"not a readable row ({error}).")
            continue
        if values is None:
            return
        if any(map(_UNDECODED.search, values)):
            wrong(where, _NOT_UTF8, "a byte of the row is not UTF-8.")
        else:
            yield where, values


def _raise_for_header(where: str, kind: str, what: str) -> None:
    """Without the names of its columns a file cannot be read."""
    raise CorpusError(f"{where}: the header, which has to name the columns, cannot be read ({kind}): {what}")


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    check_file(path)
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield number, (raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).rstrip(b"\r\n")
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> CorpusError:
    """The error message for a file that exists and cannot be read."""
    return CorpusError(f"The corpus file {str(path)!r} cannot be read: {error.strerror or error}.")


def check_file(path: Path) -> None:
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as error:  # such as a name that is too long
        raise unreadable(path, error) from error
    if is_folder:
        raise CorpusError(
            f"{str(path)!r} is a folder; a corpus is a file (or, with format 'dataset', a saved dataset)."
        )
    if not is_file:
        raise CorpusError(f"There is no corpus file {str(path)!r}.")


# ---- Plain text: a line or a paragraph (lines up to an empty one) is a sequence, or each text of a list in memory.
#
# Packing is done after tokenizing.


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


def read_texts(
    texts: Sequence[str], problems: Problems, labels: Sequence[Label | None] | None = None
) -> Iterator[Record]:
    """Texts in memory, as they are, with what is to be explained of each."""
    for number, text in enumerate(texts, 1):
        if text.strip():
            yield Record(f"text {number}", text=text, label=None if labels is None else labels[number - 1])
        else:
            problems.left_out("empty text")


# ---- token frequency ranks, lines of `rank count id` -----------------------------------------------------------------


_NUMBER = re.compile(r"[0-9]{1,18}")


def read_ranks(path: str | Path) -> dict[int, int]:
    """The rank of every vocabulary id in the list. A list with a wrong line is refused as a whole."""
    ranks: dict[int, int] = {}
    for number, line in read_lines(Path(path), Problems("refuse")):
        columns = split(line)
        if not columns:
            continue
        if len(columns) != 3 or not all(map(_NUMBER.fullmatch, columns)):
            raise CorpusError(f"{path}:{number}: {line!r:.60} is not 'rank count id', three whole numbers.")
        if int(columns[2]) in ranks:
            raise CorpusError(f"{path}:{number}: the id {columns[2]} has a rank already, {ranks[int(columns[2])]}.")
        ranks[int(columns[2])] = int(columns[0])
    if not ranks:
        raise CorpusError(f"{str(path)!r} has no ranks: expected lines of 'rank count id'.")
    return ranks
