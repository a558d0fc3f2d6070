"""Token frequency ranks from a list: lines of `rank count id`."""

from __future__ import annotations

from pathlib import Path

from normscope.corpora.lines import read_lines
from normscope.corpora.problems import CorpusError, Problems


def read_ranks(path: str | Path) -> dict[int, int]:
    """The rank of every vocabulary id in the list. A list with a wrong line is refused as a whole."""
    ranks: dict[int, int] = {}
    for number, line in read_lines(Path(path), Problems("refuse")):
        columns = line.split()
        if not columns:
            continue
        if len(columns) != 3 or not all(column.isdecimal() for column in columns):
            raise CorpusError(f"{path}:{number}: {line!r:.60} is not 'rank count id', three whole numbers.")
        ranks[int(columns[2])] = int(columns[0])
    if not ranks:
        raise CorpusError(f"{str(path)!r} has no ranks: expected lines of 'rank count id'.")
    return ranks
