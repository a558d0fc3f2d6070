"""Every view on a phone, a laptop and a wide screen: it fits, it fills, and it shows nothing that says nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from explorer_samples import sample, sample_explanation

from normscope.results.explanation import Explanation

SCREENS = {"phone": (390, 844), "laptop": (1440, 900), "wide": (2560, 1300)}
TOKENS = [f"word{index}" for index in range(24)]


def screen(name: str) -> dict[str, Any]:
    width, height = SCREENS[name]
    return {"viewport": {"width": width, "height": height}}


@pytest.fixture
def everything() -> list[Any]:
    """Two analyses with heads, and an explanation through as many layers as a small language model has."""
    return [sample(TOKENS, heads=12), sample(TOKENS, model="other"), sample_explanation(24, layers=30, heads=9)]


@pytest.mark.parametrize("name", SCREENS)
def test_no_view_is_wider_than_its_screen(show: Callable[..., Any], everything: list[Any], name: str) -> None:
    shown = show(*everything, **screen(name))
    for view in ("map", "heads", "scatter", "table", "flow"):
        shown.go(f"view={view}&scope=Attn")
        width = shown.page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= SCREENS[name][0], view
    graph = shown.page.locator(".flow-graph")
    sizes = graph.evaluate("(element) => [element.scrollWidth, element.clientWidth]")
    assert sizes[0] <= sizes[1] + 1, sizes
    beyond = graph.locator("text").evaluate_all("""(texts) => texts.filter((text) => {
        const [box, frame] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
        return box.left < frame.left - 1 || box.right > frame.right + 1;
    }).map((text) => text.textContent)""")
    assert beyond == []
    heads = graph.locator("text[text-anchor=middle]").evaluate_all(
        "(texts) => texts.map((text) => [text.getBoundingClientRect().left, text.getBoundingClientRect().right])"
    )
    assert len(heads) > 2
    assert all(before[1] + 4 < after[0] for before, after in itertools.pairwise(heads)), heads
    assert shown.trouble == []


@pytest.mark.parametrize("name", ["laptop", "wide"])
def test_a_map_leaves_room_for_its_legend(show: Callable[..., Any], everything: list[Any], name: str) -> None:
    for results in (everything[:1], everything[:2]):
        shown = show(*results, **screen(name))
        boxes = [legend.bounding_box() for legend in shown.page.locator(".legend").all()]
        assert len(boxes) == len(results)
        assert all(box["y"] + box["height"] <= SCREENS[name][1] for box in boxes), boxes


def test_nothing_overlaps_where_two_are_compared(show: Callable[..., Any]) -> None:
    results = [sample(TOKENS[:count], layers=layers, model=str(count)) for count, layers in ((20, 2), (4, 9))]
    shown = show(*results, **screen("phone"))
    steps = [box.bounding_box() for box in shown.page.locator(".pictures").all()]
    for before, after in itertools.pairwise(steps):
        assert before["x"] + before["width"] <= after["x"]
    cards = [box.bounding_box() for box in shown.page.locator(".stages .layers, .stages .card").all()]
    cards.sort(key=lambda box: box["y"])
    for before, after in itertools.pairwise(cards):
        assert before["y"] + before["height"] <= after["y"]
    shown = show(*results)
    tops = [card.bounding_box()["y"] for card in shown.page.locator(".inspector").all()]
    assert tops[0] == tops[1]


def test_the_table_shows_the_scope_that_is_chosen_beside_the_keys(show: Callable[..., Any]) -> None:
    shown = show(sample(TOKENS), fragment="view=table", **screen("phone"))
    frame = shown.page.locator(".table .scroller").bounding_box()
    key, now = (shown.page.locator(name).bounding_box() for name in (".table tbody th >> nth=0", ".table th.now"))
    assert key["x"] == frame["x"]
    assert key["x"] + key["width"] <= now["x"]
    assert now["x"] + now["width"] <= frame["x"] + frame["width"] + 1
    shown.go("view=table&scope=AttnW")
    now = shown.page.locator(".table th.now").bounding_box()
    assert key["x"] + key["width"] <= now["x"] + 1


def test_menus_open_within_a_phone(show: Callable[..., Any], everything: list[Any]) -> None:
    shown = show(*everything, **screen("phone"))
    for view in ("map", "flow"):
        shown.go(f"view={view}")
        menus = [one for one in shown.page.locator(".popover").all() if one.is_visible()]
        assert len(menus) >= 4
        for menu in menus:
            menu.evaluate("(element) => { element.open = true; }")
            box = menu.locator(".panel").bounding_box()
            assert box["x"] >= 0, (view, menu.inner_text())
            assert box["x"] + box["width"] <= SCREENS["phone"][0], (view, menu.inner_text())
            menu.evaluate("(element) => { element.open = false; }")


def test_heads_are_as_large_as_the_screen_allows(show: Callable[..., Any], everything: list[Any]) -> None:
    widths = {}
    for name in SCREENS:
        shown = show(everything[0], fragment="view=heads&scope=Attn", **screen(name))
        boxes = [box.bounding_box() for box in shown.page.locator(".head").all()]
        widths[name] = boxes[0]["width"]
        assert all(box["x"] + box["width"] <= SCREENS[name][0] for box in boxes)
    assert widths["phone"] < widths["laptop"] < widths["wide"]
    assert widths["wide"] > 250


def test_the_legend_of_colours_is_shown_where_there_are_colours(
    show: Callable[..., Any], everything: list[Any]
) -> None:
    shown = show(*everything)
    first = shown.page.locator(".stage").first
    for view, legend in (("map", True), ("scatter", False), ("table", False), ("heads", True)):
        shown.go(f"view={view}&scope=Attn")
        assert first.locator(".legend").is_visible() == legend, view


def test_a_chain_of_one_scope_is_no_chart(show: Callable[..., Any]) -> None:
    shown = show(sample(TOKENS, scopes=["AttnResLnResLn"]))
    assert not shown.page.get_by_text("through the chain").is_visible()
    shown = show(sample(TOKENS, scopes=["AttnW", "AttnResLnFfRes"]))
    assert shown.page.get_by_text("through the chain").is_visible()
    names = shown.page.locator(".names text").last
    card = names.evaluate("(text) => text.ownerSVGElement.getBoundingClientRect().right")
    assert names.evaluate("(text) => text.getBoundingClientRect().right") <= card + 0.5


def test_what_is_asked_of_a_long_token_stays_in_its_card(show: Callable[..., Any]) -> None:
    shown = show(sample(["a long block of many tokens", *TOKENS]), fragment="query=0&own=shown")
    order = shown.page.locator(".inspector fieldset").first.locator("label").last.bounding_box()
    card = shown.page.locator(".inspector .card", has=shown.page.locator("fieldset")).first.bounding_box()
    assert order["x"] + order["width"] < card["x"] + card["width"] - 8


def test_patches_are_not_put_together_as_words(show: Callable[..., Any]) -> None:
    patches = ["[CLS]", *(f"{row},{column}" for row in range(8) for column in range(8))]
    shown = show(sample(patches, grid=(8, 8)))
    assert not shown.page.get_by_text("Words", exact=True).is_visible()
    assert not shown.page.get_by_text("Subwords", exact=True).is_visible()


def test_tokens_that_nothing_flows_through_are_folded_in_short_texts_too(show: Callable[..., Any]) -> None:
    dataset = sample_explanation(12, layers=3, heads=2).dataset.copy(deep=True)
    later = np.arange(12) > 7
    for name in ("relevance", "edges", "bias", "feed_forward"):
        dataset[name] = dataset[name].where(~dataset["query"].isin(np.flatnonzero(later)), 0)
    dataset["edges"] = dataset["edges"].where(~dataset["key"].isin(np.flatnonzero(later)), 0)
    shown = show(Explanation(dataset))
    labels = shown.page.locator(".flow-graph").inner_text()
    assert "4 tokens" in labels
    assert "w9" not in labels
