"""Shards computed here or in processes: each loads the model once, and threads are shared out between them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from normscope.analyzer import load
from normscope.corpora import Item
from normscope.corpus_run.shards import Shards
from normscope.experiments.observer import Plan, observe

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

Shard = tuple[int, list[Item]]


@dataclass(frozen=True)
class Work:
    """All that a process needs to compute shards."""

    model: dict[str, Any]
    plan: Plan
    shards: Shards
    threads: int


def compute_here(analyzer: Analyzer, work: Work, shards: Iterable[Shard]) -> Iterator[int]:
    """Compute shards one after another; yields the number of sequences of each when it is written."""
    for index, items in shards:
        work.shards.write(index, observe(analyzer, work.plan, items))
        yield len(items)


def compute_in_processes(work: Work, shards: Iterable[Shard], jobs: int) -> Iterator[int]:
    """The same in `jobs` processes, with no more shards in flight than keep them busy."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start, initargs=(work,))
    pending: set[Future[int]] = set()
    try:
        for shard in shards:
            pending.add(pool.submit(_compute, shard))
            if len(pending) >= 2 * jobs:
                yield from _finished(pending)
        while pending:
            yield from _finished(pending)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _finished(pending: set[Future[int]]) -> list[int]:
    done, _ = wait(pending, return_when=FIRST_COMPLETED)
    pending -= done
    return [future.result() for future in done]


def threads_for(jobs: int) -> int:
    """Threads of each process, so that all together use the machine's cores once."""
    return max(1, (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) // jobs)


# ---- in a worker -------------------------------------------------------------------------------------------------------

_compute_shard: Callable[[Shard], int] | None = None


def _start(work: Work) -> None:
    global _compute_shard  # noqa: PLW0603  (a process computes for one run)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(work.threads)
    analyzer = load(**work.model)

    def compute(shard: Shard) -> int:
        return next(compute_here(analyzer, work, [shard]))

    _compute_shard = compute


def _compute(shard: Shard) -> int:
    assert _compute_shard is not None
    return _compute_shard(shard)
