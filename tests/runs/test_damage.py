"""Damage on disk: a shard, the tokenized corpus or a table that is not as it was written is named, never used."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from normscope.corpora.item import Item
from normscope.errors import FileError
from normscope.inputs import TokenSequence
from normscope.runs import run
from normscope.runs.engines import Finished, InProcess, Work
from normscope.runs.spool import Shard, Spool
from runs.small import tables, tables_of

NAMES = ["ff-amplification"]
TEXTS = ["The singer caught a soap bubble.", "It rained.", "The singer caught the rain."]
"""As shards of one text: the first two become one, and the third stays alone."""

ALONE, MERGED = "000002", "000000-000001"


@dataclass
class Engine:
    """Computes here, notes which shards, and lets something happen after one of them."""

    analyzer: Any
    computed: list[int]
    event: Callable[[int], None] = lambda index: None

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        for finished in InProcess(self.analyzer).compute(work, shards):
            self.computed.append(finished[0])
            yield finished
            self.event(finished[0])


@pytest.fixture(scope="module")
def finished(small: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    tables_of(small, NAMES, TEXTS, folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def again(small: Any, folder: Path | str) -> list[int]:
    """The same command again; the shards that it computed."""
    computed: list[int] = []
    run(NAMES, model=small, corpus=TEXTS, out=folder, shard_size=1, engine=Engine(small, computed))
    return computed


def rows_of(shard: Path) -> Path:
    return next(shard.glob("ff-amplification*.parquet"))


def flip(path: Path) -> None:
    """Change a bit of a file, in the middle of its data."""
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def copy_over(shard: Path, other: Path) -> None:
    shutil.rmtree(shard)
    shutil.copytree(other, shard)


def lose_rows(shard: Path) -> None:
    rows_of(shard).unlink()


def flip_rows(shard: Path) -> None:
    flip(rows_of(shard))


def flip_sums(shard: Path) -> None:
    flip(shard / "sums.npz")


def add_rows(shard: Path) -> None:
    shutil.copy(rows_of(shard), shard / "ff-amplification|pairs|0007.parquet")


def copy_neighbour(shard: Path) -> None:
    copy_over(shard, next(path for path in shard.parent.iterdir() if path != shard))


DAMAGES = [
    (flip_rows, r"parquet has another checksum"),
    (lose_rows, r"parquet is missing"),
    (flip_sums, r"sums\.npz has another checksum"),
    (add_rows, r"0007\.parquet is not one of its files"),
    (copy_neighbour, r"it is the shard"),
]


@pytest.mark.parametrize("shard", [ALONE, MERGED])
@pytest.mark.parametrize(("damage", "says"), DAMAGES, ids=[each.__name__ for each, _ in DAMAGES])
def test_a_shard_that_is_not_as_it_was_written_is_named(
    small: Any, folder: Path, shard: str, damage: Callable[[Path], None], says: str
) -> None:
    damage(folder / "shards" / shard)
    with pytest.raises(FileError, match=rf"The shard '.*{shard}' is damaged \(.*{says}.*\)\. Delete it and run"):
        again(small, folder)


def test_a_shard_of_another_run_is_named(small: Any, folder: Path, tmp_path: Path) -> None:
    def interrupt(index: int) -> None:
        if index == 2:
            raise KeyboardInterrupt

    other: dict[str, Any] = {"corpus": ["It snowed.", *TEXTS[1:]], "out": tmp_path / "other", "shard_size": 1}
    with pytest.raises(KeyboardInterrupt):
        run(NAMES, model=small, engine=Engine(small, [], interrupt), **other)
    copy_over(folder / "shards" / ALONE, tmp_path / "other" / "shards" / ALONE)
    with pytest.raises(FileError, match=rf"{ALONE}' is damaged \(it is a shard of another run\)"):
        again(small, folder)


def test_damage_in_mid_run_is_found_before_a_shard_is_merged(small: Any, tmp_path: Path) -> None:
    def event(index: int) -> None:
        if index == 0:
            flip_rows(tmp_path / "run" / "shards" / "000000")

    with pytest.raises(FileError, match=r"000000' is damaged .*parquet.* of 3 sequences are done"):
        run(NAMES, model=small, corpus=TEXTS, out=tmp_path / "run", shard_size=1, engine=Engine(small, [], event))
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_damage_at_the_end_of_a_run_is_found_before_tables_are_made(small: Any, tmp_path: Path) -> None:
    def event(index: int) -> None:
        if index == 2:
            flip_rows(tmp_path / "run" / "shards" / MERGED)

    with pytest.raises(FileError, match=rf"{MERGED}' is damaged"):
        run(NAMES, model=small, corpus=TEXTS, out=tmp_path / "run", shard_size=1, engine=Engine(small, [], event))
    assert not (tmp_path / "run" / "tables").exists()


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"files": {}}', '{"run": "x", "shard": 1, "files": {"../../x": 1}}']
)
def test_a_damaged_seal_is_named(small: Any, folder: Path, content: str) -> None:
    (folder / "shards" / ALONE / "shard.json").write_text(content, encoding="utf-8")
    with pytest.raises(FileError, match=rf"{ALONE}' is damaged \(it"):
        again(small, folder)


def test_shards_of_the_version_before_which_have_no_seal_are_computed_again(
    small: Any, finished: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "shards" / MERGED / "shard.json").unlink()
    flip_rows(folder / "shards" / MERGED)  # what nobody could find out
    run(NAMES, model=small, corpus=TEXTS, out=folder, shard_size=1, progress=None)
    assert f"{MERGED}: shards of an earlier version, without checksums" in capsys.readouterr().err
    assert tables(folder) == tables(finished)


# ---- at a URL ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mirrored(small: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mirrored") / "run"
    again(small, f"file://{folder}")
    return folder


@pytest.mark.parametrize("damage", ["flip", "copy"])
def test_a_shard_at_a_url_that_is_not_as_it_was_written_is_named_by_the_url(
    small: Any, mirrored: Path, tmp_path: Path, damage: str
) -> None:
    url = f"file://{shutil.copytree(mirrored, tmp_path / 'run')}"
    archives = tmp_path / "run" / "shards"
    if damage == "copy":
        shutil.copy(archives / f"{ALONE}.tar", archives / f"{MERGED}.tar")
    else:
        content = (archives / f"{MERGED}.tar").read_bytes()
        place = content.index(b"PAR1") + 100
        (archives / f"{MERGED}.tar").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(FileError, match=rf"The shard '{url}/shards/{MERGED}\.tar' is damaged"):
        again(small, url)


# ---- the tokenized corpus ----------------------------------------------------------------------------------------------


def test_a_tokenized_corpus_that_is_damaged_on_disk_is_an_error(tmp_path: Path) -> None:
    sequence = TokenSequence({"input_ids": [1, 2]}, ["a", "b"], [False, False], None, ["a", "b"], "a b")
    with (tmp_path / "spool").open("w+b") as file:
        spool = Spool(file, 1)
        spool.fill(Item(number, f"text {number}", sequence) for number in range(3))
        assert [shard.items[0].number for shard in spool.shards(lambda index: index != 1)] == [0, 2]
        whole = (tmp_path / "spool").read_bytes()
        for place in range(0, len(whole), 7):
            (tmp_path / "spool").write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            with pytest.raises(FileError, match=r"tokenized corpus was damaged on disk .*shard \d"):
                list(spool.shards(lambda index: True))
