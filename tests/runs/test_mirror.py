"""Runs whose folder is a URL: the same tables, resumed from what is there, and nothing half-written or of someone else's."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest

from normscope.errors import FileError, InputError
from normscope.runs import AnotherRunError, run
from normscope.runs.engines import Finished, InProcess, Work
from normscope.runs.mirror import Mirror
from normscope.runs.spool import Shard
from runs.small import tables_of

pytestmark = pytest.mark.usefixtures("empty_pictures")

NAMES = ["mixing-ratio"]
TEXTS = [
    "The singer caught a soap bubble.",
    "It rained.",
    "The singer caught the rain.",
    "Nobody sang.",
    "A bubble burst.",
]


@dataclass
class Counted:
    """Computes here and notes which shards; an event may happen after one of them."""

    analyzer: Any
    shards: list[int]
    event: Callable[[int], None] = lambda index: None

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        for finished in InProcess(self.analyzer).compute(work, shards):
            self.shards.append(finished[0])
            yield finished
            self.event(finished[0])


def interrupt(index: int) -> None:
    if index == 2:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def here(small: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The tables of the same run in a folder."""
    return tables_of(small, NAMES, TEXTS, tmp_path_factory.mktemp("here") / "run")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[str]:
    """A URL where nothing can be renamed, as in an object store."""
    yield f"memory://{tmp_path}/run"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def disk(tmp_path: Path) -> str:
    return f"file://{tmp_path}/run"


def content(url: str) -> dict[str, bytes]:
    """Every file below a URL, by its path there."""
    files, root = fsspec.url_to_fs(url)
    return {str(path).removeprefix(root).lstrip("/"): files.cat_file(path) for path in files.find(root)}


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_tables_at_a_url_are_those_of_a_folder(
    small: Any, here: dict[str, bytes], where: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(where)
    result = run(NAMES, model=small, corpus=TEXTS, out=url, shard_size=1)
    files = content(url)
    assert {name.removeprefix("tables/"): value for name, value in files.items() if name.startswith("tables/")} == here
    assert {"run.json", "manifest.json", "shards/000000-000003.tar", "shards/000004.tar"} <= set(files)
    assert [name for name in files if name.startswith("figures/")]
    assert not [name for name in files if "/." in name or name.startswith(".")]
    assert result.folder is None


def test_a_run_at_a_url_goes_on_with_the_shards_that_are_there(small: Any, here: dict[str, bytes], memory: str) -> None:
    asked: dict[str, Any] = {"model": small, "corpus": TEXTS, "out": memory, "shard_size": 1}
    with pytest.raises(KeyboardInterrupt, match=r"3 of 5 sequences are done and kept in 'memory://"):
        run(NAMES, engine=Counted(small, [], interrupt), **asked)
    assert {name for name in content(memory) if name.startswith("shards/")} == {
        "shards/000000-000001.tar",
        "shards/000002.tar",
    }
    computed: list[int] = []
    run(NAMES, engine=Counted(small, computed), **asked)
    assert computed == [3, 4]
    assert {name: content(memory)[f"tables/{name}"] for name in here} == here


def test_another_run_at_a_url_is_replaced_only_when_that_is_asked_for(small: Any, memory: str) -> None:
    run(NAMES, model=small, corpus=TEXTS, out=memory, shard_size=1)
    before = content(memory)
    with pytest.raises(AnotherRunError, match=r"holds another run: it differs in shard_size"):
        run(NAMES, model=small, corpus=TEXTS, out=memory, shard_size=5)
    assert content(memory) == before
    run(["ff-norms"], model=small, corpus=TEXTS, out=memory, shard_size=5, overwrite=True)
    after = content(memory)
    assert {name for name in after if name.startswith("shards/")} == {"shards/000000.tar"}
    assert not [name for name in after if "mixing" in name]


def test_files_of_someone_else_at_a_url_are_left_alone(small: Any, disk: str) -> None:
    files, root = fsspec.url_to_fs(disk)
    files.makedirs(root, exist_ok=True)
    files.pipe_file(f"{root}/diary.txt", b"mine")
    with pytest.raises(AnotherRunError, match="is not empty and holds no run"):
        run(NAMES, model=small, corpus=TEXTS, out=disk, shard_size=1)
    assert content(disk) == {"diary.txt": b"mine"}


def test_a_damaged_shard_at_a_url_is_named(small: Any, disk: str) -> None:
    asked: dict[str, Any] = {"model": small, "corpus": TEXTS, "out": disk, "shard_size": 1}
    run(NAMES, **asked)
    files, root = fsspec.url_to_fs(disk)
    files.pipe_file(f"{root}/shards/000004.tar", b"not an archive")
    with pytest.raises(FileError, match=r"shards/000004\.tar.* is damaged"):
        run(NAMES, **asked)


def test_a_shard_at_a_url_writes_nothing_but_its_own_files(tmp_path: Path, memory: str) -> None:
    (tmp_path / "outside").write_text("mine", encoding="utf-8")
    files, root = fsspec.url_to_fs(memory)
    with files.open(f"{root}/shards/000000.tar", "wb") as file, tarfile.open(fileobj=file, mode="w|") as archive:
        archive.add(tmp_path / "outside", "../outside")
    with pytest.raises(FileError, match=r"'\.\./outside' is not a file of a shard"):
        Mirror(memory).fetch_shards(tmp_path / "shards")
    assert list((tmp_path / "shards" / "000000").iterdir()) == []


def test_a_shard_that_cannot_be_copied_whole_does_not_appear(tmp_path: Path, memory: str) -> None:
    with pytest.raises(FileError, match="No such file"):
        Mirror(memory).keep_shards(tmp_path, ["000000"])
    assert not content(memory)


@pytest.mark.parametrize(("name", "why"), [("nosuch://bucket/run", "nosuch"), ("smb://host/run", "smb")])
def test_a_url_that_nothing_here_can_reach_is_refused(small: Any, name: str, why: str) -> None:
    with pytest.raises(InputError, match=rf"The URL '{name}' cannot be used: .*{why}"):
        run(NAMES, model=small, corpus=TEXTS, out=name)
