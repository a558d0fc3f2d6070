"""The corpus of a run: where its sequences come from and how they are cut, with the same options in Python and on the
command line. The readers parse each format, and the encoder tokenizes. Datasets of the Hugging Face hub, or saved to a
folder, need the package `datasets` (an extra)."""

from __future__ import annotations

import hashlib
import importlib
import random
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_args

from normscope.corpora.answers import read_answers
from normscope.corpora.clark import read_clark
from normscope.corpora.columns import Columns, read_jsonl, read_parquet, read_separated, records_of
from normscope.corpora.conll import read_conll
from normscope.corpora.evidence import evidence_files, read_evidence
from normscope.corpora.pairs import Base, read_pairs
from normscope.corpora.record import CorpusError, Label, Policy, Problems, Record
from normscope.corpora.text import read_paragraphs, read_text_lines, read_texts, unreadable
from normscope.corpora.text_pairs import read_text_pairs
from normscope.errors import NormscopeError, listing, require_extra
from normscope.options import Documentation, TooLong, with_documentation

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from normscope.corpora.item import Item


def read_dataset(name: str, problems: Problems, columns: Columns, split: str, subset: str | None) -> Iterator[Record]:
    require_extra("datasets", f"Reading the Hugging Face dataset {name!r}", "datasets")
    datasets = importlib.import_module("datasets")
    try:
        if Path(name).is_dir():
            saved = datasets.load_from_disk(name)
            rows = saved[split] if hasattr(saved, "keys") else saved
        else:
            rows = datasets.load_dataset(name, subset, split=split)
    except Exception as error:  # whatever the package raises
        raise CorpusError(f"The dataset {name!r} (split {split!r}) could not be loaded: {error}") from error
    return records_of(_numbered(rows, f"{name} [{split}]"), problems, columns)


def _numbered(rows: Any, where: str) -> Iterator[tuple[str, object]]:
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            yield f"{where}:{number}", dict(row)
    except NormscopeError:
        raise
    except Exception as error:  # whatever the package raises
        raise CorpusError(f"The dataset {where} breaks off after row {number}: {error}") from error


# ---- The corpus ------------------------------------------------------------------------------------------------------

Format = Literal[
    "auto",
    "text",
    "jsonl",
    "csv",
    "tsv",
    "parquet",
    "conll",
    "clark",
    "pairs",
    "evidence",
    "text-pairs",
    "answers",
    "dataset",
]
Unit = Literal["line", "paragraph", "packed"]

FORMATS: tuple[Format, ...] = get_args(Format)[1:]

IN_MEMORY = "(texts in memory)"

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

_OF_KNOWN_ROWS = {"evidence": read_evidence, "text-pairs": read_text_pairs, "answers": read_answers}
"""Readers of formats whose columns or fields have names of their own."""

_MAY_BE_IDS: tuple[Format, ...] = ("jsonl", "parquet", "dataset")
"""The formats whose rows may be token ids, which need no tokenizer."""

_WITH_COLUMNS: tuple[Format, ...] = ("jsonl", "csv", "tsv", "parquet", "dataset")
"""The formats whose rows have named columns."""

_OF_TEXTS = ("unit", "max_tokens", "too_long", "bad_rows", "limit", "shuffle", "lowercase", "chat")
"""The options that a list of texts has too; the others are about files."""


class CorpusOptions(TypedDict, total=False):
    """The options of a `Corpus`, as keyword arguments; `Corpus` documents them."""

    format: Format
    unit: Unit
    max_tokens: int
    too_long: TooLong
    bad_rows: Policy
    limit: int | None
    shuffle: bool
    lowercase: bool
    chat: bool
    field: str | None
    pair_field: str | None
    target_column: str | None
    word_column: int
    tag_column: int
    gold: str | None
    gold_base: Base
    source_language: str | None
    target_language: str | None
    split: str
    subset: str | None
    allow_pickle: bool


@with_documentation
@dataclass(frozen=True)
class Corpus:
    """Where sequences come from and how they are cut.

    `path` is a file, or the name of a dataset; for `texts` in memory use `Corpus.of_texts`. `seed` is that of the sample
    that `shuffle` draws; the sample stays in the order of the corpus. `labels` say what is explained of each text in memory.

    Examples:
        >>> from normscope.corpora import Corpus, Problems, bundled
        >>> corpus = Corpus(str(bundled()), unit="paragraph")
        >>> len(list(corpus.records(Problems("refuse"))))
        8
    """

    path: str
    format: Annotated[Format, Documentation("Format of the corpus; 'auto' detects it from the name of the file.")] = (
        "auto"
    )
    unit: Annotated[
        Unit,
        Documentation(
            "What a sequence of a plain text is: a line, a paragraph, or, packed, a piece of exactly the maximum number of "
            "tokens."
        ),
    ] = "line"
    max_tokens: Annotated[
        int, Documentation("Maximum number of tokens of a sequence (never more than the model takes).")
    ] = 128
    too_long: Annotated[TooLong, Documentation("What to do with longer sequences.")] = "truncate"
    bad_rows: Annotated[Policy, Documentation("What to do with rows that cannot be read.")] = "skip"
    limit: Annotated[int | None, Documentation("Maximum number of sequences.")] = None
    shuffle: Annotated[bool, Documentation("With a limit, take a random sample instead of the first sequences.")] = (
        False
    )
    chat: Annotated[
        bool,
        Documentation(
            "Lay every text out as the message of a user by the model's chat template. Rows whose text is a list of "
            "messages are chats anyway."
        ),
    ] = False
    lowercase: Annotated[bool, Documentation("Lower-case the text first.")] = False
    field: Annotated[
        str | None, Documentation("Column with the text (JSONL, CSV, TSV, Parquet, datasets), or input_ids.")
    ] = None
    pair_field: Annotated[str | None, Documentation("Column with the second text of a pair.")] = None
    target_column: Annotated[
        str | None,
        Documentation(
            "Explanations: column with what is explained of each text: a word, a label, its number, or token ids."
        ),
    ] = None
    word_column: Annotated[int, Documentation("CoNLL: column of the word, from 0.")] = 0
    tag_column: Annotated[int, Documentation("CoNLL: column of the entity tag, from 0; -1 is the last.")] = -1
    gold: Annotated[str | None, Documentation("File with the gold alignments of sentence pairs.")] = None
    gold_base: Annotated[Base, Documentation("Whether gold links count from 0 or from 1.")] = "detect"
    source_language: Annotated[
        str | None,
        Documentation(
            "Language of the source of sentence pairs, as its tokenizer has it (mBART: de_DE; NLLB: deu_Latn)."
        ),
    ] = None
    target_language: Annotated[str | None, Documentation("Language of the target of sentence pairs.")] = None
    split: Annotated[str, Documentation("Split of a dataset.")] = "validation"
    subset: Annotated[str | None, Documentation("Subset of a dataset.")] = None
    allow_pickle: Annotated[
        bool,
        Documentation("Read a pickled corpus. It can run any code: only if you trust it.", ("--allow-pickle-corpus",)),
    ] = False
    seed: int = 0
    texts: tuple[str, ...] | None = None
    labels: tuple[Label | None, ...] | None = None

    def __post_init__(self) -> None:
        for value, choices, what in (
            (self.format, get_args(Format), "format"),
            (self.unit, get_args(Unit), "unit"),
            (self.too_long, get_args(TooLong), "too_long"),
            (self.bad_rows, get_args(Policy), "bad_rows"),
            (self.gold_base, get_args(Base), "gold_base"),
        ):
            if value not in choices:
                raise CorpusError(f"{what} is one of {listing(choices)}, not {value!r}.")
        if self.max_tokens < 3 or (self.limit is not None and self.limit < 1):
            raise CorpusError("max_tokens is at least 3, and limit at least 1.")
        if self.target_column is not None and self.actual_format not in _WITH_COLUMNS:
            raise CorpusError(
                f"A corpus of the format {self.actual_format!r} has no columns, of which one (--target-column) could say "
                f"what is explained. Formats that have: {listing(_WITH_COLUMNS)}."
            )
        if self.texts is not None:
            self._check_texts(self.texts)

    def _check_texts(self, texts: Sequence[object]) -> None:
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise CorpusError(f"Text {number} of the list is not a text, but {text!r:.60}.")
        if self.format not in ("auto", "text") or self.unit == "paragraph":
            raise CorpusError("Each text of a list is a sequence: its format is text, and its unit line or packed.")
        for option in fields(self):
            about_files = option.name in CorpusOptions.__annotations__ and option.name not in (*_OF_TEXTS, "format")
            if about_files and getattr(self, option.name) != option.default:
                raise CorpusError(
                    f"The option {option.name!r} is for corpus files. Options of a list of texts: {listing(_OF_TEXTS)}."
                )

    @classmethod
    def of(cls, source: str | Path | Corpus | Sequence[str], options: CorpusOptions, *, seed: int = 0) -> Corpus:
        """The corpus that a path, a list of texts or a corpus stands for, with options; raises for unknown options.

        Examples:
            >>> Corpus.of(["A text.", "Another."], {"max_tokens": 64}).max_tokens
            64
        """
        for name in options:
            if name not in CorpusOptions.__annotations__:
                known = listing(CorpusOptions.__annotations__)
                raise CorpusError(f"The corpus has no such option as {name!r}. Its options: {known}.")
        if isinstance(source, Corpus):
            return replace(source, **options)
        if isinstance(source, str | Path):
            return cls(str(source), seed=seed, **options)
        return cls(IN_MEMORY, texts=tuple(source), seed=seed, **options)

    @classmethod
    def of_texts(cls, texts: Sequence[str], options: CorpusOptions | None = None, *, seed: int = 0) -> Corpus:
        """A list of texts, each a sequence (or, with the unit `packed`, all cut to `max_tokens`).

        Examples:
            >>> Corpus.of_texts(["A text.", "Another."]).texts
            ('A text.', 'Another.')
        """
        return cls.of(tuple(texts), options or {}, seed=seed)

    def fitting(self, longest: int | None) -> Corpus:
        """The same corpus for a model whose longest input has this many tokens."""
        return self if longest is None else replace(self, max_tokens=min(longest, self.max_tokens))

    @property
    def actual_format(self) -> Format:
        """The format; if it is not specified, from the name of the file."""
        if self.texts is not None:
            return "text"
        path = Path(self.path)
        try:
            path.exists()
        except OSError as error:  # such as a name that is too long
            raise unreadable(path, error) from error
        if self.format != "auto":
            return self.format
        if path.is_dir():
            return "dataset"
        by_name = _SUFFIXES.get(path.suffix.lower())
        if by_name is None:
            if not path.exists():
                raise CorpusError(f"There is no corpus file {self.path!r}.")
            raise CorpusError(
                f"The format of {self.path!r} is not clear from its name. Specify it (--format): {listing(FORMATS)}."
            )
        return by_name

    def records(self, problems: Problems) -> Iterator[Record]:
        """The rows, in order."""
        if self.texts is not None:
            return read_texts(self.texts, problems, self.labels)
        path, columns = Path(self.path), Columns(self.field, self.pair_field, self.target_column)
        match self.actual_format:
            case "text":
                return read_paragraphs(path, problems) if self.unit == "paragraph" else read_text_lines(path, problems)
            case "jsonl":
                return read_jsonl(path, problems, columns)
            case "csv" | "tsv" as kind:
                return read_separated(path, problems, columns, "," if kind == "csv" else "\t")
            case "parquet":
                return read_parquet(path, problems, columns)
            case "conll":
                return read_conll(path, problems, self.word_column, self.tag_column)
            case "clark":
                return read_clark(path, problems, allow_pickle=self.allow_pickle)
            case "pairs":
                return read_pairs(path, problems, None if self.gold is None else Path(self.gold), self.gold_base)
            case "evidence" | "text-pairs" | "answers" as kind:
                return _OF_KNOWN_ROWS[kind](path, problems)
            case "dataset" | "auto":
                return read_dataset(self.path, problems, columns, self.split, self.subset)

    def items(
        self, tokenizer: PreTrainedTokenizerBase | None, problems: Problems, special_ids: Collection[int] = ()
    ) -> Iterator[Item]:
        """The tokenized sequences, in order, numbered from 0.

        Without a tokenizer they must be token ids; `special_ids` are those of the model's special tokens.
        """
        from normscope.corpora.tokenize import Encoder  # noqa: PLC0415  (which imports transformers)

        encoder = Encoder(
            tokenizer,
            problems,
            max_tokens=self.max_tokens,
            too_long=self.too_long,
            lowercase=self.lowercase,
            special_ids=special_ids,
            languages=(self.source_language, self.target_language),
            chat=self.chat,
        )
        if self.actual_format not in _MAY_BE_IDS:
            encoder.check_tokenizer()
        records = self.records(problems)
        items = encoder.packed(records) if self.unit == "packed" else encoder.items(records)
        if self.limit is None:
            return items
        return _sample(items, self.limit, self.seed) if self.shuffle else islice(items, min(self.limit, sys.maxsize))

    def fingerprint(self) -> str:
        """A hash of the content of files and texts (of the name, for a dataset)."""
        if self.texts is not None:
            return hashlib.sha256("\0".join(self.texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        digest = hashlib.sha256()
        for name in (self.path, self.gold):
            path = Path(name or "")
            if name is not None and path.is_file():
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            elif name == self.path and self.format == "evidence":
                for file in evidence_files(path):
                    digest.update(repr(file.name).encode() + file.read_bytes())
            else:
                digest.update(repr(name).encode())
        return digest.hexdigest()[:16]

    def settings(self) -> dict[str, object]:
        """The options as plain values, with the number of texts instead of the texts."""
        count = None if self.texts is None else len(self.texts)
        return {**asdict(replace(self, texts=None, labels=None)), "format": self.actual_format, "texts": count}


def _sample(items: Iterable[Item], count: int, seed: int) -> Iterator[Item]:
    """`count` items at random, each with equal probability, in their order (reservoir sampling)."""
    chance = random.Random(seed)
    sample: list[Item] = []
    for seen, item in enumerate(items):
        if len(sample) < count:
            sample.append(item)
        elif (index := chance.randrange(seen + 1)) < count:
            sample[index] = item
    return iter(sorted(sample, key=lambda item: item.number))
