"""The queue of the web app: jobs, their status, and how many results are kept. Also returns unused memory to the system.

Objects with reference cycles, such as datasets, are freed only by the garbage collector. And glibc keeps the memory of freed
large arrays: over many analyses of different lengths its heap grows to several times what is in use, though nothing leaks.
Other C libraries return memory by themselves, or cannot be made to.
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


def return_memory() -> None:
    """Free unreferenced objects, and return their memory to the system if the C library can."""
    gc.collect()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # not glibc
        return None


# ---- Analyses requested over the web: a queue with a limit, one at a time in a thread, each with a state that can be
# followed.
#
# Owns the life cycle of a job, from waiting to done, failed or cancelled, and how many results are kept. Knows
# nothing about HTTP, nor about what a job computes.

_log = logging.getLogger(__name__)

Stage = Literal["waiting", "running", "done", "failed", "cancelled"]
FINISHED: tuple[Stage, ...] = ("done", "failed", "cancelled")

_KEEP_ALIVE_SECONDS = 15.0
_PATIENCE_SECONDS = 10.0
"""How long an unfinished job is kept after its last follower has disconnected."""


class QueueFull(NormscopeError):
    """More analyses are waiting than the server accepts."""


@dataclass(frozen=True)
class Status:
    """The status of a job: `ahead` jobs before it while it waits, `begun` of `total` layers while it runs."""

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
        """The size of the result in bytes."""
        return 0 if self.result is None else self.result.size

    def become(self, status: Status) -> None:
        """Change the status (on the event loop's thread) and notify all followers."""
        if self.status.stage in FINISHED or status == self.status:
            return
        self.status = status
        self._changed.set()
        self._changed = asyncio.Event()

    def progress(self, begun: int, total: int) -> None:
        """Report progress, from the working thread."""
        self._loop.call_soon_threadsafe(self.become, Status("running", begun=begun, total=total))

    async def follow(self) -> AsyncGenerator[Status | None]:
        """Yields every status until the last; `None` at intervals, so that a closed connection is noticed."""
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
    """Jobs in order of submission. At most `most_waiting` wait. The last `most_kept` finished jobs are kept, or fewer if
    their results exceed `most_bytes` in total (but always the very last, which a client is about to fetch)."""

    most_waiting: int = 64
    most_kept: int = 64
    most_bytes: int = 512 * 2**20
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    _waiting: deque[Job] = field(default_factory=deque[Job])
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    def submit(self, work: Callable[[Job], Result]) -> Job:
        """Put a job at the end of the queue."""
        if len(self._waiting) >= self.most_waiting:
            raise QueueFull(f"The server is busy: {len(self._waiting)} analyses are waiting. Try again later.")
        job = Job(work)
        self.jobs[job.id] = job
        self._waiting.append(job)
        self._number()
        self._wanted.set()
        return job

    def cancel(self, job: Job) -> None:
        """Remove a job from the queue, or stop it at its next layer."""
        job.cancelled = True
        if job in self._waiting:
            self._waiting.remove(job)
            self._number()
        job.become(Status("cancelled", message="Cancelled."))

    async def abandon(self, job: Job) -> None:
        """Cancel a job that has no followers, after a grace period in which one may reconnect."""
        await asyncio.sleep(_PATIENCE_SECONDS)
        if job.followers == 0 and job.status.stage not in FINISHED:
            self.cancel(job)

    async def run(self) -> None:
        """Process the queue forever, one job at a time."""
        # One thread for all jobs: every computing thread has its own memory and helper threads.
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
                await asyncio.get_running_loop().run_in_executor(thread, return_memory)
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
        except Exception:  # the next job must still run
            _log.exception("An analysis failed")
            job.become(Status("failed", message="The analysis failed inside the server; see its terminal."))

    def _number(self) -> None:
        for ahead, job in enumerate(self._waiting):
            job.become(Status("waiting", ahead=ahead + 1))

    def _forget(self) -> None:
        """Remove the oldest finished jobs, until those that are kept are within the limits."""
        finished = [job for job in self.jobs.values() if job.status.stage in FINISHED]
        size = sum(job.size for job in finished)
        while len(finished) > 1 and (len(finished) > self.most_kept or size > self.most_bytes):
            oldest = finished.pop(0)
            size -= oldest.size
            oldest.result = None  # a follower may still hold the job
            del self.jobs[oldest.id]
