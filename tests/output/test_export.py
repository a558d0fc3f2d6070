"""Files hold the numbers of the analysis, in the format of their ending, and are whole or not there at all."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray as xr
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.text import Text

import normscope as ns
from normscope import paths as endings
from normscope.output.export import export_map, export_mixing_ratios, write_figure
from normscope.plots import picture, plot_map
from normscope.plots.style import publication

TEXT = 'Say "hello, world" for $5.'


@pytest.fixture(scope="module")
def analysis(analyzer: ns.Analyzer) -> ns.Analysis:
    return analyzer.analyze(TEXT, heads=True)


@pytest.fixture(scope="module")
def causal(analysis: ns.Analysis) -> ns.Analysis:
    dataset = analysis.dataset.copy(deep=True)
    dataset["map"] = dataset["map"].where(dataset["key"] <= dataset["query"])
    return ns.Analysis(dataset)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("ending", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_a_picture_is_of_the_kind_its_ending_says(
    analysis: ns.Analysis, tmp_path: Path, ending: str, start: bytes
) -> None:
    path = export_map(analysis, tmp_path / f"map.{ending}", "Attn", 1)
    assert path.read_bytes().startswith(start)
    assert [found.name for found in tmp_path.iterdir()] == [f"map.{ending}"]


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_the_same_picture_gives_the_same_file(analysis: ns.Analysis, tmp_path: Path, ending: str) -> None:
    first = export_map(analysis, tmp_path / f"first.{ending}", "Attn", 1).read_bytes()
    assert export_map(analysis, tmp_path / f"second.{ending}", "Attn", 1).read_bytes() == first


def test_a_csv_table_is_tidy_and_gives_every_value_back(analysis: ns.Analysis, tmp_path: Path) -> None:
    rows = rows_of(export_map(analysis, tmp_path / "map.csv", "AttnResLn", 2))
    assert list(rows[0]) == ["scope", "layer", "query", "query_token", "key", "key_token", "value"]
    values = analysis.map("AttnResLn").sel(layer=2).values
    assert len(rows) == values.size
    for row in rows:
        assert (row["scope"], row["layer"]) == ("AttnResLn", "2")
        assert row["query_token"] == analysis.tokens[int(row["query"])]
        assert row["key_token"] == analysis.tokens[int(row["key"])]
        assert float(row["value"]) == pytest.approx(values[int(row["query"]), int(row["key"])], rel=1e-6)


def test_all_scopes_and_layers_go_into_a_table_by_default(analysis: ns.Analysis, tmp_path: Path) -> None:
    table = pq.read_table(export_map(analysis, tmp_path / "maps.parquet"))
    assert table.num_rows == analysis.dataset["map"].size
    np.testing.assert_array_equal(table["value"].to_numpy(), analysis.dataset["map"].values.ravel())
    assert table["scope"].unique().to_pylist() == list(analysis.dataset["scope"].values)


def test_a_head_has_a_column_of_its_own(analysis: ns.Analysis, tmp_path: Path) -> None:
    rows = rows_of(export_map(analysis, tmp_path / "map.csv", "Attn", 1, head=5))
    assert list(rows[0]) == ["scope", "layer", "head", "query", "query_token", "key", "key_token", "value"]
    values = analysis.map("Attn", heads=True).sel(layer=1, head=5).values
    assert {row["head"] for row in rows} == {"5"}
    np.testing.assert_allclose([float(row["value"]) for row in rows], values.ravel(), rtol=1e-6)


def test_cells_that_do_not_exist_have_no_row_and_are_null_in_json(causal: ns.Analysis, tmp_path: Path) -> None:
    rows = rows_of(export_map(causal, tmp_path / "map.csv", "Attn", 1))
    count = len(causal.tokens)
    assert len(rows) == count * (count + 1) // 2
    assert all(int(row["key"]) <= int(row["query"]) for row in rows)
    document = json.loads(export_map(causal, tmp_path / "map.json", "Attn", 1).read_text(encoding="utf-8"))
    values = document["maps"][0]["values"]
    assert [value is None for value in values[2]] == [key > 2 for key in range(count)]


def test_groups_of_keys_are_told_apart_in_a_table(analysis: ns.Analysis, tmp_path: Path) -> None:
    count = len(analysis.tokens)
    groups = np.array(["target"] * 4 + ["source"] * (count - 4), dtype=object)
    grouped = ns.Analysis(analysis.dataset.assign_coords(key_group=("key", groups)))
    rows = rows_of(export_map(grouped, tmp_path / "map.csv", "Attn", 1))
    assert [row["key_group"] for row in rows[:count]] == list(groups)


def test_json_holds_the_map_its_tokens_and_where_it_came_from(analysis: ns.Analysis, tmp_path: Path) -> None:
    path = export_map(analysis, tmp_path / "map.json", "Attn", [1, 3], normalise="row")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["key_token"] == analysis.tokens
    assert document["attributes"]["text"] == TEXT
    assert [(entry["scope"], entry["layer"]) for entry in document["maps"]] == [("Attn", 1), ("Attn", 3)]
    np.testing.assert_allclose(document["maps"][1]["values"], analysis.normalised("Attn").sel(layer=3).values)


def test_netcdf_opens_as_an_analysis_with_only_what_was_asked_for(analysis: ns.Analysis, tmp_path: Path) -> None:
    opened = ns.open(export_map(analysis, tmp_path / "map.nc", "Attn", [2, 4], head=3))
    assert opened.layers == [2, 4]
    assert opened.scopes == ["Attn"]
    np.testing.assert_array_equal(opened.map("Attn").values, analysis.map("Attn").sel(layer=[2, 4]).values)
    assert opened.map("Attn", heads=True)["head"].values.tolist() == [3]


def test_an_opened_analysis_exports_to_json_too(analysis: ns.Analysis, tmp_path: Path) -> None:
    opened = ns.open(analysis.save(tmp_path / "all.nc"))
    document = json.loads(export_map(opened, tmp_path / "map.json", "Attn", 1).read_text(encoding="utf-8"))
    assert document["attributes"]["schema_version"] == 2


def test_half_attention_weights_are_saved_as_what_they_derive_from(analysis: ns.Analysis, tmp_path: Path) -> None:
    opened = ns.open(export_map(analysis, tmp_path / "map.nc", "AttnResW", 1))
    np.testing.assert_array_equal(opened.map("AttnResW").values, analysis.map("AttnResW").sel(layer=[1]).values)


def test_mixing_ratios_are_written_as_tables_json_and_pictures(analyzer: ns.Analyzer, tmp_path: Path) -> None:
    ratios: xr.DataArray = analyzer.mixing_ratios(TEXT, scopes=["Attn", "AttnRes"])  # pyright: ignore
    rows = rows_of(export_mixing_ratios(ratios, tmp_path / "mixing.csv"))
    assert list(rows[0]) == ["scope", "layer", "query", "query_token", "mixing_ratio"]
    np.testing.assert_allclose([float(row["mixing_ratio"]) for row in rows], ratios.values.ravel(), rtol=1e-6)
    assert pq.read_table(export_mixing_ratios(ratios, tmp_path / "mixing.parquet")).num_rows == ratios.size
    document = json.loads(export_mixing_ratios(ratios, tmp_path / "mixing.json").read_text(encoding="utf-8"))
    np.testing.assert_allclose(document["mixing_ratios"][1]["values"], ratios.sel(scope="AttnRes").values)
    export_mixing_ratios(ratios, tmp_path / "mixing.png", "Attn")
    with pytest.raises(ns.InputError, match="one scope"):
        export_mixing_ratios(ratios, tmp_path / "both.png", ["Attn", "AttnRes"])
    assert export_mixing_ratios(ratios, tmp_path / "last.svg").read_text() == (
        export_mixing_ratios(ratios, tmp_path / "named.svg", "AttnRes").read_text()
    )


# ---- save ----------------------------------------------------------------------------------------------------------------

STARTS = {
    "nc": b"\x89HDF",
    "": b"\x89HDF",
    "html": b"<!doctype html>",
    "csv": b"scope,",
    "parquet": b"PAR1",
    "json": b"{",
    "svg": b"<?xml",
    "png": b"\x89PNG",
    "pdf": b"%PDF",
}


@pytest.mark.parametrize("ending", STARTS)
def test_saving_gives_what_the_ending_says(analysis: ns.Analysis, tmp_path: Path, ending: str) -> None:
    options = {"scope": "Attn", "layer": 1} if ending in endings.FIGURES else {}
    path = analysis.save(tmp_path / (f"result.{ending}" if ending else "result"), **options)
    assert path.read_bytes()[:200].lower().startswith(STARTS[ending].lower())


@pytest.mark.parametrize("ending", STARTS)
def test_saving_an_explanation_gives_what_the_ending_says(analyzer: ns.Analyzer, tmp_path: Path, ending: str) -> None:
    explanation = analyzer.explain("A text.", direction="state", at=0)
    path = explanation.save(tmp_path / (f"result.{ending}" if ending else "result"))
    start = b"target," if ending == "csv" else STARTS[ending]
    assert path.read_bytes()[:200].lower().startswith(start.lower())


@pytest.mark.parametrize("name", ["result.zarr", "result.xlsx", "result.v2"])
def test_saving_to_an_ending_that_names_no_format_is_refused(
    analysis: ns.Analysis, analyzer: ns.Analyzer, tmp_path: Path, name: str
) -> None:
    for result in (analysis, analyzer.explain("A text.", direction="state", at=0)):
        with pytest.raises(ns.FileError, match=r"which names no format\. Known endings: svg, png, pdf, html"):
            result.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_table_that_is_saved_has_the_maps_that_options_choose(analysis: ns.Analysis, tmp_path: Path) -> None:
    table = pq.read_table(analysis.save(tmp_path / "map.parquet", scope="Attn", layer=[1, 2]))
    assert set(table["scope"].to_pylist()) == {"Attn"} and set(table["layer"].to_pylist()) == {1, 2}


# ---- what cannot be written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("map.xyz", r"ends in \.xyz.*Known endings: svg, png, pdf, csv, parquet, json, nc"),
        ("map", "has no ending"),
        ("nowhere/map.svg", "there is no folder"),
        ("folder.svg", "is a folder"),
    ],
)
def test_a_file_that_cannot_be_is_refused_and_nothing_is_written(
    analysis: ns.Analysis, tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(ns.FileError, match=message):
        export_map(analysis, tmp_path / name, "Attn", 1)
    assert [found.name for found in tmp_path.iterdir()] == ["folder.svg"]
    assert not list((tmp_path / "folder.svg").iterdir())


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "csv", "parquet", "json", "nc"])
def test_a_folder_that_takes_no_files_is_an_error_of_ours(analysis: ns.Analysis, ending: str) -> None:
    with pytest.raises(ns.FileError, match="cannot be written"):
        export_map(analysis, Path("/proc") / f"map.{ending}", "Attn", 1)


@pytest.mark.parametrize(
    ("ending", "breaks"),
    [("png", "matplotlib.figure.Figure.savefig"), ("csv", "pandas.DataFrame.to_csv"), ("json", "json.dumps")],
)
def test_a_disk_that_fills_up_leaves_the_old_file_and_no_half_new_one(
    analysis: ns.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, breaks: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / f"map.{ending}"
    path.write_text("old")
    monkeypatch.setattr(breaks, fail)
    with pytest.raises(ns.FileError, match="No space left on device"):
        export_map(analysis, path, "Attn", 1)
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_several_scopes_do_not_go_into_one_picture(analysis: ns.Analysis, tmp_path: Path) -> None:
    with pytest.raises(ns.InputError, match="A picture shows one scope"):
        export_map(analysis, tmp_path / "map.svg", ["Attn", "AttnRes"])
    assert not list(tmp_path.iterdir())


def test_a_picture_without_a_scope_shows_the_whole_layer(analysis: ns.Analysis, tmp_path: Path) -> None:
    whole = export_map(analysis, tmp_path / "whole.svg", layer=analysis.layers[0])
    named = export_map(analysis, tmp_path / "named.svg", analysis.default_scope, analysis.layers[0])
    assert whole.read_bytes() == named.read_bytes()


def test_netcdf_refuses_normalised_maps_rather_than_leave_them_as_they_are(
    analysis: ns.Analysis, tmp_path: Path
) -> None:
    with pytest.raises(ns.InputError, match="never normalised"):
        export_map(analysis, tmp_path / "map.nc", "Attn", normalise="row")


@pytest.mark.parametrize("ending", ["svg", "csv", "json", "nc"])
def test_a_layer_or_head_that_is_not_there_is_refused_in_every_format(
    analysis: ns.Analysis, tmp_path: Path, ending: str
) -> None:
    for wrong in ({"layer": 7}, {"layer": 1, "head": 0}):
        with pytest.raises(ns.SelectionError, match="There is no"):
            export_map(analysis, tmp_path / f"map.{ending}", "Attn", **wrong)
    assert not list(tmp_path.iterdir())


def test_characters_that_no_font_has_stay_text_in_svg_and_are_told_of_once_elsewhere(
    analysis: ns.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        picture.fontManager, "ttflist", [font for font in picture.fontManager.ttflist if "DejaVu" in font.name]
    )
    names = np.array(["日本", *analysis.tokens[1:]], dtype=object)
    odd = ns.Analysis(analysis.dataset.assign_coords(key_token=("key", names)))
    drawn = write_figure(plot_map(odd, "Attn", 1), tmp_path / "map.svg").read_text(encoding="utf-8")
    assert "日本" in drawn
    figure = plot_map(odd, "Attn", 1)
    with pytest.warns(picture.MissingGlyphs, match="日本") as told:
        write_figure(figure, tmp_path / "map.png")
    assert len(told) == 1
    with pytest.warns(picture.MissingGlyphs), publication(), picture.legible(figure):
        figure.canvas.draw()
        written = [text.get_text() for text in figure.findobj(Text)]
    assert "\\u65e5\\u672c" in written and picture.NOTE in written
    assert not any("日" in text for text in written)
    after = [text.get_text() for text in figure.findobj(Text)]
    assert "日本" in after and picture.NOTE not in after


def test_any_installed_font_that_has_a_character_is_used_for_it(
    analysis: ns.Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        picture.fontManager, "ttflist", [font for font in picture.fontManager.ttflist if "DejaVu" in font.name]
    )
    _make_font(tmp_path / "odd.ttf", "Some Font", "日本")
    picture.fontManager.addfont(tmp_path / "odd.ttf")
    names = np.array(["日本", *analysis.tokens[1:]], dtype=object)
    odd = ns.Analysis(analysis.dataset.assign_coords(key_token=("key", names)))
    figure = plot_map(odd, "Attn", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_figure(figure, tmp_path / "map.png")
    shown = next(text for text in figure.findobj(Text) if text.get_text() == "日本")
    assert "Some Font" in shown.get_fontfamily()


def _make_font(path: Path, name: str, characters: str) -> None:
    """A font that has squares for some characters."""
    pen = TTGlyphPen(None)
    for place, corner in enumerate([(0, 0), (0, 500), (500, 500), (500, 0)]):
        (pen.lineTo if place else pen.moveTo)(corner)
    pen.closePath()
    square, order = pen.glyph(), [".notdef", *(f"u{ord(one):x}" for one in characters)]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(order)
    font.setupCharacterMap({ord(one): f"u{ord(one):x}" for one in characters})
    font.setupGlyf(dict.fromkeys(order, square))
    font.setupHorizontalMetrics(dict.fromkeys(order, (600, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": name, "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(path)


def test_the_endings_offered_are_all_tested_here() -> None:
    assert {*endings.MAPS} == {"svg", "png", "pdf", "csv", "parquet", "json", "nc"}
