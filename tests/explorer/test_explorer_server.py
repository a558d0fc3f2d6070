"""The web app: a real server with the real model, under good and bad requests, alone and with fifty clients at once."""

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
import numpy as np
import pytest
import uvicorn
from explorer_server import Running

import normscope
from normscope.explorer import guard, serving
from normscope.explorer.jobs import Job, Queue, Status
from normscope.explorer.memory import give_back
from normscope.explorer.payload import payload_json
from normscope.explorer.server import Limits, WebApp
from normscope.explorer.work import Cancelled, Order, Result, analyse

TEXT = "The chef opened a restaurant."
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def run() -> Iterator[Callable[[Any], Running]]:
    started: list[Running] = []

    def start(app: Any) -> Running:
        started.append(Running(app))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def server(run: Callable[[Any], Running], analyzer: Any) -> Running:
    return run(WebApp({"mini": analyzer}, Limits(tokens=40, characters=2_000)).starlette())


def submit(client: httpx2.Client, text: Any = TEXT, **more: Any) -> httpx2.Response:
    return client.post("/api/jobs", json={"analyses": [{"text": text}], **more})


def follow(client: httpx2.Client, job: str) -> list[dict[str, Any]]:
    with client.stream("GET", f"/api/jobs/{job}/events") as answer:
        return [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line.startswith("data: ")]


# ---- good requests -----------------------------------------------------------------------------------------------------


def test_a_text_is_analysed_with_progress(server: Running, analyzer: Any) -> None:
    with server.client() as client:
        job = submit(client, heads=True).json()["id"]
        told = follow(client, job)
        assert told[-1]["stage"] == "done"
        result = client.get(f"/api/jobs/{job}/result").json()
        assert result["analyses"][0]["keys"]["token"] == analyzer.analyze(TEXT).tokens
        assert result["analyses"][0]["heads"]["numbers"] == list(range(1, 13))


def test_exact_values_are_had_on_demand(server: Running, analyzer: Any) -> None:
    with server.client() as client:
        job = submit(client).json()["id"]
        follow(client, job)
        asked = {"analysis": 0, "scope": "AttnRes", "layer": 2, "head": 0}
        answer = client.get(f"/api/jobs/{job}/exact", params=asked)
        exact = analyzer.analyze(TEXT).map("AttnRes").sel(layer=2).values
        np.testing.assert_allclose(np.frombuffer(answer.content, "<f4").reshape(exact.shape), exact, rtol=1e-5)
        for wrong in ({"layer": 99}, {"scope": "../../etc/passwd"}, {"analysis": 5}, {"head": 3}, {"layer": "x"}):
            assert client.get(f"/api/jobs/{job}/exact", params={**asked, **wrong}).status_code == 404


def test_the_page_is_used_in_a_browser(browser: Any, server: Running) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.goto(server.url)
    page.get_by_label("Text to analyse").fill(TEXT)
    page.get_by_label("Text to analyse").press("Enter")
    page.locator(".heatmap[data-drawn]").wait_for(state="attached")
    assert page.locator(".tokens button", has_text="chef").count() == 1
    page.locator(".exports summary").click()
    with page.expect_download() as download:
        page.locator("[data-export=json]").click()
    with open(download.value.path(), encoding="utf-8") as file:
        assert json.load(file)["views"][0]["precision"] == "float32"
    page.get_by_text("Compare with").click()
    page.get_by_label("Second text", exact=True).fill("The chef closed a restaurant.")
    page.get_by_role("button", name="Analyse").click()
    page.locator(".stage").nth(1).wait_for()
    page.get_by_label("Text to analyse").fill("word " * 100)
    page.get_by_role("button", name="Analyse").click()
    page.locator(".message.wrong").wait_for()
    assert "at most 40" in page.locator(".message").inner_text()
    assert trouble == []
    page.close()


def test_the_first_explorer_is_gone_after_a_second_analysis(browser: Any, server: Running) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(server.url)
    page.get_by_label("Text to analyse").fill(TEXT)
    page.get_by_label("Text to analyse").press("Enter")
    page.locator(".heatmap[data-drawn]").wait_for(state="attached")
    page.evaluate("""() => {
        const first = document.querySelector("main").shadowRoot.querySelector(".root.inner");
        window.first = first;
        window.changes = 0;
        window.written = [];
        const write = history.replaceState;
        history.replaceState = function (...values) { window.written.push(values[2]); write.apply(this, values); };
        window.watch = () => {
            const observer = new MutationObserver((records) => { window.changes += records.length; });
            observer.observe(first, { subtree: true, childList: true, attributes: true, characterData: true });
        };
    }""")
    page.locator(".step[data-scope=AttnW]").click()
    page.get_by_role("button", name="Play the chain").click()
    page.get_by_label("Text to analyse").fill("The critics loved the chef.")
    page.get_by_label("Text to analyse").press("Enter")
    page.locator(".tokens button", has_text="critics").wait_for()
    page.evaluate("() => { window.watch(); window.written.length = 0; }")
    title = page.locator("h1:visible").inner_text()
    page.wait_for_timeout(2_500)  # more than two steps of the chain that was being played
    assert page.evaluate("() => window.written") == []
    assert page.locator("h1:visible").inner_text() == title
    page.evaluate("() => { location.hash = 'scope=AttnRes&layer=2'; }")
    page.locator("h1", has_text="AttnRes, layer 2").wait_for()
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    assert page.evaluate("() => window.first.isConnected") is False
    assert page.evaluate("() => [window.changes, window.first.childElementCount]") == [0, 0]
    page.close()


# ---- bad requests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"analyses": [{"text": "  "}]}, "empty"),
        ({"analyses": [{"text": "x" * 2_001}]}, "at most 2000"),
        ({"analyses": [{"text": 7}]}, "empty"),
        ({"analyses": [{"text": "a", "model": "/etc/passwd"}]}, "model"),
        ({"analyses": [{"text": "a", "model": ["mini"]}]}, "model"),
        ({"analyses": []}, "one analysis"),
        ({"analyses": [{"text": "a"}] * 3}, "one analysis"),
        ({"analyses": "a"}, "one analysis"),
        ({"analyses": [None]}, "empty"),
        ({"analyses": [{"text": "a"}], "heads": "yes"}, "true or false"),
        ({"analyses": [{"text": "\ud800"}]}, "half a character"),
        ([], "object"),
        ("text", "object"),
    ],
)
def test_a_bad_request_gets_a_message(server: Running, content: Any, words: str) -> None:
    with server.client() as client:
        answer = client.post("/api/jobs", content=json.dumps(content), headers=JSON)
        assert answer.status_code == 422
        assert words in answer.json()["error"]


def test_what_is_no_json_or_too_large_is_refused(server: Running) -> None:
    with server.client() as client:
        assert client.post("/api/jobs", content=b"{", headers=JSON).status_code == 422
        assert client.post("/api/jobs", content=b"[" * 100_000, headers=JSON).status_code == 422
        assert client.post("/api/jobs", content=b"a=b").status_code == 415
        assert client.post("/api/jobs", content=b" " * 200_000, headers=JSON).status_code == 413

        def chunks() -> Iterator[bytes]:
            for _ in range(40):
                yield b" " * 10_000

        assert client.post("/api/jobs", content=chunks(), headers=JSON).status_code == 422
        assert submit(client).status_code == 202


def test_a_text_of_too_many_tokens_fails_with_a_message(server: Running) -> None:
    with server.client() as client:
        told = follow(client, submit(client, "word " * 60).json()["id"])
        assert told[-1]["stage"] == "failed"
        assert told[-1]["message"] == "The text has 62 tokens, and this server takes at most 40."


def test_nothing_is_read_by_url(server: Running) -> None:
    with server.client() as client:
        for path in ("/..%2f..%2fetc/passwd", "/static/explorer.js", "/api/jobs/..%2f", "/api/jobs/x/result", "/x"):
            assert client.get(path).status_code == 404, path
        assert client.delete("/api/jobs/unknown").status_code == 404
        assert client.put("/api/jobs").status_code == 405


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "192.168.0.7"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_hosts_and_other_pages_are_refused(server: Running, headers: dict[str, str]) -> None:
    with server.client(**headers) as client:
        assert submit(client).status_code in (403, 421)
        assert client.get("/api/jobs/x/result").status_code in (403, 421)


def test_own_pages_are_served_with_strict_headers(server: Running) -> None:
    with server.client(Origin=server.url, **{"Sec-Fetch-Site": "same-origin"}) as client:
        assert submit(client).status_code == 202
        answer = client.get("/")
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
    with server.client(**{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}) as client:
        assert client.get("/").status_code == 200  # following a link is no attack


# ---- clients that go away ----------------------------------------------------------------------------------------------


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
        while app.queue.jobs[never_followed].status.stage != "cancelled" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert follow(client, never_followed)[-1]["stage"] == "cancelled"
        assert follow(client, left)[-1]["stage"] == "cancelled"


# ---- addresses and tokens ----------------------------------------------------------------------------------------------


def test_another_address_wants_the_token(run: Callable[[Any], Running], analyzer: Any) -> None:
    server = run(WebApp({"mini": analyzer}).starlette(host="0.0.0.0", token="sesame"))
    with server.client() as client:
        assert client.get("/").status_code == 401
        assert submit(client).status_code == 401
        assert client.get("/", params={"token": "wrong"}).status_code == 401
        assert client.get("/explorer.js", params={"token": "sesame"}).status_code == 401
        answer = client.get("/", params={"token": "sesame"})
        assert answer.status_code == 303
        assert "httponly" in answer.headers["set-cookie"].lower()
        assert "samesite=strict" in answer.headers["set-cookie"].lower()
        assert client.get("/").status_code == 200
        assert submit(client).status_code == 202
    with server.client(Authorization="Bearer sesame", Host="192.168.0.7:80") as client:
        assert client.get("/").status_code == 200
    with server.client(Authorization="Bearer sesame", Host="rebound.example") as client:
        assert client.get("/").status_code == 421


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("a.b", False)]
)
def test_loopback_is_known(host: str, local: bool) -> None:
    assert guard.is_loopback(host) == local


def test_serving_warns_and_prints_the_token(analyzer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: sockets[0].close())
    said: list[str] = []
    serving.serve(WebApp({"mini": analyzer}), what="mini", host="0.0.0.0", port=0, say=said.append)
    assert said[0].startswith("Warning: 0.0.0.0 can be reached by other machines")
    assert "?token=" in said[1]
    said.clear()
    serving.serve(WebApp({"mini": analyzer}), what="mini", port=0, say=said.append)
    assert len(said) == 1
    assert "token" not in said[0]


def test_a_taken_port_is_one_message(analyzer: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(normscope.InputError, match="Choose another with --port"):
            serving.serve(WebApp({"mini": analyzer}), what="mini", port=port)


# ---- the queue ---------------------------------------------------------------------------------------------------------


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


# ---- memory ------------------------------------------------------------------------------------------------------------


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


def test_a_forgotten_analysis_is_told_as_such(run: Callable[[Any], Running], analyzer: Any) -> None:
    server = run(WebApp({"mini": analyzer}, Limits(kept=0)).starlette())
    with server.client() as client:
        jobs = [submit(client).json()["id"] for _ in range(2)]
        for job in jobs:
            follow(client, job)
        answer = client.get(f"/api/jobs/{jobs[0]}/result")
        assert (answer.status_code, client.get(f"/api/jobs/{jobs[1]}/result").status_code) == (404, 200)
        assert "ask for it again" in answer.json()["error"]


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
        give_back()
        before = resident()
        for length in (150, 90, 200, 120, 180, 60):
            assert follow(client, submit(client, "word " * length, heads=True).json()["id"])[-1]["stage"] == "done"
        follow(client, submit(client).json()["id"])  # of the large ones none is left
        after = settled()
    give_back()
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
