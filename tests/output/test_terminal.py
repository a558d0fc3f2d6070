"""Tables show the numbers of the analysis on a terminal of any width, and tokens exactly as they are."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
import xarray as xr
from rich.console import Console, RenderableType

import normscope as ns
from normscope.output.terminal import completeness_table, map_table, mixing_table
from normscope.results.select import select_map

TEXT = "The opera singer caught a soap bubble."


@pytest.fixture(scope="module")
def analysis(analyzer: ns.Analyzer) -> ns.Analysis:
    return analyzer.analyze(TEXT)


def printed(renderable: RenderableType, width: int, *, colours: bool = False) -> str:
    console = Console(
        file=StringIO(), width=width, force_terminal=colours, color_system="truecolor" if colours else None
    )
    console.print(renderable)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_map_that_fits_has_a_row_for_every_query_and_a_cell_for_every_key(analysis: ns.Analysis) -> None:
    text = printed(map_table(select_map(analysis, "Attn", 2), 2, 120), 120)
    title, heading, *rows = text.rstrip().splitlines()
    assert title.startswith("Attn, layer 2")
    assert heading.split() == analysis.tokens
    values = analysis.map("Attn").sel(layer=2).values
    assert [row.split()[0] for row in rows] == analysis.tokens
    shown = np.array([[float(cell) for cell in row.split()[1:]] for row in rows])
    np.testing.assert_allclose(shown, values, atol=0.00501)


@pytest.mark.parametrize("width", [30, 45, 60])
def test_a_map_that_is_too_wide_shows_the_strongest_keys_instead(analysis: ns.Analysis, width: int) -> None:
    text = printed(map_table(select_map(analysis, "AttnRes", 2), 2, width), width)
    rows = text.rstrip().splitlines()[-len(analysis.tokens) :]
    values = analysis.map("AttnRes").sel(layer=2).values
    for query, row in enumerate(rows):
        first = analysis.tokens[int(values[query].argmax())]
        assert row.split()[:3] == [analysis.tokens[query], first, f"{values[query].max():.2f}"]
    assert max(map(len, text.splitlines())) <= width


def test_the_strongest_keys_come_in_order_and_are_counted_in_the_title(analysis: ns.Analysis) -> None:
    text = printed(map_table(select_map(analysis, "AttnRes", 2), 2, 60), 120)
    row = text.rstrip().splitlines()[-1].split()
    strengths = [float(value) for value in row[2::2]]
    assert strengths == sorted(strengths, reverse=True)
    assert f"the strongest {len(strengths)} of 10 keys" in text


def test_tokens_that_look_like_markup_are_shown_as_they_are(analyzer: ns.Analyzer) -> None:
    odd = analyzer.analyze("[bold]x[/bold] [red] :smile:", scopes="AttnW", layers=1)
    text = printed(map_table(select_map(odd, "AttnW", 1), 1, 200), 200)
    assert text.splitlines()[1].split() == odd.tokens


def test_cells_are_coloured_and_darker_where_the_value_is_larger(analysis: ns.Analysis) -> None:
    text = printed(map_table(select_map(analysis, "AttnRes", 2), 2, 120), 120, colours=True)
    row = next(line for line in text.splitlines() if line.startswith("opera"))
    backgrounds = [part.split("m")[0].split(";") for part in row.split("48;2;")[1:]]
    lightness = [sum(int(value) for value in colour[:3]) for colour in backgrounds]
    values = analysis.map("AttnRes").sel(layer=2).values[2]
    assert int(np.argmin(lightness)) == int(np.argmax(values))
    assert lightness[int(np.argmin(values))] == max(lightness)
    ranked = [lightness[place] for place in np.argsort(values)]
    assert ranked == sorted(ranked, reverse=True)


def test_keys_that_do_not_exist_are_empty_cells(analysis: ns.Analysis) -> None:
    dataset = analysis.dataset.copy(deep=True)
    dataset["map"] = dataset["map"].where(dataset["key"] <= dataset["query"])
    causal = ns.Analysis(dataset)
    rows = printed(map_table(select_map(causal, "Attn", 1), 1, 120), 120).rstrip().splitlines()[2:]
    assert [len(row.split()) - 1 for row in rows] == list(range(1, 11))
    narrow = printed(map_table(select_map(causal, "Attn", 1), 1, 40), 40).rstrip().splitlines()
    assert narrow[-10].split()[1] == "[CLS]"
    assert len(narrow[-10].split()) == 3, "the first token sees only itself"


def test_mixing_ratios_are_tokens_by_layers_with_their_mean(analysis: ns.Analysis) -> None:
    ratios = analysis.mixing_ratio("Attn")
    lines = printed(mixing_table(ratios, "Attn"), 120).rstrip().splitlines()
    assert lines[1].split() == ["1", "2", "3", "4", "5", "6"]
    rows = {line.split()[0]: [float(cell) for cell in line.split()[1:]] for line in lines[2:]}
    np.testing.assert_allclose(rows["bubble"], ratios.values[:, analysis.tokens.index("bubble")], atol=0.00501)
    np.testing.assert_allclose(rows["mean"], ratios.values.mean(1), atol=0.00501)


def test_completeness_shows_every_layer_and_component_and_marks_what_is_too_large(analysis: ns.Analysis) -> None:
    text = printed(completeness_table(analysis.dataset, 1e-4), 200)
    lines = text.rstrip().splitlines()
    assert lines[1].split() == ["layer", *analysis.dataset["checked_scope"].values]
    errors = analysis.dataset["component_error"]
    assert lines[2].split() == ["1", *(f"{error:.1e}" for error in errors.sel(layer=1).values)]
    assert len(lines) == 2 + 6
    assert "\x1b[1;31m" not in printed(completeness_table(analysis.dataset, 1e-4), 200, colours=True)
    worse: xr.Dataset = analysis.dataset.assign(component_error=errors * 0 + 1.0)
    assert "\x1b[1;31m1.0e+00" in printed(completeness_table(worse, 1e-4), 200, colours=True)


def test_wide_characters_do_not_push_columns_apart(analysis: ns.Analysis) -> None:
    names = np.array(["日本語", *analysis.tokens[1:]], dtype=object)
    wide = ns.Analysis(analysis.dataset.assign_coords(query_token=("query", names)))
    lines = printed(map_table(select_map(wide, "Attn", 1), 1, 120), 120).splitlines()
    assert lines[2].startswith("日本語 ")
    assert lines[2].rstrip().endswith(f"{analysis.map('Attn').sel(layer=1).values[0, -1]:.2f}")
