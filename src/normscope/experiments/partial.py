"""Partial results of an experiment: what some sequences contribute, and how two contributions are merged.

Three kinds of content cover every experiment: moments (exact sums), counts (whole numbers) and rows (a bag of table rows).
Merging is associative and commutative; experiments sort rows before they use them. Nothing here writes files or starts
processes, but a chunk of rows may be in a Parquet file, which DuckDB reads out of core.
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
from normscope.experiments.tables import Table

_HIGH = 2.0**20
_LOW_BITS = 40
_LOW = 2.0**_LOW_BITS


@dataclass(frozen=True)
class ExactSum:
    """An array of sums that do not depend on the order of adding.

    Numbers are added as integers, so merging is associative to the last bit. A value is held in two whole numbers,
    `value = (high + low / 2**40) / 2**20`: a resolution of 2**-60 and a range of about 8e12 for a sum. That is why a
    resumed, sharded or parallel run has exactly the same tables as an undisturbed one.
    """

    high: np.ndarray
    low: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> ExactSum:
        """The sum over the first axis; missing values (NaN) count as zero."""
        scaled = np.nan_to_num(np.asarray(values, np.float64), nan=0.0) * _HIGH
        high = np.floor(scaled)
        low = np.rint((scaled - high) * _LOW)
        return cls(high.astype(np.int64).sum(0), low.astype(np.int64).sum(0))._carried()

    def _carried(self) -> ExactSum:
        return ExactSum(self.high + (self.low >> _LOW_BITS), self.low & ((1 << _LOW_BITS) - 1))

    def __add__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.high + other.high, self.low + other.low)._carried()

    def value(self) -> np.ndarray:
        return (self.high + self.low / _LOW) / _HIGH


@dataclass(frozen=True)
class Moments:
    """Count, mean, spread and range of many arrays of one shape, element by element; missing values are left out."""

    count: np.ndarray
    total: ExactSum
    squares: ExactSum
    smallest: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """The moments over the first axis."""
        values = np.asarray(values, np.float64)
        there = np.isfinite(values)
        return cls(
            count=there.sum(0).astype(np.int64),
            total=ExactSum.of(np.where(there, values, np.nan)),
            squares=ExactSum.of(np.where(there, values, np.nan) ** 2),
            smallest=np.where(there, values, np.inf).min(0, initial=np.inf),
            largest=np.where(there, values, -np.inf).max(0, initial=-np.inf),
        )

    @classmethod
    def once(cls, values: np.ndarray) -> Moments:
        """The moments of a single array."""
        return cls.of(np.asarray(values)[None])

    def __add__(self, other: Moments) -> Moments:
        if self.count.shape != other.count.shape:
            raise ValueError(f"Moments of shapes {self.count.shape} and {other.count.shape} do not belong together.")
        return Moments(
            self.count + other.count,
            self.total + other.total,
            self.squares + other.squares,
            np.minimum(self.smallest, other.smallest),
            np.maximum(self.largest, other.largest),
        )

    def mean(self) -> np.ndarray:
        """NaN where nothing was counted."""
        return np.divide(self.total.value(), self.count, out=np.full(self.count.shape, np.nan), where=self.count > 0)

    def deviation(self) -> np.ndarray:
        """Standard deviation (dividing by the count)."""
        mean = self.mean()
        square = np.divide(
            self.squares.value(), self.count, out=np.full(self.count.shape, np.nan), where=self.count > 0
        )
        return np.sqrt(np.maximum(square - mean**2, 0.0))

    def standard_error(self) -> np.ndarray:
        """That of the mean, from the deviation of a sample (dividing by the count less one); NaN for fewer than two."""
        spare = np.where(self.count > 1, self.count - 1, 1)
        return np.where(self.count > 1, self.deviation() / np.sqrt(spare), np.nan)

    def minimum(self) -> np.ndarray:
        return np.where(self.count > 0, self.smallest, np.nan)

    def maximum(self) -> np.ndarray:
        return np.where(self.count > 0, self.largest, np.nan)

    def over(self, axis: int) -> Moments:
        """The moments with one axis pooled."""
        return Moments(
            self.count.sum(axis),
            _pool(self.total, axis),
            _pool(self.squares, axis),
            self.smallest.min(axis),
            self.largest.max(axis),
        )

    # ---- as plain arrays, for files ------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "count": self.count,
            "total.high": self.total.high,
            "total.low": self.total.low,
            "squares.high": self.squares.high,
            "squares.low": self.squares.low,
            "smallest": self.smallest,
            "largest": self.largest,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Moments:
        return cls(
            arrays["count"],
            ExactSum(arrays["total.high"], arrays["total.low"]),
            ExactSum(arrays["squares.high"], arrays["squares.low"]),
            arrays["smallest"],
            arrays["largest"],
        )


def _pool(sums: ExactSum, axis: int) -> ExactSum:
    zero = np.zeros((), np.int64)
    return ExactSum(sums.high.sum(axis), sums.low.sum(axis)) + ExactSum(zero, zero)


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
    """The sum of all; without any, an empty partial."""
    return reduce(Partial.merge, partials, Partial())


def _names(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    return sorted({*first, *second})


def _both(first: Mapping[str, _Content], second: Mapping[str, _Content], name: str) -> _Content:
    found = [contents[name] for contents in (first, second) if name in contents]
    return found[0] if len(found) == 1 else cast(_Content, found[0] + found[1])
