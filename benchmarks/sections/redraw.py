"""The explorer: how long it takes, in a real browser, to draw a map again after a key."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from measuring import MINILM, SUBJECT, Column, Row, Section, attention_scopes, ids

import normscope as ns
from normscope.explorer import write_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
KEYS = ("[", "j", "[", "k", "n", "n", "]", "j", "]")
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"


def rows(quick: bool) -> Iterator[Row]:
    for length in (128,) if quick else (32, 128, 512):
        row = dict(model=MINILM, tokens=length)
        if CHROMIUM is None:
            yield row | {"note": "not measured: there is no chromium"}
            continue
        with tempfile.TemporaryDirectory(prefix="normscope-redraw-") as folder:
            analyzer = ns.load()
            analysis = analyzer.analyze(ids(length), scopes=attention_scopes(analyzer), layers=[1, 2])
            page = write_page(analysis, path=Path(folder) / "page.html")
            times = _redraws(page, CHROMIUM)
            size = page.stat().st_size / 2**20
        yield row | dict(redraws=len(times), median=median(times), slowest=max(times), megabytes=size)


def _redraws(page: Path, browser: str) -> list[float]:
    """Milliseconds of each redraw, as the page itself measures them."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (only where there is a browser)

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        shown = chromium.new_page(viewport={"width": 1440, "height": 900})
        shown.goto(page.as_uri())
        shown.locator(".heatmap[data-drawn]").first.wait_for(state="attached")
        shown.locator(".marks").focus()
        times: list[float] = []
        for key in KEYS:
            shown.keyboard.press(key)
            shown.evaluate(SETTLED)
            times.append(float(shown.locator(".root").get_attribute("data-redraw") or "nan"))
            shown.wait_for_timeout(60)
        chromium.close()
    return times


SECTION = Section(
    "The explorer: milliseconds to draw a map again, in chromium",
    (
        *SUBJECT,
        Column("megabytes", "page", "{:.2f} MB"),
        Column("redraws", "redraws"),
        Column("median", "median", "{:.0f} ms"),
        Column("slowest", "slowest", "{:.0f} ms"),
        Column("note", "note"),
    ),
    rows,
    drawn="median",
)
