"""Every experiment says what it found in a sentence, and what its figures show in words."""

from __future__ import annotations

import pyarrow as pa
import pytest

from normscope.experiments import EXPERIMENTS
from normscope.report.captions import caption
from normscope.report.findings import agreement, finding

TABLES = {
    "categories": {
        "layer": [1, 1, 2, 2],
        "category": ["[CLS]", "other", "[CLS]", "other"],
        "weights": [0.1, 0.9, 0.6, 0.4],
        "norms": [0.1, 0.9, 0.3, 0.9],
    },
    "dispersion": {"quantity": ["x", "f(x)", "f(x)"], "cv": [0.1, 0.2, 0.4]},
    "ff-norms": {"layer": [1, 1, 2, 2], "vector": ["ff_output", "bypass"] * 2, "mean": [3.0, 2.0, 1.0, 2.0]},
    "outlier-dimensions": {
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
    "categories": "Of [CLS], [CLS] gets most attention, in layer 2: 60% by weights and 25% by norms.",
    "dispersion": "Norms vary by 10% of their mean for input vectors and by 30% for transformed ones "
    "(median over layers and heads).",
    "ff-norms": "The feed-forward's output is longer than what bypasses it in 1 of 2 layers.",
    "outlier-dimensions": "The maps before and after the feed-forward have a rank correlation of 0.80, and of 0.95 "
    "without its outlier dimensions (mean over layers).",
    "agreement": "norms and decompx agree most (rank correlation 0.75), alti and norms least (0.25).",
    "shapley": "Maps by integrated gradients and by Shapley values have a rank correlation of 0.98 (0.97 to 0.99).",
    "redundancy": "Attn of layer 1 changes the map most (0.26), Ff of layer 2 least (0.05).",
}


@pytest.mark.parametrize("name", TABLES)
def test_the_finding_is_a_sentence_of_the_numbers(name: str) -> None:
    assert finding(name, [pa.table(TABLES[name])]) == SENTENCES[name]


MORE_TABLES = {
    "mixing-ratio": {"tokens": ["overall"] * 2, "scope": ["AttnW", "Attn"], "mean": [0.5, 0.2]},
    "scope-similarity": {
        "normalisation": ["none"],
        "relation": ["adjacent"],
        "first": ["Attn"],
        "second": ["AttnRes"],
        "similarity": [0.5],
    },
    "ff-amplification": {
        "kind": ["ff"],
        "layer": [1],
        "key_type": ["a"],
        "query_type": ["b"],
        "amplification": [0.5],
    },
    "word-split": {"kind": ["ff"] * 2, "layer": [1, 2], "effect": [0.5, -0.1], "significant": [True, False]},
    "entities": {"kind": ["ff"] * 2, "layer": [1, 2], "effect": [0.5, -0.1], "significant": [True, False]},
    "weight-vs-norm": {"quantity": ["norm"], "spearman": [0.5]},
    "frequency": {"quantity": ["norm"], "spearman": [0.5]},
    "mixing-frequency": {"quantity": ["norm"], "spearman": [0.5]},
    "alignment": {"method": ["norms"], "aer": [0.5]},
    "expansion-rate": {"layer": [1], "expansion_rate": [0.5]},
    "evidence": {"measure": ["rank"], "method": ["norms"], "mean": [0.5]},
    "deletion": {"measure": ["srg"], "method": ["norms"], "mean": [0.5]},
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
    assert finding(name, [table]) is not None
    if nothing == "no rows":
        assert finding(name, [table.slice(0, 0)]) is None
        return
    for place, column in enumerate(table.column_names):
        if column in NUMBERS:
            table = table.set_column(place, column, pa.array([nothing] * len(table), pa.float64()))
    assert finding(name, [table]) is None


def test_layers_without_pairs_are_not_counted_as_layers_without_an_effect() -> None:
    table = {"kind": ["ff"] * 3, "layer": [1, 2, 3], "effect": [0.5, None, -0.1], "significant": [True, False, False]}
    assert str(finding("word-split", [pa.table(table)])).endswith("in 1 of the 2 layers that have enough such pairs.")
    assert str(finding("word-split", [pa.table(MORE_TABLES["word-split"])])).endswith("in 1 of 2 layers.")


def test_published_values_are_compared_with_numbers_alone() -> None:
    assert agreement([pa.table({"mean": [float("nan")], "published": [0.5]})]) is None


FIGURES = [
    "agreement",
    "agreement-layers",
    "alignment-aws-eos",
    "alignment-example-1-aws",
    "alignment-layers",
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
    "weight-vs-norm",
    "word-split-ff",
    "word-split-ff-histograms",
]


def test_figures_are_captioned_in_words() -> None:
    assert all(any(name.startswith(experiment) for name in FIGURES) for experiment in EXPERIMENTS)
    assert [name for name in FIGURES if not caption(name).endswith(".")] == []
    assert caption("ff-amplification-ff").startswith("The pairs of subword types")
    assert caption("alignment-example-1-aws").startswith("A sentence pair")
    assert caption("something_else") == "Something else"
