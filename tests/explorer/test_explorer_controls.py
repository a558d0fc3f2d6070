"""Every control of the page in a real browser: used, and what comes of it compared with Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from explorer_values import assert_same, expected

from normscope import Analysis

FULL = "AttnResLnFfResLn"
FOCUSED = """() => {
    const focused = document.querySelector("main").shadowRoot.activeElement;
    return focused?.className || focused?.type || "";
}"""


def test_the_stepper_walks_the_chain(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis)
    shown.step("AttnW")
    assert shown.title() == "Layer 1, attention weights"
    assert_same(shown.values(), expected(analysis.normalised("AttnW").sel(layer=1)))
    shown.page.get_by_role("button", name="Next component").click()
    assert shown.title() == "Layer 1, attention"
    shown.page.locator(".step[aria-checked=true]").focus()
    shown.press("ArrowRight")
    assert shown.title() == "Layer 1, attention + residual"
    assert (
        shown.page.evaluate("() => document.querySelector('main').shadowRoot.activeElement.dataset.scope") == "AttnRes"
    )
    shown.press("[")
    assert shown.title() == "Layer 1, attention"
    shown.page.get_by_role("button", name="Play the chain").click()
    for title in ("Layer 1, attention + residual", "Layer 1, attention + residual + norm"):
        shown.page.get_by_role("heading", name=title, exact=True).wait_for()
    shown.page.get_by_role("button", name="Play the chain").click()
    assert "scope=AttnResLn" in shown.fragment()


def test_layers_are_chosen_from_the_overview(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis)
    assert shown.page.locator(".layer").count() == len(analysis.layers)
    shown.page.locator(".layer[data-layer='4']").click()
    assert shown.title() == "Layer 4, whole layer"
    shown.page.locator(".layer[aria-checked=true]").focus()
    shown.press("ArrowDown")
    assert shown.title() == "Layer 5, whole layer"
    shown.press("k")
    assert_same(shown.values(), expected(analysis.normalised(FULL).sel(layer=4)))


@pytest.mark.parametrize(("name", "axis"), [("Raw", "none"), ("Columns", "column")])
def test_maps_are_normalised_as_in_python(show: Callable[..., Any], analysis: Analysis, name: str, axis: Any) -> None:
    shown = show(analysis, fragment="scope=AttnResLn&layer=2")
    shown.page.locator(".maps").get_by_label(name, exact=True).check(force=True)
    assert f"norm={axis}" in shown.fragment()
    assert_same(shown.values(), expected(analysis.normalised("AttnResLn", axis).sel(layer=2)))


def test_words_and_special_tokens_are_as_in_python(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="norm=none&scope=Attn")
    shown.page.locator(".maps").get_by_label("Words", exact=True).check(force=True)
    shown.page.locator(".maps").get_by_label("Special tokens").uncheck(force=True)
    assert "units=word" in shown.fragment()
    wanted = analysis.words().without_special_tokens().map("Attn").sel(layer=1)
    assert_same(shown.values(), expected(wanted))
    shown.page.locator(".maps").get_by_label("Rows").check(force=True)
    wanted = analysis.words().without_special_tokens().normalised("Attn").sel(layer=1)
    assert_same(shown.values(), expected(wanted))


def test_a_page_opened_at_the_heads_begins_where_there_are_some(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="view=heads&scope=AttnResLnFf&layer=2")
    assert shown.page.locator(".head").count() == 12
    assert shown.title() == "Layer 2, attention"
    shown.page.locator(".layers button").nth(2).click()
    assert shown.title() == "Layer 3, attention"


def test_heads_are_shown_where_they_are_apart(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="norm=none&scope=Attn")
    heads = shown.page.get_by_role("combobox", name="Head")
    heads.select_option("7")
    assert shown.title() == "Layer 1, attention, head 7"
    assert_same(shown.values(), expected(analysis.map("Attn", heads=True).sel(layer=1, head=7)))
    shown.step("AttnRes")
    assert heads.is_disabled()
    assert shown.title() == "Layer 1, attention + residual"


def test_a_difference_is_the_amplification(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="scope=AttnResLnFf&norm=column")
    shown.page.locator(".maps").get_by_label("Difference to").select_option("AttnResLn")
    assert (
        shown.title()
        == "Layer 1, attention + residual + norm + feed-forward \N{MINUS SIGN} attention + residual + norm"
    )
    assert_same(shown.values(), expected(analysis.amplification("AttnResLn", "AttnResLnFf").sel(layer=1)))
    shown.page.locator(".marks").focus()
    shown.press("d")
    assert shown.title() == "Layer 1, attention + residual + norm + feed-forward"


def test_display_options_change_the_picture(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="norm=none")
    shown.page.locator(".display summary").click()
    pictures = [shown.page.locator(".heatmap").screenshot()]
    for label in ("Linear", "All maps"):
        shown.page.locator(".maps").get_by_label(label).check(force=True)
        shown.settle()
        pictures.append(shown.page.locator(".heatmap").screenshot())
    shown.page.locator(".display select").select_option("viridis")
    shown.settle()
    pictures.append(shown.page.locator(".heatmap").screenshot())
    assert len(set(pictures)) == len(pictures)
    assert shown.fragment().endswith("own=shown&colours=viridis&scale=linear&range=shared")
    shown.press("Escape")
    assert not shown.page.locator(".display").evaluate("(element) => element.open")


def test_tokens_are_clicked_and_hovered(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis)
    shown.page.locator(".tokens button", has_text="chef").click()
    row = analysis.tokens.index("chef")
    assert f"query={row}" in shown.fragment()
    assert "Contributions to chef" in shown.page.locator(".inspector").inner_text()
    assert shown.page.locator(".lines path").count() > 3
    shown.page.mouse.move(*shown.cell(3, 1))
    shown.settle()
    value = float(analysis.normalised(FULL).sel(layer=1)[3, 1])
    tooltip = shown.page.locator(".tooltip").inner_text()
    told, share, query, key = tooltip.split("\n")
    assert (told, share) == (f"{analysis.tokens[3]} ← {analysis.tokens[1]}", f"{value:.1%} of its row")
    assert (query.split()[:2], key.split()[:2]) == (["query", "[CLS]"], ["key", "[CLS]"])
    assert "good" in query
    assert f"Contributions to {analysis.tokens[3]}" in shown.page.locator(".inspector").inner_text()
    shown.page.mouse.click(*shown.cell(2, 5))
    assert "query=2&key=5" in shown.fragment()


def test_bars_show_the_row_largest_first_or_in_order(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="query=3&scope=Attn")
    row = analysis.normalised("Attn").sel(layer=1)[3]
    order = np.argsort(-row.values)
    shown_rows = shown.page.locator(".bars li").all_inner_texts()
    assert [text.split()[-1] for text in shown_rows] == [f"{row.values[at]:.1%}" for at in order]
    shown.page.locator(".maps").get_by_label("In order").check(force=True)
    shown.settle()
    assert [text.split()[0] for text in shown.page.locator(".bars li").all_inner_texts()] == analysis.tokens


def test_mixing_ratios_are_told(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="query=2&scope=AttnRes")
    ratios = analysis.mixing_ratio("AttnRes")[:, 2].values
    told = shown.page.locator(".mixing-card svg").get_attribute("aria-label")
    assert told == "Mixing ratio by layer: " + ", ".join(f"{at + 1}: {ratio:.1%}" for at, ratio in enumerate(ratios))


def test_the_table_has_the_same_numbers(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="query=2&norm=none")
    shown.page.locator(".maps").get_by_label("Table", exact=True).check(force=True)
    shown.settle()
    rows = [text.split("\t") for text in shown.page.locator(".table tbody tr").all_inner_texts()]
    assert [row[1] for row in rows] == analysis.tokens
    whole = analysis.map(FULL).sel(layer=1)[2].values
    assert [float(row[-1]) for row in rows] == pytest.approx(whole, rel=5e-3)
    shown.page.locator(".maps").get_by_label("Query").select_option("4")
    assert "query=4" in shown.fragment()


def test_the_map_is_walked_by_keyboard(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="query=1")
    shown.page.locator(".marks").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        shown.press(key)
    assert "query=2&key=2" in shown.fragment()
    value = float(analysis.normalised(FULL).sel(layer=1)[2, 2])
    spoken = shown.page.locator("[role=status].visually-hidden").inner_text()
    assert spoken.endswith(f"{analysis.tokens[2]} ← {analysis.tokens[2]}: {value:.1%}")


def test_everything_that_takes_focus_has_a_name(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis)
    nameless = shown.page.evaluate("""() => {
        const root = document.querySelector("main").shadowRoot;
        const focusable = root.querySelectorAll("button, select, input, summary, textarea, [tabindex='0']");
        const labelled = (one) => [...(one.labels ?? [])].some((label) => label.textContent.trim());
        const named = (one) => one.getAttribute("aria-label") || one.textContent.trim() || labelled(one);
        return [...focusable].filter((one) => !named(one)).map((one) => one.outerHTML);
    }""")
    assert nameless == []
    order: list[str] = []
    for _ in range(30):
        shown.page.keyboard.press("Tab")
        order.append(shown.page.evaluate(FOCUSED))
    stops = [order.index(name) for name in ("play", "step", "radio", "layer", "marks")]
    assert stops == sorted(stops), order


def test_a_link_brings_the_view_back(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="layer=5&scope=AttnRes&norm=none&query=4&theme=dark&view=table")
    assert shown.title() == "Layer 5, attention + residual"
    assert shown.page.locator(".root").get_attribute("data-theme") == "dark"
    assert shown.page.locator(".table table").is_visible()
    shown.go("layer=77&scope=Nonsense&query=9999&norm=%3Cscript%3E")
    assert shown.title() == "Layer 6, whole layer"
    assert shown.trouble == []
