"""The web app under load: clients that go away, fifty at once, analyses that are given up, and memory that is given back."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from explorer_server import TEXT, Running, follow, submit

from normscope.explorer.jobs import Job, Queue, Status, return_memory
from normscope.explorer.payload import payload_json
from normscope.explorer.server import Limits, WebApp
from normscope.explorer.work import Cancelled, Order, Result, analyse


class Held(WebApp):
    """Analyses that wait until they are let go, or cancelled."""

    def __init__(self, analyzer: Any, limits: Limits) -> None:
        super().__init__({"mini": analyzer}, limits)
        self.gate = threading.Event()
        self.at_once = self.most_at_once = 0
        self.threads: set[int] = set()
        self.ready = analyzer.analyze(TEXT, layers=1, scopes="AttnW")

    def _analyze(self, job: Job, orders: list[Order], *, heads: bool) -> Result:
        self.at_once += 1
        self.threads.add(threading.get_ident())
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            while not self.gate.wait(0.01):
                if job.cancelled:
                    raise Cancelled
            if orders[0].inputs == "crash":
                raise RuntimeError("a bug")
            return Result([self.ready], payload_json(self.ready).encode())
        finally:
            self.at_once -= 1


def test_jobs_wait_are_cancelled_and_refused_when_too_many(run: Callable[[Any], Running], analyzer: Any) -> None:
    app = Held(analyzer, Limits(waiting=2))
    server = run(app.starlette())
    with server.client() as client:
        running = submit(client).json()["id"]
        while app.at_once == 0:
            time.sleep(0.01)
        waiting = [submit(client).json()["id"] for _ in range(2)]
        refused = submit(client)
        assert refused.status_code == 429
        assert "busy" in refused.json()["error"]
        assert client.get(f"/api/jobs/{waiting[0]}/result").status_code == 404
        assert client.delete(f"/api/jobs/{waiting[0]}").json() == {"stage": "cancelled"}
        assert client.delete(f"/api/jobs/{running}").json() == {"stage": "cancelled"}
        app.gate.set()
        assert follow(client, waiting[1])[-1]["stage"] == "done"
        assert follow(client, running)[-1]["stage"] == "cancelled"


@pytest.mark.filterwarnings("ignore")
def test_a_crash_is_told_and_the_next_job_runs(run: Callable[[Any], Running], analyzer: Any) -> None:
    app = Held(analyzer, Limits())
    app.gate.set()
    server = run(app.starlette())
    with server.client() as client:
        told = follow(client, submit(client, "crash").json()["id"])
        assert told[-1]["stage"] == "failed"
        assert "bug" not in told[-1]["message"]
        assert follow(client, submit(client).json()["id"])[-1]["stage"] == "done"


@pytest.mark.slow
def test_fifty_clients_at_once_are_all_served_one_at_a_time(run: Callable[[Any], Running], analyzer: Any) -> None:
    app = Held(analyzer, Limits())
    app.gate.set()
    server = run(app.starlette())

    async def client(number: int) -> str:
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as client:
            answer = await client.post("/api/jobs", json={"analyses": [{"text": f"text {number}"}]})
            job = answer.json()["id"]
            async with client.stream("GET", f"/api/jobs/{job}/events") as events:
                told = [line async for line in events.aiter_lines() if line.startswith("data: ")]
            stage = json.loads(told[-1].removeprefix("data: "))["stage"]
            await client.get("/")
            return stage

    async def all_clients() -> list[str]:
        return await asyncio.gather(*(client(number) for number in range(50)))

    # In a thread of its own, as the browser of other tests has an event loop in this one.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, all_clients()).result() == ["done"] * 50
    assert app.most_at_once == 1


def test_an_analysis_is_stopped_between_layers_and_leaves_the_model_as_it_was(analyzer: Any) -> None:
    before = analyzer.analyze(TEXT).map("Attn").values
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(len(asked))
        return len(asked) == 4

    told: list[int] = []
    with pytest.raises(Cancelled):
        analyse(
            [Order(analyzer, TEXT)],
            heads=False,
            most_tokens=100,
            tell=lambda done, _: told.append(done),
            cancelled=cancelled,
        )
    assert told == [0, 1, 2]
    assert (analyzer.analyze(TEXT).map("Attn").values == before).all()
    assert all(not module._forward_pre_hooks for module in analyzer.model.modules())


@pytest.fixture
def log() -> Iterator[list[logging.LogRecord]]:
    """What the server writes to its log."""
    records: list[logging.LogRecord] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio", "normscope")]
    collector = Collector(logging.WARNING)
    for logger in loggers:
        logger.addHandler(collector)
    yield records
    for logger in loggers:
        logger.removeHandler(collector)


def leave(server: Running, request: bytes, answer: int = 0) -> None:
    """Send the beginning of a request, read so many bytes of the answer, and go away without a word."""
    with socket.create_connection(("127.0.0.1", server.socket.getsockname()[1])) as connection:
        connection.sendall(request)
        if answer:
            connection.recv(answer)
        # No lingering: the server meets a reset, as after a crash, not a polite end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def head(server: Running, method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {server.host}", *headers, "", ""]).encode()


def test_a_client_that_goes_away_leaves_no_trace_in_the_log(server: Running, log: list[logging.LogRecord]) -> None:
    kind = "Content-Type: application/json"
    with server.client() as client:
        job = submit(client).json()["id"]
        follow(client, job)
        for _ in range(5):
            leave(server, head(server, "POST", "/api/jobs", kind, "Content-Length: 5000") + b'{"analyses": [')
            leave(server, head(server, "POST", "/api/jobs", kind, "Transfer-Encoding: chunked") + b"4\r\n{   \r\n")
            leave(server, head(server, "POST", "/api/jobs", kind, "Content-Length: 5000"))
            leave(server, head(server, "GET", f"/api/jobs/{job}/result"), answer=1)
            leave(server, head(server, "GET", f"/api/jobs/{job}/events"), answer=1)
        running = submit(client).json()["id"]
        leave(server, head(server, "GET", f"/api/jobs/{running}/events"), answer=1)
        assert follow(client, running)[-1]["stage"] == "done"
    time.sleep(0.3)
    assert [record.getMessage() for record in log] == []


def test_work_that_nobody_follows_is_given_up(
    run: Callable[[Any], Running], analyzer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("normscope.explorer.jobs._PATIENCE_SECONDS", 0.2)
    app = Held(analyzer, Limits())
    server = run(app.starlette())
    with server.client() as client:
        never_followed = submit(client).json()["id"]
        left = submit(client).json()["id"]
        leave(server, head(server, "GET", f"/api/jobs/{left}/events"), answer=1)
        deadline = time.monotonic() + 20
        for job in (never_followed, left):  # whoever follows one too early keeps it alive
            while app.queue.jobs[job].status.stage != "cancelled" and time.monotonic() < deadline:
                time.sleep(0.05)
            assert app.queue.jobs[job].status.stage == "cancelled"
            assert follow(client, job)[-1]["stage"] == "cancelled"


def finished(queue: Queue, result: Result) -> Job:
    """A job whose work is done."""
    job = Job(lambda _: result)
    job.result = result
    job.become(Status("done"))
    queue.jobs[job.id] = job
    queue._forget()
    return job


def test_finished_analyses_are_kept_by_their_size(analyzer: Any) -> None:
    analysis = analyzer.analyze(TEXT, heads=True)
    result = Result([analysis, analysis], payload_json(analysis).encode())
    assert result.size == 2 * analysis.dataset.nbytes + len(result.payload)

    async def jobs_kept(most_bytes: int, most_kept: int) -> list[int]:
        queue = Queue(most_bytes=most_bytes, most_kept=most_kept)
        jobs = [finished(queue, result) for _ in range(6)]
        return [place for place, job in enumerate(jobs) if job.id in queue.jobs]

    # In a thread of its own, as the browser of other tests has an event loop in this one.
    with ThreadPoolExecutor(1) as pool:

        def kept(most_bytes: int, most_kept: int = 64) -> list[int]:
            return pool.submit(asyncio.run, jobs_kept(most_bytes, most_kept)).result()

        assert kept(10 * result.size) == [0, 1, 2, 3, 4, 5]
        assert kept(3 * result.size) == [3, 4, 5]
        assert kept(3 * result.size - 1) == [4, 5]
        assert kept(0) == [5]
        assert kept(10 * result.size, most_kept=2) == [4, 5]


def test_a_forgotten_job_lets_go_of_its_result() -> None:
    async def forgotten() -> Job:
        queue, result = Queue(most_kept=1), Result([], b"payload")
        first = finished(queue, result)
        finished(queue, result)
        return first

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, forgotten()).result().result is None


def test_a_forgotten_analysis_is_told_as_such(run: Callable[[Any], Running], analyzer: Any) -> None:
    server = run(WebApp({"mini": analyzer}, Limits(kept=0)).starlette())
    with server.client() as client:
        jobs = [submit(client).json()["id"] for _ in range(2)]
        for job in jobs:
            follow(client, job)
        answer = client.get(f"/api/jobs/{jobs[0]}/result")
        assert (answer.status_code, client.get(f"/api/jobs/{jobs[1]}/result").status_code) == (404, 200)
        assert "request it again" in answer.json()["error"]


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled() -> int:
    """The same once the server, which tidies up after it has said that a job is done, has had the time to."""
    smallest = resident()
    for _ in range(40):
        time.sleep(0.1)
        smallest = min(smallest, resident())
    return smallest


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is free")
def test_what_an_analysis_leaves_free_goes_back_to_the_system(run: Callable[[Any], Running], analyzer: Any) -> None:
    app = WebApp({"mini": analyzer}, Limits(kept=0))
    server = run(app.starlette())
    with server.client() as client:
        return_memory()
        before = resident()
        for length in (150, 90, 200, 120, 180, 60):
            assert follow(client, submit(client, "word " * length, heads=True).json()["id"])[-1]["stage"] == "done"
        follow(client, submit(client).json()["id"])  # of the large ones none is left
        after = settled()
    return_memory()
    assert after - resident() < 16 * 2**20, "free memory was not given back"
    assert after - before < 96 * 2**20


def test_all_analyses_run_in_one_thread(run: Callable[[Any], Running], analyzer: Any) -> None:
    app = Held(analyzer, Limits())
    app.gate.set()
    server = run(app.starlette())
    with server.client() as client:
        for _ in range(12):
            follow(client, submit(client).json()["id"])
    assert len(app.threads) == 1
