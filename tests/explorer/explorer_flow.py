"""The flow as it is drawn: what the heights of bands, stubs and nodes say, and whether they add up."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest

from normscope.results.explanation import Explanation

_DRAWN = """(graph) => ({
    bands: [...graph.querySelectorAll(".band")].map((band) => ({ ...band.dataset, d: band.getAttribute("d"),
        fill: band.getAttribute("fill") })),
    stubs: [...graph.querySelectorAll(".stub")].map((stub) => ({ ...stub.dataset, d: stub.getAttribute("d") })),
    nodes: [...graph.querySelectorAll("rect.node")].map((node) => ({ ...node.dataset,
        height: Number(node.getAttribute("height")), fill: node.getAttribute("fill") })),
})"""

_THINNEST = 0.05
"""Stubs that are thinner, in pixels, are not drawn."""


class Heights(NamedTuple):
    """Signed heights in pixels by (depth, row): of bands, of the edges left out and of biases at a node, and of itself."""

    into: dict[Any, float]
    out: dict[Any, float]
    rest_into: dict[Any, float]
    rest_out: dict[Any, float]
    bias: dict[Any, float]
    nodes: dict[Any, float]


def _numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", path)]


def heights(shown: Any, positive: tuple[int, int] = (0, 0)) -> Heights:
    """What is drawn; `positive` is a node (depth, row) whose relevance is known to be above 0, for its colour."""
    drawn = shown.page.locator(".flow-graph").evaluate(_DRAWN)
    place = {"depth": str(positive[0]), "row": str(positive[1])}
    colour = next(node["fill"] for node in drawn["nodes"] if place.items() <= node.items())
    found = Heights(*(defaultdict(float) for _ in Heights._fields))
    for band in drawn["bands"]:
        # M x0,top0 C . . . . x1,top1 V bottom1 C . . . . x0,bottom0 Z
        numbers = _numbers(band["d"])
        sign, layer = 1 if band["fill"] == colour else -1, int(band["layer"])
        found.out[layer - 1, int(band["from"])] += sign * (numbers[14] - numbers[1])
        found.into[layer, int(band["to"])] += sign * (numbers[8] - numbers[7])
    for stub in drawn["stubs"]:
        kind = {("out", "rest"): found.rest_out, ("into", "rest"): found.rest_into}.get(
            (stub["side"], stub["kind"]), found.bias
        )
        # M x,top L x,tip L x,bottom Z, once for every row
        thorns = [_numbers(one) for one in stub["d"].split("Z")[:-1]]
        for row, thorn in zip(stub["rows"].split(","), thorns, strict=True):
            kind[int(stub["at"]), int(row)] += int(stub["sign"]) * (thorn[5] - thorn[1])
    for node in drawn["nodes"]:
        found.nodes[int(node["depth"]), int(node["row"])] = node["height"] * (1 if node["fill"] == colour else -1)
    return found


def assert_widths_add_up(shown: Any, explanation: Explanation, target: int = 0) -> Heights:
    """At every node, and at tokens that are folded into one: what is there is what comes in, with edges left out and the
    bias, and what goes out, with edges left out; at a token of an encoder, what the layer takes from it."""
    relevance, bias, edges = (explanation.dataset[name].values[target] for name in ("relevance", "bias", "edges"))
    layers, tokens = bias.shape
    rows = sorted({int(row) for row in _rows(shown) if int(row) < tokens})
    sums, biases = (np.add.reduceat(values.astype(np.float64), rows, axis=1) for values in (relevance, bias))
    first = int(sums[0].argmax())
    drawn = heights(shown, (0, rows[first]))
    scale = drawn.nodes[0, rows[first]] / sums[0, first]
    for depth in range(layers + 1):
        for index, row in enumerate(rows):
            node, wanted = (depth, row), scale * sums[depth, index]
            assert abs(drawn.nodes[node]) == pytest.approx(max(1.5, abs(wanted)), abs=1e-3)
            assert drawn.nodes[node] * wanted >= 0
            if depth < layers:
                assert drawn.out[node] + drawn.rest_out[node] == pytest.approx(wanted, abs=_THINNEST + 0.01)
            if depth > 0:
                assert drawn.bias[node] == pytest.approx(scale * biases[depth - 1, index], abs=_THINNEST)
                into = drawn.into[node] + drawn.rest_into[node] + scale * biases[depth - 1, index]
                assert into == pytest.approx(wanted, abs=_THINNEST + 0.01)
    for (depth, row), height in drawn.nodes.items():
        if row >= tokens:
            taken = scale * float(edges[depth, :, row].sum())
            assert abs(height) == pytest.approx(max(1.5, abs(taken)), abs=1e-3)
            out = drawn.out[depth, row] + drawn.rest_out[depth, row]
            assert out == pytest.approx(taken, abs=_THINNEST + 0.01)
    return drawn


def _rows(shown: Any) -> list[str]:
    return shown.page.locator(".flow-graph rect.node").evaluate_all("(nodes) => nodes.map((node) => node.dataset.row)")
