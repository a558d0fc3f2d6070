"""The tokenized corpus on disk during a run: read and tokenized once, then read shard by shard.

Items are stored as plain JSON, without pickles. The file has no name, so nothing of it remains however the run ends.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from normscope.corpora.item import EvidenceTokens, Item
from normscope.corpora.record import AskedSentences, Gold, TextPair
from normscope.errors import FileError
from normscope.inputs import TokenSequence


def to_json(item: Item) -> dict[str, object]:
    """The item as dictionaries, lists, numbers and texts."""
    return {
        "number": item.number,
        "where": item.where,
        "sequence": _sequence(item.sequence),
        "entities": _numbers(item.entities),
        "target": None if item.target is None else _sequence(item.target),
        "source_words": _numbers(item.source_words),
        "target_words": _numbers(item.target_words),
        "gold": None if item.gold is None else [sorted(item.gold.sure), sorted(item.gold.possible)],
        "evidence": None if item.evidence is None else asdict(item.evidence),
        "compared": None if item.compared is None else asdict(item.compared),
        "asked": None if item.asked is None else asdict(item.asked),
        "label": item.label,
    }


def from_json(value: dict[str, Any]) -> Item:
    """The inverse of `to_json`."""
    return Item(
        number=value["number"],
        where=value["where"],
        sequence=_read(value["sequence"]),
        entities=_array(value["entities"]),
        target=None if value["target"] is None else _read(value["target"]),
        source_words=_array(value["source_words"]),
        target_words=_array(value["target_words"]),
        gold=None if value["gold"] is None else _gold(*value["gold"]),
        evidence=None if value["evidence"] is None else _evidence(**value["evidence"]),
        compared=None if value["compared"] is None else _compared(**value["compared"]),
        asked=None if value["asked"] is None else _asked(**value["asked"]),
        label=tuple(value["label"]) if isinstance(value["label"], list) else value["label"],
    )


def _sequence(sequence: TokenSequence) -> dict[str, object]:
    return {
        "features": sequence.features,
        "tokens": sequence.tokens,
        "special": sequence.special,
        "word_ids": sequence.word_ids,
        "words": sequence.words,
        "text": sequence.text,
        "segments": sequence.segments,
        "offsets": sequence.offsets,
        "turns": sequence.turns,
    }


def _read(value: dict[str, Any]) -> TokenSequence:
    offsets: list[list[int]] | None = value.pop("offsets")
    return TokenSequence(**value, offsets=None if offsets is None else [(start, end) for start, end in offsets])


def _evidence(collection: str, good: int, bad: int, places: list[int]) -> EvidenceTokens:
    return EvidenceTokens(collection, good, bad, tuple(places))


def _compared(first: str, second: str, score: float | None, links: list[list[list[int]]] | None) -> TextPair:
    made = None if links is None else tuple((tuple(left), tuple(right)) for left, right in links)
    return TextPair(first, second, score, made)


def _asked(collection: str, sentences: list[str], question: str, answer: str, evidence: list[int]) -> AskedSentences:
    return AskedSentences(collection, tuple(sentences), question, answer, tuple(evidence))


def _gold(sure: list[list[int]], possible: list[list[int]]) -> Gold:
    return Gold(frozenset((s, t) for s, t in sure), frozenset((s, t) for s, t in possible))


def _numbers(array: np.ndarray | None) -> list[int] | None:
    return None if array is None else array.tolist()


def _array(numbers: list[int] | None) -> np.ndarray | None:
    return None if numbers is None else np.array(numbers, np.int64)


# ---- The spool -------------------------------------------------------------------------------------------------------
#
# Each shard is a compressed block of JSON, after a checksum of the block and of its index.

_CHECKED = 16
"""Bytes of a checksum."""


@dataclass(frozen=True)
class Shard:
    """A fixed range of the corpus: its index, and its sequences."""

    index: int
    items: list[Item]


class Spool:
    """The sequences of a corpus, in shards. Made by `spooled`."""

    def __init__(self, file: IO[bytes], shard_size: int) -> None:
        self._file, self._shard_size = file, shard_size
        self._starts: list[int] = [0]
        self._digest = hashlib.sha256()
        self.sequences = self.tokens = self.longest = 0

    def fill(self, items: Iterable[Item]) -> None:
        """Store all sequences."""
        remaining = iter(items)
        while shard := list(islice(remaining, min(self._shard_size, sys.maxsize))):
            for item in shard:
                self.sequences += 1
                self.tokens += item.length
                self.longest = max(self.longest, item.length)
                self._digest.update(_token_ids(item).encode())
            block = zlib.compress(json.dumps([to_json(item) for item in shard]).encode(), 1)
            try:
                self._file.write(_checksum(self.shard_count, block) + block)
                self._file.flush()
            except OSError as error:
                raise FileError(f"The tokenized corpus cannot be written: {error.strerror or error}.") from error
            self._starts.append(self._file.tell())

    @property
    def fingerprint(self) -> str:
        """A hash of all token ids."""
        return self._digest.hexdigest()[:16] if self.sequences else ""

    @property
    def shard_count(self) -> int:
        return len(self._starts) - 1

    def sequences_of(self, index: int) -> int:
        """The number of sequences of a shard."""
        return min(self._shard_size, self.sequences - index * self._shard_size)

    def shards(self, wanted: Callable[[int], bool]) -> Iterator[Shard]:
        """The wanted shards in order, read lazily."""
        for index, (start, end) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            if wanted(index):
                block = zlib.decompress(self._block(index, start, end))
                yield Shard(index, [from_json(value) for value in json.loads(block)])

    def _block(self, index: int, start: int, end: int) -> bytes:
        try:
            self._file.seek(start)
            content = self._file.read(end - start)
        except OSError as error:
            raise FileError(f"The tokenized corpus cannot be read again: {error.strerror or error}.") from error
        noted, block = content[:_CHECKED], content[_CHECKED:]
        if _checksum(index, block) != noted:
            raise FileError(
                f"The tokenized corpus was damaged on disk while the run needed it (shard {index}). Run the same command "
                f"again."
            )
        return block


@contextmanager
def spooled(folder: Path, shard_size: int) -> Generator[Spool]:
    """An empty spool, kept in a nameless file on the disk of the folder."""
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed below)
    except OSError as error:
        raise FileError(f"The folder {str(folder)!r} cannot be written: {error.strerror or error}.") from error
    try:
        yield Spool(file, shard_size)
    finally:
        file.close()


def _checksum(index: int, block: bytes) -> bytes:
    return hashlib.blake2b(index.to_bytes(8) + block, digest_size=_CHECKED).digest()


def _token_ids(item: Item) -> str:
    ids = [item.token_ids, *([] if item.target is None else [item.target.features["input_ids"]])]
    labels = [] if item.label is None else [item.label]
    return repr([*(list(map(int, sequence)) for sequence in ids), *labels])
