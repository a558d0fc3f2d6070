"""Rows with named columns: JSONL, CSV, TSV and Parquet. One column holds the text, another may hold the second of a pair; or
the rows are token ids already."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from normscope.corpora.record import ID_COLUMNS, INPUT_IDS, CorpusError, Label, Problems, Record
from normscope.corpora.text import check_file, read_lines, read_separated_rows
from normscope.errors import InputError, listing, require_extra
from normscope.options import is_whole, whole_number

_USUAL = ("text", "sentence", "sentence1", "premise", "content", "messages")


@dataclass(frozen=True)
class Columns:
    """The columns that are read: of the text, of the second of a pair, and of what is explained, where they are named."""

    text: str | None = None
    pair: str | None = None
    target: str | None = None


def read_jsonl(path: Path, problems: Problems, columns: Columns) -> Iterator[Record]:
    return records_of(read_jsonl_rows(path, problems), problems, columns)


def read_jsonl_rows(path: Path, problems: Problems) -> Iterator[tuple[str, object]]:
    """The values of the lines of a file, each with its position."""
    for number, line in read_lines(path, problems):
        where = f"{path}:{number}"
        if not line.strip():
            problems.left_out("empty line")
            continue
        try:
            row = json.loads(line, object_pairs_hook=_named_once)
        except (ValueError, RecursionError) as error:
            problems.bad_row(where, "malformed row", f"not JSON ({error}).")
        else:
            yield where, row


def read_separated(path: Path, problems: Problems, columns: Columns, separator: str) -> Iterator[Record]:
    """CSV or TSV with a header row."""

    def rows() -> Iterator[tuple[str, object]]:
        read = read_separated_rows(path, problems, separator)
        _, header = next(read, ("", []))
        if not header:
            raise CorpusError(f"{str(path)!r} is empty: expected a header row that names the columns.")
        check_unique(header, [columns.text or _usual(header), columns.pair, columns.target], path)
        _check_target(header, columns, path)
        for where, values in read:
            if not values:
                problems.left_out("empty line")
            elif len(values) != len(header):
                what = f"{len(values)} columns, but the header has {len(header)}."
                problems.bad_row(where, "malformed row", what)
            else:
                yield where, dict(zip(header, values, strict=True))

    return records_of(rows(), problems, columns)


def read_parquet(path: Path, problems: Problems, columns: Columns) -> Iterator[Record]:
    def wanted(names: list[str]) -> list[str]:
        _check_target(names, columns, path)
        others = [name for name in (columns.pair, columns.target) if name is not None]
        if _are_ids(names, columns.text):
            return [*(name for name in ID_COLUMNS if name in names and name not in others), *others]
        return [_field(names, columns.text, str(path)), *(_field(names, name, str(path)) for name in others)]

    return records_of(read_parquet_rows(path, problems, wanted), problems, columns)


def read_parquet_rows(
    path: Path, problems: Problems, wanted: Callable[[list[str]], list[str]]
) -> Iterator[tuple[str, dict[str, object]]]:
    """The rows of a Parquet file, each with its position; `wanted` chooses columns among the names of all."""
    require_extra("corpus", "Reading a Parquet file", "pyarrow")
    import pyarrow as pa  # noqa: PLC0415  (an extra, large, and for this format alone)
    import pyarrow.parquet as pq  # noqa: PLC0415

    check_file(path)
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{str(path)!r} is not a Parquet file that can be read: {error}") from error
    names = file.schema_arrow.names
    columns = wanted(names)
    check_unique(names, columns, path)

    def rows() -> Iterator[tuple[str, dict[str, object]]]:
        number = 0
        try:
            for batch in file.iter_batches(columns=columns):
                for index in range(batch.num_rows):
                    number += 1
                    try:
                        row = {name: batch.column(name)[index].as_py() for name in columns}
                    except UnicodeDecodeError as error:
                        problems.bad_row(f"{path}:{number}", "not UTF-8", f"a text is not UTF-8 ({error.reason}).")
                    else:
                        yield f"{path}:{number}", row
        except (pa.ArrowException, OSError, KeyError) as error:
            raise CorpusError(f"{str(path)!r} breaks off after row {number}: {error}") from error

    return rows()


def records_of(rows: Iterable[tuple[str, Any]], problems: Problems, columns: Columns) -> Iterator[Record]:
    for where, row in rows:
        if not isinstance(row, Mapping):
            problems.bad_row(where, "malformed row", f"expected named fields, found a {type(row).__name__}.")
            continue
        record = _record(where, row, problems, columns)
        if record is None:
            continue
        if columns.target is None:
            yield record
            continue
        label = _label(row, columns.target)
        if isinstance(label, _NoLabel):
            problems.bad_row(where, "no target", label.why)
        else:
            yield replace(record, label=label)


def _record(where: str, row: Mapping[str, Any], problems: Problems, columns: Columns) -> Record | None:
    """The text, the pair or the ids of a row; `None` where there is none, which is noted."""
    field, pair_field = columns.text, columns.pair
    if _are_ids(row, field):
        return Record(where, ids={name: row[name] for name in ID_COLUMNS if name in row})
    column = field or _usual(row)
    if column is None or column not in row or (pair_field is not None and pair_field not in row):
        wanted = listing(name for name in (field or "text", pair_field) if name)
        problems.bad_row(where, "malformed row", f"no field {wanted}; its fields: {listing(row)}.")
        return None
    text, second = row[column], row[pair_field] if pair_field else None
    if isinstance(text, list) and second is None:
        return _chat(where, cast("list[object]", text), problems)
    if not isinstance(text, str) or not (second is None or isinstance(second, str)):
        problems.bad_row(where, "malformed row", f"field {column!r} is not a text.")
    elif not text.strip() or (second is not None and not second.strip()):
        problems.left_out("empty text")
    else:
        return Record(where, text=text.strip() if second is None else (text.strip(), second.strip()))
    return None


def _chat(where: str, messages: list[object], problems: Problems) -> Record | None:
    """A row whose text is the messages of a chat."""
    from normscope.inputs.prompt import read_messages  # noqa: PLC0415  (which imports transformers)

    try:
        turns = read_messages(cast("Any", messages))
    except InputError as error:
        problems.bad_row(where, "malformed row", str(error))
        return None
    return Record(where, messages=tuple({"role": role, "content": content} for role, content in turns))


@dataclass(frozen=True)
class _NoLabel:
    """Why a row does not say what is to be explained of it."""

    why: str


def _label(row: Mapping[str, Any], name: str) -> Label | _NoLabel:
    """What a row says is to be explained of it: a text, a whole number, or a list of them."""
    if name not in row:
        return _NoLabel(f"no field {name}, which says what is explained; its fields: {listing(row)}.")
    value = row[name]
    if isinstance(value, str):
        return value or _NoLabel(f"field {name!r}, which says what is explained, is empty.")
    if isinstance(value, float) and value.is_integer():  # a column of whole numbers some of which are missing
        value = int(value)
    if is_whole(value):
        return whole_number(value, name)
    numbers = cast("Sequence[object]", value) if isinstance(value, Sequence) else ()
    if numbers and all(map(is_whole, numbers)):
        return tuple(whole_number(number, name) for number in numbers)
    return _NoLabel(
        f"field {name!r}, which says what is explained, is {value!r:.40}: no text, number or list of token ids."
    )


def _check_target(names: Sequence[str], columns: Columns, path: Path) -> None:
    if columns.target is not None and columns.target not in names:
        raise CorpusError(
            f"{str(path)!r} has no column {columns.target!r} that says what is explained (--target-column). Its columns: "
            f"{listing(names)}."
        )


def check_unique(names: Iterable[str], wanted: Iterable[str | None], path: Path) -> None:
    """Raise if a column that is read has the same name as another."""
    given = list(names)
    for name in wanted:
        if name is not None and given.count(name) > 1:
            raise CorpusError(f"{str(path)!r} has {given.count(name)} columns {name!r}. Rename all but one.")


def _named_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The fields of a JSON row; raises for a name that occurs twice, of which `json` would keep the last."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has two fields {next(name for name in names if names.count(name) > 1)!r}")
    return row


def _are_ids(names: Iterable[str], field: str | None) -> bool:
    """Whether rows with these columns are read as token ids: if requested, or if there is no text."""
    names = list(names)
    return INPUT_IDS in names and (field == INPUT_IDS or (field is None and _usual(names) is None))


def _usual(row: Iterable[str]) -> str | None:
    names = list(row)
    return next((name for name in _USUAL if name in names), None)


def _field(names: list[str], field: str | None, where: str) -> str:
    column = field if field in names else None if field else _usual(names)
    if column is None:
        raise CorpusError(
            f"{where!r} has no column {field or 'text'!r}. Its columns: {listing(names)}. Name one (--field)."
        )
    return column
