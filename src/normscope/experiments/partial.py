"""Partial results: what a sequence adds to an experiment, and how two such contributions become one.

Three kinds of content cover every experiment: moments (exact sums), counts (whole numbers) and rows (a bag of table rows).
Merging is associative and commutative; whoever uses rows puts them in order first. No files and no processes here: a chunk
of rows may *lie* in a Parquet file, which only DuckDB reads, out of core.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

import duckdb
import numpy as np
import pyarrow as pa

from normscope.errors import FileError
from normscope.experiments.arrow import Table
from normscope.experiments.exact import Moments

_MEMORY, _THREADS = "1GB", 4
"""What DuckDB may take, whatever the number of rows: beyond that it works on disk. Each thread needs its share."""

_PATTERN = re.compile(r"[*?\[]")

_Content = TypeVar("_Content", Moments, np.ndarray, "Rows")


@dataclass(frozen=True)
class Rows:
    """A bag of rows of one schema. With `keys`, rows of equal keys may be replaced by one: the sum of all other columns."""

    chunks: tuple[Table | Path, ...]
    keys: tuple[str, ...] = ()

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.chunks + other.chunks, self.keys)

    def compacted(self) -> Table:
        """The rows in memory as one table, those of equal keys summed (whole numbers, so exactly)."""
        table = pa.concat_tables([chunk for chunk in self.chunks if isinstance(chunk, pa.Table)])
        if not self.keys:
            return table.combine_chunks()
        summed = [name for name in table.column_names if name not in self.keys]
        grouped = table.group_by(list(self.keys), use_threads=False).aggregate([(name, "sum") for name in summed])
        return grouped.rename_columns([name.removesuffix("_sum") for name in grouped.column_names]).select(
            table.column_names
        )

    @contextmanager
    def database(self, name: str = "rows") -> Generator[duckdb.DuckDBPyConnection]:
        """A DuckDB connection with a view of all rows, which works on disk when they do not fit into memory."""
        with TemporaryDirectory(prefix="normscope-") as scratch:
            try:
                with duckdb.connect(str(Path(scratch) / "rows.duckdb")) as connection:
                    connection.execute(f"SET temp_directory = '{_quoted(scratch)}'")
                    connection.execute(f"SET memory_limit = '{_MEMORY}'")
                    connection.execute(f"SET threads = {min(_THREADS, os.cpu_count() or 1)}")
                    connection.execute(f"CREATE VIEW {name} AS {self._union(connection)}")
                    yield connection
            except (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.FatalException) as error:
                raise FileError(
                    f"The rows of a run cannot be added up in {scratch!r}: {error} Make room there, or name a larger "
                    f"disk in the environment variable TMPDIR. What is finished is kept."
                ) from error

    def _union(self, connection: duckdb.DuckDBPyConnection) -> str:
        tables = [chunk for chunk in self.chunks if isinstance(chunk, pa.Table)]
        paths = [chunk for chunk in self.chunks if isinstance(chunk, Path)]
        parts: list[str] = []
        if tables:
            connection.register("in_memory", pa.concat_tables(tables))
            parts.append("SELECT * FROM in_memory")
        if paths:
            listed = ", ".join(f"'{_quoted(_literal(path))}'" for path in paths)
            parts.append(f"SELECT * FROM read_parquet([{listed}], hive_partitioning = false)")
        return " UNION ALL ".join(parts)

    def select(self, sql: str) -> Table:
        """The result of a query on the view `rows`, as an Arrow table."""
        with self.database() as connection:
            return connection.sql(sql).to_arrow_table()


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _literal(path: Path) -> str:
    """A path as a pattern that stands for it alone: a folder `run[1]` would else be that of its neighbour `run1`."""
    return _PATTERN.sub(r"[\g<0>]", str(path))


@dataclass(frozen=True)
class Partial:
    """What some sequences add to an experiment."""

    moments: dict[str, Moments] = field(default_factory=dict)
    counts: dict[str, np.ndarray] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)

    def merge(self, other: Partial) -> Partial:
        """Both together. `a.merge(b)` and `b.merge(a)` finish into the same tables."""
        return Partial(
            {name: _both(self.moments, other.moments, name) for name in _names(self.moments, other.moments)},
            {name: _both(self.counts, other.counts, name) for name in _names(self.counts, other.counts)},
            {name: _both(self.rows, other.rows, name) for name in _names(self.rows, other.rows)},
        )

    def compacted(self) -> Partial:
        """The same with every bag of rows as one table."""
        return Partial(self.moments, self.counts, {k: Rows((v.compacted(),), v.keys) for k, v in self.rows.items()})


def merged(partials: Iterable[Partial]) -> Partial:
    """All together; nothing at all is an empty partial."""
    return reduce(Partial.merge, partials, Partial())


def _names(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    return sorted({*first, *second})


def _both(first: Mapping[str, _Content], second: Mapping[str, _Content], name: str) -> _Content:
    found = [contents[name] for contents in (first, second) if name in contents]
    return found[0] if len(found) == 1 else cast(_Content, found[0] + found[1])
