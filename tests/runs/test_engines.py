"""Engines: in any order, here or in processes, the tables are the same, and a lost worker loses no finished shard."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from normscope.corpora import Corpus
from normscope.experiments import Observation, Partial
from normscope.experiments.base import ModelFacts
from normscope.experiments.mixing import MixingRatio
from normscope.runs import WorkerError, run
from normscope.runs.engines import Finished, InProcess, Processes, Work, _pooled, threads_for
from normscope.runs.spool import Shard

pytestmark = pytest.mark.usefixtures("empty_pictures")

TEXTS = [f"The singer caught {count} soap bubbles in the rain." for count in ("two", "three", "four", "five", "six")]


@dataclass(frozen=True)
class Backwards:
    """Computes the last shard first, and each of them twice, as an engine that retries may."""

    analyzer: Any

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        for shard in reversed([*shards]):
            yield from InProcess(self.analyzer).compute(work, [shard, shard])


@pytest.mark.slow
def test_an_engine_may_finish_shards_in_any_order_and_twice(analyzer: Any, tmp_path: Path) -> None:
    names = ["mixing-ratio", "ff-amplification", "frequency"]
    options: dict[str, Any] = {"model": analyzer, "corpus": TEXTS, "shard_size": 2}
    forwards = run(names, out=tmp_path / "a", **options)
    backwards = run(names, out=tmp_path / "b", engine=Backwards(analyzer), **options)
    assert forwards.tables and all(table.equals(backwards.tables[name]) for name, table in forwards.tables.items())


def test_a_corpus_is_read_and_tokenized_once(analyzer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = Corpus.items
    calls: list[str] = []

    def noted(self: Corpus, *arguments: Any) -> Any:
        calls.append(self.path)
        return items(self, *arguments)

    monkeypatch.setattr(Corpus, "items", noted)
    run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=tmp_path / "run")
    assert len(calls) == 1


@dataclass(frozen=True)
class Deadly(MixingRatio):
    """Kills its process at the third sequence."""

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        if observation.number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().observe(observation, model)


def test_a_worker_that_dies_is_a_clear_error_and_finished_shards_stay(tmp_path: Path) -> None:
    options: dict[str, Any] = {"corpus": TEXTS, "out": tmp_path / "run", "shard_size": 1}
    with pytest.raises(WorkerError, match=r"A worker process died.*2 of 5 sequences are done.*resumes"):
        run([Deadly()], engine=Processes(1), **options)
    assert sorted(path.name for path in (tmp_path / "run" / "shards").iterdir()) == ["000000-000001"]
    assert run(["mixing-ratio"], **options).manifest["sequences"] == 5


def test_a_pool_that_broke_between_two_shards_is_the_same_clear_error() -> None:
    pool = ProcessPoolExecutor(1)
    with pytest.raises(BrokenProcessPool):
        pool.submit(os._exit, 1).result()
    with pytest.raises(WorkerError, match="A worker process died"):
        list(_pooled(pool, [Shard(0, [])], at_once=2))


def test_threads_are_shared_out() -> None:
    cores = threads_for(1)
    assert threads_for(cores) == 1 and threads_for(10 * cores) == 1
