"""Pairs of texts to compare: TSV, CSV or Parquet with the columns `first` and `second`, and, where they are known, `score`
and `links`.

Links are separated by spaces, such as `0-0 2,3-1`: words of the first text, a hyphen, words of the second, all from 0 and
joined by commas. A side may be empty: `4-` is a group of words that belongs to none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from normscope.corpora.columns import check_unique, read_parquet_rows
from normscope.corpora.record import CorpusError, Problems, Record, TextPair
from normscope.corpora.text import read_separated_rows, split
from normscope.errors import listing

_TEXTS = ("first", "second")
_GOLD = ("score", "links")
_GROUP = r"((?:[0-9]{1,9}(?:,[0-9]{1,9})*)?)"
_LINK = re.compile(f"{_GROUP}-{_GROUP}")

Links = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def read_text_pairs(path: Path, problems: Problems) -> Iterator[Record]:
    """The pairs of a file, in order."""

    def wanted(names: list[str]) -> list[str]:
        lacking = [name for name in _TEXTS if name not in names]
        if lacking:
            raise CorpusError(
                f"{str(path)!r} has no column {listing(lacking)}. Its columns: {listing(names) or 'none'}."
            )
        check_unique(names, (*_TEXTS, *_GOLD), path)
        return [name for name in (*_TEXTS, *_GOLD) if name in names]

    if path.suffix.lower() == ".parquet":
        rows = read_parquet_rows(path, problems, wanted)
    else:
        rows = _separated(path, problems)
        wanted(next(rows)[1]["header"])
    for where, row in rows:
        pair = _pair(row)
        if isinstance(pair, str):
            problems.bad_row(where, "malformed row", pair)
        else:
            yield Record(where, compared=pair)


def _separated(path: Path, problems: Problems) -> Iterator[tuple[str, dict[str, Any]]]:
    """First the header, then the rows by its names."""
    rows = read_separated_rows(path, problems, "," if path.suffix.lower() == ".csv" else "\t")
    where, header = next(rows, ("", []))
    yield where, {"header": header}
    for where, values in rows:
        if not values:
            problems.left_out("empty line")
        elif len(values) != len(header):
            what = f"{len(values)} columns, but the header has {len(header)}."
            problems.bad_row(where, "malformed row", what)
        else:
            yield where, dict(zip(header, values, strict=True))


def _pair(row: dict[str, Any]) -> TextPair | str:
    """The pair of a row, or what is wrong with it."""
    texts: list[list[str]] = []
    for name in _TEXTS:
        text = row[name]
        if not isinstance(text, str) or not split(text):
            return f"the column {name!r} has no text."
        texts.append(split(text))
    try:
        score, links = _score(row.get("score")), _links(row.get("links"), len(texts[0]), len(texts[1]))
    except ValueError as error:
        return str(error)
    return TextPair(" ".join(texts[0]), " ".join(texts[1]), score, links)


def _score(value: object) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"the score {value!r:.40} is not a number.")
    return number


def _links(value: object, first: int, second: int) -> Links | None:
    if value is None or value == "":
        return None
    links: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for link in split(str(value)):
        match = _LINK.fullmatch(link)
        if match is None or link == "-":
            raise ValueError(f"{link!r:.40} is not a link such as 3-4, 2,3-1 or 4- (words from 0).")
        left, right = (tuple(int(word) for word in side.split(",") if word) for side in match.groups())
        if any(word >= first for word in left) or any(word >= second for word in right):
            raise ValueError(f"the link {link!r:.40} is outside the texts of {first} and {second} words.")
        links.append((left, right))
    return tuple(links)
