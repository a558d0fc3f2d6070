"""The flow to a prediction in a real browser: what is drawn adds up, and is what the explanation has."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pytest
from explorer_flow import assert_widths_add_up, heights
from explorer_samples import HOSTILE, sample_explanation
from support.tiny_heads import tiny_head

import normscope
from normscope.explorer import write_page
from normscope.explorer.payload import build_payload
from normscope.results.explanation import Explanation

TEXT = "The unbelievably good chef opened a restaurant."


@pytest.fixture(scope="module")
def explanation(analyzer: Any) -> Explanation:
    return analyzer.explain(TEXT, direction="state", at=0)


@pytest.mark.parametrize("share", [50, 100])
def test_widths_add_up_at_every_node_with_the_rest(
    show: Callable[..., Any], explanation: Explanation, share: int
) -> None:
    shown = show(explanation, fragment=f"share={share}")
    drawn = assert_widths_add_up(shown, explanation)
    assert any(drawn.rest_out.values()) == any(drawn.rest_into.values()) == (share < 100)
    assert shown.trouble == []
    told = json.loads(shown.export("json"))["rest"]
    if share == 100:
        assert np.abs([*told["into"], *told["out"]]).max() == 0
    shown.go(f"share={share}&depth=3&token=4")
    assert ("sum of smaller edges" in shown.page.locator(".ends").inner_text()) == (share < 100)


def test_the_texts_of_a_pair_are_shown_one_above_the_other_and_summed(show: Callable[..., Any], analyzer: Any) -> None:
    pair: Explanation = analyzer.explain(("Who opened it?", "The chef."), direction="state", at=0)
    shown = show(pair)
    texts = shown.page.locator(".ribbon .tokens").all_inner_texts()
    assert [text.split() for text in texts] == [
        ["[CLS]", "who", "opened", "it", "?", "[SEP]"],
        ["the", "chef", ".", "[SEP]"],
    ]
    segments = pair.attribution["token_segment"].values
    segments[pair.sinks] = -2
    sums = dict(zip(*(shown.page.locator(f".total {name}").all_inner_texts() for name in ("dt", "dd")), strict=True))
    for name, text in (("first text", 0), ("second text", 1), ("special tokens", -1)):
        share = float(pair.attribution.values[segments == text].sum())
        assert float(sums[name].replace("\u2212", "-")) == pytest.approx(share, rel=6e-3, abs=1e-4)


@pytest.mark.parametrize("share", [50, 90])
def test_the_edges_are_those_of_the_flow(show: Callable[..., Any], explanation: Explanation, share: int) -> None:
    shown = show(explanation, fragment=f"share={share}")
    flow = explanation.flow(share / 100)
    rows = list(csv.DictReader(io.StringIO(shown.export("csv").decode())))
    drawn = {(int(row["layer"]), int(row["from"]), int(row["to"])): float(row["value"]) for row in rows}
    wanted = {(edge.layer, edge.key, edge.query): edge.value for edge in flow}
    assert drawn.keys() == wanted.keys()
    assert list(drawn.values()) == pytest.approx([wanted[name] for name in drawn], rel=1e-6)
    assert shown.page.locator(".band").count() == len(flow)
    told = json.loads(shown.export("json"))
    assert told["carried"] == pytest.approx(flow.carried, abs=1e-6)
    assert told["target"]["value"] == pytest.approx(float(explanation.value))  # type: ignore[arg-type]


def test_the_slider_and_keys_change_the_share(show: Callable[..., Any], explanation: Explanation) -> None:
    shown = show(explanation)
    shown.page.get_by_label("Share of the flow", exact=True).fill("50")
    assert shown.fragment() == "share=50"
    few = shown.page.locator(".band").count()
    shown.page.locator(".flow-graph").focus()
    shown.press("+")
    assert shown.fragment() == "share=70"
    assert shown.page.locator(".band").count() > few


def test_a_node_is_pointed_at_and_followed(show: Callable[..., Any], explanation: Explanation) -> None:
    shown = show(explanation)
    chef = explanation.tokens.index("chef")
    shown.page.locator(f".reach[data-depth='3'][data-row='{chef}']").hover()
    shown.settle()
    tooltip = shown.page.locator(".tooltip").inner_text().split("\n")
    assert tooltip[0] == "chef, after layer 3"
    relevance = float(explanation.relevance.values[3, chef])
    assert float(tooltip[1].removeprefix("relevance ").replace("\N{MINUS SIGN}", "-")) == pytest.approx(
        relevance, rel=6e-3
    )
    shown.page.locator(f".reach[data-depth='3'][data-row='{chef}']").click()
    assert shown.fragment() == f"depth=3&token={chef}"
    assert "came from" in shown.page.locator(".ends").inner_text()
    dimmed = "(bands) => bands.filter((band) => band.style.opacity !== '').length"
    assert 0 < shown.page.locator(".band").evaluate_all(dimmed) < shown.page.locator(".band").count()
    shown.page.locator(".flow-graph").focus()
    shown.press("ArrowLeft")
    shown.press("ArrowUp")
    assert shown.fragment() == f"depth=2&token={chef - 1}"
    shown.press("Escape")
    assert shown.fragment() == ""
    assert shown.page.locator(".band").evaluate_all(dimmed) == 0


def test_a_sink_stands_out_in_the_text_the_sum_and_the_shares(
    show: Callable[..., Any], explanation: Explanation
) -> None:
    (place,) = explanation.sinks
    shown = show(explanation)
    sink = shown.page.locator(".attributed button.sink")
    assert sink.all_inner_texts() == [explanation.tokens[place]]
    style = sink.evaluate("(one) => [getComputedStyle(one).outlineColor, getComputedStyle(one.closest('.card')).color]")
    assert style[0] == style[1]  # the ink of the page, outside the token's own colour
    assert float(sink.evaluate("(one) => parseFloat(getComputedStyle(one).outlineOffset)")) > 0
    lines = shown.page.locator(".sum").inner_text().split("\n")
    assert lines[0] == "other tokens" and "attention sinks" in lines
    told = [float(text.replace("\N{MINUS SIGN}", "-")) for text in shown.page.locator(".sum dd").all_inner_texts()]
    shares = explanation.attribution.values
    assert told[0] == pytest.approx(shares.sum() - shares[place], rel=6e-3)
    assert told[1] == pytest.approx(shares[place], rel=6e-3)
    assert sink.evaluate("(one) => one.style.background") == ""
    assert shown.page.locator(".ends li").last.get_attribute("title").endswith("(attention sink)")
    assert shown.page.locator(".ends li[title$='(attention sink)'] .key.sink").count() == 1


def test_the_text_is_coloured_by_attribution(show: Callable[..., Any], explanation: Explanation) -> None:
    shown = show(explanation)
    buttons = shown.page.locator(".attributed button")
    assert buttons.all_inner_texts() == explanation.tokens
    labels = buttons.evaluate_all("(all) => all.map((one) => one.ariaLabel)")
    told = [label.split(": ")[-1].removesuffix(" (attention sink)") for label in labels]
    values = [float(text.replace("\N{MINUS SIGN}", "-")) for text in told]
    assert values == pytest.approx(explanation.attribution.values, rel=6e-3)
    buttons.nth(2).click()
    assert shown.fragment() == "depth=0&token=2"
    total = shown.page.locator(".sum").inner_text().split("\n")
    assert total[-1] == f"+{float(explanation.value):.3g}"  # type: ignore[arg-type]


def test_words_are_those_of_the_explanation(show: Callable[..., Any], explanation: Explanation) -> None:
    shown = show(explanation)
    shown.page.locator(".flows").get_by_label("Words", exact=True).check(force=True)
    shown.settle()
    told = json.loads(shown.export("json"))
    words = explanation.words()
    assert told["tokens"] == words.tokens
    np.testing.assert_allclose(told["relevance"], words.relevance.values, atol=1e-6)


def test_maps_and_flow_share_a_page(show: Callable[..., Any], analyzer: Any, explanation: Explanation) -> None:
    shown = show(analyzer.analyze(TEXT), explanation)
    assert shown.page.locator(".heatmap").is_visible()
    assert not shown.page.locator(".flow-graph").is_visible()
    shown.page.locator(".maps").get_by_label("Flow", exact=True).check(force=True)
    assert "view=flow" in shown.fragment()
    assert shown.title() == "Flow to the state itself"
    assert shown.page.locator(".flow-graph svg").is_visible()
    assert not shown.page.locator(".heatmap").is_visible()
    shown.page.locator(".flow-graph").focus()
    shown.press("t")
    assert shown.page.locator(".heatmap").is_visible()


def test_targets_are_chosen_in_the_page(show: Callable[..., Any], analyzer: Any, explanation: Explanation) -> None:
    other = analyzer.explain(TEXT, direction="state", at=4)
    shown = show(explanation, other)
    shown.page.locator(".target select").select_option("1")
    assert shown.fragment() == "target=1"
    told = json.loads(shown.export("json"))
    assert told["relevance"][0] == pytest.approx(other.relevance.values[0], abs=1e-6)


def test_the_flow_is_exported_as_a_picture(show: Callable[..., Any], explanation: Explanation) -> None:
    shown = show(explanation)
    svg = ElementTree.fromstring(shown.export("svg"))
    names = "{http://www.w3.org/2000/svg}"
    bands = [path for path in svg.iter(f"{names}path") if path.get("class") == "band"]
    assert len(bands) == shown.page.locator(".band").count()
    assert shown.export("png").startswith(b"\x89PNG")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_encoder_and_decoder_are_both_followed(show: Callable[..., Any], theme: str) -> None:
    made = normscope.load(tiny_head("bart", "BartForConditionalGeneration"))
    explanation = cast(Any, made).explain({"input_ids": [[5, 6, 7]]}, target=9)
    assert isinstance(explanation, Explanation)
    assert explanation.has_encoder
    shown = show(explanation, fragment=f"theme={theme}&share=100")
    later = explanation.dataset.sizes["key"] - 4  # tokens after the one that is explained: nothing flows through them
    assert shown.page.locator(".flow-graph .label").count() == 4
    assert f"{later} tokens" in shown.page.locator(".flow-graph").inner_text()
    shown.page.locator(".flows").get_by_label("Encoder").check(force=True)
    shown.settle()
    drawn = heights(shown)
    assert shown.page.locator(".flow-graph .label").count() == 3
    assert all(
        drawn.out[node] == pytest.approx(height, abs=0.01)
        for node, height in drawn.nodes.items()
        if node in drawn.out and abs(height) > 1.5
    )
    assert shown.trouble == []


def test_an_explanation_without_flow_still_shows_its_text(show: Callable[..., Any], explanation: Explanation) -> None:
    dataset = explanation.dataset.isel(depth=slice(0, 1)).drop_vars(["edges", "heads", "feed_forward", "bias"])
    shown = show(Explanation(dataset.assign_attrs(method="gradients")))
    assert "gradients attributes" in shown.page.locator(".flow-view").inner_text()
    assert shown.page.locator(".attributed button").count() == len(explanation.tokens)
    assert shown.trouble == []


def test_hostile_tokens_and_targets_stay_text(show: Callable[..., Any], explanation: Explanation) -> None:
    dataset = explanation.dataset.copy()
    hostile = np.array([*HOSTILE, *HOSTILE][: len(explanation.tokens)], dtype=object)
    dataset = dataset.assign_coords(
        query_token=("query", hostile),
        key_token=("key", hostile),
        target_name=("target", np.array([HOSTILE[1]], object)),
    )
    shown = show(Explanation(dataset))
    for row in range(len(hostile)):
        shown.page.locator(f".reach[data-depth='1'][data-row='{row}']").hover()
        shown.settle()
    assert shown.page.evaluate("() => window.hacked") is None
    assert shown.trouble == []
    assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= 1440


def test_a_page_of_a_usual_text_is_small_and_one_of_a_long_text_says_what_it_carries(tmp_path: Path) -> None:
    small = write_page(sample_explanation(30), path=tmp_path / "small.html")
    assert small.stat().st_size < 1_000_000
    edges = build_payload(sample_explanation(256))["explanations"][0]["stack"]["edges"]
    assert sum(edges["count"]) <= 60_000
    assert len(edges["total"]) == 12
    full = build_payload(sample_explanation(30), precision="full")["explanations"][0]["stack"]["edges"]
    assert sum(full["count"]) == 12 * 900


def test_explanations_show_themselves_in_a_notebook(explanation: Explanation) -> None:
    html = explanation._repr_html_()
    assert html is not None
    assert html.startswith("<iframe")
    widget = explanation.explore()
    assert json.loads(widget.payload)["explanations"][0]["targets"][0]["name"] == explanation.targets[0]


def test_too_many_explanations_are_refused(explanation: Explanation) -> None:
    with pytest.raises(normscope.InputError, match="at most 16"):
        build_payload(*[explanation] * 17)
