"""Pictures show the numbers of the analysis, whatever the tokens are, and leave matplotlib as it was."""

from __future__ import annotations

import warnings
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

import normscope as ns
from normscope.output.export import write_figure
from normscope.plots import (
    plot_amplification,
    plot_flow,
    plot_grid,
    plot_growth,
    plot_map,
    plot_mixing_ratio,
    plot_tokens,
)
from normscope.plots.picture import Picture
from normscope.results.flow import Edge, Flow

TEXT = "The opera singer caught a soap bubble."
WHOLE = "AttnResLnFfResLn"


@pytest.fixture(scope="module")
def analysis(analyzer: ns.Analyzer) -> ns.Analysis:
    return analyzer.analyze(TEXT, heads=True)


@pytest.fixture(scope="module")
def causal(analysis: ns.Analysis) -> ns.Analysis:
    """The analysis with keys after the query missing and keys in two groups."""
    dataset = analysis.dataset.copy(deep=True)
    dataset["map"] = dataset["map"].where(dataset["key"] <= dataset["query"])
    groups = np.array(["target"] * 6 + ["source"] * 4, dtype=object)
    return ns.Analysis(dataset.assign_coords(key_group=("key", groups)))


def with_tokens(analysis: ns.Analysis, tokens: list[str]) -> ns.Analysis:
    names = np.array(tokens, dtype=object)
    return ns.Analysis(analysis.dataset.assign_coords(key_token=("key", names), query_token=("query", names)))


def meshes(figure: Figure) -> list[QuadMesh]:
    """The panels' cells; a colour bar is a mesh too, but on axes of its own that have a colour bar's label."""
    found = [item for axes in figure.axes if axes.get_ylabel() in ("", "query", "layer") for item in axes.collections]
    return [item for item in found if isinstance(item, QuadMesh)]


def cells(figure: Figure, panel: int = 0) -> np.ndarray:
    return np.asarray(np.ma.filled(meshes(figure)[panel].get_array().astype(float), np.nan)).squeeze()


def svg(figure: Figure) -> str:
    buffer = BytesIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg")
    return buffer.getvalue().decode()


def tick_labels(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_xticklabels()]


# ---- maps ------------------------------------------------------------------------------------------------------------


def test_a_map_of_one_layer_shows_the_values_of_that_layer(analysis: ns.Analysis) -> None:
    figure = plot_map(analysis, WHOLE, 3)
    np.testing.assert_array_equal(cells(figure), analysis.map(WHOLE).sel(layer=3).values)
    assert tick_labels(figure) == analysis.tokens
    assert figure.axes[0].get_title() == f"Layer 3, whole layer ({WHOLE})"


def test_all_layers_are_small_multiples_in_order_with_one_scale_of_colours(analysis: ns.Analysis) -> None:
    figure = plot_map(analysis, "Attn")
    panels = meshes(figure)
    assert [axes.get_title() for axes in figure.axes[:6]] == [f"layer {layer}" for layer in range(1, 7)]
    assert len({(panel.norm.vmin, panel.norm.vmax) for panel in panels}) == 1
    for place, layer in enumerate(analysis.layers):
        np.testing.assert_array_equal(cells(figure, place), analysis.map("Attn").sel(layer=layer).values)


@pytest.mark.parametrize(("layers", "columns"), [([1, 2], 2), ([1, 2, 3, 4], 2), ([1, 2, 3, 4, 5], 3), (None, 3)])
def test_small_multiples_leave_as_few_places_empty_as_can_be(
    analyzer: ns.Analyzer, layers: list[int] | None, columns: int
) -> None:
    figure = plot_map(analyzer.analyze("A text.", layers=layers, scopes="AttnW"), "AttnW")
    places = {round(mesh.axes.get_position().x0, 2) for mesh in meshes(figure)}
    assert len(places) == columns


def test_rows_normalised_in_a_picture_sum_to_one(analysis: ns.Analysis) -> None:
    np.testing.assert_allclose(cells(plot_map(analysis, WHOLE, 1, normalise="row")).sum(1), 1, rtol=1e-5)


def test_a_head_is_shown_alone(analysis: ns.Analysis) -> None:
    expected = analysis.map("Attn", heads=True).sel(layer=2, head=7).values
    np.testing.assert_array_equal(cells(plot_map(analysis, "Attn", 2, head=7)), expected)


def test_an_outlier_does_not_wash_out_the_rest_and_the_colour_bar_says_so(analysis: ns.Analysis) -> None:
    values = analysis.map("AttnResLnFf").sel(layer=3).values
    assert values.max() > 10 * np.median(values.max(1)), "the outlier of [CLS] is what this test is about"
    figure = plot_map(analysis, "AttnResLnFf", 3)
    assert meshes(figure)[0].norm.vmax == pytest.approx(2.5 * np.median(values.max(1)))
    bars = [axes for axes in figure.axes[0].child_axes if axes.get_ylabel() == "norm of the part"]
    assert len(bars) == 1
    assert len(bars[0].patches) >= 1, "no arrow for the values beyond"


def test_a_limit_given_is_the_limit_of_the_colours(analysis: ns.Analysis) -> None:
    assert meshes(plot_map(analysis, WHOLE, 1, limit=3.5))[0].norm.vmax == 3.5


def test_keys_that_do_not_exist_are_blank_and_not_zero(causal: ns.Analysis) -> None:
    figure = plot_map(causal, "Attn", 2)
    shown = cells(figure)
    assert np.isnan(shown[np.triu_indices(10, 1)]).all()
    assert np.isfinite(shown[np.tril_indices(10)]).all()
    mesh = meshes(figure)[0]
    colours = mesh.cmap(mesh.norm(np.ma.masked_invalid(shown)))
    assert (colours[0, 1:, 3] == 0).all(), "a blank cell must be transparent"


def test_groups_of_keys_are_separated_by_a_line_where_they_meet(causal: ns.Analysis, analysis: ns.Analysis) -> None:
    axes = plot_map(causal, "Attn", 2).axes[0]
    assert [list(line.get_xdata()) for line in axes.lines] == [[6, 6]]
    assert [text.get_text() for text in axes.texts] == ["target", "source"]
    assert not plot_map(analysis, "Attn", 2).axes[0].lines


def test_tokens_that_look_like_formulas_are_drawn_as_they_are(analysis: ns.Analysis) -> None:
    odd = with_tokens(analysis, ["$x$", "$\\frac{", "$", "\\alpha", "<b>&", "_{^", "%", "#", "~", "$$"])
    drawn = svg(plot_map(odd, "Attn", 1))
    for written in ("$x$", "$\\frac{", "\\alpha", "&lt;b&gt;&amp;", "_{^", "$$"):
        assert f">{written}<" in drawn


def test_spaces_and_line_breaks_in_tokens_are_visible_and_long_tokens_are_cut(analysis: ns.Analysis) -> None:
    odd = with_tokens(analysis, ["Ġthe", "▁a", "\n", "", "a" * 50, "\x00", "é", "ß", "x", "y"])
    shown = tick_labels(plot_map(odd, "Attn", 1))
    assert shown[:6] == ["␣the", "␣a", "↵", "␣", "a" * 17 + "…", "�"]


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
def test_scripts_without_a_font_are_drawn_in_every_picture(analysis: ns.Analysis) -> None:
    odd = with_tokens(analysis, ["日本", "🙂", "ب", "\u0301", "क", "한", "\ud7ff", "ა", "\U00012000", "."])
    for figure in (plot_map(odd, "Attn", 1), plot_tokens(odd, "Attn", 1, 3), plot_mixing_ratio(odd, "Attn")):
        figure.savefig(BytesIO(), format="png", dpi=50)


def test_many_tokens_have_as_many_labels_as_can_be_read(analyzer: ns.Analyzer) -> None:
    long = analyzer.analyze("The norms say more than weights alone. " * 25, scopes="AttnW", layers=1)
    figure = plot_map(long, "AttnW", 1)
    assert len(long.tokens) > 200
    labels = figure.axes[0].get_xticklabels()
    inches_apart = figure.axes[0].get_position().width * figure.get_figwidth() / len(labels)
    assert 20 < len(labels) < len(long.tokens)
    assert inches_apart * 72 >= labels[0].get_fontsize() >= 4.5
    assert max(figure.get_size_inches()) < 17


# ---- growth, amplification, mixing, tokens ------------------------------------------------------------------------------


def test_the_growth_strip_shows_every_scope_in_order_and_what_it_adds(analysis: ns.Analysis) -> None:
    figure = plot_growth(analysis, 3)
    titles = [axes.get_title() for axes in figure.axes[:7]]
    assert [title.split("\n")[1] for title in titles] == analysis.scopes[:7]
    assert [title.split("\n")[0] for title in titles] == [
        *("weights", "\u00d7 values", "+ residual", "+ norm", "+ feed-forward", "+ residual", "+ norm")
    ]
    for place, scope in enumerate(analysis.scopes[:7]):
        np.testing.assert_array_equal(cells(figure, place), analysis.normalised(scope, "row").sel(layer=3).values)


def test_titles_say_in_words_how_far_the_layer_is_followed(analysis: ns.Analysis, analyzer: ns.Analyzer) -> None:
    def title(figure: Figure) -> str:
        return figure.axes[0].get_title().replace("\n", " ")

    assert title(plot_map(analysis, "AttnResW", 1)) == "Layer 1, attention weights + residual (AttnResW)"
    assert title(plot_map(analysis, "Attn", 2, head=3)) == "Layer 2, attention, head 3 (Attn)"
    assert title(plot_amplification(analysis, "AttnResLn", "AttnResLnFf", 3)).startswith("Layer 3, + feed-forward (")
    assert title(plot_mixing_ratio(analysis)) == f"Mixing ratio, whole layer ({WHOLE})"
    part = analyzer.analyze("A cat.", scopes=["AttnResLnFfRes"])  # the last that was analysed, but not the whole layer
    assert "whole layer" not in title(plot_map(part, layer=1)) and "feed-forward + residual" in title(
        plot_map(part, layer=1)
    )


@pytest.mark.parametrize("panels", [1, 2, 4, 7])
def test_titles_labels_and_caption_stand_apart(analysis: ns.Analysis, panels: int) -> None:
    figure = plot_growth(analysis, 3, analysis.scopes[:panels])
    figure.draw_without_rendering()
    drawn = [axes for axes in figure.axes if axes.get_title()]
    boxes = [axes.title.get_window_extent() for axes in drawn]
    heading = figure._suptitle if panels > 1 else None  # pyright: ignore[reportAttributeAccessIssue]
    if heading is not None:
        assert not any(heading.get_window_extent().overlaps(box) for box in boxes)
    caption = figure._supxlabel.get_window_extent()  # pyright: ignore[reportAttributeAccessIssue]
    assert not any(caption.overlaps(axes.xaxis.label.get_window_extent()) for axes in drawn)


def test_a_growth_strip_of_norms_shows_each_panel_relative_to_itself(analysis: ns.Analysis) -> None:
    shown = cells(plot_growth(analysis, 1, ["Attn", "AttnRes"], normalise="none"), 1)
    values = analysis.map("AttnRes").sel(layer=1).values
    np.testing.assert_allclose(shown / shown.max(), values / values.max(), rtol=1e-5)


def test_amplification_is_centred_on_zero(analysis: ns.Analysis) -> None:
    figure = plot_amplification(analysis, "AttnResLn", "AttnResLnFf", 3)
    mesh = meshes(figure)[0]
    assert mesh.norm.vmin == -mesh.norm.vmax
    assert float(mesh.norm(0.0)) == pytest.approx(0.5)
    expected = analysis.amplification("AttnResLn", "AttnResLnFf").sel(layer=3).values
    np.testing.assert_array_equal(cells(figure), expected)


def test_mixing_ratios_have_the_first_layer_at_the_bottom(analysis: ns.Analysis) -> None:
    figure = plot_mixing_ratio(analysis, "AttnRes")
    np.testing.assert_array_equal(cells(figure), analysis.mixing_ratio("AttnRes").values[::-1])
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["6", "5", "4", "3", "2", "1"]


def test_mixing_ratios_without_maps_make_the_same_picture(analyzer: ns.Analyzer, analysis: ns.Analysis) -> None:
    ratios: xr.DataArray = analyzer.mixing_ratios(TEXT, scopes="AttnRes")  # pyright: ignore[reportAssignmentType]
    np.testing.assert_allclose(
        cells(plot_mixing_ratio(ratios)), cells(plot_mixing_ratio(analysis, "AttnRes")), atol=1e-5
    )


def test_highlighted_tokens_are_all_there_with_a_frame_around_the_query(analysis: ns.Analysis) -> None:
    axes = plot_tokens(analysis, WHOLE, 3, "caught").axes[0]
    assert [text.get_text() for text in axes.texts] == analysis.tokens
    framed = [place for place, patch in enumerate(axes.patches) if patch.get_edgecolor()[3] > 0]
    assert [analysis.tokens[place] for place in framed] == ["caught"]
    lightness = [sum(patch.get_facecolor()[:3]) for patch in axes.patches]
    row = analysis.map(WHOLE).sel(layer=3).values[analysis.tokens.index("caught")]
    assert list(np.argsort(lightness)) == list(np.argsort(-row)), "a larger part must be darker"


def test_highlighted_tokens_fit_their_boxes_and_the_line(analyzer: ns.Analyzer) -> None:
    names = analyzer.analyze("Szymborska read poems in Ouagadougou before Djokovic beat Kyrgios.", layers=1)
    figure = plot_tokens(names, "Attn", 1, 0, width=4.0)
    figure.savefig(BytesIO(), format="png")  # lays it out
    axes = figure.axes[0]
    boxes = [patch.get_window_extent() for patch in axes.patches]
    assert max(patch.get_x() + patch.get_width() for patch in axes.patches) <= 4.0  # pyright: ignore
    assert len({round(box.y0) for box in boxes}) > 1, "the text must need several lines"
    for text, box in zip(axes.texts, boxes, strict=True):
        extent = text.get_window_extent()
        assert box.x0 <= extent.x0 < extent.x1 <= box.x1, text.get_text()


# ---- what cannot be drawn ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("Nowhere", 1), {}, "Available scopes: AttnW, Attn"),
        (("Attn", 9), {}, "There is no layer 9 here. Analysed layers: 1, 2"),
        (("Attn", 1), {"head": 13}, "There is no head 13 here. Heads: 1 to 12"),
        (("AttnRes", 1), {"head": 1}, "already mixed"),
        (("Attn", 1), {"normalise": "rows"}, "none, row, column, not by 'rows'"),
        (("Attn", 1), {"colours": "rainbows"}, "no colour map 'rainbows'"),
        (("Attn", 1), {"colour_scale": "log"}, "'sqrt' or 'linear', not 'log'"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(
    analysis: ns.Analysis, arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ns.InputError, match=message.replace("(", r"\(")):
        plot_map(analysis, *arguments, **options)


@pytest.mark.parametrize(
    ("query", "message"), [(10, "no query 10"), ("nothing", "No query is the token"), ("the", "2 times")]
)
def test_a_query_that_is_not_one_is_refused(analyzer: ns.Analyzer, query: int | str, message: str) -> None:
    twice = analyzer.analyze("The man saw the dog.", scopes="AttnW", layers=1)
    with pytest.raises(ns.SelectionError, match=message):
        plot_tokens(twice, "AttnW", 1, query)


def test_mixing_ratios_of_several_scopes_are_those_of_the_whole_layer(analysis: ns.Analysis) -> None:
    (whole, chosen) = (plot_mixing_ratio(analysis, *scope) for scope in ((), ("AttnResLnFfResLn",)))
    shown, expected = (figure.axes[0].collections or figure.axes[0].images for figure in (whole, chosen))
    np.testing.assert_array_equal(shown[0].get_array(), expected[0].get_array())


# ---- manners -------------------------------------------------------------------------------------------------------------


def test_drawing_leaves_the_settings_of_matplotlib_as_they_were(analysis: ns.Analysis) -> None:
    before = dict(mpl.rcParams)
    plot_growth(analysis, 1)
    plot_tokens(analysis, "Attn", 1, 0)
    assert dict(mpl.rcParams) == before


def test_no_figure_is_left_with_pyplot(analysis: ns.Analysis) -> None:
    import matplotlib.pyplot as plt  # noqa: PLC0415

    plot_map(analysis, "Attn")
    assert plt.get_fignums() == []


def test_an_analysis_plots_itself(analysis: ns.Analysis) -> None:
    np.testing.assert_array_equal(cells(analysis.plot("Attn", 1)), cells(plot_map(analysis, "Attn", 1)))


def test_a_grid_has_a_row_for_each_layer_and_a_column_for_each_scope(analyzer: ns.Analyzer) -> None:
    analysis = analyzer.analyze("A cat sat.", layers=[2, 5], scopes=["AttnW", "Attn", "AttnRes"])
    figure = plot_grid(analysis)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    scopes = ("AttnW", "Attn", "AttnRes")
    assert titles == [f"{scope}, layer {layer}" for layer in (2, 5) for scope in scopes]
    shown = (
        figure.axes[4].collections[0].get_array()
        if figure.axes[4].collections
        else figure.axes[4].images[0].get_array()
    )
    assert shown is not None and shown.size == analysis.map("Attn").sel(layer=5).size


def test_every_plot_shows_itself_in_a_notebook(analyzer: ns.Analyzer) -> None:
    analysis = analyzer.analyze("The cat sleeps.", layers=1)
    ratios = analyzer.mixing_ratios("The cat sleeps.")
    for picture in (analysis.plot("Attn", 1), plot_growth(analysis, 1), plot_mixing_ratio(ratios, "Attn")):
        assert isinstance(picture, Picture)
        assert picture._repr_png_().startswith(b"\x89PNG")  # what a notebook asks a result for


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_characters_that_no_font_has_are_told_once_with_what_to_install(kind: str, tmp_path: Path) -> None:
    figure = Figure()
    figure.text(0.1, 0.1, "\U00012000\U00012001 and \U00012000")  # cuneiform, which nobody has installed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write_figure(figure, tmp_path / f"figure.{kind}")
    told = [str(one.message) for one in caught]
    assert len(told) == (kind == "png")
    assert all("\U00012000\U00012001" in text and "fonts-noto" in text for text in told)


def test_a_flow_of_a_decoder_that_takes_nothing_from_its_source_is_drawn_too() -> None:
    edges = [Edge(1, 0, 0, 0.7), Edge(1, 1, 0, 0.3)]
    own, source = [f"t{index}" for index in range(60)], [f"s{index}" for index in range(60)]
    flow = Flow(0.9, own, [*own, *source], np.ones((2, 60)), edges, np.ones(1))
    assert [label.get_text() for label in plot_flow(flow).axes[0].get_yticklabels()] == ["t0", "t1"]


@pytest.mark.parametrize("width", [None, 3.0])
def test_nothing_in_a_flow_lies_over_another_label(width: float | None) -> None:
    layers = 24
    edges = [Edge(layer, 1, 1, 1.0) for layer in range(1, layers + 1)] + [Edge(3, 0, 1, -0.5)]
    flow = Flow(0.5, ["a", "b"], ["a", "b"], np.ones((layers + 1, 2)), edges, np.ones(layers))
    figure = plot_flow(flow, name="b", width=width, about={"model": "a-model", "text": "a text of some words " * 9})
    figure.draw_without_rendering()
    caption = figure._supxlabel.get_window_extent()  # pyright: ignore[reportAttributeAccessIssue]
    assert not figure.legends[0].get_window_extent().overlaps(caption)
    assert not figure.legends[0].get_window_extent().overlaps(figure.axes[0].title.get_window_extent())
    numbers = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert not any(first.overlaps(second) for first, second in pairwise(numbers))
