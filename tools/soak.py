"""Kill corpus runs at random moments, again and again, and compare what they end with, byte for byte.

Every run is resumed until it ends well. Its tables must then be those of a run that nothing disturbed, and its folder must
hold nothing half-written. Runs are forked from this process, so that a kill costs seconds and not an import of torch; the
model is a small one with random weights, so that many kills hit a run while it writes.

    python tools/soak.py --local 80 --processes 10 --ray 10
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import BertConfig, BertModel

import normscope as ns
from normscope.corpora import bundled
from normscope.runs import run
from normscope.runs.engines import Engine, Processes

NAMES = ["mixing-ratio", "ff-amplification", "frequency"]
SETTINGS: dict[str, Any] = {
    "corpus": str(bundled()),
    "unit": "packed",
    "max_tokens": 16,
    "shard_size": 1,
    "limit": 24,
    "options": {"ff-amplification": {"kinds": ("ff",), "top": 3}},
}
ENGINES = ("local", "processes", "ray")
LONGEST = 600
"""Seconds after which a run that was left alone hangs."""


class SoakError(Exception):
    """A run ended otherwise than an undisturbed one."""


@dataclass
class Soak:
    """The runs below a folder, and what has been done to them."""

    folder: Path
    address: str | None
    chance: random.Random
    analyzer: Any
    workers: int
    kills: Counter[str] = field(default_factory=Counter[str])
    runs: Counter[str] = field(default_factory=Counter[str])
    lengths: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def reference(self) -> dict[str, bytes]:
        return tables(self.folder / "undisturbed")

    def undisturbed(self, engine: str) -> None:
        """How long a run takes that is left alone; the first of them is the one that all others are compared with."""
        path = self.folder / ("undisturbed" if not self.lengths else f"{engine}-undisturbed")
        started = time.monotonic()
        if wait(self.start(engine, path), LONGEST) != 0:
            raise SoakError(f"The undisturbed run with {engine} failed:\n{self.log.read_text()}")
        self.lengths[engine] = time.monotonic() - started
        self.check(path)
        print(f"An undisturbed run with {engine} takes {self.lengths[engine]:.1f} s.", flush=True)

    def disturbed(self, engine: str, kills: int) -> None:
        """Runs with an engine, until there were that many kills."""
        if kills and engine not in self.lengths:
            self.undisturbed(engine)
        while sum(count for what, count in self.kills.items() if what.startswith(engine)) < kills:
            path = self.folder / f"{engine}-{self.runs[engine]}"
            failures = 0
            while (status := self.attempt(engine, path)) != 0:
                failures += status not in (None, -signal.SIGKILL)
                if failures > 20:
                    raise SoakError(f"{path.name} does not end well:\n{self.log.read_text()}")
            self.check(path)
            self.runs[engine] += 1
            shutil.rmtree(path)
            print(self.summary(), flush=True)

    def attempt(self, engine: str, path: Path) -> int | None:
        """Start or resume a run and kill something of it at a random moment, if it lasts that long; how it ended."""
        process = self.start(engine, path)
        status = wait(process, self.chance.uniform(0, self.lengths[engine]))
        if status is not None:
            return status
        workers = [] if engine == "local" else workers_of(process)
        if workers and self.chance.random() < 0.5:
            self.chance.choice(workers).kill()
            self.kills[f"{engine}, a worker"] += 1
            status = wait(process, LONGEST)
            if status is None:
                raise SoakError(f"{path.name} hangs after a worker was killed.")
            return status
        os.kill(process, signal.SIGKILL)
        self.kills[f"{engine}, the driver"] += 1
        status = wait(process, LONGEST)
        _, alive = psutil.wait_procs(workers, timeout=LONGEST)
        if alive:
            raise SoakError(f"{path.name}: workers outlive their driver.")
        return status

    def start(self, engine: str, path: Path) -> int:
        """Fork a run; its process id."""
        process = os.fork()
        if process:
            return process
        try:
            os.dup2(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            choice = self.engine(engine)
            model = self.analyzer if choice is None else self.folder / "model"
            run(NAMES, model=model, out=path, engine=choice, **SETTINGS)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def engine(self, name: str) -> Engine | None:
        if name == "processes":
            return Processes(self.workers)
        if name == "ray":
            from normscope.runs.ray import Ray  # noqa: PLC0415  (an extra)

            return Ray(self.address, self.workers)
        return None

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    def check(self, path: Path) -> None:
        """The tables of a run, and that nothing else is left in its folder."""
        mine, expected = tables(path), self.reference
        differences = [name for name in {*mine, *expected} if mine.get(name) != expected.get(name)]
        left = [str(each) for each in path.rglob(".*") if each.name != ".run.lock"]
        if differences or left:
            raise SoakError(f"{path}: different tables {differences}, left over {left}")

    def summary(self) -> str:
        kills = ", ".join(f"{count} of {what}" for what, count in sorted(self.kills.items()))
        return f"{sum(self.kills.values())} kills ({kills}) over {sum(self.runs.values())} runs: every table identical."


def small_model(folder: Path) -> Path:
    """Two layers with random weights, and the tokenizer of the embedded model."""
    tokenizer = ns.load().tokenizer
    assert tokenizer is not None
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tables(path: Path) -> dict[str, bytes]:
    return {table.name: table.read_bytes() for table in (path / "tables").iterdir()}


def wait(process: int, seconds: float) -> int | None:
    """The exit code of a child, if it ends within that time; negative for a signal."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.01)


def workers_of(driver: int) -> list[psutil.Process]:
    """The processes that compute for a run: the driver's children, or, on the cluster, its actors."""
    here = psutil.Process()
    spawned = [child for child in psutil.Process(driver).children() if "spawn_main" in _command(child)]
    everyone = here.children(recursive=True)
    return spawned or [child for child in everyone if _command(child).startswith("ray::Worker")]


def _command(process: psutil.Process) -> str:
    """The command line of a process, empty if it has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


@contextmanager
def cluster(wanted: bool) -> Iterator[str | None]:
    """The address of a cluster with a head and two nodes of one core, in a process of its own."""
    if not wanted:
        yield None
        return
    command = [sys.executable, __file__, "--serve-cluster"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield next(line.split()[1] for line in process.stdout if line.startswith("address "))
        process.stdin.close()


def serve_cluster() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster  # noqa: PLC0415  (never in the process that forks)

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        nodes.add_node(num_cpus=1)
    print("address", nodes.address, flush=True)
    sys.stdin.read()
    nodes.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    for engine, kills in zip(ENGINES, (80, 10, 10), strict=True):
        parser.add_argument(f"--{engine}", type=int, default=kills, help=f"kills of runs with this engine ({kills})")
    parser.add_argument("--workers", type=int, default=2, help="of runs with processes or Ray (2)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the moments (default: the time)")
    parser.add_argument("--serve-cluster", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_cluster:
        serve_cluster()
        return
    torch.set_num_threads(1)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="normscope-soak-") as folder, cluster(options.ray > 0) as address:
        analyzer = ns.load(small_model(Path(folder) / "model"))
        soak = Soak(Path(folder), address, random.Random(options.seed), analyzer, options.workers)
        soak.undisturbed(ENGINES[0])
        for engine in ENGINES:
            soak.disturbed(engine, getattr(options, engine))


if __name__ == "__main__":
    main()
