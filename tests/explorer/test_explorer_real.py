"""Pages of real analyses in a real browser: MiniLM always; a Llama and a Marian with real weights, and a ViT of its real
size with random ones, among the slow tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explorer_flow import assert_widths_add_up
from explorer_values import assert_same, expected
from support import translator
from support.stories import ONCE_UPON_A_TIME, fetched
from transformers import ViTConfig, ViTForImageClassification
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import normscope
from normscope.explorer import page_html
from normscope.results.explanation import Explanation

TEXT = "The chef who the critics loved finally opened a restaurant in Lyon, and it was unbelievably good."
FULL = "AttnResLnFfResLn"
TODAY_IS_FINE = ["\u2581今天", "天气", "很", "好", "。"]
LONG = "The chef who ran to the store was out of food, so she went home and slept until it was dark. "


def test_two_methods_stand_side_by_side_with_linked_cursors_and_a_scatter(
    show: Callable[..., Any], analyzer: Any
) -> None:
    norms, globenc = analyzer.analyze(TEXT), analyzer.analyze(TEXT, method="globenc")
    shown = show(norms, globenc, fragment="layer=3&own=shown")
    page = shown.page
    assert "globenc" in page.locator(".stage").nth(1).locator("header .hint").first.inner_text()
    x, y = shown.cell(4, 2)
    page.mouse.move(x, y)
    shown.settle()
    rows = page.locator(".bars-card h2, .inspector h2").all_inner_texts()
    assert sum("the₅" in text or "critics" in text for text in rows) >= 2, rows  # the row pointed at, in both
    page.mouse.click(x, y)
    assert "query=4&key=2" in shown.fragment()
    shown.go("view=scatter&layer=3&own=shown")
    told = page.locator(".scatter-view [role=status]").inner_text()
    one, other = (norms.map(FULL).sel(layer=3).values, globenc.map("AttnResLnResLn").sel(layer=3).values)
    shares = [values / values.sum(-1, keepdims=True) for values in (one, other)]
    wanted = np.corrcoef(shares[0].ravel(), shares[1].ravel())[0, 1]
    assert f"{one.size} cells" in told
    assert f"Pearson {wanted:.3f}" in told
    assert shown.trouble == []


def test_flow_by_rollout_of_a_real_model_is_the_rollout(show: Callable[..., Any], analyzer: Any) -> None:
    analysis = analyzer.analyze(TEXT)
    shown = show(analysis, fragment="view=flow&query=3&share=100", plain=False)
    wanted = analysis.rollout(FULL).sel(layer=6).values[3]
    values = [float(text) for text in shown.page.locator(".ends .value").all_inner_texts()]
    assert values == pytest.approx(sorted(wanted, reverse=True)[: len(values)], rel=0.01)
    assert shown.page.locator(".estimate").inner_text() == "estimate"
    assert shown.page.locator(".ends .diverging").count() == 0  # shares have one sign, and bars all of the width
    longest = shown.page.locator(".ends .track").first
    assert longest.locator("i").bounding_box()["width"] == pytest.approx(longest.bounding_box()["width"], abs=1)


@pytest.mark.parametrize(
    "asked",
    [{"method": "globenc"}, {"method": "attention-rollout"}, {"method": "alti"}, {"scopes": ["Attn"]}],
    ids=["maps as they are", "half identity", "rows of shares", "without residual"],
)
def test_the_rollout_of_a_page_is_that_of_python_for_every_method(
    show: Callable[..., Any], analyzer: Any, asked: dict[str, Any]
) -> None:
    analysis = analyzer.analyze(TEXT, **asked)
    rolled = analysis.rollout().sel(layer=6).values[3]
    shown = show(analysis, fragment="view=flow&query=3&share=100", plain=False)
    values = [float(text) for text in shown.page.locator(".ends .value").all_inner_texts()]
    assert len(values) > 3
    assert values == pytest.approx(sorted(rolled / rolled.sum(), reverse=True)[: len(values)], rel=0.01)


def test_maps_from_the_inputs_on_are_not_multiplied_again(show: Callable[..., Any], analyzer: Any) -> None:
    shown = show(analyzer.analyze("The chef slept.", method="propagated"), fragment="view=flow", plain=False)
    assert shown.page.locator(".stage").count() > 0 and shown.page.locator(".estimate").count() == 0


@pytest.mark.slow
def test_a_real_causal_model_from_map_to_prediction(
    show: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    stories = normscope.load(fetched(tmp_path_factory.mktemp("stories")))
    story = stories.model.generate(torch.tensor([ONCE_UPON_A_TIME]), max_new_tokens=16, do_sample=False)  # type: ignore[operator]
    analysis, explanation = stories.analyze({"input_ids": story}), stories.explain({"input_ids": story})
    shown = show(analysis, explanation, plain=False)
    assert shown.page.locator(".stage .layer").count() == 6
    shown.go("own=shown&layer=1&scale=root")
    whole = analysis.normalised(str(stories.scopes[-1])).sel(layer=1)
    assert_same(shown.values(), expected(whole))
    shown.go("view=flow&share=100")
    assert_widths_add_up(shown, explanation)
    assert shown.page.locator(".predictions li").count() > 0
    assert shown.trouble == []


@pytest.mark.slow
def test_a_real_translator_shows_both_stacks_and_what_flows_from_each(
    show: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    model, words = translator.fetched(tmp_path_factory.mktemp("translator"))
    marian = normscope.load(model)
    source = {"input_ids": torch.tensor([[words.index(word) for word in (*TODAY_IS_FINE, translator.END)]])}
    said = model.generate(**source, max_new_tokens=20, do_sample=False)  # type: ignore[operator]
    assert "".join(words[label] for label in said[0, 1:-1]).replace("\u2581", " ").strip() == "It's a nice day."
    target = {"input_ids": said[:, :-1]}
    analysis = marian.analyze(source, decoder_text=target)
    explanation = marian.explain(source, target=said[0, 1:-1].tolist())
    assert isinstance(explanation, Explanation)
    shown = show(analysis, explanation)
    assert_same(shown.values(), expected(analysis.normalised(str(marian.scopes[-1])).sel(layer=1)))
    shown.go("part=encoder&layer=2&own=shown&scale=root")
    assert_same(shown.values(), expected(analysis.encoder.normalised(FULL).sel(layer=2)))
    for share in (60, 100):
        shown.go(f"view=flow&target=4&share={share}")
        drawn = assert_widths_add_up(shown, explanation, 4)
        assert any(drawn.rest_out.values()) == (share < 100)
    assert any(row >= explanation.dataset.sizes["query"] for _, row in drawn.nodes)
    assert shown.trouble == []


@pytest.mark.slow
def test_an_image_model_of_the_real_size_shows_its_patches(show: Callable[..., Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    ViTForImageClassification(ViTConfig()).save_pretrained(tmp_path)
    ViTImageProcessorPil().save_pretrained(tmp_path)
    vit = normscope.load(tmp_path)
    rows, columns = np.mgrid[:224, :224]
    image = np.stack([rows, columns, rows * columns % 255], -1).astype(np.uint8)
    analysis, explanation = vit.analyze(image, layers=[1, 12], scopes=["AttnW", vit.scopes[-1]]), vit.explain(image)
    shown = show(analysis, explanation, plain=False)
    assert shown.page.locator(".patches").is_visible()
    shown.go("view=flow")
    assert int(shown.page.locator(".flow-graph").get_attribute("data-drawn")) > 100
    drawn = assert_widths_add_up(
        shown, explanation
    )  # the page carries only the largest edges: the rest makes up for it
    assert any(drawn.rest_out.values())
    assert shown.page.locator(".predictions li").count() == 2
    assert shown.trouble == []


@pytest.mark.slow
def test_512_real_tokens_are_right_redrawn_at_once_and_said_to_cost_what_they_do(
    show: Callable[..., Any], analyzer: Any
) -> None:
    analysis = analyzer.analyze(LONG * 24, truncate=True)
    assert len(analysis.tokens) == 512
    assert len(page_html(analysis)) < 21_000_000  # docs/explorer.md says 19 MB
    shown = show(analysis, fragment="layer=3")
    wanted = expected(analysis.normalised(FULL).sel(layer=3))
    values = shown.values()
    largest = max(wanted.values())
    for name, value in wanted.items():
        assert abs(values[name] - value) <= 0.01 * value or (values[name] == 0 and value < 1e-6 * largest)
    rounds = [redraws(shown, KEYS) for _ in range(3)]  # of each the best: the machine may have had to be shared
    assert max(map(min, zip(*rounds, strict=True))) < 50, rounds


KEYS = ("[", "j", "[", "k", "n", "n", "]", "j", "]")


def redraws(shown: Any, keys: tuple[str, ...]) -> list[float]:
    """Milliseconds that a fresh page takes to redraw after each key."""
    shown.page.reload()
    shown.page.locator(".heatmap[data-drawn]").wait_for(state="attached")
    shown.page.wait_for_timeout(2000)
    times: list[float] = []
    for key in keys:
        shown.press(key)
        times.append(float(shown.page.locator(".root").first.get_attribute("data-redraw")))
        shown.page.wait_for_timeout(100)
    return times
