"""Questions about sentences: JSONL with the fields `sentences`, `question`, `answer` and `evidence`.

`evidence` has the indices (from 0) of the sentences that contain the answer, and is empty if none does. `set` names
the set that a row belongs to; without it, this is the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from normscope.corpora.columns import read_jsonl_rows
from normscope.corpora.record import AskedSentences, Problems, Record

FEWEST = 2
"""The fewest sentences of a row: with one there is nothing to rank."""


def read_answers(path: Path, problems: Problems) -> Iterator[Record]:
    """The rows of a file, in order."""
    for where, row in read_jsonl_rows(path, problems):
        try:
            asked = asked_sentences(row, path.stem)
        except ValueError as error:
            problems.bad_row(where, "malformed row", str(error))
        else:
            yield Record(where, asked=asked)


def asked_sentences(row: object, collection: str) -> AskedSentences:
    """The question of a row. Raises `ValueError` with what is wrong with it."""
    if not isinstance(row, Mapping):
        raise ValueError(f"expected named fields, found a {type(row).__name__}.")
    fields = cast("Mapping[str, Any]", row)
    sentences, evidence = fields.get("sentences"), fields.get("evidence")
    if not isinstance(sentences, list) or not all(_is_filled(each) for each in cast("list[object]", sentences)):
        raise ValueError("the field 'sentences' is not a list of texts.")
    stripped = tuple(each.strip() for each in cast("list[str]", sentences))
    if len(stripped) < FEWEST:
        raise ValueError(f"there are {len(stripped)} sentences: with fewer than {FEWEST} there is nothing to rank.")
    question, answer = fields.get("question"), fields.get("answer")
    if not _is_filled(question) or not _is_filled(answer):
        raise ValueError("the field 'question' or 'answer' is not a text.")
    if not isinstance(evidence, list) or not all(
        _is_place(each, len(stripped)) for each in cast("list[object]", evidence)
    ):
        raise ValueError(f"the field 'evidence' is not a list of indices from 0 to {len(stripped) - 1}.")
    collection = str(fields.get("set") or collection)
    return AskedSentences(collection, stripped, str(question).strip(), str(answer).strip(), tuple(evidence))


def _is_filled(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_place(value: object, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
