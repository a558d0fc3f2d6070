"""Similarity of maps at different scopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from scipy import stats

from experiments.made import SCOPES, TOKENS, analysis, normalised, pearson, printed, random_analysis, rows, spearman
from normscope.errors import InputError
from normscope.experiments.chain import steps as steps_of
from normscope.experiments.figures import RHO
from normscope.experiments.scope_similarity import ScopeSimilarity
from normscope.scopes import scopes_of

DEFINITIONS = {"pearson": pearson, "spearman": spearman}
AROUND = "AttnResLn", "AttnResLnFf"


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
@pytest.mark.parametrize("axis", ["none", "row", "column"])
def test_similarity_is_the_mean_over_sequences_then_layers_of_a_correlation(correlation: str, axis: str) -> None:
    analyses = [random_analysis(seed, TOKENS) for seed in range(3)]
    ways: dict[str, Any] = {"correlations": ("pearson", "spearman"), "normalisations": ("none", "row", "column")}
    outcome = ScopeSimilarity(**ways).over(analyses)
    found = np.array(
        [
            [
                DEFINITIONS[correlation](*(normalised(item.map(scope).values[layer], axis) for scope in AROUND))
                for item in analyses
            ]
            for layer in range(2)
        ]
    )
    labels = {"correlation": correlation, "normalisation": axis, "first": AROUND[0], "second": AROUND[1]}
    (summary,) = rows(outcome, "scope-similarity", **labels)
    (layer,) = rows(outcome, "scope-similarity-layers", **labels, layer=2)
    assert summary["similarity"] == pytest.approx(found.mean(1).mean(), abs=1e-12)
    assert summary["standard_error"] == pytest.approx(stats.sem(found.mean(0)), rel=1e-6)
    assert layer["similarity"] == pytest.approx(found[1].mean(), abs=1e-12)
    assert layer["standard_error"] == pytest.approx(found[1].std(ddof=1) / np.sqrt(3), rel=1e-6)
    assert layer["change"] == pytest.approx(1 - found[1].mean(), abs=1e-12)
    assert summary["relation"] == "adjacent" and summary["sequences"] == 3


def test_maps_are_compared_as_they_are_by_pearsons_r_unless_asked_otherwise() -> None:
    item = random_analysis(0, TOKENS)
    outcome = ScopeSimilarity().over([item])
    table = outcome.tables["scope-similarity"].to_pylist()
    assert {(row["correlation"], row["normalisation"]) for row in table} == {("pearson", "none")}
    (layer,) = rows(outcome, "scope-similarity-layers", first="Attn", second="AttnRes", layer=1)
    assert layer["similarity"] == pytest.approx(pearson(*(item.map(s).values[0] for s in ("Attn", "AttnRes"))))
    assert (layer["standard_error"], layer["sequences"]) == (None, 1)


def test_a_large_diagonal_is_seen_by_pearsons_r_and_hardly_by_ranks() -> None:
    """What the published .41 of the first residual cannot be: it changes n of n x n cells."""
    chance = np.random.default_rng(1)
    base = chance.random((1, 40, 40))
    maps = {scope: base if scope in SCOPES[:2] else base + 20 * np.eye(40) for scope in SCOPES}
    both = ScopeSimilarity(correlations=("pearson", "spearman"))
    outcome = both.over([analysis(maps, [str(number) for number in range(40)])])
    by = {row["correlation"]: row for row in rows(outcome, "scope-similarity", first="Attn", second="AttnRes")}
    assert by["pearson"]["similarity"] < 0.2 and by["spearman"]["similarity"] > 0.85


def test_a_map_that_only_scales_its_columns_is_unchanged_by_column() -> None:
    chance = np.random.default_rng(0)
    base = chance.random((1, 4, 4))
    maps = {scope: base * (chance.random(4) if scope.endswith("Ff") else 1) for scope in SCOPES}
    outcome = ScopeSimilarity(normalisations=("column",)).over([analysis(maps, ["a", "b", "c", "d"])])
    assert all(row["similarity"] == pytest.approx(1) for row in outcome.tables["scope-similarity"].to_pylist())


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
def test_causal_maps_are_compared_where_keys_exist(correlation: Any) -> None:
    item = random_analysis(1, ["a", "b", "c", "d"])
    dataset = item.dataset.copy(deep=True)
    lower = np.tril(np.ones((4, 4), bool))
    dataset["map"] = dataset["map"].where(np.broadcast_to(lower, dataset["map"].shape))
    outcome = ScopeSimilarity(correlations=(correlation,)).over([type(item)(dataset)])
    expected = DEFINITIONS[correlation](*(item.map(s).values[0][lower] for s in ("AttnW", "Attn")))
    (found,) = rows(outcome, "scope-similarity-layers", first="AttnW", second="Attn", layer=1)
    assert found["similarity"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"correlations": ("kendall",)}, r"correlations is one of pearson, spearman, not 'kendall'"),
        ({"normalisations": ("both",)}, r"normalisations is one of none, row, column"),
        ({"correlations": ()}, "at least one"),
    ],
)
def test_a_way_of_comparing_that_does_not_exist_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        ScopeSimilarity(**options)


def test_every_way_has_a_panel_with_its_name() -> None:
    items = [random_analysis(seed, TOKENS) for seed in range(3)]
    outcome = ScopeSimilarity(correlations=("pearson", "spearman")).over(items)
    for name in ("scope-similarity-ff-input", "scope-similarity-pairs"):
        titles = [axes.get_title() for axes in outcome.figures[name]().axes if axes.get_title()]
        assert titles == ["Pearson's r, maps as they are", f"Spearman's {RHO}, maps as they are"], name
    blocks = outcome.figures["scope-similarity-adjacent"]().subfigs
    assert [block.get_suptitle().split(": ")[1] for block in blocks] == [f"1 - {title}" for title in titles]


def test_the_change_by_each_component_is_drawn_as_a_bar_for_each_layer() -> None:
    outcome = ScopeSimilarity().over([random_analysis(seed, TOKENS, layers=30) for seed in range(2)])
    panels = outcome.figures["scope-similarity-adjacent"]().axes
    assert [axes.get_title() for axes in panels] == [
        *(
            "attention (ATTN)",
            "residual 1 (RES1)",
            "norm 1 (LN1)",
            "feed-forward (FF)",
            "residual 2 (RES2)",
            "norm 2 (LN2)",
        )
    ]
    changes = rows(outcome, "scope-similarity-layers", first=AROUND[0], second=AROUND[1])
    bars = [bar for bar in panels[3].patches if isinstance(bar, Rectangle)]
    assert [bar.get_height() for bar in bars] == pytest.approx([row["change"] for row in changes])
    assert len(bars) == 30 and len(panels[3].get_xticks()) < 14
    assert {axes.get_ylim() for axes in panels} == {panels[0].get_ylim()}


@pytest.mark.parametrize(
    ("components", "names"),
    [
        (("Attn", "Res", "Ln", "Ff", "Res", "Ln"), "ATTN RES1 LN1 FF RES2 LN2"),
        (("Attn", "Res", "Ln", "Ff", "Res"), "ATTN RES1 LN1 FF RES2"),
        (("Attn", "Ff", "Res"), "ATTN FF RES1"),
        (("Attn", "Res", "Ln", "Cross", "Res", "Ln", "Ff", "Res"), "ATTN RES1 LN1 CROSS RES2 LN2 FF RES3"),
    ],
)
def test_components_are_called_as_the_papers_call_them_in_any_chain(components: tuple[str, ...], names: str) -> None:
    scopes = scopes_of(components)
    steps = steps_of(scopes)
    assert " ".join(steps) == names
    assert [after.last for _, after in steps.values()] == list(components)
    assert all(scopes.index(after) == scopes.index(before) + 1 for before, after in steps.values())


def test_the_table_is_printed_as_the_paper_has_it_with_standard_errors_and_the_papers_row() -> None:
    outcome = ScopeSimilarity().over([random_analysis(seed, TOKENS) for seed in range(3)])
    lines = printed(outcome)
    found = rows(outcome, "scope-similarity", relation="adjacent")
    table = {line.split("  ")[0].strip(): line.split() for line in lines}
    assert table["model"] == ["model", "ATTN", "RES1", "LN1", "FF", "RES2", "LN2"]
    assert table["made"][1:] == [f"{row['similarity']:.3f}" for row in found]
    errors = next(line for line in lines if "standard error" in line)
    assert errors.split()[2:] == [f"{row['standard_error']:.3f}" for row in found]
    published = next(line for line in lines if "bert-base, wikipedia" in line)
    assert published.split()[-6:] == ["0.48", "0.41", "0.91", "0.79", "0.96", "0.73"]


def test_no_row_of_the_paper_is_printed_beside_another_chain_or_another_correlation() -> None:
    item = random_analysis(0, TOKENS)
    shorter = type(item)(item.dataset.sel(scope=list(SCOPES[:-1])))
    for outcome in (ScopeSimilarity().over([shorter]), ScopeSimilarity(correlations=("spearman",)).over([item])):
        lines = printed(outcome)
        assert any(line.lstrip().startswith("made") for line in lines)
        assert not any("bert-base" in line for line in lines)


def test_a_figure_without_any_correlation_is_drawn() -> None:
    """The maps of a text of one token have nothing to correlate."""
    outcome = ScopeSimilarity().over([random_analysis(0, ["a"])])
    for draw in outcome.figures.values():
        draw().canvas.draw()
    assert printed(outcome)
