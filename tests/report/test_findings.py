"""Every experiment says what it found in a sentence, and what its figures show in words."""

from __future__ import annotations

import pyarrow as pa
import pytest

from normscope.experiments import EXPERIMENTS
from normscope.experiments.base import Experiment
from normscope.experiments.published import agreement

TABLES = {
    "categories": {
        "layer": [1, 1, 2, 2],
        "category": ["[CLS]", "other", "[CLS]", "other"],
        "weights": [0.1, 0.9, 0.6, 0.4],
        "norms": [0.1, 0.9, 0.3, 0.9],
    },
    "dispersion": {"quantity": ["x", "f(x)", "f(x)"], "cv": [0.1, 0.2, 0.4]},
    "ff-norms": {"layer": [1, 1, 2, 2], "vector": ["ff_output", "bypass"] * 2, "mean": [3.0, 2.0, 1.0, 2.0]},
    "scope-similarity": {
        "correlation": ["pearson", "pearson", "pearson", "pearson", "spearman"],
        "normalisation": ["none"] * 5,
        "first": ["Attn", "AttnRes", "AttnResLn", "AttnRes", "Attn"],
        "second": ["AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFf", "AttnRes"],
        "relation": ["adjacent", "adjacent", "adjacent", "other", "adjacent"],
        "similarity": [0.41, 0.91, 0.79, 0.99, 0.1],
        "standard_error": [0.012, 0.01, 0.01, 0.01, 0.01],
    },
    "outlier-dimensions": {
        "correlation": ["pearson"] * 3,
        "normalisation": ["none", "none", "row"],
        "before": [0.9, 0.7, 0.0],
        "after": [1.0, 0.9, 0.0],
    },
    "agreement": {
        "first": ["alti", "alti", "norms"],
        "second": ["random", "norms", "decompx"],
        "spearman": [-0.9, 0.25, 0.75],
    },
    "shapley": {
        "layer": [1, None],
        "measure": ["spearman", "spearman"],
        "mean": [0.5, 0.98],
        "low": [0.4, 0.97],
        "high": [0.6, 0.99],
    },
    "redundancy": {
        "layer": [1, 2, 1, 1],
        "component": ["Attn", "Ff", "head", "Ff"],
        "head": [None, None, 3, None],
        "measure": ["change", "change", "change", "turn"],
        "mean": [0.26, 0.05, 0.9, 0.0],
    },
}
SENTENCES = {
    "scope-similarity": "A map changes most on the way from Attn to AttnRes: there the correlation (Pearson's r) is "
    "0.41 ± 0.012. Of AttnRes and AttnResLnFf, the feed-forward and its norms between them, it is 0.99.",
    "categories": "Of [CLS], [CLS] gets most attention, in layer 2: 60% by weights and 25% by norms.",
    "dispersion": "Norms vary by 10% of their mean for input vectors and by 30% for transformed ones "
    "(median over layers and heads).",
    "ff-norms": "The feed-forward's output is longer than what bypasses it in 1 of 2 layers.",
    "outlier-dimensions": "The maps before and after the feed-forward have a correlation (Pearson's r) of 0.80, and of 0.95 "
    "without its outlier dimensions (mean over layers).",
    "agreement": "norms and decompx agree most (rank correlation 0.75), alti and norms least (0.25).",
    "shapley": "Maps by integrated gradients and by Shapley values have a rank correlation of 0.98 (0.97 to 0.99).",
    "redundancy": "Attn of layer 1 changes the map most (0.26), Ff of layer 2 least (0.05).",
}


@pytest.mark.parametrize("name", TABLES)
def test_the_finding_is_a_sentence_of_the_numbers(name: str) -> None:
    assert EXPERIMENTS[name].finding([pa.table(TABLES[name])]) == SENTENCES[name]


def test_tables_of_a_version_that_had_ranks_alone_are_called_so() -> None:
    for name in ("scope-similarity", "outlier-dimensions"):
        table = pa.table(TABLES[name]).drop_columns("correlation")
        assert "rank correlation" in str(EXPERIMENTS[name].finding([table]))


MORE_TABLES = {
    "mixing-ratio": {"tokens": ["overall"] * 2, "scope": ["AttnW", "Attn"], "mean": [0.5, 0.2]},
    "ff-amplification": {
        "kind": ["ff"],
        "layer": [1],
        "key_type": ["a"],
        "query_type": ["b"],
        "amplification": [0.5],
    },
    "word-split": {"kind": ["ff"] * 2, "layer": [1, 2], "effect": [0.5, -0.1], "significant": [True, False]},
    "entities": {"kind": ["ff"] * 2, "layer": [1, 2], "effect": [0.5, -0.1], "significant": [True, False]},
    "sinks": {
        "layer": [1, 1, 2, 2],
        "class": ["first", "other"] * 2,
        "weights": [0.5, 0.5, 0.7, 0.3],
        "norms": [0.1, 0.9, 0.1, 0.9],
        "map": [0.2, 0.8, 0.2, 0.8],
    },
    "weight-vs-norm": {"quantity": ["norm"], "spearman": [0.5]},
    "frequency": {"quantity": ["norm"], "spearman": [0.5]},
    "mixing-frequency": {"quantity": ["norm"], "spearman": [0.5]},
    "alignment": {"method": ["norms"], "aer": [0.5]},
    "expansion-rate": {"layer": [1], "expansion_rate": [0.5]},
    "evidence": {"measure": ["rank"], "method": ["norms"], "mean": [0.5]},
    "deletion": {"measure": ["srg"], "method": ["norms"], "mean": [0.5]},
    "similarity": {
        "measure": ["size"] * 3,
        "part": ["special tokens", "same words", "five largest"],
        "mean": [0.1, 0.5, 0.6],
    },
}
NUMBERS = (
    "mean",
    "similarity",
    "amplification",
    "effect",
    "spearman",
    "aer",
    "expansion_rate",
    "weights",
    "norms",
    "cv",
)
NUMBERS += ("before", "after", "low", "high")


@pytest.mark.parametrize("name", [*TABLES, *MORE_TABLES])
@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf"), "no rows"])
def test_no_data_is_no_finding(name: str, nothing: float | str | None) -> None:
    table = pa.table({**TABLES, **MORE_TABLES}[name])
    assert EXPERIMENTS[name].finding([table]) is not None
    if nothing == "no rows":
        assert EXPERIMENTS[name].finding([table.slice(0, 0)]) is None
        return
    for place, column in enumerate(table.column_names):
        if column in NUMBERS:
            table = table.set_column(place, column, pa.array([nothing] * len(table), pa.float64()))
    assert EXPERIMENTS[name].finding([table]) is None


def test_layers_without_pairs_are_not_counted_as_layers_without_an_effect() -> None:
    table = {"kind": ["ff"] * 3, "layer": [1, 2, 3], "effect": [0.5, None, -0.1], "significant": [True, False, False]}
    assert str(EXPERIMENTS["word-split"].finding([pa.table(table)])).endswith(
        "in 1 of the 2 layers that have enough such pairs."
    )
    assert str(EXPERIMENTS["word-split"].finding([pa.table(MORE_TABLES["word-split"])])).endswith("in 1 of 2 layers.")
    few = {**table, "effect": [0.5, 0.5, -0.1], "significant": [True, None, False]}
    assert str(EXPERIMENTS["word-split"].finding([pa.table(few)])).endswith(
        "in 1 of the 2 layers that have enough such pairs."
    )


def test_what_sinks_get_is_the_mean_over_layers_of_all_their_classes() -> None:
    said = EXPERIMENTS["sinks"].finding([pa.table(MORE_TABLES["sinks"])])
    assert "60% of the attention weights, 10% of" in str(said) and "20% of the whole layer's map" in str(said)


def test_published_values_are_compared_with_numbers_alone() -> None:
    assert agreement([pa.table({"mean": [float("nan")], "published": [0.5]})]) is None


FIGURES = [
    "agreement",
    "agreement-layers",
    "alignment-aws-eos",
    "alignment-example-1-aws",
    "alignment-layers",
    "answers-drop",
    "answers-evidence",
    "categories",
    "categories-heads",
    "deletion-comprehensiveness",
    "deletion-curves",
    "deletion-srg",
    "dispersion",
    "entities-ff",
    "entities-ff-histograms",
    "evidence-rank",
    "expansion-rate",
    "ff-amplification-ff",
    "ff-norms",
    "frequency",
    "mixing-frequency",
    "mixing-ratio",
    "outlier-dimensions",
    "outlier-dimensions-removal",
    "redundancy",
    "scope-similarity-adjacent",
    "scope-similarity-ff-input",
    "scope-similarity-pairs",
    "shapley-layers",
    "similarity",
    "similarity-words",
    "sinks",
    "sinks-heads",
    "weight-vs-norm",
    "word-split-ff",
    "word-split-ff-histograms",
]


def owner(figure: str) -> type[Experiment]:
    """The experiment that a figure is of: the one whose name its own begins with."""
    return EXPERIMENTS[max((name for name in EXPERIMENTS if figure.startswith(name)), key=len)]


def test_figures_are_captioned_in_words() -> None:
    assert {owner(figure) for figure in FIGURES} == set(EXPERIMENTS.values())
    assert [name for name in FIGURES if not owner(name).caption(name).endswith(".")] == []
    assert EXPERIMENTS["ff-amplification"].caption("ff-amplification-ff").startswith("The pairs of subword types")
    assert EXPERIMENTS["alignment"].caption("alignment-example-1-aws").startswith("A sentence pair")
    assert EXPERIMENTS["alignment"].caption("something_else") == "Something else"
