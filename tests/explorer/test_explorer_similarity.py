"""Pages of similarities in a real browser: ribbons, partners, threshold, units, passages, and the web app's two boxes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from explorer_axe import AXE, faults
from explorer_samples import HOSTILE
from explorer_server import Running, follow
from explorer_similarity import sample_similarity

import normscope as ns

FIRST, SECOND = "A man is playing a guitar on stage.", "Someone performs live music with a guitar."
WORDS = ["[CLS]", "token", "##ize", "it", "[SEP]"], ["[CLS]", "un", "##believ", "##able", "words", "here", "[SEP]"]
SCREENS = {"phone": (390, 844), "laptop": (1280, 800), "wide": (2560, 1300)}


@pytest.fixture(scope="module")
def similarity(analyzer: Any) -> ns.Similarity:
    return analyzer.similarity(FIRST, SECOND)


@pytest.fixture
def open_page(show: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Open the page of similarities, once its texts are there."""

    def opened(*similarities: ns.Similarity, fragment: str = "", **options: Any) -> Any:
        shown = show(*similarities, fragment=fragment, **options)
        shown.page.locator(".chip").first.wait_for()
        return shown

    return opened


def chip(shown: Any, side: str, text: str) -> Any:
    return shown.page.locator(f".similar-texts .{side} .chip").filter(has_text=text).first


def bands(shown: Any) -> list[dict[str, Any]]:
    """The ribbons on the page: the units at their ends, their opacity and colour, and what their tooltip says."""
    return shown.page.locator(".bands .band").evaluate_all(
        """(paths) => paths.map((path) => ({
            first: Number(path.dataset.first), second: Number(path.dataset.second),
            opacity: Number(path.getAttribute("fill-opacity")), fill: path.getAttribute("fill"),
            title: path.querySelector("title").textContent,
        }))"""
    )


def test_the_page_says_how_similar_and_draws_the_strongest_pairs(
    open_page: Callable[..., Any], similarity: ns.Similarity
) -> None:
    shown = open_page(similarity, fragment="units=token")
    assert shown.title() == f"cosine {similarity.value:.3f}"
    assert shown.page.locator(".first .chip").all_inner_texts() == similarity.first_tokens
    drawn = bands(shown)
    table = similarity.table.values
    order = np.argsort(-np.abs(table), axis=None)[: len(drawn)]
    assert {(band["first"], band["second"]) for band in drawn} == {
        (int(at) // table.shape[1], int(at) % table.shape[1]) for at in order
    }
    share = np.abs(table).ravel()[order].sum() / np.abs(table).sum()
    assert share >= 0.5 > share - np.abs(table).ravel()[order[-1]] / np.abs(table).sum()
    assert "guitar" in shown.page.locator(".partners .bars li").first.inner_text()
    assert shown.requests == [shown.requests[0]] and shown.trouble == []


def test_everything_adds_up_on_the_page(open_page: Callable[..., Any], similarity: ns.Similarity) -> None:
    shown = open_page(similarity)
    parts = [float(text.replace("\N{MINUS SIGN}", "-")) for text in shown.page.locator(".sum dd").all_inner_texts()]
    assert sum(parts[:-1]) == pytest.approx(parts[-1], abs=2.5e-3)  # each is rounded to three digits
    assert parts[-1] == pytest.approx(similarity.value, abs=5e-4)
    exported = json.loads(shown.export("json"))
    total = np.sum(exported["table"]) + np.sum(exported["first"]["margins"]) + np.sum(exported["second"]["margins"])
    assert total + exported["constant"] == pytest.approx(similarity.value, abs=1e-5)
    rows = list(csv.DictReader(io.StringIO(shown.export("csv").decode())))
    assert sum(float(row["value"]) for row in rows) == pytest.approx(similarity.value, abs=1e-5)


def test_a_hovered_token_shows_its_partners(open_page: Callable[..., Any], similarity: ns.Similarity) -> None:
    shown = open_page(similarity)
    before = bands(shown)
    chip(shown, "second", "music").hover()
    shown.settle()
    now = {(band["first"], band["second"]): band["opacity"] for band in bands(shown)}
    music = similarity.second_tokens.index("music")
    own = {opacity for (_, second), opacity in now.items() if second == music}
    others = {opacity for (_, second), opacity in now.items() if second != music}
    assert min(own) > max(others)
    assert sum(second == music for _, second in now) > sum(band["second"] == music for band in before)
    assert "Partners of music" in shown.page.locator(".partners header").inner_text()
    best = similarity.first_tokens[int(similarity.table.values[:, music].argmax())]
    assert best in shown.page.locator(".partners .bars li").first.inner_text()
    shown.page.mouse.move(5, 5)
    shown.settle()
    assert bands(shown) == before


def test_the_keyboard_goes_from_a_token_to_its_strongest_partner(
    open_page: Callable[..., Any], similarity: ns.Similarity
) -> None:
    shown = open_page(similarity)
    shown.page.locator(".first .chip").first.focus()
    focused = "() => document.querySelector('#normscope').shadowRoot.activeElement.getAttribute('aria-label')"
    for _ in range(6):
        shown.press("ArrowRight")
    assert shown.page.evaluate(focused).startswith("guitar: +")
    assert "Partners of guitar" in shown.page.locator(".partners header").inner_text()
    shown.press("ArrowDown")
    assert shown.page.evaluate(focused).startswith("guitar: +0.271")
    assert shown.page.locator(".second .chip[tabindex='0']").count() == 1
    shown.press("Enter")
    assert f"second={similarity.second_tokens.index('guitar')}" in shown.fragment()
    shown.press("Escape")
    assert "second" not in shown.fragment()


def test_the_threshold_draws_more_or_fewer_ribbons(open_page: Callable[..., Any], similarity: ns.Similarity) -> None:
    shown = open_page(similarity)
    counts = []
    for share in (10, 50, 100):
        shown.page.get_by_label("Share shown").fill(str(share))
        shown.settle()
        counts.append(len(bands(shown)))
    assert counts[0] < counts[1] < counts[2] == similarity.table.size
    shown.press("-")
    assert "share=99" in shown.fragment()


def test_words_are_the_sums_of_their_tokens(open_page: Callable[..., Any]) -> None:
    sample = sample_similarity(*WORDS)
    shown = open_page(sample, fragment="share=100")
    assert shown.page.locator(".first .chip").all_inner_texts() == ["[CLS]", "tokenize", "it", "[SEP]"]
    words = json.loads(shown.export("json"))
    assert words["table"][1][1] == pytest.approx(float(sample.table.values[1:3, 1:4].sum()), abs=1e-6)
    shown.page.get_by_role("radio", name="Subwords").check()
    shown.settle()
    assert shown.page.locator(".first .chip").all_inner_texts() == list(WORDS[0])
    shown.page.get_by_text("Special tokens").click()
    shown.settle()
    assert shown.page.locator(".first .chip").all_inner_texts() == ["token", "##ize", "it"]


def test_a_cell_of_the_table_is_chosen_and_its_margin_is_at_the_edge(open_page: Callable[..., Any]) -> None:
    sample = sample_similarity(*WORDS)
    shown = open_page(sample, fragment="units=token")
    shown.page.locator(".heatmap").scroll_into_view_if_needed()
    shown.page.mouse.move(*shown.cell(1, 4))
    shown.settle()
    told = shown.page.locator(".similarity-map .tooltip").inner_text().replace("\N{MINUS SIGN}", "-")
    assert "token" in told and "words" in told
    assert float(told.split()[-1]) == pytest.approx(float(sample.table.values[1, 4]), rel=6e-3)
    shown.page.mouse.move(*shown.cell(1, len(WORDS[1])))
    shown.settle()
    told = shown.page.locator(".similarity-map .tooltip").inner_text().replace("\N{MINUS SIGN}", "-")
    assert float(told.split()[-1]) == pytest.approx(float(sample.first_margin.values[1]), rel=6e-3)
    shown.page.mouse.click(*shown.cell(2, 5))
    assert {"first=2", "second=5"} <= set(shown.fragment().split("&"))


def test_passages_are_cards_of_which_one_is_shown(open_page: Callable[..., Any], analyzer: Any) -> None:
    query = "Who plays the guitar?"
    found = analyzer.similarity(query, ["A guitarist plays.", "It rains in Spain.", "The band has a bass player."])
    ranked = sorted(found, key=lambda each: -each.value)
    shown = open_page(*ranked)
    cards = shown.page.locator(".passage")
    assert cards.count() == 3
    values = [float(text) for text in shown.page.locator(".passage .value").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    assert cards.nth(0).get_attribute("aria-current") == "true"
    cards.nth(2).click()
    assert shown.title() == f"cosine {ranked[2].value:.3f}"
    assert "rains" in shown.page.locator(".similar-texts .second").inner_text()
    shown.press("[")
    assert "pair=1" in shown.fragment()


def test_hostile_tokens_stay_text(open_page: Callable[..., Any]) -> None:
    shown = open_page(sample_similarity(HOSTILE, HOSTILE[::-1]), fragment="units=token&share=100")
    assert "<script>window.hacked" in shown.page.locator(".first .chip").nth(1).inner_text()
    for side in ("first", "second"):
        for index in range(len(HOSTILE)):
            shown.page.locator(f".{side} .chip").nth(index).hover()
            shown.settle()
    assert shown.page.evaluate("() => window.hacked") is None
    assert ElementTree.fromstring(shown.export("svg")).tag.endswith("svg")
    assert shown.trouble == []


def test_without_a_table_only_the_tokens_are_shown(open_page: Callable[..., Any]) -> None:
    shown = open_page(sample_similarity(*WORDS, table=False))
    assert bands(shown) == []
    assert not shown.page.locator(".similarity-map").is_visible()
    assert not shown.page.get_by_label("Share shown").is_visible()
    assert "Contributions of the tokens" in shown.page.locator(".partners header").inner_text()
    assert shown.trouble == []


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_its_screen(open_page: Callable[..., Any], name: str, scheme: str) -> None:
    width, height = SCREENS[name]
    long = [f"word{index}" for index in range(60)]
    viewport = {"width": width, "height": height}
    shown = open_page(
        *[sample_similarity(long[:20], long, seed=seed) for seed in range(3)], viewport=viewport, color_scheme=scheme
    )
    assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= width
    boxes = [box for each in shown.page.locator(".chip").all() if (box := each.bounding_box())]
    card = shown.page.locator(".similarity-card").bounding_box()
    assert all(card["x"] <= box["x"] and box["x"] + box["width"] <= card["x"] + card["width"] for box in boxes)
    places = [(round(box["x"]), round(box["y"])) for box in boxes]
    assert len(set(places)) == len(places) == 80
    assert shown.page.locator("[data-theme]").get_attribute("data-theme") == scheme


def test_paper_is_light_and_without_controls(open_page: Callable[..., Any], similarity: ns.Similarity) -> None:
    shown = open_page(similarity, color_scheme="dark")
    shown.page.emulate_media(media="print", color_scheme="dark")
    shown.settle()
    assert shown.page.locator("[data-theme]").get_attribute("data-theme") == "light"
    assert not shown.page.locator(".toolbar").is_visible()
    assert shown.page.locator(".chip").first.is_visible()


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run npm ci in front-end")
def test_the_page_has_no_serious_fault(open_page: Callable[..., Any], similarity: ns.Similarity) -> None:
    shown = open_page(similarity, sample_like(similarity), bypass_csp=True)
    shown.page.evaluate(AXE.read_text(encoding="utf-8"))
    for fragment in ("", "theme=dark", "theme=dark&first=6", "pair=1"):
        shown.go(fragment)
        assert faults(shown.page) == [], fragment


def sample_like(similarity: ns.Similarity) -> ns.Similarity:
    """Another similarity of the same model."""
    other = sample_similarity(*WORDS)
    return ns.Similarity(other.dataset.assign_attrs(fingerprint=similarity.attrs["fingerprint"]))


# ---- the web app -------------------------------------------------------------------------------------------------------


def test_two_texts_are_compared_by_the_server(server: Running, similarity: ns.Similarity) -> None:
    with server.client() as client:
        answer = client.post("/api/jobs", json={"similarity": {"first": FIRST, "second": f"{SECOND}\n\nIt rains."}})
        job = answer.json()["id"]
        assert follow(client, job)[-1]["stage"] == "done"
        found = client.get(f"/api/jobs/{job}/result").json()["similarities"]
    assert [each["second"]["text"] for each in found] == [SECOND, "It rains."]
    assert found[0]["value"] == pytest.approx(similarity.value, abs=1e-5)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"first": "A text."}, "text is empty"),
        ({"first": "", "second": "A text."}, "text is empty"),
        ({"first": "A text.", "second": "A text.", "model": "/etc/passwd"}, "does not have that model"),
        ({"first": "A text.", "second": "line\n" * 60}, "60 lines"),
        ("text", "text is empty"),
    ],
)
def test_a_bad_pair_gets_a_message(server: Running, content: Any, words: str) -> None:
    with server.client() as client:
        answer = client.post("/api/jobs", json={"similarity": content})
    assert answer.status_code == 422 and words in answer.json()["error"]


def test_two_boxes_and_a_button_are_on_the_start_page(browser: Any, server: Running) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(server.url)
    page.get_by_label("First text").fill(FIRST)
    page.get_by_label("Second text to compare").fill(SECOND)
    page.get_by_role("button", name="Compare", exact=True).click()
    page.locator(".bands .band").first.wait_for(state="attached")
    assert "similar=" in page.evaluate("() => location.hash")
    assert not page.get_by_label("Text to analyse").is_visible()
    page.locator(".second .chip").filter(has_text="guitar").click()
    page.wait_for_function("() => location.hash.includes('second=7')")
    page.reload()
    page.locator(".chip.chosen").first.wait_for()
    page.get_by_role("button", name="Analyse one text").click()
    page.get_by_label("Text to analyse").fill("A text.")
    page.get_by_role("button", name="Analyse", exact=True).click()
    page.locator(".stepper").wait_for()
    assert page.locator(".chip").count() == 0
    assert trouble == []
    page.close()
