"""One row of a corpus as a reader returns it, before tokenization; and the problems of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from normscope.errors import InputError

_SURROGATE = re.compile("[\ud800-\udfff]")

Message = dict[str, str]
"""One turn of a chat: its `role` and its `content`."""

Label = str | int | tuple[int, ...]
"""What is explained of a text: a word or a label, the number of either, or the token ids of a continuation."""

Link = tuple[int, int]
"""A source word and a target word, both from 0."""


INPUT_IDS = "input_ids"
ID_COLUMNS = (
    INPUT_IDS,
    "attention_mask",
    "token_type_ids",
    "special_tokens_mask",
    "word_ids",
    "tokens",
    "entities",
    "labels",
    "label_word_ids",
    "sure",
    "possible",
)
"""All that a row of token ids may have; other columns are not read."""


def is_text(text: str) -> bool:
    """Whether a string can be written as UTF-8: half of a surrogate pair, which JSON can hold, cannot."""
    return text.isascii() or _SURROGATE.search(text) is None


@dataclass(frozen=True)
class Gold:
    """The gold alignment of a sentence pair: sure links, and possible ones, which include the sure."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class Evidence:
    """Two continuations of a text, a good word and a bad one, and the words of the text that decide between them.

    `collection` is the set of such rows that this one belongs to.
    """

    collection: str
    good: str
    bad: str
    words: str


@dataclass(frozen=True)
class EvidenceTokens:
    """The first tokens in which a good and a bad continuation differ, and the indices of the evidence in the sequence."""

    collection: str
    good: int
    bad: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class TextPair:
    """Two texts to compare, and, if known, how similar people find them, and which of their words belong together.

    A link has the words of the first text and those of the second, both from 0; one side may be empty. Words are separated
    by spaces.
    """

    first: str
    second: str
    score: float | None = None
    links: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] | None = None


@dataclass(frozen=True)
class AskedSentences:
    """A question about sentences, its answer, and the sentences (from 0) that the answer rests on: none, if it is in none.

    `collection` is the set of such rows that this one belongs to.
    """

    collection: str
    sentences: tuple[str, ...]
    question: str
    answer: str
    evidence: tuple[int, ...]


@dataclass(frozen=True)
class Record:
    """One sequence. `text` may be a pair; or there are `words` (with the number of the entity of each, -1 outside, or with
    the words of the other language and gold links), or `tokens` that a tokenizer has already made, or `ids`: a row of token
    ids and its other columns; or the `messages` of a chat. `label` is what is to be explained of it."""

    where: str
    text: str | tuple[str, str] | None = None
    words: tuple[str, ...] | None = None
    entities: tuple[int, ...] | None = None
    tokens: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None
    gold: Gold | None = None
    ids: Mapping[str, object] | None = None
    evidence: Evidence | None = None
    compared: TextPair | None = None
    asked: AskedSentences | None = None
    label: Label | None = None
    messages: tuple[Message, ...] | None = None

    def texts(self) -> Iterator[str]:
        """All texts that will be tokenized."""
        yield from (self.text,) if isinstance(self.text, str) else self.text or ()
        if isinstance(self.label, str):
            yield self.label
        for message in self.messages or ():
            yield message["content"]
        for words in (self.words, self.tokens, self.target):
            yield from words or ()
        if self.evidence is not None:
            yield from (self.evidence.good, self.evidence.bad, self.evidence.words)
        if self.compared is not None:
            yield from (self.compared.first, self.compared.second)
        if self.asked is not None:
            yield from (*self.asked.sentences, self.asked.question, self.asked.answer)


# ---- Problems: rows that cannot be used are recorded with their location, left out or refused, and counted -----------

Policy = Literal["skip", "refuse"]

_SHOWN = 20
"""The number of problems that are kept in full; all are counted."""


class CorpusError(InputError):
    """A corpus, or a row of it, cannot be used."""


@dataclass
class Problems:
    """The problems so far. With the policy `refuse` the first one is an error."""

    policy: Policy = "skip"
    counts: dict[str, int] = field(default_factory=dict[str, int])
    examples: list[str] = field(default_factory=list[str])

    def bad_row(self, where: str, kind: str, what: str) -> None:
        """Record a row that cannot be used."""
        if self.policy == "refuse":
            raise CorpusError(f"{where}: {what} To skip such rows, use bad_rows='skip' (--bad-rows skip).")
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(self.examples) < _SHOWN:
            self.examples.append(f"{where}: {what}")

    def left_out(self, kind: str) -> None:
        """Count a row that is skipped on purpose, such as an empty line; never an error."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
