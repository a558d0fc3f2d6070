"""Ray: real clusters of several nodes on this machine give the tables of this process, whatever is lost on the way."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from normscope.corpora import bundled
from normscope.errors import InputError
from normscope.experiments import Observation, Partial
from normscope.experiments.base import ModelFacts
from normscope.experiments.mixing import MixingRatio
from normscope.runs import WorkerError, run
from normscope.runs.engines import Finished, Work
from normscope.runs.spool import Shard
from runs.small import save_model, tables

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'normscope[ray]'")

from ray.cluster_utils import Cluster  # noqa: E402

from normscope.runs.ray import MOST_LOSSES, Ray, Share, share_of  # noqa: E402

NAMES = ["mixing-ratio", "ff-amplification", "frequency"]
SMALL: dict[str, Any] = {"corpus": str(bundled()), "unit": "packed", "max_tokens": 24, "shard_size": 1}
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster whose head computes nothing, with two nodes of one core, which can import the tests."""
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    # Ray's own folder may be another user's. Names of sockets have at most 107 bytes, and that of TMPDIR may be long.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp" if os.path.isdir("/tmp") else None)
    monkeypatch.setenv("RAY_TMPDIR", folder)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def small(analyzer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), analyzer.tokenizer)


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    """The processes of actors among the descendants of a process."""
    return [child for child in process.children(recursive=True) if "ray::Worker" in " ".join(child.cmdline())]


def test_a_cluster_gives_the_tables_of_this_process(small: Path, cluster: Any, tmp_path: Path) -> None:
    run(NAMES, model=small, out=tmp_path / "here", limit=6, **SMALL)
    run(NAMES, model=small, out=tmp_path / "ray", limit=6, engine=Ray(cluster.address, workers=1), **SMALL)
    assert tables(tmp_path / "ray") == tables(tmp_path / "here")
    assert not ray.is_initialized(), "the cluster is left as it was"


# ---- what is lost ------------------------------------------------------------------------------------------------------


@dataclass
class Disturbed:
    """Something happens after the first shard."""

    engine: Ray
    event: Callable[[], None]
    happened: bool = False

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        for finished in self.engine.compute(work, shards):
            yield finished
            if not self.happened:
                self.event()
                self.happened = True


def kill_a_worker() -> None:
    busy = [each for each in workers_of(psutil.Process()) if "compute" in " ".join(each.cmdline())]
    (busy or workers_of(psutil.Process()))[0].kill()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(small: Path, cluster: Any, tmp_path: Path) -> None:
    run(NAMES, model=small, out=tmp_path / "here", limit=12, **SMALL)
    engine = Disturbed(Ray(cluster.address), kill_a_worker)
    run(NAMES, model=small, out=tmp_path / "ray", limit=12, engine=engine, **SMALL)
    assert engine.happened and tables(tmp_path / "ray") == tables(tmp_path / "here")


@pytest.mark.slow
def test_a_node_that_is_lost_is_done_without(small: Path, cluster: Any, tmp_path: Path) -> None:
    """The actor of the lost node finds no room again: the other one does its work, and nobody waits."""
    run(NAMES, model=small, out=tmp_path / "here", limit=12, **SMALL)
    lost = next(iter(cluster.worker_nodes))
    engine = Disturbed(Ray(cluster.address), lambda: cluster.remove_node(lost, allow_graceful=False))
    run(NAMES, model=small, out=tmp_path / "ray", limit=12, engine=engine, **SMALL)
    assert engine.happened and tables(tmp_path / "ray") == tables(tmp_path / "here")


@pytest.mark.slow
def test_a_run_that_has_lost_every_machine_says_so_and_ends_and_can_be_resumed(
    small: Path, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_all() -> None:
        for node in list(cluster.worker_nodes):
            cluster.remove_node(node, allow_graceful=False)

    asked: dict[str, Any] = {"model": small, "out": tmp_path / "ray", "limit": 12, **SMALL}
    says = r"No machine of the Ray cluster is left .* none came within 2 s\. .* of 12 sequences are done .*resumes"
    with pytest.raises(WorkerError, match=says):
        run(NAMES, engine=Disturbed(Ray(cluster.address, patience=2.0), lose_all), **asked)
    assert "No machine of the Ray cluster is left that could run a worker. Waiting 2 s" in capsys.readouterr().err
    run(NAMES, model=small, out=tmp_path / "here", limit=12, **SMALL)
    run(NAMES, **asked)
    assert tables(tmp_path / "ray") == tables(tmp_path / "here")


def started(model: Path, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "normscope", "run", *NAMES, "-m", str(model), "-c", str(bundled())]
    sizes = ["--unit", "packed", "--max-tokens", "24", "--limit", "40", "--shard-size", "1", "--engine", "ray"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *sizes, "-o", str(folder), *arguments], env=environment, stderr=subprocess.DEVNULL
    )


def await_a_shard(folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while not any((folder / "shards").glob("0*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() is None and any((folder / "shards").glob("0*"))


@pytest.mark.slow
def test_a_killed_driver_resumes_on_the_cluster(small: Path, cluster: Any, tmp_path: Path) -> None:
    run(NAMES, model=small, out=tmp_path / "here", limit=40, **SMALL)
    driver = started(small, tmp_path / "ray", "--ray-address", cluster.address)
    await_a_shard(tmp_path / "ray", driver)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert not (tmp_path / "ray" / "manifest.json").exists()
    run(NAMES, model=small, out=tmp_path / "ray", limit=40, engine=Ray(cluster.address), **SMALL)
    assert tables(tmp_path / "ray") == tables(tmp_path / "here")


@pytest.mark.slow
def test_a_killed_driver_takes_the_cluster_that_it_started_with_it(small: Path, tmp_path: Path) -> None:
    driver = started(small, tmp_path / "run", "--workers", "1")
    await_a_shard(tmp_path / "run", driver)
    family = psutil.Process(driver.pid).children(recursive=True)
    assert any("raylet" in child.name() for child in family)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    _, alive = psutil.wait_procs(family, timeout=300)
    assert not alive


@dataclass(frozen=True)
class Deadly(MixingRatio):
    """Kills its process at the second sequence."""

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        if observation.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().observe(observation, model)


@pytest.mark.slow
def test_a_shard_that_kills_every_worker_is_a_clear_error(small: Path, cluster: Any, tmp_path: Path) -> None:
    says = rf"{MOST_LOSSES} workers in a row died at shard 1; .*fewer --workers.* [12] of 3 sequences are done.*resumes"
    with pytest.raises(WorkerError, match=f"(?s){says}"):
        run([Deadly()], model=small, out=tmp_path / "run", limit=3, engine=Ray(cluster.address), **SMALL)
    assert {"000000"} <= {path.name for path in (tmp_path / "run" / "shards").iterdir()} <= {"000000", "000002"}


# ---- who gets what -----------------------------------------------------------------------------------------------------


def test_workers_share_out_the_cores_of_their_machines() -> None:
    head, large, small = {"CPU": 0.0}, {"CPU": 16.0, "GPU": 2.0}, {"CPU": 4.0}
    assert share_of([head, large, large], None) == Share(2, 16)
    assert share_of([head, large, large], 4) == Share(4, 8)
    assert share_of([large, small], 5) == Share(5, 4)
    assert share_of([small], 9) == Share(9, 1), "more than there is room for, as machines may come"
    assert share_of([large, large, small], None, "cuda") == Share(4, 8, 1)
    assert share_of([large, large, small], None, spread=True) == Share(2, 16, 2), "a model takes all GPUs of a machine"
    assert share_of([small, small], None, spread=True) == Share(2, 4), "or, where there are none, its CPU"
    for nodes, device in (([head], None), ([small], "cuda:0"), ([], None)):
        with pytest.raises(InputError, match="No machine of the Ray cluster has a"):
            share_of(nodes, None, device)


def test_a_machine_has_room_for_a_worker_or_not() -> None:
    head, large, small = {"CPU": 0.0}, {"CPU": 16.0, "GPU": 2.0}, {"CPU": 4.0}
    assert [Share(1, 4).fits(node) for node in (head, large, small, {})] == [False, True, True, False]
    assert [Share(1, 4, 2).fits(node) for node in (head, large, small)] == [False, True, False]


def test_wrong_requests_of_a_cluster_are_refused(analyzer: Any) -> None:
    for workers in (0, 10**9):
        with pytest.raises(InputError, match=f"at least 1 and at most 10000, not {workers}"):
            Ray(workers=workers)
    with pytest.raises(InputError, match="name it"):
        run(["mixing-ratio"], model=analyzer, corpus=["It rained."], engine=Ray())


def test_a_cluster_that_does_not_answer_is_a_clear_error(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(WorkerError, match=rf"no Ray cluster at '{address}'.*0 of 1 sequences"):
            run(["mixing-ratio"], corpus=["It rained."], out=tmp_path / "run", engine=Ray(address))
