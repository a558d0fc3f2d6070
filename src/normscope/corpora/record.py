"""One row of a corpus as a reader gives it, before any tokenizer has seen it."""

from __future__ import annotations

from dataclasses import dataclass

Link = tuple[int, int]
"""A source word and a target word, both from 0."""


@dataclass(frozen=True)
class Gold:
    """The gold alignment of a sentence pair: sure links, and possible ones, which include the sure."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class Evidence:
    """What goes on after a text: a good word, a bad one, and the words of the text that tell them apart.

    `collection` is the set of such rows that this one belongs to.
    """

    collection: str
    good: str
    bad: str
    words: str


@dataclass(frozen=True)
class Record:
    """One sequence. `text` may be a pair; or there are `words` (with the number of the entity of each, -1 outside, or with
    the words of the other language and gold links), or `tokens` that a tokenizer has already made."""

    where: str
    text: str | tuple[str, str] | None = None
    words: tuple[str, ...] | None = None
    entities: tuple[int, ...] | None = None
    tokens: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None
    gold: Gold | None = None
    evidence: Evidence | None = None
