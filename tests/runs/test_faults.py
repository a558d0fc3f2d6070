"""Faults: a full or read-only disk, a corpus or a model that changes in mid-run. The error is clear, and nothing is lost."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import normscope as ns
from normscope.corpora import CorpusError
from normscope.errors import FileError
from normscope.experiments.partial import Rows
from normscope.runs import AnotherRunError, RunInterrupted, run
from normscope.runs.engines import ChangedModelError, Finished, InProcess, Processes, Work, Worker
from normscope.runs.spool import Shard
from runs.small import save_model, tables, tables_of

NAMES = ["mixing-ratio", "ff-amplification"]
TEXTS = ["The singer caught a soap bubble.", "It rained.", "The singer caught the rain."]


@pytest.fixture(scope="module")
def undisturbed(small: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return tables_of(small, NAMES, TEXTS, tmp_path_factory.mktemp("undisturbed") / "run")


@dataclass
class Disturbed:
    """Computes here; something happens after so many shards."""

    analyzer: Any
    event: Callable[[], None]
    after: int = 1

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        for count, finished in enumerate(InProcess(self.analyzer).compute(work, shards), 1):
            yield finished
            if count == self.after:
                self.event()


# ---- disks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("A disk can only be mounted by root.")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def fill(disk: Path) -> None:
    with pytest.raises(OSError, match="No space"), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize(("after", "kept"), [(1, "1 of 3 sequences are done and kept"), (3, "")])
def test_a_full_disk_is_a_clear_error_and_the_run_resumes(
    small: Any, undisturbed: dict[str, bytes], disk: Path, after: int, kept: str
) -> None:
    asked: dict[str, Any] = {"model": small, "corpus": TEXTS, "out": disk / "run", "shard_size": 1}
    with pytest.raises(FileError, match=rf"cannot be written: .*No space left on device.*{kept}"):
        run(NAMES, engine=Disturbed(small, lambda: fill(disk), after), **asked)
    assert not (disk / "run" / "manifest.json").exists()
    (disk / "filler").unlink()
    run(NAMES, **asked)
    assert tables(disk / "run") == undisturbed


def test_files_that_may_not_grow_are_a_clear_error_and_the_run_resumes(
    small: Any, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    asked: dict[str, Any] = {"model": small, "corpus": TEXTS, "out": tmp_path / "run", "shard_size": 1}
    engine = Disturbed(small, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard)), 2)
    try:
        with pytest.raises(FileError, match=r"000002.* cannot be written: .*2 of 3 sequences are done and kept"):
            run(NAMES, engine=engine, **asked)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    run(NAMES, **asked)
    assert tables(tmp_path / "run") == undisturbed


def test_a_disk_without_room_for_the_sums_is_named(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    fill(disk)
    rows = Rows((pa.table({"type": [*range(1000)], "amount": [1] * 1000}),), ("type",))
    with pytest.raises(FileError, match=r"cannot be added up in .*disk.*TMPDIR"):
        rows.select("SELECT * FROM rows")


def test_a_read_only_folder_is_a_clear_error(small: Any, undisturbed: dict[str, bytes], disk: Path) -> None:
    asked: dict[str, Any] = {"model": small, "corpus": TEXTS, "out": disk / "run", "shard_size": 1}

    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)

    remount("ro")
    with pytest.raises(FileError, match="cannot be made: Read-only"):
        run(NAMES, **asked)
    remount("rw")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RunInterrupted):
        run(NAMES, engine=Disturbed(small, interrupt), **asked)
    remount("ro")
    with pytest.raises(FileError, match="cannot be written: Read-only"):
        run(NAMES, **asked)
    remount("rw")
    run(NAMES, **asked)
    assert tables(disk / "run") == undisturbed


# ---- changes in mid-run ------------------------------------------------------------------------------------------------


def test_a_corpus_that_changes_in_mid_run_leaves_the_run_as_it_was_and_is_not_resumed(
    small: Any, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS))
    asked: dict[str, Any] = {"model": small, "corpus": corpus, "out": tmp_path / "run", "shard_size": 1}

    def change() -> None:
        corpus.write_text("Something else.")

    run(NAMES, engine=Disturbed(small, change), **asked)
    assert tables(tmp_path / "run") == undisturbed
    with pytest.raises(AnotherRunError, match=r"differs in corpus_fingerprint, tokens_fingerprint.*--overwrite"):
        run(NAMES, **asked)
    assert tables(tmp_path / "run") == undisturbed


def test_a_corpus_that_changes_while_it_is_read_is_refused(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS))
    from normscope.runs.driver import Driver  # noqa: PLC0415

    read = Driver._read_corpus

    def interfered(self: Driver) -> None:
        read(self)
        with corpus.open("a") as file:
            file.write("\nOne more line.")

    monkeypatch.setattr(Driver, "_read_corpus", interfered)
    with pytest.raises(CorpusError, match=r"texts\.txt' changed while it was read"):
        run(NAMES, model=small, corpus=corpus, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@dataclass
class Noting:
    """Computes here, and notes the work."""

    work: Work | None = None

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        self.work = work
        return InProcess(ns.Analyzer.from_options(work.loadable())).compute(work, shards)


def test_a_worker_refuses_a_model_that_is_not_the_one_of_the_run(analyzer: Any, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", analyzer.tokenizer, 0)
    engine = Noting()
    run(["mixing-ratio"], model=folder, corpus=TEXTS[:1], engine=engine)
    assert engine.work is not None
    threads = torch.get_num_threads()
    Worker(engine.work, threads).load()
    save_model(folder, analyzer.tokenizer, 1)
    with pytest.raises(ChangedModelError, match=r"another fingerprint than the run began with .*model.*--overwrite"):
        Worker(engine.work, threads).load()


@pytest.mark.slow
def test_a_model_that_changes_in_mid_run_ends_it_and_finished_shards_stay(analyzer: Any, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", analyzer.tokenizer, 0)

    class Changing:
        def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
            queue = iter(shards)
            yield from InProcess(ns.load(folder)).compute(work, [next(queue)])
            save_model(folder, analyzer.tokenizer, 1)
            yield from Processes(1).compute(work, queue)

    asked: dict[str, Any] = {"model": str(folder), "corpus": TEXTS, "out": tmp_path / "run", "shard_size": 1}
    with pytest.raises(ChangedModelError, match=r"another fingerprint.*1 of 3 sequences are done and kept"):
        run(NAMES, engine=Changing(), **asked)
    with pytest.raises(AnotherRunError, match=r"differs in model\.fingerprint"):
        run(NAMES, **asked)
    assert os.listdir(tmp_path / "run" / "shards") == ["000000"]
