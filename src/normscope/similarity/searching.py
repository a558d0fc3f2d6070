"""The passages most similar to a query, of any number of them: embedded in batches, of which only the best are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice

from normscope.errors import InputError
from normscope.inputs import ImageInput
from normscope.similarity.comparing import Comparison, Tell
from normscope.similarity.encoders import InputReader
from normscope.similarity.texts import TextInput

TextOrImage = str | ImageInput

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
    reader: InputReader,
    query: TextInput,
    passages: Iterable[TextOrImage],
    top: int,
    prompt: str | None = None,
    tell: Tell | None = None,
) -> list[Hit]:
    """The `top` passages, best first. Only these, and one batch of all others, are in memory at a time."""
    (own,) = comparison.encoders.embeddings([query])
    best: list[Hit] = []
    index = 0
    for texts in _chunks(passages):
        if tell is not None:
            tell(index, index + len(texts))
        read = [reader.read(text, "document" if query.task == "query" else None, prompt) for text in texts]
        others = comparison.encoders.embeddings(read)
        hits = [
            Hit(index + number, comparison.value(own, other, query, text), text)
            for number, (other, text) in enumerate(zip(others, read, strict=True))
        ]
        best = nlargest(top, [*best, *hits], key=lambda hit: hit.value)
        index += len(texts)
    if not best:
        raise InputError("The corpus is empty: it has no passage to search in.")
    return best


def _chunks(passages: Iterable[TextOrImage]) -> Iterator[Sequence[TextOrImage]]:
    remaining = iter(passages)
    while chunk := list(islice(remaining, _AT_ONCE)):
        yield chunk
