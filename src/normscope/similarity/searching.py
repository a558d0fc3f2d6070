"""The passages most similar to a query, of any number of them: embedded in batches, of which only the best are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice

from normscope.errors import InputError
from normscope.similarity.comparing import Comparison, Tell
from normscope.similarity.plain import embeddings
from normscope.similarity.texts import TextInput, TextReader

_AT_ONCE = 512
"""Passages that are read and embedded together."""


@dataclass(frozen=True)
class Hit:
    """A passage among the best: its index in the corpus, from 0, and how similar it is to the query."""

    place: int
    value: float
    text: TextInput


def best_passages(
    comparison: Comparison,
    reader: TextReader,
    query: TextInput,
    passages: Iterable[str],
    top: int,
    prompt: str | None = None,
    tell: Tell | None = None,
) -> list[Hit]:
    """The `top` passages, best first. Only these, and one batch of all others, are in memory at a time."""
    (own,) = embeddings(comparison.model, comparison.spec, [query])
    best: list[Hit] = []
    place = 0
    for texts in _chunks(passages):
        if tell is not None:
            tell(place, place + len(texts))
        read = [reader.read(text, "document" if query.task == "query" else None, prompt) for text in texts]
        others = embeddings(comparison.model, comparison.spec, read)
        hits = [
            Hit(place + number, comparison.value(own, other, query, text), text)
            for number, (other, text) in enumerate(zip(others, read, strict=True))
        ]
        best = nlargest(top, [*best, *hits], key=lambda hit: hit.value)
        place += len(texts)
    if not best:
        raise InputError("The corpus is empty: it has no passage to search in.")
    return best


def _chunks(passages: Iterable[str]) -> Iterator[Sequence[str]]:
    remaining = iter(passages)
    while chunk := list(islice(remaining, _AT_ONCE)):
        yield chunk
