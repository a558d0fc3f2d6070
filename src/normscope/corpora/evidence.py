"""Rows of prefix, good word, bad word and evidence: a CSV (or TSV) file, or a folder of them, each a set of its own.

The sets of a folder are read in turn, row by row, so that a limit takes about as many rows of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, cast

from normscope.corpora.columns import check_unique
from normscope.corpora.record import CorpusError, Evidence, EvidenceTokens, Problems, Record
from normscope.corpora.text import read_separated_rows
from normscope.errors import listing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_COLUMNS = ("prefix", "good", "bad", "evidence")
_SUFFIXES = (".csv", ".tsv")


def evidence_files(path: Path) -> list[Path]:
    """The file itself, or the CSV and TSV files of a folder, by their names."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in _SUFFIXES)
    if not files:
        raise CorpusError(f"The folder {str(path)!r} has no CSV or TSV file with the columns {listing(_COLUMNS)}.")
    return files


def read_evidence(path: Path, problems: Problems) -> Iterator[Record]:
    """The rows of every set, in turn."""
    turns = zip_longest(*(_read_set(file, problems) for file in evidence_files(path)))
    return (record for record in chain.from_iterable(turns) if record is not None)


def _read_set(path: Path, problems: Problems) -> Iterator[Record]:
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = read_separated_rows(path, problems, separator)
    _, header = next(rows, ("", []))
    lacking = [name for name in _COLUMNS if name not in header]
    if lacking:
        raise CorpusError(f"{str(path)!r} has no column {listing(lacking)}. Its columns: {listing(header) or 'none'}.")
    check_unique(header, _COLUMNS, path)
    for where, values in rows:
        row = dict(zip(header, values, strict=False))
        prefix, *words = (row.get(name, "").strip() for name in _COLUMNS)
        if not values:
            problems.left_out("empty line")
        elif len(values) > len(header):
            problems.bad_row(where, "malformed row", f"{len(values)} columns, but the header has {len(header)}.")
        elif not prefix or not all(words):
            problems.bad_row(where, "malformed row", f"a value of {listing(_COLUMNS)} is empty.")
        else:
            yield Record(where, text=prefix, evidence=Evidence(path.stem, *words))


def context_of(
    tokenizer: PreTrainedTokenizerBase, prefix: str, evidence: Evidence
) -> tuple[list[int], EvidenceTokens] | str:
    """The tokens that prefix and good word share with prefix and bad word, and what comes next; or why there are none."""
    if not tokenizer.is_fast:
        raise CorpusError("Evidence needs a fast tokenizer, which reports the characters that a token covers.")
    good, spans = _continued(tokenizer, prefix, evidence.good)
    bad, _ = _continued(tokenizer, prefix, evidence.bad)
    length = next((index for index, (a, b) in enumerate(zip(good, bad, strict=False)) if a != b), 0)
    if not length:
        return f"{evidence.good!r} and {evidence.bad!r} do not differ in a token after the text."
    words = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(evidence.words)}(?!\w)", prefix)]
    positions = [
        index
        for index, (start, end) in enumerate(spans[:length])
        if any(start < word_end and word_start < end for word_start, word_end in words)
    ]
    if not positions:
        return f"the evidence {evidence.words!r} is not in the text."
    return good[:length], EvidenceTokens(evidence.collection, good[length], bad[length], tuple(positions))


def _continued(tokenizer: PreTrainedTokenizerBase, prefix: str, word: str) -> tuple[list[int], list[tuple[int, int]]]:
    """The tokens of a text followed by a word, without special ones after it, and the characters of each."""
    encoding: object = tokenizer(f"{prefix} {word}", return_offsets_mapping=True, return_special_tokens_mask=True)
    ids, special = list(cast("list[int]", encoding["input_ids"])), list(encoding["special_tokens_mask"])
    spans = [(int(start), int(end)) for start, end in encoding["offset_mapping"]]
    while special and special[-1]:
        special.pop()
    return ids[: len(special)], spans[: len(special)]
