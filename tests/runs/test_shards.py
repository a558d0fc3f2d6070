"""Shards on disk: merged pairwise as they come, into the same folders in whatever order, and whole after a kill."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from normscope.errors import FileError
from normscope.experiments.partial import Moments, Partial, Rows, merged
from normscope.runs import shard_files
from normscope.runs.shards import Shards, Span

pytestmark = pytest.mark.usefixtures("empty_pictures")


def partial_of(index: int) -> Partial:
    """What a shard might add: sums, counts, rows that are summed by key, and rows that are not."""
    chance = np.random.default_rng(index)
    pairs = pa.table(
        {
            "query": chance.integers(0, 5, 30),
            "key": [f"type {number}" for number in chance.integers(0, 5, 30)],
            "amount": chance.integers(-(2**50), 2**50, 30),
        }
    )
    occurrences = pa.table({"sequence": np.full(3, index), "position": np.arange(3), "norm": chance.normal(size=3)})
    return Partial(
        {"ratio": Moments.of(chance.normal(size=(4, 3)))},
        {"bins": chance.integers(0, 9, 7)},
        {"pairs": Rows((pairs,), ("query", "key")), "occurrences": Rows((occurrences,))},
    )


def written(folder: Path, order: list[int]) -> Shards:
    shards = Shards(folder)
    shards.prepare("")
    for index in order:
        shards.write(index, {"experiment": partial_of(index)})
    return shards


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def total(shards: Shards) -> Partial:
    return merged(partials["experiment"] for partials in shards.read())


def check_total(partial: Partial, indices: range) -> None:
    """All that a merged partial holds, against the shards' own."""
    expected = merged(map(partial_of, indices))
    for part, array in expected.moments["ratio"].arrays().items():
        assert np.array_equal(partial.moments["ratio"].arrays()[part], array), part
    assert np.array_equal(partial.counts["bins"], expected.counts["bins"])
    for bag, sql in (
        ("pairs", "SELECT query, key, sum(amount) AS amount FROM rows GROUP BY query, key ORDER BY query, key"),
        ("occurrences", "SELECT * FROM rows ORDER BY sequence, position"),
    ):
        assert partial.rows[bag].select(sql).equals(expected.rows[bag].select(sql)), bag


def test_neighbours_merge_as_they_come_and_the_order_leaves_no_trace(tmp_path: Path) -> None:
    forwards = written(tmp_path / "a", [*range(21)])
    mixed = [*range(21)]
    random.Random(3).shuffle(mixed)
    shuffled = written(tmp_path / "b", mixed)
    assert names(tmp_path / "a") == names(tmp_path / "b") == ["000000-000015", "000016-000019", "000020"]
    for name in names(tmp_path / "a"):
        first, second = (tmp_path / each / name / "sums.npz" for each in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()
    for shards in (forwards, shuffled):
        check_total(total(shards), range(21))
        assert all(map(shards.done, range(21))) and not shards.done(21)


def test_only_neighbours_of_the_same_length_merge(tmp_path: Path) -> None:
    shards = written(tmp_path, [1, 2, 4, 5])
    assert names(tmp_path) == ["000001", "000002", "000004-000005"]
    assert [index for index in range(8) if shards.done(index)] == [1, 2, 4, 5]
    shards.write(0, {"experiment": partial_of(0)})
    assert names(tmp_path) == ["000000-000001", "000002", "000004-000005"]


def test_neither_folders_nor_files_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normscope.runs.shards._COMPACT_EVERY", 2)
    shards = written(tmp_path, [*range(63)])
    assert len(names(tmp_path)) == 6, "one for each binary digit"
    assert len([*tmp_path.rglob("*.parquet")]) == 2 * (1 + 2) * 3
    shards.write(63, {"experiment": partial_of(63)})
    (folder,) = tmp_path.iterdir()
    assert names(folder) == ["experiment|occurrences.parquet", "experiment|pairs.parquet", "shard.json", "sums.npz"]
    assert pq.read_metadata(folder / "experiment|pairs.parquet").num_rows == 25, "rows of equal keys have become one"


def test_what_a_kill_left_between_two_steps_of_a_merge_is_put_right(tmp_path: Path) -> None:
    written(tmp_path / "run", [0, 1, 2])
    written(tmp_path / "other", [0, 3])
    shutil.copytree(tmp_path / "other" / "000000", tmp_path / "run" / "000000")  # merged, and not yet removed
    (tmp_path / "run" / "000000" / "sums.npz").unlink()
    shutil.copytree(tmp_path / "other" / "000003", tmp_path / "run" / "000003")  # written, and not yet merged
    (tmp_path / "run" / ".000002-000003-77").mkdir()
    shards = Shards(tmp_path / "run")
    shards.prepare("")
    assert names(tmp_path / "run") == ["000000-000003"]
    check_total(total(shards), range(4))


def test_sums_that_would_leave_their_range_stay_rows(tmp_path: Path) -> None:
    huge = pa.table({"type": pa.array([1], pa.int64()), "amount": pa.array([2**62], pa.int64())})
    shards = Shards(tmp_path)
    shards.prepare("")
    for index in range(16):
        shards.write(index, {"experiment": Partial(rows={"pairs": Rows((huge,), ("type",))})})
    sums = (
        total(shards).rows["pairs"].select("SELECT type, (sum(amount) / 2**62)::DOUBLE AS amount FROM rows GROUP BY 1")
    )
    assert sums.to_pylist() == [{"type": 1, "amount": 16.0}]


def test_a_damaged_shard_is_named_when_it_is_merged_and_its_neighbour_stays(tmp_path: Path) -> None:
    shards = written(tmp_path, [0])
    (tmp_path / "000000" / "sums.npz").write_bytes(b"PK")
    with pytest.raises(FileError, match=r"000000.*damaged.*Delete"):
        shards.write(1, {"experiment": partial_of(1)})
    assert names(tmp_path) == ["000000", "000001"]


def test_a_merge_reads_two_folders_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = shard_files.read

    def noted(folder: Path) -> dict[str, Partial]:
        read.append(folder.name)
        return original(folder)

    monkeypatch.setattr(shard_files, "read", noted)
    shards = written(tmp_path, [*range(8)])
    assert len(read) == 2 * 7, "each folder is read once, when it is merged"
    assert len([*shards.read()]) == 1 and len(read) == 15, "and the end of a run reads one"


def test_names_of_folders_are_spans() -> None:
    for span in (Span(0), Span(7), Span(4, 2), Span(1048576, 20), Span(0, 21)):
        assert Span.named(span.name) == span
    assert [Span.named(name) for name in ("000001-000002", "000000-000002", "mine", "12")] == [None] * 4


@pytest.mark.parametrize(
    ("name", "neighbour"), [("run[1]", "run1"), ("run*", "runs"), ("run?", "runs"), ("seed=1", "s")]
)
def test_a_folder_whose_name_is_a_pattern_gives_its_own_rows(tmp_path: Path, name: str, neighbour: str) -> None:
    written(tmp_path / neighbour / "shards", [5])
    (tmp_path / neighbour / "shards" / "000005").rename(tmp_path / neighbour / "shards" / "000000")
    check_total(total(written(tmp_path / name / "shards", [0])), range(1))
