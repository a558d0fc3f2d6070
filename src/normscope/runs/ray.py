"""The engine on a Ray cluster, of one machine or many: actors load the model once, and shards are calls of them.

Ray decides where an actor runs. What is lost with a process or a machine is given to another actor, and a new actor takes
the place of the lost one as soon as the cluster has room for it. Needs the extra `normscope[ray]`.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from normscope.errors import InputError, NormscopeError, require_extra
from normscope.runs.engines import Finished, Work, Worker, WorkerError
from normscope.runs.spool import Shard

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # the coming default, without its warning

require_extra("ray", "--engine ray", "ray")

import ray
from ray import exceptions

MOST_LOSSES = 4
"""How many actors in a row may be lost with the same shard, or before their model is loaded."""

_MOST_WORKERS = 10_000

_SECONDS_BETWEEN_LOOKS = 5
"""How often to see whether there still is a machine, while nothing comes back."""


@dataclass(frozen=True)
class Ray:
    """Workers on a Ray cluster: the one at `address`, or, without it, one that is started on this machine for the run.

    Without `workers` there is one on each machine (one for each GPU, for a model on `cuda`). Each takes an equal share of
    its machine's cores, and, for a model that is spread over devices, all of its GPUs. A cluster that this process is
    already connected to is used, and left as it is. A run that has lost every machine waits `patience` seconds for another
    one, such as an autoscaling cluster would bring, and then ends; it can be resumed.
    """

    address: str | None = None
    workers: int | None = None
    patience: float = 60.0

    def __post_init__(self) -> None:
        if self.workers is not None and not 1 <= self.workers <= _MOST_WORKERS:
            raise InputError(f"The number of workers is at least 1 and at most {_MOST_WORKERS}, not {self.workers}.")

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        model = work.loadable()
        with _connected(self.address):
            share = share_of(_machines(), self.workers, model.device, spread=model.device_map is not None)
            yield from _Pool(work, share, self.patience).compute(shards)


@dataclass(frozen=True)
class Share:
    """The number of workers, and the resources of each."""

    workers: int
    cpus: int
    gpus: int = 0

    def fits(self, node: dict[str, float]) -> bool:
        """Whether a machine has room for a worker, once it has nothing else to do."""
        return node.get("CPU", 0) >= self.cpus and node.get("GPU", 0) >= self.gpus


def share_of(
    nodes: list[dict[str, float]], workers: int | None, device: object = None, *, spread: bool = False
) -> Share:
    """An equal share of a cluster's machines, such that the requested number of workers fits.

    With `spread`, a worker takes as many GPUs as every machine that has some can give.
    """
    gpus = 1 if str(device or "").startswith("cuda") else 0
    if spread:
        gpus = int(min((node["GPU"] for node in nodes if node.get("GPU", 0) >= 1), default=0))
    name = "GPU" if gpus else "CPU"
    usable = [node for node in nodes if node.get(name, 0) >= 1 and node.get("CPU", 0) >= 1]
    if not usable:
        raise InputError(f"No machine of the Ray cluster has a {name}: add one (ray start), or name another cluster.")
    count = workers or (int(sum(node["GPU"] // gpus for node in usable)) if gpus else len(usable))

    def room(cpus: int) -> int:
        places = (min(node["CPU"] // cpus, node["GPU"] // gpus if gpus else node["CPU"]) for node in usable)
        return int(sum(places))

    most = int(max(node["CPU"] for node in usable))
    return Share(count, next((cpus for cpus in range(most, 1, -1) if room(cpus) >= count), 1), gpus)


def _machines() -> list[dict[str, float]]:
    """The resources of each live machine of the cluster."""
    try:
        return [node["Resources"] for node in ray.nodes() if node["Alive"]]
    except (RuntimeError, exceptions.RayError) as error:
        raise WorkerError(f"The Ray cluster does not answer any more: {error}.") from error


@contextmanager
def _connected(address: str | None) -> Generator[None]:
    if ray.is_initialized():
        yield
        return
    try:
        _check_answers(address or "")
        there = address or os.environ.get("RAY_ADDRESS")
        own: dict[str, Any] = {} if there else {"include_dashboard": False}
        # Without an address Ray would take any cluster that happens to run on this machine, even someone's test.
        ray.init(
            address=there or "local", log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **own
        )
    except (OSError, ValueError, RuntimeError, exceptions.RayError) as error:
        where = f"at {address!r}" if address else "on this machine"
        raise WorkerError(f"There is no Ray cluster {where} that can be used: {error}.") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Fails at once if nothing answers: Ray itself tries a `HOST:PORT` for minutes."""
    host, separator, port = address.rpartition(":")
    if separator and port.isdigit() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


class _Pool:
    """Actors, each with one shard at a time. An actor that is not there yet has none, so that none waits for room."""

    def __init__(self, work: Work, share: Share, patience: float) -> None:
        self._work, self._share, self._patience = work, share, patience
        self._alone_since: float | None = None
        self._busy: dict[ray.ObjectRef[object], tuple[Any, Shard | None]] = {}
        self._again: deque[Shard] = deque()
        self._losses: dict[int | None, int] = {}
        self._all_given = False

    def compute(self, shards: Iterable[Shard]) -> Iterator[Finished]:
        waiting = iter(shards)
        try:
            for _ in range(self._work.most_workers(self._share.workers)):
                self._hire()
            while self._at_work or self._again or not self._all_given:
                yield from self._next(waiting)
        except KeyboardInterrupt:
            while self._at_work:  # what has begun is finished and kept
                yield from self._next(iter(()))
            raise
        finally:
            for actor, _ in self._busy.values():
                ray.kill(actor)

    @property
    def _at_work(self) -> bool:
        return any(shard is not None for _, shard in self._busy.values())

    def _hire(self) -> None:
        share = self._share
        kind = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=0)(Worker)
        actor = cast(Any, kind).remote(self._work, share.cpus)
        self._busy[actor.load.remote()] = (actor, None)

    def _next(self, waiting: Iterator[Shard]) -> Iterator[Finished]:
        """Waits for a call to end, and passes the next shard to its actor."""
        ended, _ = ray.wait([*self._busy], num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)
        if not ended:
            self._look_for_machines()
            return
        (call,) = ended
        actor, shard = self._busy.pop(call)
        try:
            result = cast("Finished | None", ray.get(call))
        except exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, NormscopeError) else error from None
        except exceptions.RayError as error:
            self._replace(actor, shard, error)
            return
        self._losses.pop(None if shard is None else shard.index, None)
        following = self._again.popleft() if self._again else next(waiting, None)
        if following is None:
            self._all_given = True
        else:
            self._busy[actor.compute.remote(following)] = (actor, following)
        if result is not None:
            yield result

    def _look_for_machines(self) -> None:
        """Waits for a machine if none is left, and reports it; then ends."""
        if any(map(self._share.fits, _machines())):
            self._alone_since = None
            return
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
            print(
                f"No machine of the Ray cluster is left that could run a worker. Waiting {self._patience:g} s for one.",
                file=sys.stderr,
                flush=True,
            )
        if now - self._alone_since >= self._patience:
            raise WorkerError(
                f"No machine of the Ray cluster is left that could run a worker, and none came within "
                f"{self._patience:g} s. Start one (ray start), or use another cluster (--ray-address)."
            )

    def _replace(self, actor: Any, shard: Shard | None, error: exceptions.RayError) -> None:
        """Replaces a lost actor; its shard is computed again."""
        ray.kill(actor)
        index = None if shard is None else shard.index
        if not getattr(error, "preempted", False):
            self._losses[index] = self._losses.get(index, 0) + 1
        if self._losses.get(index, 0) >= MOST_LOSSES:
            doing = "loading the model" if shard is None else f"shard {shard.index}"
            raise WorkerError(
                f"{MOST_LOSSES} workers in a row died at {doing}; most often a system ends them because memory runs out "
                f"(use fewer --workers). The last one: {str(error).strip().splitlines()[-1]}"
            ) from error
        if shard is not None:
            self._again.append(shard)
        self._hire()
