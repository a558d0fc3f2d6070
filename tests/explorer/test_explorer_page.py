"""The page in a real browser: opened from disk with the network cut, each control used, what it exports compared."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr
from explorer_samples import CROSS, HOSTILE, sample
from matplotlib.collections import QuadMesh

import normscope
from normscope import Analysis
from normscope.plots import plot_amplification, plot_map

TEXT = "The unbelievably good chef opened a restaurant."
FULL = "AttnResLnFfResLn"
FOCUSED = """() => {
    const focused = document.querySelector("main").shadowRoot.activeElement;
    return focused?.className || focused?.type || "";
}"""


@pytest.fixture(scope="module")
def analysis(analyzer: Any) -> Analysis:
    return analyzer.analyze(TEXT, heads=True)


def expected(values: xr.DataArray) -> dict[tuple[str, str, str], float]:
    """The cells of a map `[query, key]`, as `Shown.values` gives them."""
    cells: dict[tuple[str, str, str], float] = {}
    for row, query in enumerate(values["query"].values):
        for column, key in enumerate(values["key"].values):
            value = float(values.values[row, column])
            if not np.isnan(value):
                names = values["query_token"].values[row], values["key_token"].values[column]
                cells[f"{query} {names[0]}", str(values["key_group"].values[column]), f"{key} {names[1]}"] = value
    return cells


def assert_same(shown: dict[Any, float], wanted: dict[Any, float], tolerance: float = 1e-4) -> None:
    assert list(shown) == list(wanted)
    scale = max(abs(value) for value in wanted.values())
    assert max(abs(shown[name] - wanted[name]) for name in wanted) <= 2 * tolerance * scale


# ---- the file ----------------------------------------------------------------------------------------------------------


def test_the_page_opens_from_disk_and_asks_for_nothing(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis)
    shown.page.wait_for_timeout(200)
    assert len(shown.requests) == 1
    assert shown.requests[0].startswith("file://")
    assert shown.trouble == []
    assert shown.title() == f"{FULL}, layer 1"
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
    assert len(bundle()) < 300_000
    assert write_page(sample(tokens, layers=12), path=tmp_path / "page.html").stat().st_size < 1_000_000
    with_heads = write_page(sample(tokens, layers=12, heads=12), path=tmp_path / "heads.html")
    assert with_heads.stat().st_size < 1_000_000


# ---- controls ----------------------------------------------------------------------------------------------------------


def test_the_stepper_walks_the_chain(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis)
    shown.step("AttnW")
    assert shown.title() == "AttnW, layer 1"
    assert_same(shown.values(), expected(analysis.normalised("AttnW").sel(layer=1)))
    shown.page.get_by_role("button", name="Next component").click()
    assert shown.title() == "Attn, layer 1"
    shown.page.locator(".step[aria-checked=true]").focus()
    shown.press("ArrowRight")
    assert shown.title() == "AttnRes, layer 1"
    assert (
        shown.page.evaluate("() => document.querySelector('main').shadowRoot.activeElement.dataset.scope") == "AttnRes"
    )
    shown.press("[")
    assert shown.title() == "Attn, layer 1"
    shown.page.get_by_role("button", name="Play the chain").click()
    shown.page.locator("h1", has_text="AttnRes,").wait_for()
    shown.page.locator("h1", has_text="AttnResLn,").wait_for()
    shown.page.get_by_role("button", name="Play the chain").click()
    assert "scope=AttnResLn" in shown.fragment()


def test_layers_are_chosen_from_the_overview(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis)
    assert shown.page.locator(".layer").count() == len(analysis.layers)
    shown.page.locator(".layer[data-layer='4']").click()
    assert shown.title() == f"{FULL}, layer 4"
    shown.page.locator(".layer[aria-checked=true]").focus()
    shown.press("ArrowDown")
    assert shown.title() == f"{FULL}, layer 5"
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


def test_heads_are_shown_where_they_are_apart(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="norm=none&scope=Attn")
    heads = shown.page.get_by_role("combobox", name="Head")
    heads.select_option("7")
    assert shown.title() == "Attn, layer 1, head 7"
    assert_same(shown.values(), expected(analysis.map("Attn", heads=True).sel(layer=1, head=7)))
    shown.step("AttnRes")
    assert heads.is_disabled()
    assert shown.title() == "AttnRes, layer 1"


def test_a_difference_is_the_amplification(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="scope=AttnResLnFf&norm=column")
    shown.page.locator(".maps").get_by_label("Difference to").select_option("AttnResLn")
    assert shown.title() == "AttnResLnFf \N{MINUS SIGN} AttnResLn, layer 1"
    assert_same(shown.values(), expected(analysis.amplification("AttnResLn", "AttnResLnFf").sel(layer=1)))
    shown.page.locator(".marks").focus()
    shown.press("d")
    assert shown.title() == "AttnResLnFf, layer 1"


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
    assert "What chef is made of" in shown.page.locator(".inspector").inner_text()
    assert shown.page.locator(".lines path").count() > 3
    shown.page.mouse.move(*shown.cell(3, 1))
    shown.settle()
    value = float(analysis.normalised(FULL).sel(layer=1)[3, 1])
    tooltip = shown.page.locator(".tooltip").inner_text()
    told, share, query, key = tooltip.split("\n")
    assert (told, share) == (f"{analysis.tokens[3]} ← {analysis.tokens[1]}", f"{value:.1%} of its row")
    assert (query.split()[:2], key.split()[:2]) == (["query", "[CLS]"], ["key", "[CLS]"])
    assert "good" in query
    assert f"What {analysis.tokens[3]} is made of" in shown.page.locator(".inspector").inner_text()
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
    assert shown.title() == "AttnRes, layer 5"
    assert shown.page.locator(".root").get_attribute("data-theme") == "dark"
    assert shown.page.locator(".table table").is_visible()
    shown.go("layer=77&scope=Nonsense&query=9999&norm=%3Cscript%3E")
    assert shown.title() == f"{FULL}, layer 6"
    assert shown.trouble == []


# ---- one look ----------------------------------------------------------------------------------------------------------


def drawn_colours(shown: Any) -> np.ndarray:
    """The colours of the cells of the exported picture, `[query, key, channel]` from 0 to 255."""
    svg = ElementTree.fromstring(shown.export("svg"))
    names = "{http://www.w3.org/2000/svg}"
    cells = [rect.get("fill", "") for rect in svg.findall(f"{names}g[@shape-rendering]/{names}rect")]
    count = round(len(cells) ** 0.5)
    return np.array([[int(cell[at : at + 2], 16) for at in (1, 3, 5)] for cell in cells]).reshape(count, count, 3)


def figure_colours(figure: Any) -> np.ndarray:
    """The same of a figure of one map."""
    (mesh, *_) = [one for one in figure.axes[0].collections if isinstance(one, QuadMesh)]
    return mesh.cmap(mesh.norm(np.asarray(mesh.get_array())))[..., :3] * 255


@pytest.mark.parametrize(("scope", "layer"), [("AttnW", 2), ("AttnResLnFf", 3), (FULL, 6)])
@pytest.mark.parametrize("normalise", ["row", "none"])
def test_a_map_has_the_colours_of_its_figure(
    show: Callable[..., Any], analysis: Analysis, scope: str, layer: int, normalise: str
) -> None:
    shown = show(analysis, fragment=f"scope={scope}&layer={layer}&norm={normalise}", precision="full")
    figure = plot_map(analysis, scope, layer, normalise=normalise)
    np.testing.assert_allclose(drawn_colours(shown), figure_colours(figure), atol=3)


def test_a_difference_has_the_colours_of_its_figure(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="scope=AttnResLnFf&base=AttnResLn&norm=column&layer=2", precision="full")
    figure = plot_amplification(analysis, "AttnResLn", "AttnResLnFf", 2)
    np.testing.assert_allclose(drawn_colours(shown), figure_colours(figure), atol=5)


def test_an_outlier_does_not_pale_the_rest_and_the_legend_says_so(show: Callable[..., Any]) -> None:
    analysis = sample(["a", "b", "c", "d", "e"], scopes=["Attn"], layers=1)
    values = analysis.dataset["map"].values
    values[:] = 1.0
    shown = show(analysis, fragment="norm=none")
    legend = shown.page.locator(".legend")
    assert legend.get_attribute("aria-label") == "Colours: norm of the part, from 0 to 1"
    values[..., 0, 0] = 100.0
    shown = show(analysis, fragment="norm=none")
    assert shown.page.locator(".legend").get_attribute("aria-label").endswith("from 0 to 2.5 and beyond")


# ---- other methods and scopes ------------------------------------------------------------------------------------------


def test_labels_say_the_method_and_what_is_measured(show: Callable[..., Any]) -> None:
    analysis = sample(["a", "b", "c"])
    shown = show(analysis, fragment="norm=none&scope=AttnRes")
    assert shown.page.locator(".legend .title").inner_text() == "norm of the part"
    assert shown.page.locator(".map-card .hint").first.inner_text() == "sample"
    analysis.dataset.attrs["method"] = "projections"
    analysis.dataset["map"].attrs["quantity"] = "projection"
    analysis.dataset["map"].values[2:] -= 1.0
    shown = show(analysis, fragment="norm=none&scope=AttnRes")
    assert shown.page.locator(".legend .title").inner_text() == "projection"
    assert shown.page.locator(".map-card .hint").first.inner_text() == "sample · projections"
    (view,) = json.loads(shown.export("json"))["views"]
    assert (view["method"], view["quantity"]) == ("projections", "projection")
    assert_same(shown.values(), expected(analysis.map("AttnRes").sel(layer=1)), tolerance=3e-4)
    assert "from \N{MINUS SIGN}" in shown.page.locator(".legend").get_attribute("aria-label")
    shown.step("AttnW")
    assert shown.page.locator(".legend .title").inner_text() == "attention weight"
    assert "from 0" in shown.page.locator(".legend").get_attribute("aria-label")


def test_scopes_are_read_from_their_parts(show: Callable[..., Any]) -> None:
    shown = show(sample(["a", "b"], scopes=["AttnW", "AttnResW", "Attn", "AttnGate"]))
    titles = shown.page.locator(".step .title").all_inner_texts()
    assert titles == ["weights", "weights + residual", "\N{MULTIPLICATION SIGN} values", "+ Gate"]


# ---- exports -----------------------------------------------------------------------------------------------------------


def test_pictures_are_exported(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="scope=AttnRes&layer=2")
    svg = ElementTree.fromstring(shown.export("svg"))
    names = "{http://www.w3.org/2000/svg}"
    count = len(analysis.tokens)
    assert len(svg.findall(f"{names}g[@shape-rendering]/{names}rect")) == count**2
    texts = [(element.text or "").strip("\u2068\u2069") for element in svg.iter(f"{names}text")]
    assert texts[0] == "AttnRes, layer 2"
    assert [text for text in texts if text in analysis.tokens].count("chef") == 2
    png = shown.export("png")
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG")
    assert (width, height) == (round(2 * float(svg.get("width", "0"))), round(2 * float(svg.get("height", "0"))))


def test_data_is_exported_with_what_it_is(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="scope=AttnRes&layer=2&norm=none")
    (view,) = json.loads(shown.export("json"))["views"]
    assert view["facts"]["fingerprint"] == analysis.attrs["fingerprint"]
    assert (view["scope"], view["layer"], view["precision"]) == ("AttnRes", 2, "within 0.02 % of every share")
    wanted = analysis.map("AttnRes").sel(layer=2).values
    np.testing.assert_allclose(np.array(view["map"], dtype=float), wanted, rtol=1.1e-4)


def test_the_page_says_how_precise_it_is(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis)
    shown.page.locator(".facts summary").click()
    assert "within 0.02 % of themselves" in shown.page.locator(".precision").inner_text()
    shown = show(analysis, precision="full")
    shown.page.locator(".facts summary").click()
    assert "as analysed, in float32" in shown.page.locator(".precision").inner_text()


def test_a_page_of_full_precision_exports_exactly_what_was_analysed(
    show: Callable[..., Any], analysis: Analysis
) -> None:
    shown = show(analysis, fragment="scope=AttnRes&layer=2&norm=none", precision="full")
    (view,) = json.loads(shown.export("json"))["views"]
    assert view["precision"] == "float32"
    assert (np.array(view["map"], dtype=np.float32) == analysis.map("AttnRes").sel(layer=2).values).all()


# ---- inputs of all kinds -----------------------------------------------------------------------------------------------


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
    assert "What good is made of" in shown.page.locator(".stage").nth(0).locator(".inspector").inner_text()
    views = json.loads(shown.export("json"))["views"]
    assert [view["queries"] for view in views] == [analysis.tokens, other.tokens]


def test_causal_maps_leave_out_what_does_not_exist(show: Callable[..., Any]) -> None:
    analysis = sample(["a", "b", "c", "d"], causal=True)
    shown = show(analysis)
    assert len(shown.values()) == 10
    shown.page.mouse.move(*shown.cell(0, 3))
    shown.settle()
    assert "not there" in shown.page.locator(".tooltip").inner_text()


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
    assert "format 99" in page.locator("[role=alert]").inner_text()
    page.close()


def test_mixing_ratios_alone_are_no_page(tmp_path: Path) -> None:
    from normscope.explorer import page_html  # noqa: PLC0415

    analysis = Analysis(sample(["a", "b"]).dataset.drop_vars("map"))
    with pytest.raises(normscope.InputError, match="no maps"):
        page_html(analysis)
