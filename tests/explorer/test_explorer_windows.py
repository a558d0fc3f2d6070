"""Long results by windows: what is read is what is shown, rows keep their sums, and a served page goes where one clicks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from explorer_axe import AXE, faults
from explorer_samples import POST_NORM, sample
from explorer_server import Running
from typer.testing import CliRunner

import normscope
from normscope import Analysis
from normscope.cli import explore as commands
from normscope.explorer import page_html, windows
from normscope.explorer import windows as long_results
from normscope.explorer.page import frame
from normscope.explorer.payload import encoded
from normscope.explorer.results import ResultApp
from normscope.explorer.widget import ExplorerWidget
from normscope.explorer.windows import WINDOW, LongResults, Windows
from normscope.results import zarr as streaming
from normscope.results.zarr import ZarrStore

TOKENS = 700
APP = typer.Typer()
commands.register(APP)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a long text on disk, as an analysis streams it there."""
    analysis = sample([f"w{index}" for index in range(TOKENS)], layers=2, scopes=POST_NORM[:3], causal=True)
    path = tmp_path_factory.mktemp("long") / "long.zarr"
    with streaming.folder_in_the_making(path) as folder:
        streaming.write_rest(analysis.dataset, ZarrStore.at(folder))
    return path


def _shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pages take next to nothing."""
    monkeypatch.setattr(long_results, "MOST_CELLS", 1000)
    monkeypatch.setattr(long_results, "MOST_SERVED_CELLS", 1000)


@pytest.fixture
def opened(long: Path, monkeypatch: pytest.MonkeyPatch) -> Analysis:
    """The same, with pages that take next to nothing."""
    _shorten(monkeypatch)
    return normscope.open(long)


def test_blocks_add_up_keys_and_average_queries(opened: Analysis) -> None:
    parts = Windows(opened.dataset)
    assert parts.block == 8
    whole = parts.whole().dataset["map"].values
    maps = opened.dataset["map"].values
    block = maps[:, :, 80:88, 40:48]
    assert np.allclose(whole[:, :, 10, 5], block.sum(-1).mean(-1), rtol=1e-6)
    assert np.isnan(whole[:, :, 5, 10]).all()  # what is after a query does not exist
    corner = maps[:, :, 80:88, 80:88]
    assert np.allclose(whole[:, :, 10, 10], np.nansum(corner, -1).mean(-1), rtol=1e-6)
    assert np.allclose(np.nansum(whole[:, :, 10], -1), np.nansum(maps[:, :, 80:88], -1).mean(-1), rtol=1e-5)
    ratios = parts.whole().dataset["mixing_ratio"].values
    assert np.allclose(ratios[..., 3], opened.dataset["mixing_ratio"].values[..., 24:32].mean(-1))


@pytest.mark.parametrize(("row", "column"), [(0, 0), (300, 301), (517, 64), (10**6, 10**6)])
def test_a_window_has_its_own_cells_and_whole_rows(opened: Analysis, row: int, column: int) -> None:
    window = Windows(opened.dataset).window(row, column)
    part = window.analysis.dataset
    row, column = min(row, TOKENS - WINDOW), min(column, TOKENS - WINDOW)
    maps = opened.dataset["map"].values[:, :, row : row + WINDOW]
    counts = part["key_count"].values
    assert counts.sum() == TOKENS
    assert part["query"].values.tolist() == list(range(row, row + WINDOW))
    inside = np.flatnonzero((part["key"].values >= column) & (part["key"].values < column + WINDOW))
    assert (counts[inside] == 1).all()
    assert np.array_equal(part["map"].values[..., inside], maps[..., column : column + WINDOW], equal_nan=True)
    own = np.arange(row, row + WINDOW)
    assert np.array_equal(window.own, maps[:, :, np.arange(WINDOW), own])
    hidden = (own < column) | (own >= column + WINDOW)  # told apart from the block that it is in
    whole = np.nansum(part["map"].values, -1) + np.where(hidden, window.own, 0)
    assert np.allclose(whole, np.nansum(maps, -1), rtol=1e-5)
    assert part["key_token"].values[inside[0]] == f"w{column}"


def test_only_the_rows_of_a_window_are_read(opened: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    heights: list[int] = []
    reduced = windows._reduced

    def noting(values: Any, queries: Any, keys: Any) -> np.ndarray:
        assert not values.variable._in_memory
        heights.append(len(values))
        return reduced(values, queries, keys)

    monkeypatch.setattr(windows, "_reduced", noting)
    Windows(opened.dataset).window(100, 0)
    assert heights == [WINDOW] * 6


def test_a_page_of_a_long_result_is_small_and_says_so(show: Any, opened: Analysis) -> None:
    assert len(page_html(opened)) < 1_500_000
    shown = show(opened, plain=False)
    told = shown.page.locator(".navigator [role=status]").inner_text()
    assert "700 queries by 700 keys in blocks of 8 tokens" in told
    assert "normscope serve" in told
    assert not shown.page.locator(".places").is_visible()
    assert shown.trouble == []
    assert frame(opened) is None  # reading all of it takes too long for showing a variable


@pytest.fixture
def server(opened: Analysis) -> Iterator[Running]:
    running = Running(ResultApp(opened).starlette())
    yield running
    running.stop()


def test_a_served_result_is_looked_into(browser: Any, server: Running, opened: Analysis) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(f"{server.url}/#own=shown&layer=2&norm=none")
    page.locator(".heatmap[data-drawn]").wait_for(state="attached")
    page.locator(".navigator .whole").click(position={"x": 60, "y": 60})
    page.locator(".navigator [role=status]", has_text="Rows ").wait_for()
    page.wait_for_function("() => location.hash.includes('column=')")
    found = re.search(r"row=(\d+)&column=(\d+)", page.url)
    assert found is not None
    assert "layer=2" in page.url
    row = int(found[1])
    page.locator(".toolbar").get_by_label("Table").check(force=True)
    cells = page.locator(".table tbody tr").filter(has=page.locator("th", has_text=re.compile(f"^w{row}$")))
    cells.wait_for()
    wanted = opened.map("AttnRes").sel(layer=2).values[row + WINDOW - 1, row]  # a causal page opens at its last row
    assert float(cells.locator("td").last.inner_text()) == pytest.approx(float(wanted), rel=0.01)

    page.get_by_label("Rows from").fill("400")
    page.get_by_label("columns from").press("Enter")
    page.wait_for_function("() => location.hash.includes('row=400')")
    page.reload()
    page.locator(".navigator [role=status]", has_text="Rows 400 to 527").wait_for()
    page.get_by_role("button", name="Next window").press("Enter")
    page.locator(".navigator [role=status]", has_text="Rows 528 to 655").wait_for()
    page.get_by_role("button", name="Whole", exact=True).press("Enter")
    page.locator(".navigator [role=status]", has_text="in blocks of 8 tokens:").wait_for()
    page.wait_for_function("() => !location.hash.includes('row=')")
    assert trouble == []
    page.close()


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run npm ci in front-end")
def test_a_window_has_no_serious_fault(browser: Any, server: Running) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True)
    page = context.new_page()
    page.goto(f"{server.url}/#row=100&column=90")
    page.locator(".navigator [role=status]", has_text="Rows 100 to").wait_for()
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert faults(page) == []
    context.close()


def test_a_bad_window_gets_a_message(server: Running, opened: Analysis) -> None:
    with server.client() as client:
        assert client.get("/api/window?row=a&column=0").status_code == 422
        answer = client.get("/api/window?row=-5&column=99999").json()
        assert answer["analyses"][0]["queries"]["position"][0] == 0
        assert client.get("/", headers={"host": "evil.example"}).status_code != 200
    small = Running(ResultApp(sample(["a"])).starlette())
    with small.client() as client:
        assert client.get("/api/window?row=0&column=0").status_code == 404
        assert "windows" not in client.get("/api/result").json()["analyses"][0]
    small.stop()


@pytest.mark.filterwarnings("ignore")
def test_a_widget_gives_windows(opened: Analysis) -> None:
    widget = ExplorerWidget(opened)
    assert json.loads(widget.payload)["analyses"][0]["windows"]["queries"] == TOKENS
    assert widget.payload == encoded(LongResults(opened, served=True).opening())
    sent: list[tuple[Any, Any]] = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))  # type: ignore[method-assign]
    widget._answer(widget, {"kind": "window", "id": 1, "part": "decoder", "row": 200, "column": 0}, [])
    ((content, (buffer,)),) = sent
    assert content == {"id": 1}
    assert json.loads(buffer)["analyses"][0]["queries"]["position"][0] == 200


def test_the_command_takes_a_finished_result(long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "page.html"
    done = CliRunner().invoke(APP, ["explore", str(long), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "in blocks" not in done.output
    assert out.exists()
    _shorten(monkeypatch)
    done = CliRunner().invoke(APP, ["explore", str(long), "--out", str(out)])
    assert "normscope serve" in done.output
    done = CliRunner().invoke(APP, ["explore", str(long), "--out", str(out), "--compare", "another text"])
    assert isinstance(done.exception, normscope.InputError)
    assert "finished result" in str(done.exception)
