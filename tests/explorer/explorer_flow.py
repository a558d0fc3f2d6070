"""The flow as it is drawn: what the heights of bands and nodes say, and whether they add up."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest

from normscope.explain.explanation import Explanation


def heights(shown: Any) -> tuple[dict[Any, float], dict[Any, float], dict[Any, float]]:
    """Signed heights in the drawn graph: of bands into every node, of bands out of it, and of the node itself."""
    drawn = shown.page.locator(".flow-graph").evaluate("""(graph) => ({
        bands: [...graph.querySelectorAll(".band")].map((band) => ({ ...band.dataset, d: band.getAttribute("d"),
            fill: band.getAttribute("fill") })),
        nodes: [...graph.querySelectorAll("rect.node")].map((node) => ({ ...node.dataset,
            height: Number(node.getAttribute("height")), fill: node.getAttribute("fill") })),
    })""")
    positive = next(node["fill"] for node in drawn["nodes"] if node["depth"] == "0" and node["row"] == "0")
    into: dict[Any, float] = defaultdict(float)
    out: dict[Any, float] = defaultdict(float)
    for band in drawn["bands"]:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", band["d"])]
        # M x0,top0 C . . . . x1,top1 V bottom1 C . . . . x0,bottom0 Z
        begin, end = numbers[14] - numbers[1], numbers[8] - numbers[7]
        sign = 1 if band["fill"] == positive else -1
        layer = int(band["layer"])
        out[layer - 1, int(band["from"])] += sign * begin
        into[layer, int(band["to"])] += sign * end
    nodes = {
        (int(node["depth"]), int(node["row"])): node["height"] * (1 if node["fill"] == positive else -1)
        for node in drawn["nodes"]
    }
    return into, out, nodes


def assert_widths_add_up(shown: Any, explanation: Explanation) -> None:
    """At every node: what comes in, and the bias, is what is there, and what goes out."""
    into, out, nodes = heights(shown)
    relevance, bias = explanation.relevance.values, explanation.dataset["bias"].values[0]
    assert relevance[0, 0] > 0
    scale = nodes[0, 0] / relevance[0, 0]
    layers, tokens = bias.shape
    for depth in range(layers + 1):
        for token in range(tokens):
            wanted = scale * relevance[depth, token]
            drawn = nodes[depth, token]
            assert abs(drawn) == pytest.approx(max(1.5, abs(wanted)), abs=1e-3)
            assert drawn * wanted >= 0
            if depth < layers:
                assert out[depth, token] == pytest.approx(wanted, abs=0.01)
            if depth > 0:
                assert into[depth, token] + scale * bias[depth - 1, token] == pytest.approx(wanted, abs=0.01)
