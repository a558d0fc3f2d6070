"""Figures of similarities: ribbons as wide as their pairs are large, tokens in their colours, a table that adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import FancyBboxPatch, PathPatch

import normscope as ns
from normscope.plots import plot_similarity
from normscope.plots.ribbons import lay_out, strongest

FIRST, SECOND = "A man is playing a guitar on stage.", "Someone performs live music with a guitar."


@pytest.fixture(scope="module")
def similarity(analyzer: Any) -> ns.Similarity:
    return analyzer.similarity(FIRST, SECOND)


def ribbons_of(figure: Any) -> list[PathPatch]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]


def test_the_strongest_cells_are_the_fewest_that_carry_a_share() -> None:
    cells = np.array([[4.0, -3.0], [2.0, 1.0]])
    assert strongest(cells, 0.4) == [(0, 0)]
    assert strongest(cells, 0.41) == [(0, 0), (0, 1)]
    assert len(strongest(cells, 1.0)) == 4
    assert strongest(np.zeros((2, 2)), 1.0) == []


def test_a_ribbon_is_as_wide_as_its_pair_is_large(similarity: ns.Similarity) -> None:
    figure = plot_similarity(similarity, share=0.5)
    ribbons = ribbons_of(figure)
    pairs = strongest(similarity.table.values, 0.5)
    assert len(ribbons) == len(pairs)
    widths = [np.ptp(ribbon.get_path().vertices[[0, -2], 0]) for ribbon in reversed(ribbons)]
    sizes = [abs(similarity.table.values[pair]) for pair in pairs]
    np.testing.assert_allclose(np.array(widths) / widths[0], np.array(sizes) / sizes[0], rtol=1e-6)


def test_every_token_is_there_once_and_none_lies_on_another(similarity: ns.Similarity) -> None:
    figure = plot_similarity(similarity, part="texts")
    (axes,) = figure.axes
    chips = [patch.get_bbox() for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    assert len(chips) == len(similarity.first_tokens) + len(similarity.second_tokens)
    assert [text.get_text() for text in axes.texts] == similarity.first_tokens + similarity.second_tokens
    for place, chip in enumerate(chips):
        assert not any(chip.overlaps(other) for other in chips[place + 1 :])


def test_long_texts_go_on_in_other_lines(similarity: ns.Similarity) -> None:
    narrow = lay_out(similarity, 2.0)
    assert max(token.left + token.width for token in narrow.first + narrow.second) <= 2.0
    assert narrow.first[-1].line > 0 and narrow.second[0].line > narrow.first[-1].line


def test_the_table_has_margins_and_constant_at_its_edges(similarity: ns.Similarity) -> None:
    figure = plot_similarity(similarity, part="table")
    mesh = figure.axes[0].collections[0]
    assert float(mesh.get_array().sum()) == pytest.approx(similarity.value, abs=1e-5)
    alone = plot_similarity(similarity, part="table", margins=False).axes[0].collections[0]
    assert alone.get_array().shape == similarity.table.shape


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_a_figure_is_saved(similarity: ns.Similarity, tmp_path: Path, ending: str) -> None:
    path = similarity.words().save(tmp_path / f"similarity.{ending}", share=0.8, title="<b>$x$")
    assert path.stat().st_size > 1000
    if ending == "svg":
        assert "&lt;b&gt;$x$" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "words"), [({"part": "ribbons"}, "'both', 'texts', 'table'"), ({"share": 0.0}, "above 0 and at most 1")]
)
def test_what_cannot_be_drawn_is_refused(similarity: ns.Similarity, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ns.errors.InputError, match=words):
        plot_similarity(similarity, **options)


def test_without_a_table_there_is_nothing_to_draw_between_the_texts(analyzer: Any) -> None:
    with pytest.raises(ns.errors.SelectionError, match="table=True"):
        analyzer.similarity(FIRST, SECOND, table=False).plot()
