"""Units of a text: words, lines, sentences and paragraphs, as spans of characters.

Sentences are found by sentencex, which knows abbreviations, quotes and the full stops of some three hundred languages. It
reads running text, so lines are sorted out here first: a list item, a heading and a line of code end with their line, and a
line of prose that was only wrapped does not.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import numpy as np
import sentencex

from normscope.errors import InputError

CharacterSpan = tuple[int, int]
"""Where a unit starts and ends in its text."""

NO_SPAN = -1
"""The span of a token that is in none."""

TextUnit = Literal["word", "line", "sentence", "paragraph"]
"""A unit of running text."""

_WIDE = "\u2e80-\u303f\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60"
"""Chinese and Japanese characters, between which there are no spaces."""

_WORD = re.compile(rf"[{_WIDE}]|[^\s{_WIDE}]+")
_LINE = re.compile(r"[^\n\r]+")
_MARKER = re.compile(r"\s*(?:[-*+\u2022\u2023\u25aa\u2013]|#{1,6}|>+|\(?\w{1,3}[.)])\s+")
"""The start of a list item, a heading or a quotation. A letter or number needs a full stop or a bracket after it."""

_FENCE = re.compile(r"\s*(?:```|~~~)")
_CODE = re.compile(r"\t| {4}|.*[{};]\s*$|\s*(?:def|class|import|from|return|if|for|while|#include|//)\b.*[:();]")
_END = re.compile(r"[.!?:;\u2026\u3002\uff01\uff1f\u0964][\"'\u201d\u2019\u00bb)\]]*\s*$")
_WRAPPED_FROM = 40
"""A line of prose that was wrapped has at least this many characters."""


def units_of(text: str, unit: TextUnit, language: str = "en") -> list[CharacterSpan]:
    """The units of a text in order, without the white space around them. Every other character is in one of them."""
    match unit:
        case "word":
            return [each.span() for each in _WORD.finditer(text)]
        case "line":
            return _lines(text)
        case "paragraph":
            return _paragraphs(text)
        case "sentence":
            return [span for run in _runs(text) for span in _sentences(text, *run, language)]


def _lines(text: str) -> list[CharacterSpan]:
    return [span for each in _LINE.finditer(text) if (span := _trimmed(text, *each.span())) is not None]


def _paragraphs(text: str) -> list[CharacterSpan]:
    """Lines together that no blank line separates."""
    found: list[CharacterSpan] = []
    for start, end in _lines(text):
        if found and not _is_blank_between(text[found[-1][1] : start]):
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found


def _is_blank_between(between: str) -> bool:
    """Whether there is a blank line in the white space between two lines."""
    return between.replace("\r\n", "\n").replace("\r", "\n").count("\n") > 1


def _trimmed(text: str, start: int, end: int) -> CharacterSpan | None:
    """A span without the white space at its ends; nothing of a blank one."""
    inside = text[start:end]
    start += len(inside) - len(inside.lstrip())
    end = start + len(inside.strip())
    return (start, end) if start < end else None


def _runs(text: str) -> Iterator[tuple[int, int, bool]]:
    """Lines, wrapped ones together, and whether each is running text: inside of code a full stop ends nothing."""
    fenced, run = False, None
    for each in _LINE.finditer(text):
        line, (start, end) = each[0], each.span()
        fence = _FENCE.match(line) is not None
        prose = not (fence or fenced or _CODE.match(line))
        fenced ^= fence
        if run is not None and prose and run[2] and _continues(text[run[0] : run[1]], line, text[run[1] : start]):
            run = run[0], end, True
            continue
        if run is not None:
            yield run
        run = start, end, prose
    if run is not None:
        yield run


def _continues(before: str, line: str, between: str) -> bool:
    """Whether a line goes on with the sentence of the lines before it, which were only wrapped."""
    last = before.rsplit("\n", 1)[-1]
    blank = _is_blank_between(between) or not line.strip()
    return not (blank or _MARKER.match(line) or _END.search(last)) and len(last.strip()) >= _WRAPPED_FROM


def _sentences(text: str, start: int, end: int, prose: bool, language: str) -> Iterator[CharacterSpan]:
    if not prose:
        span = _trimmed(text, start, end)
        yield from [span] if span is not None else []
        return
    marker = _MARKER.match(text, start, end)
    begin = start if marker is None else marker.end()
    boundaries = cast(Any, sentencex).get_sentence_boundaries(language, text[begin:end])
    for number, found in enumerate(boundaries):
        first = start if number == 0 else begin + found["start_index"]
        span = _trimmed(text, first, begin + found["end_index"])
        if span is not None:
            yield span


# ---- which unit each token is in ---------------------------------------------------------------------------------------


def span_of_tokens(text: str, offsets: Sequence[CharacterSpan], spans: Sequence[CharacterSpan]) -> np.ndarray:
    """For every token the number of the span that most of its characters are in, or `NO_SPAN`.

    White space counts only for tokens that are nothing else. Spans are in any order, and must not overlap.
    """
    order = sorted(range(len(spans)), key=lambda number: spans[number])
    starts = [spans[number][0] for number in order]
    _check_apart([spans[number] for number in order])
    found = np.full(len(offsets), NO_SPAN)
    for token, offset in enumerate(offsets):
        start, end = _inked(text, *offset)
        most = 0
        for index in range(max(bisect_right(starts, start) - 1, 0), len(order)):
            first, last = spans[order[index]]
            if first >= end:
                break
            overlap = min(last, end) - max(first, start)
            if overlap > most:
                most, found[token] = overlap, order[index]
    return found


def _inked(text: str, start: int, end: int) -> CharacterSpan:
    """The characters of a token without the white space around them, unless it is nothing else."""
    inside = text[start:end]
    if not inside.strip():
        return start, end
    return start + len(inside) - len(inside.lstrip()), start + len(inside.rstrip())


def _check_apart(spans: Sequence[CharacterSpan]) -> None:
    for (start, end), after in zip(spans, [*spans[1:], None], strict=True):
        if end <= start:
            raise InputError(f"A span ends after it starts, and {start} to {end} does not.")
        if after is not None and after[0] < end:
            raise InputError(
                f"The spans {start} to {end} and {after[0]} to {after[1]} overlap, so that their shares would count twice."
            )
