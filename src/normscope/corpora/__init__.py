"""Corpora: what a sequence is, in each of the formats that people keep texts in, and from there to tokenized items.

Readers give records with their place in the file; the encoder tokenizes them. Rows that cannot be used are noted with file
and line, left out or refused, and counted.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from normscope.corpora.clark import read_clark
from normscope.corpora.columns import read_jsonl, read_parquet, read_separated
from normscope.corpora.conll import read_conll
from normscope.corpora.encode import Encoder, TooLong
from normscope.corpora.huggingface import read_dataset
from normscope.corpora.item import Item, masked
from normscope.corpora.pairs import Base, read_pairs
from normscope.corpora.problems import CorpusError, Policy, Problems
from normscope.corpora.record import Gold, Record
from normscope.corpora.text import read_paragraphs, read_text_lines
from normscope.errors import listing

__all__ = ["Corpus", "CorpusError", "Encoder", "Gold", "Item", "Problems", "Record", "bundled", "masked"]

Format = Literal["auto", "text", "jsonl", "csv", "tsv", "parquet", "conll", "clark", "pairs", "dataset"]
FORMATS: tuple[Format, ...] = ("text", "jsonl", "csv", "tsv", "parquet", "conll", "clark", "pairs", "dataset")
UNITS = ("line", "paragraph", "packed")

_SUFFIXES: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".conll": "conll",
    ".conll03": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".testa": "conll",
    ".testb": "conll",
    ".json": "clark",
    ".pkl": "clark",
    ".pickle": "clark",
    ".src-tgt": "pairs",
    ".pairs": "pairs",
}


def bundled() -> Path:
    """A short public-domain English text that comes with normscope (the opening of Alice's Adventures in Wonderland)."""
    return Path(__file__).parent / "alice.txt"


@dataclass(frozen=True)
class Corpus:
    """Where sequences come from and how they are cut.

    `unit` says what a sequence of a plain text is: a line, a paragraph, or `packed`, everything cut to `max_tokens`.
    `limit` takes the first so many sequences, or, with `shuffle`, as many at random (by the seed), in corpus order.
    """

    path: str
    format: Format = "auto"
    unit: str = "line"
    max_tokens: int = 128
    too_long: TooLong = "truncate"
    bad_rows: Policy = "skip"
    lowercase: bool = False
    limit: int | None = None
    shuffle: bool = False
    seed: int = 0
    field: str | None = None
    pair_field: str | None = None
    word_column: int = 0
    tag_column: int = -1
    gold: str | None = None
    gold_base: Base = "detect"
    split: str = "validation"
    subset: str | None = None
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        for value, choices, what in (
            (self.format, ("auto", *FORMATS), "format"),
            (self.unit, UNITS, "unit"),
            (self.too_long, ("truncate", "skip", "refuse"), "too_long"),
            (self.bad_rows, ("skip", "refuse"), "bad_rows"),
            (self.gold_base, ("detect", "0", "1"), "gold_base"),
        ):
            if value not in choices:
                raise CorpusError(f"{what} is one of {listing(choices)}, not {value!r}.")
        if self.max_tokens < 3 or (self.limit is not None and self.limit < 1):
            raise CorpusError("max_tokens is at least 3, and limit at least 1.")

    @property
    def found_format(self) -> Format:
        """The format, from the name of the file where it is not stated."""
        if self.format != "auto":
            return self.format
        path = Path(self.path)
        if path.is_dir():
            return "dataset"
        found = _SUFFIXES.get(path.suffix.lower())
        if found is None:
            if not path.exists():
                raise CorpusError(f"There is no corpus file {self.path!r}.")
            raise CorpusError(
                f"The format of {self.path!r} does not show in its name. Say which (--format): {listing(FORMATS)}."
            )
        return found

    def records(self, problems: Problems) -> Iterator[Record]:
        """The rows, in order."""
        path = Path(self.path)
        match self.found_format:
            case "text":
                return read_paragraphs(path, problems) if self.unit == "paragraph" else read_text_lines(path, problems)
            case "jsonl":
                return read_jsonl(path, problems, self.field, self.pair_field)
            case "csv" | "tsv" as kind:
                return read_separated(path, problems, self.field, self.pair_field, "," if kind == "csv" else "\t")
            case "parquet":
                return read_parquet(path, problems, self.field, self.pair_field)
            case "conll":
                return read_conll(path, problems, self.word_column, self.tag_column)
            case "clark":
                return read_clark(path, problems, allow_pickle=self.allow_pickle)
            case "pairs":
                return read_pairs(path, problems, None if self.gold is None else Path(self.gold), self.gold_base)
            case "dataset" | "auto":
                return read_dataset(self.path, problems, self.field, self.pair_field, self.split, self.subset)

    def items(self, tokenizer: PreTrainedTokenizerBase | None, problems: Problems) -> Iterator[Item]:
        """The tokenized sequences, in order, numbered from 0."""
        if tokenizer is None:
            raise CorpusError(
                "The model has no tokenizer, so a corpus of texts cannot be read. Name one (--tokenizer)."
            )
        encoder = Encoder(
            tokenizer, problems, max_tokens=self.max_tokens, too_long=self.too_long, lowercase=self.lowercase
        )
        records = self.records(problems)
        items = encoder.packed(records) if self.unit == "packed" else encoder.items(records)
        if self.limit is None:
            return items
        return _sample(items, self.limit, self.seed) if self.shuffle else islice(items, self.limit)

    def fingerprint(self) -> str:
        """A hash of the files' content (of the name, for a dataset)."""
        digest = hashlib.sha256()
        for name in (self.path, self.gold):
            path = Path(name or "")
            if name is not None and path.is_file():
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            else:
                digest.update(repr(name).encode())
        return digest.hexdigest()[:16]

    def settings(self) -> dict[str, Any]:
        return {**asdict(self), "format": self.found_format}


def _sample(items: Iterable[Item], count: int, seed: int) -> Iterator[Item]:
    """`count` items at random, each with equal probability, in their order (reservoir sampling)."""
    chance = random.Random(seed)
    kept: list[Item] = []
    for seen, item in enumerate(items):
        if len(kept) < count:
            kept.append(item)
        elif (place := chance.randrange(seen + 1)) < count:
            kept[place] = item
    return iter(sorted(kept, key=lambda item: item.number))
