"""What makes a map readable, in a real browser: how it opens, own tokens, colours, units, search and jumps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from explorer_samples import sample

from normscope import Analysis

TEXT = "The old chef closed the old bridge. Nobody knew why it rained. She slept all day."
WHOLE = "AttnResLnFfResLn"


@pytest.fixture(scope="module")
def analysis(analyzer: Any) -> Analysis:
    return analyzer.analyze(TEXT)


def exported(shown: Any) -> dict[str, Any]:
    (view,) = json.loads(shown.export("json"))["views"]
    return view


def without_own(values: np.ndarray) -> np.ndarray:
    rest = values.copy()
    np.fill_diagonal(rest, np.nan)
    return rest / np.nansum(rest, axis=-1, keepdims=True)


def test_after_a_residual_own_tokens_are_left_out_and_their_share_is_beside(
    show: Callable[..., Any], analysis: Analysis
) -> None:
    shown = show(analysis, plain=False)
    view = exported(shown)
    values = analysis.map(WHOLE).sel(layer=view["layer"]).values
    assert (view["scope"], view["own_tokens"]) == (WHOLE, "out")
    np.testing.assert_allclose(np.array(view["map"], dtype=float), without_own(values), rtol=1e-3)
    np.testing.assert_allclose(view["own_shares"], np.diag(values) / values.sum(-1), rtol=1e-3)
    assert "without own tokens" in shown.page.locator(".legend .title").inner_text()
    shown.step("Attn")
    assert exported(shown)["own_tokens"] == "shown"


def test_one_key_shows_own_tokens_greys_them_and_leaves_them_out(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="layer=2", plain=False)
    picture = shown.page.locator(".heatmap")
    pictures = {picture.screenshot()}
    for name in ("shown", "grey", "out"):
        shown.press("o")  # without a click before
        assert f"own={name}" in shown.fragment()
        pictures.add(picture.screenshot())
    assert len(pictures) == 3
    shown.go("layer=2&own=grey")
    assert exported(shown)["map"][3][3] is not None


def test_every_scale_of_colours_has_its_legend(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="own=shown")
    ticks: set[str] = set()
    for scale, words in (("linear", ""), ("root", ""), ("log", "logarithmic"), ("quantile", "by rank")):
        shown.go(f"own=shown&scale={scale}")
        assert words in shown.page.locator(".legend .title").inner_text()
        ticks.add(
            str(
                shown.page.locator(".legend svg line").evaluate_all(
                    "(lines) => lines.map((one) => one.getAttribute('x1'))"
                )
            )
        )
    assert len(ticks) == 4


def test_tokens_are_put_together_and_sums_are_kept(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="units=sentence&scope=Attn&norm=none&special=false")
    view = exported(shown)
    assert [text.split()[0] for text in view["keys"]] == ["the", "nobody", "she"]
    tokens = analysis.tokens[1:-1]
    ends = [index + 1 for index, token in enumerate(tokens) if token == "."]
    parts = [slice(*pair) for pair in zip([0, *ends], ends, strict=False)]
    values = analysis.map("Attn").sel(layer=1).values[1:-1, 1:-1]
    wanted = [[values[query, key].sum(-1).mean() for key in parts] for query in parts]
    np.testing.assert_allclose(view["map"], wanted, rtol=1e-3)
    shown.press("w")
    assert "units=sentence" not in shown.fragment()


def test_a_token_is_found_and_the_strongest_cells_are_visited(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="scope=Attn")
    shown.press("/")
    shown.page.keyboard.type("old")
    assert shown.page.locator(".count").inner_text() == "2"
    rows = [index for index, token in enumerate(analysis.tokens) if token == "old"]
    for row in (*rows, rows[0]):
        shown.press("Enter")
        assert f"query={row}" in shown.fragment() or row == 1
    shown.press("Escape")
    values = analysis.normalised("Attn").sel(layer=1).values.copy()
    np.fill_diagonal(values, 0)
    for place in np.argsort(-values, axis=None)[:2]:
        query, key = np.unravel_index(place, values.shape)
        shown.press("m")
        assert f"query={query}&key={key}" in shown.fragment()


def test_a_token_is_found_in_the_table_too(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="view=table")
    shown.press("/")
    shown.page.keyboard.type("chef")
    assert shown.page.locator(".table .match").all_inner_texts() == ["chef"]
    shown.press("Enter")
    assert f"query={analysis.tokens.index('chef')}" in shown.fragment()
    assert shown.page.locator("h2", has_text="Contributions to chef").is_visible()
    shown.go("view=heads")
    shown.press("/")  # which has no tokens to look at: the map has
    shown.page.keyboard.type("chef")
    assert "view=heads" not in shown.fragment()
    assert shown.page.locator(".map-view").is_visible()
    assert shown.page.locator(".map-tools .count").inner_text() == "1"


def test_repeated_tokens_say_where_they_are(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="scope=Attn&order=text")
    names = shown.page.locator(".bars .key").all_inner_texts()
    assert names[1:4] == ["the\N{SUBSCRIPT TWO}", "old\N{SUBSCRIPT THREE}", "chef"]
    assert shown.page.locator(".tokens button").all_inner_texts()[1:3] == ["the", "old"]


def test_a_causal_page_opens_at_the_last_token_and_bytes_are_text(show: Callable[..., Any]) -> None:
    tokens = [
        "Once",
        "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}caf\N{LATIN CAPITAL LETTER A WITH TILDE}\N{COPYRIGHT SIGN}",
        ".",
    ]
    shown = show(sample(tokens, causal=True), plain=False)
    assert shown.page.locator(".tokens button.query").inner_text() == "."
    assert (
        shown.page.locator(".tokens button").all_inner_texts()[1]
        == "\N{OPEN BOX}caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    )


def test_a_layer_from_the_link_is_in_sight(show: Callable[..., Any]) -> None:
    shown = show(sample(["a", "b", "c"], layers=40), fragment="layer=38")
    inside = shown.page.locator(".layer[data-layer='38']").evaluate("""(layer) => {
        const [one, list] = [layer.getBoundingClientRect(), layer.parentElement.getBoundingClientRect()];
        return one.top >= list.top && one.bottom <= list.bottom;
    }""")
    assert inside


def test_the_minimap_shows_where_one_is_and_takes_one_elsewhere(show: Callable[..., Any]) -> None:
    shown = show(sample([f"token{index}" for index in range(200)], layers=1, scopes=["Attn"]), fragment="query=0")
    minimap = shown.page.locator(".minimap")
    before = shown.page.locator(".heatmap").evaluate("(map) => JSON.parse(map.dataset.layout)[2]")
    box = minimap.bounding_box()
    assert box is not None
    shown.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.7 * box["height"])
    shown.page.mouse.up()
    shown.settle()
    assert shown.page.locator(".heatmap").evaluate("(map) => JSON.parse(map.dataset.layout)[2]") > 2 * before
    shown.page.mouse.click(*[place + 30 for place in shown.cell(0, 0)])
    assert int(shown.fragment().split("query=")[1].split("&")[0]) in range(90, 150)
