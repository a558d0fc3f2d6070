"""Token frequency ranks from a list: lines of `rank count id`."""

from __future__ import annotations

import re
from pathlib import Path

from normscope.corpora.record import CorpusError, Problems
from normscope.corpora.text import read_lines, split

_NUMBER = re.compile(r"[0-9]{1,18}")


def read_ranks(path: str | Path) -> dict[int, int]:
    """The rank of every vocabulary id in the list. Raises for any malformed line."""
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
