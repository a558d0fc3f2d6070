"""Edges that were cut in the real model, on the page: saved with what `verify` found, or cut on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from explorer_server import Running, follow
from support.tiny_heads import tiny_head

import normscope
from normscope.explorer.server import WebApp
from normscope.explorer.widget import ExplorerWidget
from normscope.explorer.work import EDGES_CUT
from normscope.results.explanation import Explanation
from normscope.results.verification import Verification

TEXT = "The chef opened a restaurant."


@pytest.fixture(scope="module")
def causal(analyzer: Any) -> Any:
    tokenizer = analyzer.tokenizer
    return normscope.load(tiny_head("gpt2", "GPT2LMHeadModel", vocab_size=len(tokenizer)), tokenizer)


@pytest.fixture(scope="module")
def server(causal: Any) -> Iterator[Running]:
    running = Running(WebApp({"causal": causal}).starlette())
    yield running
    running.stop()


def rows_of(card: Any) -> list[tuple[str, str, str]]:
    """What the table of a card has: the edge, and the change predicted and observed."""
    rows = card.locator("tbody tr").all()
    return [(row.locator("th").inner_text(), *row.locator(".number").all_inner_texts()) for row in rows]


def as_shown(change: float) -> str:
    return f"{change:+.3f}".replace("-", "\N{MINUS SIGN}")


def assert_shows(card: Any, verified: Verification, tokens: list[str]) -> None:
    *edges, together = rows_of(card)
    assert together == ("all together", *map(as_shown, verified.together))
    assert len(edges) == len(verified.edges)
    changes = zip(verified.edges, verified.predicted, verified.observed, strict=True)
    for (name, *shown), (edge, *wanted) in zip(edges, changes, strict=True):
        assert name == f"layer {edge.layer} {tokens[edge.key]} \N{RIGHTWARDS ARROW} {tokens[edge.query]}"
        assert shown == [as_shown(change) for change in wanted]
    assert f"{verified.correlation:.2f}" in card.locator("[role=status]").inner_text()


def test_a_saved_page_shows_what_was_verified(show: Callable[..., Any], analyzer: Any) -> None:
    explanation: Explanation = analyzer.explain(TEXT, direction="state", at=1)
    assert not show(explanation).page.locator(".cuts").is_visible()  # a page by itself cannot cut
    verified = explanation.verify(k=4)
    shown = show(explanation)
    card = shown.page.locator(".cuts")
    assert_shows(card, verified, explanation.tokens)
    card.locator("tbody tr").first.click()
    edge = verified.edges[0]
    assert f"depth={edge.layer}" in shown.fragment() and f"token={edge.query}" in shown.fragment()
    assert shown.trouble == []


def test_the_web_app_cuts_edges_when_it_is_asked_to(browser: Any, server: Running, causal: Any) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(server.url)
    page.get_by_label("Text to analyse").fill(TEXT)
    page.get_by_label("Text to analyse").press("Enter")
    page.locator(".heatmap[data-drawn], .flow-graph[data-drawn]").first.wait_for(state="attached")
    page.evaluate("() => { location.hash += '&view=flow'; }")
    card = page.locator(".cuts")
    card.get_by_role("button", name="cut the strongest edges").click()
    card.locator("tbody tr").first.wait_for()
    explanation: Explanation = causal.explain(TEXT)
    assert_shows(card, explanation.verify(k=EDGES_CUT), explanation.tokens)
    assert not card.get_by_role("button").is_visible()
    page.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "name its 'job'"),
        ({"job": "unknown"}, "not here (any more)"),
        ({"job": "unknown", "target": "0"}, "name its 'job'"),
        ({"job": "unknown", "explanation": -1}, "name its 'job'"),
        ({"job": "unknown", "target": True}, "name its 'job'"),
    ],
)
def test_what_cannot_be_verified_is_refused(server: Running, content: Any, words: str) -> None:
    with server.client() as client:
        answer = client.post("/api/jobs", json={"verify": content})
        assert (answer.status_code, words in answer.json()["error"]) == (422, True)


def test_a_value_that_an_explanation_does_not_have_is_a_message(server: Running) -> None:
    with server.client() as client:
        made = client.post("/api/jobs", json={"explain": {"text": TEXT}}).json()["id"]
        follow(client, made)
        assert client.post("/api/jobs", json={"verify": {"job": made, "explanation": 1}}).status_code == 422
        job = client.post("/api/jobs", json={"verify": {"job": made, "target": 7}}).json()["id"]
        status = follow(client, job)[-1]
    assert status["stage"] == "failed" and "inside the server" not in status["message"]


def test_a_notebook_cuts_edges_in_its_kernel(analyzer: Any) -> None:
    explanation = analyzer.explain(TEXT, direction="state", at=1)
    widget = ExplorerWidget(explanation)
    sent: list[tuple[Any, Any]] = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))  # type: ignore[method-assign]
    widget._answer(widget, {"kind": "verify", "id": 1, "explanation": 0, "target": 0}, [])
    widget._answer(widget, {"kind": "verify", "id": 2, "explanation": 3, "target": 0}, [])
    assert sent[0][0] == {"id": 1} and sent[0][1][0].count(b'"observed"') == EDGES_CUT
    assert "error" in sent[1][0]
