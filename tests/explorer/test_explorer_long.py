"""Real results by windows: two stacks, images, two results side by side; what is shown is what was analysed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from explorer_server import Running
from support.chromium import CHROMIUM
from transformers import GPT2Config, GPT2Model, T5Config, T5Model, ViTConfig, ViTModel
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil
from typer.testing import CliRunner

import normscope as ns
from normscope.cli import explore as commands
from normscope.explorer import windows as long_results
from normscope.explorer.results import ResultApp
from normscope.explorer.windows import WINDOW, LongResults, Windows

SOURCE, TARGET, TEXT, SIDE = 300, 200, 260, 16
APP = typer.Typer()
commands.register(APP)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streamed results of a translator, of a causal model, and of an image."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("results")
    sizes = dict(d_model=12, d_kv=4, d_ff=16, num_layers=2, num_heads=3, vocab_size=400, decoder_start_token_id=0)
    translator = ns.load(T5Model(T5Config(**sizes)).eval())
    source, target = {"input_ids": torch.arange(1, SOURCE + 1)[None]}, {"input_ids": torch.arange(1, TARGET + 1)[None]}
    target["input_ids"][0, -1] = 1  # the end of a text
    translator.analyze(source, decoder_text=target, out=path / "translator.zarr")
    causal = ns.load(GPT2Model(GPT2Config(vocab_size=400, n_embd=12, n_layer=2, n_head=3)).eval())
    causal.analyze({"input_ids": torch.arange(TEXT)[None]}, out=path / "causal.zarr")
    made = path / "vit"
    shape = dict(hidden_size=12, intermediate_size=16, num_hidden_layers=2, num_attention_heads=3)
    ViTModel(ViTConfig(**shape, image_size=2 * SIDE, patch_size=2)).save_pretrained(made)
    ViTImageProcessorPil(size={"height": 2 * SIDE, "width": 2 * SIDE}).save_pretrained(made)
    pixels = np.random.default_rng(0).integers(0, 255, (2 * SIDE, 2 * SIDE, 3), dtype=np.uint8)
    ns.load(made).analyze(pixels, out=path / "image.zarr")
    return path


@pytest.fixture(autouse=True)
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_results, "MOST_CELLS", 1000)
    monkeypatch.setattr(long_results, "MOST_SERVED_CELLS", 1000)


def test_no_block_has_tokens_of_two_groups_nor_patches_of_two_rows(folder: Path) -> None:
    decoder = Windows(ns.open(folder / "translator.zarr").dataset)
    assert decoder.size["source"] == TARGET
    keys = decoder.whole().dataset
    assert TARGET in np.cumsum(keys["key_count"].values)
    assert keys["key_group"].values.tolist() == sorted(keys["key_group"].values.tolist(), reverse=True)
    image = Windows(ns.open(folder / "image.zarr").dataset).whole().dataset
    assert image["key_count"].values[0] == 1  # the class token
    ends = image["key_column"].values + image["key_count"].values
    assert ends[1:].max() == SIDE
    assert "image" in image


@pytest.mark.parametrize(("row", "column"), [(60, 30), (10, 230), (0, 120)])
def test_a_window_of_a_decoder_has_rows_over_both_groups(folder: Path, row: int, column: int) -> None:
    analysis = ns.open(folder / "translator.zarr")
    window = Windows(analysis.dataset).window(row, column)
    part = window.analysis.dataset
    maps = analysis.dataset["map"].values[:, :, row : row + WINDOW]
    inside = slice(window.before, window.before + WINDOW)
    assert np.array_equal(part["map"].values[..., inside], maps[..., column : column + WINDOW], equal_nan=True)
    own = np.arange(row, row + WINDOW)
    hidden = (own < column) | (own >= column + WINDOW)
    sums = np.nansum(part["map"].values, -1) + np.where(hidden, np.nan_to_num(window.own), 0)
    assert np.allclose(sums, np.nansum(maps, -1), rtol=1e-5)
    ratios = part["source_mixing_ratio"].values
    assert np.allclose(ratios, analysis.dataset["source_mixing_ratio"].values[..., row : row + WINDOW], equal_nan=True)


def test_what_fits_beside_something_long_stays_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_results, "MOST_CELLS", 10_000_000)
    results = [ns.open(folder / name) for name in ("translator.zarr", "causal.zarr")]
    assert not LongResults(*results).any
    monkeypatch.setattr(long_results, "MOST_CELLS", 3_000_000)
    assert set(LongResults(*results).windows) == {(0, "decoder"), (0, "encoder")}


class Looking:
    """A served result in the browser."""

    def __init__(self, page: Any, server: Running) -> None:
        self.page, self.url = page, server.url
        self.trouble: list[str] = []
        page.on("pageerror", lambda error: self.trouble.append(str(error)))

    def open(self, fragment: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/#{fragment}")
        self.page.locator(".heatmap[data-drawn], .table table").first.wait_for(state="attached")
        self.wait("queries by" if "row=" not in fragment else "Rows ")

    def wait(self, words: str) -> None:
        self.page.locator(".navigator [role=status]", has_text=words).wait_for()

    def row(self, stage: int = 0) -> dict[str, float]:
        """The table of the chosen row: keys and values."""
        told = self.page.locator(".table tbody").nth(stage).locator("tr").all_inner_texts()
        entries = [line.split("\t") for line in told]
        return {name: float(values[-1].rstrip(" %")) for _, name, *values in entries if values[-1] != "\u2013"}


@pytest.fixture
def look(browser: Any, folder: Path) -> Iterator[Callable[..., Looking]]:
    ends: list[Callable[[], None]] = []

    def looking(*names: str) -> Looking:
        server = Running(ResultApp(*(ns.open(folder / f"{name}.zarr") for name in names)).starlette())
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        ends.extend((page.close, server.stop))
        return Looking(page, server)

    yield looking
    for end in ends:
        end()


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")


@needs_browser
def test_both_stacks_of_a_translator_are_looked_into(look: Callable[..., Looking], folder: Path) -> None:
    shown = look("translator")
    shown.open("row=60&column=230&norm=none&own=shown&view=table&layer=2&query=5")
    shown.wait("the source from 200 on")
    analysis = ns.open(folder / "translator.zarr")
    maps = analysis.map(str(analysis.dataset["scope"].values[-1])).sel(layer=2).values
    assert shown.row()["51"] == pytest.approx(float(maps[65, TARGET + 50]), rel=0.01)
    shown.page.get_by_label("Encoder", exact=True).first.check(force=True)
    shown.wait(f"{SOURCE} queries by {SOURCE} keys")
    shown.page.keyboard.press("g")
    shown.wait("Rows ")
    shown.page.wait_for_function("() => location.hash.includes('part=encoder')")
    assert shown.trouble == []


@needs_browser
def test_own_tokens_are_left_out_of_the_blocks_that_they_are_in(look: Callable[..., Looking], folder: Path) -> None:
    shown = look("causal")
    shown.open("row=132&column=0&own=out&norm=none&view=table&layer=2&query=100")
    analysis = ns.open(folder / "causal.zarr")
    row = analysis.map(str(analysis.dataset["scope"].values[-1])).sel(layer=2).values[232].astype(float)
    own, row[232] = row[232], np.nan
    values = shown.row()
    assert values["7"] == pytest.approx(row[7], rel=0.01)
    assert sum(values.values()) == pytest.approx(np.nansum(row), rel=0.01)
    shown.open("row=132&column=0&own=shown&norm=none&view=table&layer=2&query=100")
    assert sum(shown.row().values()) == pytest.approx(np.nansum(row) + own, rel=0.01)
    shown.page.get_by_label("Find a token in the whole text").fill("201")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_function("() => location.hash.includes('row=132&column=132')")
    shown.page.wait_for_function("() => location.hash.includes('query=69')")
    shown.page.locator("h2", has_text="Contributions to 201").wait_for()
    assert shown.trouble == []


@needs_browser
def test_two_results_go_to_the_same_place(look: Callable[..., Looking]) -> None:
    shown = look("causal", "translator")
    shown.open("")
    assert shown.page.locator(".stage").count() == 2
    assert shown.page.locator(".navigator canvas:visible").count() == 2
    shown.page.locator(".navigator canvas").first.click(position={"x": 60, "y": 60})
    shown.wait("Rows 66 to 193")
    shown.page.locator(".stage").nth(1).locator(".heatmap[data-drawn]").wait_for(state="attached")
    assert shown.trouble == []


@needs_browser
def test_patches_in_blocks_cover_their_image(look: Callable[..., Looking]) -> None:
    shown = look("image")
    shown.open("")
    assert f"{SIDE} by {SIDE} patches" in (shown.page.locator(".patches").get_attribute("aria-label") or "")
    shown.page.locator(".patches").click(position={"x": 290, "y": 150})
    shown.page.wait_for_function("() => location.hash.includes('query=')")
    shown.page.keyboard.press("g")
    shown.wait("Rows ")
    assert f"{SIDE} by {SIDE} patches" in (shown.page.locator(".patches").get_attribute("aria-label") or "")
    assert shown.trouble == []


def test_a_part_that_is_not_there_gets_a_message(folder: Path) -> None:
    results = LongResults(ns.open(folder / "causal.zarr"))
    with pytest.raises(ns.InputError, match="encoder"):
        results.window("encoder", 0, 0)
    one, two = LongResults(*(ns.open(folder / f"{name}.zarr") for name in ("causal", "translator"))).window(
        "encoder", 50, 50
    )["analyses"]
    assert one["queries"]["position"][0] == two["queries"]["position"][0] == 50
    assert [len(each["own"]["shape"]) for each in (one, two)] == [3, 3]


def test_a_page_of_two_results_is_written_and_tells_how_far_it_is(folder: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    results = [ns.open(folder / f"{name}.zarr") for name in ("causal", "image")]
    LongResults(*results).opening(tell=lambda done, total: told.append((done, total)))
    maps = sum(result.dataset.sizes["scope"] * 2 for result in results)
    assert told == [(done, maps) for done in range(1, maps + 1)]
    names = [str(folder / f"{name}.zarr") for name in ("causal", "translator")]
    done = CliRunner().invoke(APP, ["explore", names[0], "--compare", names[1], "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "page.html").stat().st_size < 3_000_000
