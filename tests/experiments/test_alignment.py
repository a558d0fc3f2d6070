"""Alignments from hand-made cross-attention, and error rates against hand counts."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from experiments.made import random_analysis, rows
from normscope import Analysis
from normscope.corpora import Gold
from normscope.errors import InputError
from normscope.experiments import ModelFacts, Observation
from normscope.experiments.alignment import Alignment
from normscope.experiments.links import AlignedPair, WordMaps, alignment_error_rate, error_counts

# Source words 0 (two tokens) and 1, then the end of the sentence; target words 0 and 1 (two tokens), then the end.
SOURCE = np.array([0, 0, 1, -1])
TARGET = np.array([0, 1, 1, -1])


def _pair(sure: set[tuple[int, int]], possible: set[tuple[int, int]] = frozenset()) -> AlignedPair:
    return AlignedPair(SOURCE, TARGET, Gold(frozenset(sure), frozenset(sure | possible)), ("s0", "s1"), ("t0", "t1"))


def _links(maps: np.ndarray, setting: str, *, end: bool = True) -> list[set[tuple[int, int]]]:
    return WordMaps.of(maps, _pair(set()).rows(setting), SOURCE).links(end=end)


def test_source_columns_are_summed_and_target_rows_averaged() -> None:
    tokens = np.arange(16.0).reshape(4, 4)
    words = WordMaps.of(tokens, TARGET, SOURCE)
    assert (words.targets.tolist(), words.sources.tolist()) == ([0, 1], [0, 1, -1])
    assert words.values.tolist() == [[1, 2, 3], [(9 + 17) / 2, (6 + 10) / 2, (7 + 11) / 2]]


def test_rows_belong_to_the_token_given_out_or_to_the_token_read() -> None:
    rows_of = np.full((1, 4, 4), 0.1)
    rows_of[0, 0, 2] = 1  # outputs target word 0
    rows_of[0, 1:3, 0] = 1  # output target word 1; the first of them reads target word 0
    rows_of[0, 3, 2] = 5  # reads the last token of target word 1
    assert _links(rows_of, "AWO") == [{(1, 0), (0, 1)}]
    assert _links(rows_of, "AWI") == [{(0, 0), (1, 1)}]


def test_a_word_whose_best_source_is_the_end_of_the_sentence_has_no_link_unless_the_end_is_left_out() -> None:
    maps = np.full((1, 4, 4), 0.1)
    maps[0, 0, 2:] = 0.9, 1
    assert _links(maps, "AWO") == [{(0, 1)}]
    assert _links(maps, "AWO", end=False) == [{(1, 0), (0, 1)}]


def test_error_rates_are_those_counted_by_hand() -> None:
    gold = Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 1)}))
    counts = error_counts({(0, 0), (2, 1), (3, 3)}, gold)
    assert counts == (1, 2, 3, 2)  # |A&S|, |A&P|, |A|, |S|
    assert alignment_error_rate(np.array([counts])) == pytest.approx([1 - 3 / 5])
    assert alignment_error_rate(np.array([[2, 2, 2, 2]])) == [0]


def _analysis(weights: np.ndarray, norms: np.ndarray) -> Analysis:
    """One layer with two heads, four target rows and four source tokens."""
    nothing = np.full((1, 4, 4), np.nan)
    maps = np.stack([np.concatenate([nothing, m.mean(0, keepdims=True)], -1) for m in (weights, norms)])
    heads = np.stack([np.concatenate([np.full((1, 2, 4, 4), np.nan), m[None]], -1) for m in (weights, norms)])
    dataset = xr.Dataset(
        {
            "map": (("scope", "layer", "query", "key"), maps),
            "head_map": (("head_scope", "layer", "head", "query", "key"), heads),
            "completeness": ("layer", [0.0]),
        },
        {
            "scope": ["CrossW", "AttnResLnCross"],
            "head_scope": ["CrossW", "Cross"],
            "layer": [1],
            "head": [1, 2],
            "query_token": ("query", list("spqr")),
            "query_special": ("query", [True, False, False, False]),
            "key_group": ("key", ["target"] * 4 + ["source"] * 4),
        },
        {"model": "made"},
    )
    return Analysis(dataset)


def test_error_rates_are_counted_over_the_corpus_for_layers_and_heads() -> None:
    right, wrong = np.full((4, 4), 0.1), np.full((4, 4), 0.1)
    right[0, 2] = right[1:3, 0] = 1
    wrong[0, 0] = wrong[1:3, 2] = 1
    weights, norms = np.stack([wrong, wrong]), np.stack([3 * right, wrong])
    observations = [Observation(_analysis(weights, norms), n, pair=_pair({(1, 0), (0, 1)})) for n in range(2)]
    outcome = Alignment(setting="AWO", eos="argmax").over(observations)
    aer = {(row["method"], row["head"]): row["aer"] for row in outcome.tables["alignment-heads"].to_pylist()}
    assert aer["weights", None] == aer["weights", 1] == aer["norms", 2] == 1
    assert aer["norms", None] == aer["norms", 1] == 0
    (highest,) = rows(outcome, "alignment", method="norms", which="head of highest mean norm")
    assert (highest["at_layer"], highest["at_head"], highest["aer"]) == (1, 1, 0)
    (best,) = rows(outcome, "alignment", method="weights", which="best layer")
    assert best["aer"] == 1


def test_both_ways_of_treating_the_end_are_reported_and_the_links_of_each_are_listed() -> None:
    """The weights of the first target word go to the end: without it, to the right word."""
    weights = np.full((2, 4, 4), 0.1)
    weights[:, 0, 2:] = 0.5, 0.9
    weights[:, 1:3, 0] = 1
    norms = np.full((2, 4, 4), 0.1)
    norms[:, 0, 2] = norms[:, 1:3, 2] = 1
    gold = _pair({(1, 0), (0, 1)}, {(1, 1)})
    outcome = Alignment(setting="AWO").over([Observation(_analysis(weights, norms), 0, pair=gold)])
    aer = {
        (row["eos"], row["method"]): row["aer"]
        for row in rows(outcome, "alignment-heads", setting="AWO", layer=1, head=None)
    }
    assert aer["argmax", "weights"] == pytest.approx(1 - 2 / 3)  # one link, sure; two sure in the gold
    assert aer["exclude", "weights"] == 0
    assert aer["argmax", "norms"] == aer["exclude", "norms"] == pytest.approx(1 - (1 + 2) / (2 + 2))
    links = outcome.tables["alignment-links"].to_pylist()
    found = {
        (row["eos"], row["method"], row["source_word"], row["target_word"], row["gold"])
        for row in links
        if row["method"] == "weights"
    }
    assert found == {
        ("argmax", "weights", "s0", "t1", "sure"),
        ("exclude", "weights", "s0", "t1", "sure"),
        ("exclude", "weights", "s1", "t0", "sure"),
    }
    assert {row["gold"] for row in links if row["method"] == "norms"} == {"sure", "possible"}
    listed = {(row["source"], row["target"], row["gold"]) for row in outcome.tables["alignment-gold"].to_pylist()}
    assert listed == {(2, 1, "sure"), (1, 2, "sure"), (2, 2, "possible")}
    assert "alignment-example-1-awo" in outcome.figures
    axes = outcome.figures["alignment-example-1-awo"]().axes
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["s0", "s1", "</s>"]
    assert len(axes[1].patches) == 3  # the gold links


def test_what_alignment_needs_is_said() -> None:
    item = random_analysis(0, ["a", "b"])
    with pytest.raises(InputError, match="encoder-decoder"):
        Alignment().needs(ModelFacts.of_analysis(item))
    with pytest.raises(InputError, match="gold"):
        Alignment().over([item])
    with pytest.raises(InputError, match="AWO, AWI, both"):
        Alignment(setting="AWX")
    with pytest.raises(InputError, match="argmax, exclude, both"):
        Alignment(eos="maybe")
