"""The web app: a real server with the real model, under good and bad requests, at its own address and at others."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import uvicorn
from explorer_server import TEXT, Running, follow, submit

import normscope
from normscope.explorer import security as guard
from normscope.explorer import serving
from normscope.explorer.server import WebApp

JSON = {"Content-Type": "application/json"}


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
    assert not page.get_by_text("Compare with").is_visible()  # the form is folded once there is something to see
    page.get_by_role("button", name="Options").click()
    page.get_by_text("Compare with").click()
    page.get_by_label("Second text", exact=True).fill("The chef closed a restaurant.")
    page.get_by_role("button", name="Analyse").click()
    page.locator(".stage").nth(1).wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    parts = page.locator(".ask, .ask textarea, .ask select, .ask button, .ask p")
    ends = [box["x"] + box["width"] for part in parts.all() if part.is_visible() and (box := part.bounding_box())]
    assert max(ends) == ends[0] < 390  # all of the form is inside it
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
    page.locator("h1", has_text="Layer 2, attention + residual").wait_for()
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    assert page.evaluate("() => window.first.isConnected") is False
    assert page.evaluate("() => [window.changes, window.first.childElementCount]") == [0, 0]
    page.close()


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
