"""Engines compute the shards of a run, in this process or in others. Any other engine is one more class.

The input of an engine is work and shards, its output partial results. It writes nothing: that is the driver's task. A
`Worker` runs in another process or on another machine: it loads the model once, and checks that it is the run's.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from transformers.utils import logging

from normscope.analyzer import Analyzer
from normscope.errors import InputError, ModelError, NormscopeError, listing
from normscope.experiments import Partial
from normscope.experiments.observer import Plan, observe
from normscope.models.options import ModelOptions
from normscope.runs.spool import Shard

Finished = tuple[int, dict[str, Partial]]
"""The index of a shard, and its partial result for every experiment."""


IDENTITY = ("model", "model_type", "revision", "fingerprint", "dtype")
"""The facts about a model that determine the tables."""

VERSIONS = ("normscope_version", "torch_version", "transformers_version")


class WorkerError(NormscopeError):
    """A worker ended before its work was done."""


class ChangedModelError(ModelError):
    """A worker has another model, or other software, than the run started with."""


@dataclass(frozen=True)
class Work:
    """What to compute for every shard, in a form that can be sent to other processes and machines.

    Without `model`, or with a live one, the model exists in this process only. `facts` are those of the driver's model.
    `shards` is their number if it is known: no engine needs more workers.
    """

    plan: Plan
    model: ModelOptions | None
    facts: Mapping[str, object] = field(default_factory=dict[str, object])
    shards: int | None = None

    def loadable(self) -> ModelOptions:
        """The model options with which other processes can load the model."""
        if self.model is None or self.model.is_live:
            raise InputError("Several processes each load the model: name it (or its folder) instead of passing it.")
        return self.model

    def most_workers(self, wanted: int) -> int:
        """The requested number of workers, but no more than there are shards."""
        return wanted if self.shards is None else max(1, min(wanted, self.shards))


@runtime_checkable
class Engine(Protocol):
    """Computes shards."""

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        """Yield every shard when it is finished, in any order. `shards` is lazy: take only as many as are needed."""
        ...


@dataclass(frozen=True)
class InProcess:
    """Computes one shard after another in this process."""

    analyzer: Analyzer

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        return (_computed(self.analyzer, work.plan, shard) for shard in shards)


@dataclass(frozen=True)
class Processes:
    """Several processes on this machine. Each loads the model; they share the cores equally."""

    jobs: int

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        work.loadable()
        context = multiprocessing.get_context("spawn")
        arguments = (work, threads_for(self.jobs))
        pool = ProcessPoolExecutor(
            work.most_workers(self.jobs), mp_context=context, initializer=_start, initargs=arguments
        )
        return _pooled(pool, shards, at_once=2 * self.jobs)


def threads_for(jobs: int) -> int:
    """The number of threads of each process, so that all processes together use each core once."""
    return max(1, (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) // jobs)


def _computed(analyzer: Analyzer, plan: Plan, shard: Shard) -> Finished:
    partials = observe(analyzer, plan, shard.items)
    return shard.index, {name: partial.compacted() for name, partial in partials.items()}


def _pooled(pool: ProcessPoolExecutor, shards: Iterable[Shard], *, at_once: int) -> Iterator[Finished]:
    """Passes shards through a pool, with no more of them in flight than keep it busy."""
    pending: set[Future[Finished]] = set()
    try:
        for shard in shards:
            pending.add(_submitted(pool, shard))
            if len(pending) >= at_once:
                yield from _finished(pending)
        while pending:
            yield from _finished(pending)
    except KeyboardInterrupt:
        pending = {future for future in pending if not future.cancel()}
        while pending:  # what has started is finished and stored
            yield from _finished(pending)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, shard: Shard) -> Future[Finished]:
    """The future of a shard; if the pool has lost a worker, it has failed, like those of the shards in flight."""
    try:
        return pool.submit(_compute, shard)
    except BrokenProcessPool as error:
        failed: Future[Finished] = Future()
        failed.set_exception(error)
        return failed


def _finished(pending: set[Future[Finished]]) -> Iterator[Finished]:
    """Yields the shards that are done, and raises the error of a failed one after them."""
    done, _ = wait(pending, return_when=FIRST_COMPLETED)
    pending -= done
    for future in sorted(done, key=lambda future: future.exception() is not None):
        try:
            yield future.result()
        except BrokenProcessPool as error:
            raise WorkerError(
                "A worker process died; most often the system ends it because memory runs out (use fewer --jobs), or the "
                "script that starts the run lacks `if __name__ == '__main__':`."
            ) from error


# ---- in a worker -------------------------------------------------------------------------------------------------------


class Worker:
    """Computes shards in a process of its own."""

    def __init__(self, work: Work, threads: int) -> None:
        self._work = work
        torch.set_num_threads(threads)
        logging.disable_progress_bar()

    def load(self) -> None:
        """Load the model now, so that its errors are found before the first shard."""
        _ = self.analyzer

    def compute(self, shard: Shard) -> Finished:
        return _computed(self.analyzer, self._work.plan, shard)

    @cached_property
    def analyzer(self) -> Analyzer:
        """The model, loaded with the first shard."""
        analyzer = Analyzer.from_options(self._work.loadable())
        expected, found = self._work.facts, analyzer.facts
        changed = [
            name.removesuffix("_version")
            for name in (*IDENTITY, *VERSIONS)
            if name in expected and found[name] != expected[name]
        ]
        if changed:
            raise ChangedModelError(
                f"A worker on {platform.node()} found another {listing(changed)} than the run began with "
                f"({self._work.loadable().model or 'the embedded model'}): a run keeps to one model and one version. Put "
                f"back what was there, or begin anew (--overwrite)."
            )
        return analyzer


_worker: Worker | None = None


def _start(work: Work, threads: int) -> None:
    global _worker  # noqa: PLW0603  (a process computes for one run)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = Worker(work, threads)


def _end_with_parent() -> None:
    """Ends this process with its parent: a killed parent cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _compute(shard: Shard) -> Finished:
    assert _worker is not None
    return _worker.compute(shard)
