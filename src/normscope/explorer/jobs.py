"""Memory that an analysis has left free goes back to the system.

What refers to itself in circles, as datasets do, is freed only when Python looks for such circles. And glibc keeps what
large arrays leave behind: over many analyses of different lengths its heap grows by several times what is in use, though
nothing leaks. Other C libraries give memory back by themselves, or offer no way to ask for it.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from normscope.errors import NormscopeError
from normscope.explorer.work import Cancelled, Result


def give_back() -> None:
    """Free what nothing refers to any more, and give it back to the system, where the C library can."""
    gc.collect()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # not glibc, or not even a Unix
        return None


# ---- Analyses asked for over the web: a queue with a limit, one at a time in a thread, each with a state that can be
# followed.
#
# Owns the life of a job, from waiting to done, failed or cancelled, and how much of what is done is kept. Knows
# nothing of HTTP, nor of what a job computes.

_log = logging.getLogger(__name__)

Stage = Literal["waiting", "running", "done", "failed", "cancelled"]
FINISHED: tuple[Stage, ...] = ("done", "failed", "cancelled")

_KEEP_ALIVE_SECONDS = 15.0
_PATIENCE_SECONDS = 10.0
"""How long an unfinished job lives on after the last one who followed it has gone."""


class QueueFull(NormscopeError):
    """More analyses are waiting than the server takes."""


@dataclass(frozen=True)
class Status:
    """Where a job is: `ahead` jobs before it while it waits, `begun` of `total` layers while it runs."""

    stage: Stage
    ahead: int = 0
    begun: int = 0
    total: int = 0
    message: str = ""


class Job:
    """One request for an analysis (or two to compare)."""

    def __init__(self, work: Callable[[Job], Result]) -> None:
        self.id = secrets.token_urlsafe(16)
        self.work = work
        self.status = Status("waiting")
        self.result: Result | None = None
        self.cancelled = False
        self.followers = 0
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    @property
    def size(self) -> int:
        """Bytes that it takes to keep what was made."""
        return 0 if self.result is None else self.result.size

    def become(self, status: Status) -> None:
        """Change the status (on the event loop's thread) and wake everyone who follows it."""
        if self.status.stage in FINISHED or status == self.status:
            return
        self.status = status
        self._changed.set()
        self._changed = asyncio.Event()

    def progress(self, begun: int, total: int) -> None:
        """Say, from the working thread, how far it is."""
        self._loop.call_soon_threadsafe(self.become, Status("running", begun=begun, total=total))

    async def follow(self) -> AsyncGenerator[Status | None]:
        """Every status until the last; `None` now and then, so that a closed connection is noticed."""
        self.followers += 1
        try:
            while True:
                changed, status = self._changed, self.status
                yield status
                if status.stage in FINISHED:
                    return
                while not changed.is_set():
                    try:
                        await asyncio.wait_for(changed.wait(), _KEEP_ALIVE_SECONDS)
                    except TimeoutError:
                        yield None
        finally:
            self.followers -= 1


@dataclass
class Queue:
    """Jobs in their order. `most_waiting` may wait; of those finished, the last `most_kept` are kept, and fewer where
    their results take more than `most_bytes` together (but always the very last, for the one who has just asked)."""

    most_waiting: int = 64
    most_kept: int = 64
    most_bytes: int = 512 * 2**20
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    _waiting: deque[Job] = field(default_factory=deque[Job])
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    def submit(self, work: Callable[[Job], Result]) -> Job:
        """Put a job at the end of the queue."""
        if len(self._waiting) >= self.most_waiting:
            raise QueueFull(f"The server is busy: {len(self._waiting)} analyses are waiting. Try again in a while.")
        job = Job(work)
        self.jobs[job.id] = job
        self._waiting.append(job)
        self._number()
        self._wanted.set()
        return job

    def cancel(self, job: Job) -> None:
        """Take a job out of the queue, or stop it at its next layer."""
        job.cancelled = True
        if job in self._waiting:
            self._waiting.remove(job)
            self._number()
        job.become(Status("cancelled", message="Cancelled."))

    async def abandon(self, job: Job) -> None:
        """Cancel a job that nobody follows any more, after giving them a chance to come back."""
        await asyncio.sleep(_PATIENCE_SECONDS)
        if job.followers == 0 and job.status.stage not in FINISHED:
            self.cancel(job)

    async def run(self) -> None:
        """Work through the queue for ever, one job at a time."""
        # One thread for all jobs: every thread that computes has memory and helpers of its own.
        thread = ThreadPoolExecutor(1, thread_name_prefix="normscope-analysis")
        try:
            while True:
                while not self._waiting:
                    self._wanted.clear()
                    await self._wanted.wait()
                job = self._waiting.popleft()
                self._number()
                job.become(Status("running"))
                await self._work(job, thread)
                self._forget()
                await asyncio.get_running_loop().run_in_executor(thread, give_back)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

    async def _work(self, job: Job, thread: ThreadPoolExecutor) -> None:
        try:
            result = await asyncio.get_running_loop().run_in_executor(thread, job.work, job)
            if not job.cancelled:
                job.result = result
            job.become(Status("done"))
        except Cancelled:
            job.become(Status("cancelled", message="Cancelled."))
        except NormscopeError as error:
            job.become(Status("failed", message=str(error)))
        except Exception:  # whatever it is, the next job must still run
            _log.exception("An analysis failed")
            job.become(Status("failed", message="The analysis failed inside the server; its terminal says why."))

    def _number(self) -> None:
        for ahead, job in enumerate(self._waiting):
            job.become(Status("waiting", ahead=ahead + 1))

    def _forget(self) -> None:
        """Forget the oldest of those that are finished, until what is kept is within its limits."""
        finished = [job for job in self.jobs.values() if job.status.stage in FINISHED]
        size = sum(job.size for job in finished)
        while len(finished) > 1 and (len(finished) > self.most_kept or size > self.most_bytes):
            oldest = finished.pop(0)
            size -= oldest.size
            oldest.result = None  # whoever waited for the job may still hold it
            del self.jobs[oldest.id]
