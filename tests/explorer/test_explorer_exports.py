"""What the page gives away: pictures and data, with what they are and how precise."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np

from normscope import Analysis

FULL = "AttnResLnFfResLn"


def test_pictures_are_exported(show: Callable[..., Any], analysis: Analysis) -> None:
    shown = show(analysis, fragment="scope=AttnRes&layer=2")
    svg = ElementTree.fromstring(shown.export("svg"))
    names = "{http://www.w3.org/2000/svg}"
    count = len(analysis.tokens)
    assert len(svg.findall(f".//{names}g[@shape-rendering]/{names}rect")) == count**2
    texts = [(element.text or "").strip("\u2068\u2069") for element in svg.iter(f"{names}text")]
    assert texts[0] == "Layer 2, attention + residual"
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
    assert "within 0.02 % of their value" in shown.page.locator(".precision").inner_text()
    shown = show(analysis, precision="full")
    shown.page.locator(".facts summary").click()
    assert "full float32 precision" in shown.page.locator(".precision").inner_text()


def test_a_page_of_full_precision_exports_exactly_what_was_analysed(
    show: Callable[..., Any], analysis: Analysis
) -> None:
    shown = show(analysis, fragment="scope=AttnRes&layer=2&norm=none", precision="full")
    (view,) = json.loads(shown.export("json"))["views"]
    assert view["precision"] == "float32"
    assert (np.array(view["map"], dtype=np.float32) == analysis.map("AttnRes").sel(layer=2).values).all()
