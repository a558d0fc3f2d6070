"""The page in a real browser: opened from disk with the network cut, with inputs of all kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from explorer_samples import CROSS, HOSTILE, sample
from explorer_values import assert_same, expected

import normscope
from normscope import Analysis

FULL = "AttnResLnFfResLn"


def test_the_page_opens_from_disk_and_asks_for_nothing(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis)
    shown.page.wait_for_timeout(200)
    assert len(shown.requests) == 1
    assert shown.requests[0].startswith("file://")
    assert shown.trouble == []
    assert shown.title() == "Layer 1, whole layer"
    colours = shown.page.locator(".heatmap .base").evaluate(
        """(canvas) => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }"""
    )
    assert colours > 20


def test_the_page_may_not_use_the_network_even_if_it_would(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, offline=False)
    outcome = shown.page.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
    assert outcome == "refused"
    assert "Content Security Policy" in " ".join(shown.trouble)


def test_pages_of_usual_texts_are_small(tmp_path: Path) -> None:
    from normscope.explorer.page import bundle, write_page  # noqa: PLC0415

    tokens = [f"token{index}" for index in range(30)]
    script = len(bundle())
    assert script < 300_000
    assert write_page(sample(tokens, layers=12), path=tmp_path / "page.html").stat().st_size - script < 250_000
    with_heads = write_page(sample(tokens, layers=12, heads=12), path=tmp_path / "heads.html")
    assert with_heads.stat().st_size - script < 760_000


def test_hostile_tokens_stay_text(show: Callable[..., Any]) -> None:
    analysis = sample(HOSTILE, text="</title><script>window.hacked = 1</script>", model="<b>model</b>")
    shown = show(analysis)
    assert shown.page.locator(".tokens button").all_inner_texts()[1] == HOSTILE[1].replace(" ", "\N{OPEN BOX}")
    for index in range(len(HOSTILE)):
        shown.page.mouse.move(*shown.cell(index, (index + 3) % len(HOSTILE)))
        shown.settle()
    shown.go("view=table")
    shown.go("own=shown&layer=1")
    assert shown.page.evaluate("() => window.hacked") is None
    assert (
        shown.page.evaluate("() => document.querySelector('main').shadowRoot.querySelectorAll('script, img').length")
        == 0
    )
    assert "</title><script>" in shown.page.title()
    assert shown.trouble == []
    assert_same(shown.values(), expected(analysis.normalised(FULL).sel(layer=1)))
    ElementTree.fromstring(shown.export("svg"))
    # A token of 200 characters does not push anything out of the page.
    assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= 1440


def test_512_tokens_stay_fast(show: Callable[..., Any]) -> None:
    shown = show(sample([f"w{index}" for index in range(512)], layers=2))
    root = shown.page.locator(".root")
    nodes = shown.page.evaluate("() => document.querySelector('main').shadowRoot.querySelectorAll('*').length")
    assert nodes < 5_000
    shown.page.locator(".marks").focus()
    times: list[float] = []
    for key in ("[", "j", "[", "k", "n", "n", "]", "j", "]"):
        shown.press(key)
        times.append(float(root.get_attribute("data-redraw") or "nan"))
        shown.page.wait_for_timeout(60)
    assert sorted(times)[2] < 50, times  # the slower ones may have had to share the machine
    assert shown.trouble == []


def test_a_large_map_zooms_and_scrolls(show: Callable[..., Any]) -> None:
    shown = show(sample([f"w{index}" for index in range(300)], layers=1, scopes=["AttnW"]))

    def size() -> float:
        shown.settle()
        return shown.page.locator(".heatmap").evaluate("(element) => JSON.parse(element.dataset.layout)[2]")

    fitted = size()
    shown.page.get_by_role("button", name="Zoom in").click()
    assert size() > fitted
    shown.page.locator(".marks").focus()
    for _ in range(4):
        shown.press("+")
    assert size() > 8
    shown.press("PageDown")
    shown.press("End")
    assert "query=10&key=299" in shown.fragment()
    shown.press("0")
    assert size() == fitted


def test_dark_mode_follows_the_system_and_the_user(show: Callable[..., Any]) -> None:
    shown = show(sample(["a", "b", "c"]), color_scheme="dark")
    root = shown.page.locator(".root")
    assert root.get_attribute("data-theme") == "dark"
    background = "(element) => getComputedStyle(element).backgroundColor"
    dark = root.evaluate(background)
    shown.page.locator(".display summary").click()
    shown.page.locator(".maps").get_by_label("Light").check(force=True)
    shown.settle()
    assert root.get_attribute("data-theme") == "light"
    assert root.evaluate(background) != dark
    assert "theme=light" in shown.fragment()


def test_two_analyses_are_compared_with_linked_selection(
    show: Callable[..., Any], analyzer: Any, analysis: Analysis
) -> None:
    other = analyzer.analyze("The really good chef opened a restaurant.")
    shown = show(analysis, other, fragment="scope=Attn")
    assert shown.page.locator(".stage").count() == 2
    shown.page.locator(".stage").nth(0).locator(".tokens button", has_text="restaurant").click()
    shown.settle()
    selected = [shown.page.locator(".stage").nth(at).locator(".tokens button.query").inner_text() for at in (0, 1)]
    assert selected == ["restaurant", "restaurant"]
    shown.page.mouse.click(*shown.cell(other.tokens.index("chef"), 1, stage=1))
    assert f"query={analysis.tokens.index('chef')}" in shown.fragment()
    shown.page.mouse.move(*shown.cell(other.tokens.index("good"), 1, stage=1))
    shown.settle()
    assert "Contributions to good" in shown.page.locator(".stage").nth(0).locator(".inspector").inner_text()
    views = json.loads(shown.export("json"))["views"]
    assert [view["queries"] for view in views] == [analysis.tokens, other.tokens]


def test_causal_maps_leave_out_what_does_not_exist(show: Callable[..., Any]) -> None:
    analysis = sample(["a", "b", "c", "d"], causal=True)
    shown = show(analysis)
    assert len(shown.values()) == 10
    shown.page.mouse.move(*shown.cell(0, 3))
    shown.settle()
    assert "not available" in shown.page.locator(".tooltip").inner_text()


def test_encoder_decoder_maps_have_both_groups_and_both_stacks(show: Callable[..., Any]) -> None:
    encoder = sample(["The", "cat", "sleeps"], model="seq2seq")
    analysis = sample(
        ["Le", "chat", "dort"], scopes=CROSS, source=["The", "cat", "sleeps"], causal=True, encoder=encoder
    )
    shown = show(analysis, fragment="norm=none&scope=AttnResLnCross")
    assert {group for _, group, _ in shown.values()} == {"source"}
    shown.step("AttnResLnCrossRes")
    assert {group for _, group, _ in shown.values()} == {"target", "source"}
    assert_same(shown.values(), expected(analysis.map("AttnResLnCrossRes").sel(layer=1)))
    shown.page.locator(".maps").get_by_label("Encoder").check(force=True)
    shown.settle()
    assert shown.page.locator(".step").count() == len(encoder.dataset["scope"])
    assert_same(shown.values(), expected(encoder.map(FULL).sel(layer=1)))


def test_patches_lie_over_their_image(show: Callable[..., Any]) -> None:
    patches = [f"{row},{column}" for row in range(4) for column in range(4)]
    shown = show(sample(["[CLS]", *patches], grid=(4, 4), text=""))
    canvas = shown.page.locator(".patches")
    box = canvas.bounding_box()
    assert box is not None
    shown.page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4)
    assert "query=7" in shown.fragment()
    before = canvas.screenshot()
    shown.step("AttnW")
    assert canvas.screenshot() != before


def test_a_selection_of_queries_is_shown(show: Callable[..., Any]) -> None:
    analysis = sample(["a", "b", "c", "d", "e"], queries=[1, 4])
    shown = show(analysis)
    assert_same(shown.values(), expected(analysis.normalised(FULL).sel(layer=1)))
    shown.page.locator(".tokens button", has_text="e").click()
    assert "query=1" in shown.fragment()
    shown.page.locator(".tokens button", has_text="c").click()
    assert "key=2" in shown.fragment()


def test_broken_data_is_told_and_not_blank(browser: Any, tmp_path: Path) -> None:
    from normscope.explorer.page import render  # noqa: PLC0415

    path = tmp_path / "broken.html"
    path.write_text(render('{"version": 99, "analyses": []}', title="broken"), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert "format version 99" in page.locator("[role=alert]").inner_text()
    page.close()


def test_mixing_ratios_alone_are_no_page(tmp_path: Path) -> None:
    from normscope.explorer import page_html  # noqa: PLC0415

    analysis = Analysis(sample(["a", "b"]).dataset.drop_vars("map"))
    with pytest.raises(normscope.InputError, match="no maps"):
        page_html(analysis)
