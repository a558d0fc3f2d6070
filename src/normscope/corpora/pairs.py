"""Sentence pairs (`source ||| target` or tab-separated, words separated by spaces) and their gold alignments.

A gold line has links such as `3-4` (sure) and `3p4` or `3?4` (possible), source first. Whether they count from 0 or 1 is
specified, or detected from the whole file: a 0 shows one, an index equal to the sentence's length the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from normscope.corpora.record import CorpusError, Gold, Link, Problems, Record
from normscope.corpora.text import read_lines, split

_LINK = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})")

Base = Literal["detect", "0", "1"]


def read_pairs(path: Path, problems: Problems, gold: Path | None, base: Base = "detect") -> Iterator[Record]:
    links = None if gold is None else _read_links(gold)
    pairs = list(_read_sentences(path, problems))
    if gold is None or links is None:
        yield from (Record(f"{path}:{number}", words=source, target=target) for number, source, target in pairs)
        return
    with path.open("rb") as file:
        lines = sum(1 for _ in file)
    if lines != len(links):
        raise CorpusError(
            f"{str(gold)!r} has {len(links)} lines, but {str(path)!r} has {lines}: they do not belong together."
        )
    first = _base(pairs, links, base, gold)
    for number, source, target in pairs:
        alignment = _gold(links[number - 1], first)
        if _outside(alignment, len(source), len(target)):
            what = f"a link is outside the sentence pair of {len(source)} and {len(target)} words."
            problems.bad_row(f"{gold}:{number}", "malformed row", what)
            continue
        yield Record(f"{path}:{number}", words=source, target=target, gold=alignment)


def _read_sentences(path: Path, problems: Problems) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    for number, line in read_lines(path, problems):
        halves = line.split("|||") if "|||" in line else line.split("\t")
        if not line.strip():
            problems.left_out("empty line")
        elif len(halves) != 2 or not all(half.strip() for half in halves):
            problems.bad_row(f"{path}:{number}", "malformed row", "expected 'source ||| target', both with words.")
        else:
            source, target = (tuple(split(half)) for half in halves)
            yield number, source, target


def _read_links(path: Path) -> list[list[tuple[int, str, int]]]:
    """Gold must be right as a whole: a bad link is an error, whatever the policy for rows of a corpus."""
    lines: list[list[tuple[int, str, int]]] = []
    for number, line in read_lines(path, Problems("refuse")):
        links: list[tuple[int, str, int]] = []
        for word in split(line):
            match = _LINK.fullmatch(word)
            if match is None:
                raise CorpusError(
                    f"{path}:{number}: {word!r:.40} is not a link such as 3-4 (sure), 3p4 or 3?4 (possible)."
                )
            links.append((int(match[1]), match[2], int(match[3])))
        lines.append(links)
    return lines


def _base(
    pairs: Sequence[tuple[int, tuple[str, ...], tuple[str, ...]]],
    links: list[list[tuple[int, str, int]]],
    stated: Base,
    gold: Path,
) -> int:
    if stated != "detect":
        return int(stated)
    zero = any(0 in (source, target) for line in links for source, _, target in line)
    full = any(
        source == len(left) or target == len(right)
        for number, left, right in pairs
        for source, _, target in links[number - 1]
    )
    if zero == full:
        evidence = (
            "both an index 0 and one equal to a sentence's length" if zero else "neither an index 0 nor a full one"
        )
        raise CorpusError(f"{str(gold)!r} may count from 0 or from 1: it has {evidence}. Specify it (--gold-base).")
    return 0 if zero else 1


def _gold(links: list[tuple[int, str, int]], first: int) -> Gold:
    def links_of(kinds: str) -> frozenset[Link]:
        return frozenset((source - first, target - first) for source, kind, target in links if kind in kinds)

    return Gold(sure=links_of("-"), possible=links_of("-p?"))


def _outside(gold: Gold, source: int, target: int) -> bool:
    return any(not (0 <= s < source and 0 <= t < target) for s, t in gold.possible)
