"""Pages for everyone: axe finds no serious fault in any view, in light and dark, nor in a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from explorer_axe import AXE, faults
from explorer_server import Running

from normscope import Analysis

pytestmark = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run npm ci in front-end")


@pytest.fixture(scope="module")
def analysis(analyzer: Any) -> Analysis:
    return analyzer.analyze("The old chef closed the old bridge.", heads=True, projections=True)


def test_no_view_has_a_serious_fault(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, plain=False, bypass_csp=True)
    shown.page.evaluate(AXE.read_text(encoding="utf-8"))
    for fragment in (
        "",
        "theme=dark&measure=projection",
        "view=heads&scope=Attn",
        "view=table",
        "view=flow",
        "view=flow&theme=dark",
    ):
        shown.go(fragment)
        assert faults(shown.page) == [], fragment


def test_two_analyses_side_by_side_have_no_serious_fault(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, analysis, fragment="view=scatter", plain=False, bypass_csp=True)
    shown.page.evaluate(AXE.read_text(encoding="utf-8"))
    assert faults(shown.page) == []
    told = shown.page.locator(".scatter-view [role=status]").inner_text()
    assert told.endswith("Pearson 1.000, Spearman 1.000.")
    shown.page.locator(".scatter").click(position={"x": 5, "y": 5})  # nothing there


def test_heads_are_sorted_by_what_they_carry_and_chosen(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="view=heads&scope=AttnResLnFf&measure=projection&layer=3")
    values = abs(analysis.dataset["head_projection"].sel(projection_scope="AttnResLnFf", layer=3)).sum(["query", "key"])
    order = [int(head) for head in values["head"].values[(-values.values).argsort(kind="stable")]]
    names = shown.page.locator(".head span:first-of-type").all_inner_texts()
    assert [int(name.split()[1]) for name in names] == order
    shown.page.locator(".head").first.press("Enter")
    assert shown.title() == f"Layer 3, attention + residual + norm + feed-forward, head {order[0]}"
    shown.go("view=heads&scope=AttnResLnFf&layer=3")
    assert "scope=Attn" in shown.fragment().split("&")  # who comes to the heads comes to where they are separate
    shown.step("AttnResLnFf")
    assert "already mixed" in shown.page.locator(".heads-view .note").first.inner_text()
    shown.page.locator(".heads-view .quiet", has_text="AttnW").click()
    assert "scope=AttnW" in shown.fragment()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_web_app_has_no_serious_fault(browser: Any, server: Running, theme: str) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True, color_scheme=theme)
    page = context.new_page()
    page.goto(server.url)
    page.locator(".example").first.wait_for()
    page.evaluate(AXE.read_text(encoding="utf-8"))
    page.get_by_text("Compare with").click()
    assert faults(page) == []
    page.get_by_label("Text to analyse").fill("The chef slept.")
    page.get_by_label("Text to analyse").press("Enter")
    page.locator(".stage").nth(1).wait_for()
    assert faults(page) == []
    context.close()
