"""One look: a map has the colours of its figure, and labels say what is measured and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from explorer_samples import sample
from explorer_values import assert_same, expected
from matplotlib.collections import QuadMesh

from normscope import Analysis
from normscope.plots import plot_amplification, plot_map

FULL = "AttnResLnFfResLn"


def drawn_colours(shown: Any) -> np.ndarray:
    """The colours of the cells of the exported picture, `[query, key, channel]` from 0 to 255."""
    svg = ElementTree.fromstring(shown.export("svg"))
    names = "{http://www.w3.org/2000/svg}"
    cells = [rect.get("fill", "") for rect in svg.findall(f".//{names}g[@shape-rendering]/{names}rect")]
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


def test_labels_say_the_method_and_what_is_measured(show: Callable[..., Any]) -> None:
    analysis = sample(["a", "b", "c"])
    shown = show(analysis, fragment="norm=none&scope=AttnRes")
    assert shown.page.locator(".legend .title").inner_text() == "norm of the part"
    assert shown.page.locator(".map-card .hint").first.inner_text() == "AttnRes · sample"
    analysis.dataset.attrs["method"] = "projections"
    analysis.dataset["map"].attrs["quantity"] = "projection"
    analysis.dataset["map"].values[2:] -= 1.0
    shown = show(analysis, fragment="norm=none&scope=AttnRes")
    assert shown.page.locator(".legend .title").inner_text() == "projection"
    assert shown.page.locator(".map-card .hint").first.inner_text() == "AttnRes · sample · projections"
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
