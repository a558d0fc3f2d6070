"""Lines of a text file, decoded one by one: a line that is not UTF-8 is a problem of that line, not of the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from normscope.corpora.problems import CorpusError, Problems


def read_lines(path: Path, problems: Problems) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 with their text, without the line end. Lines that cannot be decoded are noted and left out."""
    check_file(path)
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            try:
                yield number, line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                what = f"byte {error.start + 1} of the line is not UTF-8 ({error.reason})."
                problems.bad_row(f"{path}:{number}", "not UTF-8", what)


def check_file(path: Path) -> None:
    if path.is_dir():
        raise CorpusError(
            f"{str(path)!r} is a folder; a corpus is a file (or, with format 'dataset', a saved dataset)."
        )
    if not path.is_file():
        raise CorpusError(f"There is no corpus file {str(path)!r}.")
