"""The pairs of a group and all other pairs, with weights that give both the same token distances.

A pair is one of subword types, with all its occurrences, or a single occurrence. A pair of types belongs to the group if
most of its occurrences do, and its occurrences share its weight of 1 equally. The share of a distance is the weight that
occurrences of this distance have on a side. Those of other pairs are then weighted by the group's share over their own, so
that both sides have the same shares; a distance that only one side has counts on neither.

Sums are of whole numbers, by DuckDB out of core, so that the order of the rows plays no part.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from normscope.experiments.amplification import UNIT
from normscope.experiments.partial import Rows
from normscope.experiments.statistics import Sample
from normscope.experiments.tables import Table

_FINE = 2.0**24
"""Sums of weighted amplifications are kept in finer steps than `UNIT`, since weights may be small."""


@dataclass(frozen=True)
class Matched:
    """Pairs in a database, as long as it is open: both sides with their weights.

    `distances` has for every distance how many occurrences each side has, and how much one of another pair counts.
    `seen_once` is the number of group pairs (of types) that were left out for it, `left_out` that of those at distances
    that no other pair has.
    """

    connection: duckdb.DuckDBPyConnection
    columns: tuple[str, ...]
    distances: Table
    seen_once: int
    left_out: int

    def side(self, *, group: bool) -> Sample:
        """One side, in a fixed order; a row of it is a column of the pairs."""
        return Sample(
            self._column("weight", group) / UNIT,
            lambda row: self._column(self.columns[row], group) / (UNIT * _FINE),
        )

    def _column(self, name: str, group: bool) -> np.ndarray:
        found = self.connection.execute(
            f"SELECT {name}::DOUBLE AS value FROM pairs WHERE member = {group} ORDER BY pair"
        )
        return np.asarray(found.fetchnumpy()["value"])


@contextmanager
def matched(rows: Rows, identity: Sequence[str], columns: Sequence[str], fewest: int) -> Generator[Matched]:
    """The pairs of rows that agree in the columns of their identity, and were seen at least `fewest` times."""
    ids = ", ".join(identity)
    with rows.database() as connection:
        connection.execute(
            f"CREATE TABLE known AS SELECT row_number() OVER (ORDER BY {ids}) AS pair, * FROM (SELECT {ids}, "
            f"sum(occurrences)::BIGINT AS times, 2 * sum(occurrences * in_group::INTEGER) > sum(occurrences) AS member "
            f"FROM rows GROUP BY {ids})"
        )
        sums = ", ".join(f"sum({name})::DOUBLE AS {name}" for name in columns)
        connection.execute(
            f"CREATE TABLE cells AS SELECT pair, member, times, distance, sum(occurrences)::BIGINT AS here, {sums} "
            f"FROM rows JOIN known USING ({ids}) WHERE times >= {fewest} GROUP BY pair, member, times, distance"
        )
        distances = _distances(connection)
        connection.register("weights", distances)
        products = ", ".join(f"sum(round(weight * {name} / times * {_FINE})::HUGEINT) AS {name}" for name in columns)
        connection.execute(
            f"CREATE TABLE pairs AS SELECT pair, member, sum(round(weight * here / times * {UNIT})::HUGEINT) AS weight, "
            f"{products} FROM (SELECT cells.*, CASE WHEN member THEN 1.0 ELSE other_weight END AS weight "
            f"FROM cells JOIN weights USING (distance)) GROUP BY pair, member"
        )
        once = _count(connection, f"known WHERE member AND times < {fewest}")
        left_out = _count(connection, "known WHERE member") - once - _count(connection, "pairs WHERE member")
        yield Matched(connection, tuple(columns), distances, once, left_out)


def _distances(connection: duckdb.DuckDBPyConnection) -> Table:
    """The distances that both sides have: the occurrences of each side, and the weight of another pair's."""
    found = connection.sql(
        f"SELECT distance, sum(here) FILTER (member)::BIGINT AS group_pairs, sum(here) FILTER (NOT member)::BIGINT "
        f"AS other_pairs, sum(round(here / times * {UNIT})::HUGEINT) FILTER (member)::DOUBLE AS group_share, "
        f"sum(round(here / times * {UNIT})::HUGEINT) FILTER (NOT member)::DOUBLE AS other_share FROM cells "
        f"GROUP BY distance HAVING group_share > 0 AND other_share > 0 ORDER BY distance"
    ).to_arrow_table()
    weight = found["group_share"].to_numpy() / found["other_share"].to_numpy()
    return found.select(["distance", "group_pairs", "other_pairs"]).append_column("other_weight", pa.array(weight))


def _count(connection: duckdb.DuckDBPyConnection, rows: str) -> int:
    ((count,),) = connection.execute(f"SELECT count(*) FROM {rows}").fetchall()
    return int(count)
