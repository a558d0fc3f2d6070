"""Rows with named columns: JSONL, CSV, TSV and Parquet. One column holds the text, another may hold the second of a pair; or
the rows are token ids already."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from normscope.corpora.record import ID_COLUMNS, INPUT_IDS, CorpusError, Problems, Record
from normscope.corpora.text import check_file, read_lines, read_separated_rows
from normscope.errors import listing, require_extra

_USUAL = ("text", "sentence", "sentence1", "premise", "content")


def read_jsonl(path: Path, problems: Problems, field: str | None, pair_field: str | None) -> Iterator[Record]:
    return records_of(read_jsonl_rows(path, problems), problems, field, pair_field)


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


def read_separated(
    path: Path, problems: Problems, field: str | None, pair_field: str | None, separator: str
) -> Iterator[Record]:
    """CSV or TSV with a header row."""

    def rows() -> Iterator[tuple[str, object]]:
        read = read_separated_rows(path, problems, separator)
        _, header = next(read, ("", []))
        if not header:
            raise CorpusError(f"{str(path)!r} is empty: expected a header row that names the columns.")
        check_unique(header, [field or _usual(header), pair_field], path)
        for where, values in read:
            if not values:
                problems.left_out("empty line")
            elif len(values) != len(header):
                what = f"{len(values)} columns, but the header has {len(header)}."
                problems.bad_row(where, "malformed row", what)
            else:
                yield where, dict(zip(header, values, strict=True))

    return records_of(rows(), problems, field, pair_field)


def read_parquet(path: Path, problems: Problems, field: str | None, pair_field: str | None) -> Iterator[Record]:
    def wanted(names: list[str]) -> list[str]:
        if _are_ids(names, field):
            return [name for name in ID_COLUMNS if name in names]
        return [_field(names, field, str(path)), *([_field(names, pair_field, str(path))] if pair_field else [])]

    return records_of(read_parquet_rows(path, problems, wanted), problems, field, pair_field)


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


def records_of(
    rows: Iterable[tuple[str, Any]], problems: Problems, field: str | None, pair_field: str | None
) -> Iterator[Record]:
    for where, row in rows:
        if not isinstance(row, Mapping):
            problems.bad_row(where, "malformed row", f"expected named fields, found a {type(row).__name__}.")
            continue
        if _are_ids(row, field):
            yield Record(where, ids={name: row[name] for name in ID_COLUMNS if name in row})
            continue
        column = field or _usual(row)
        if column is None or column not in row or (pair_field is not None and pair_field not in row):
            wanted = listing(name for name in (field or "text", pair_field) if name)
            problems.bad_row(where, "malformed row", f"no field {wanted}; its fields: {listing(row)}.")
            continue
        text, second = row[column], row[pair_field] if pair_field else None
        if not isinstance(text, str) or not (second is None or isinstance(second, str)):
            problems.bad_row(where, "malformed row", f"field {column!r} is not a text.")
        elif not text.strip() or (second is not None and not second.strip()):
            problems.left_out("empty text")
        else:
            yield Record(where, text=text.strip() if second is None else (text.strip(), second.strip()))


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
