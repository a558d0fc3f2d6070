"""Attention sinks: what they get by weights and by norms, against the definitions written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.made import analysis, rows
from normscope.errors import InputError
from normscope.experiments import ModelFacts, Observation, Outcome, RunFacts, merged
from normscope.experiments.sinks import CLASSES, Sinks
from normscope.methods.vectors import HiddenNorms, ValueNorms

LAYERS, HEADS, LAST = 2, 2, "AttnResLnFfResLn"
FIRST = ["[CLS]", "a", "b", "c", "[SEP]"]
SECOND = ["[CLS]", "a", "b", "d", "e", "[SEP]"]


def _sequence(seed: int, tokens: list[str], massive: list[tuple[int, int]], *, causal: bool = False) -> Observation:
    """A random sequence, with states of length 20 at the (layer, token) named, and about 1 elsewhere."""
    chance, count = np.random.default_rng(seed), len(tokens)
    hidden_cells = np.triu(np.ones((count, count), bool), 1) if causal else np.zeros((count, count), bool)
    weights = np.where(hidden_cells, np.nan, chance.random((LAYERS, HEADS, count, count)))
    weights = weights / np.nansum(weights, -1, keepdims=True)
    norms = np.where(hidden_cells, np.nan, chance.random((LAYERS, HEADS, count, count)))
    maps = {scope: np.where(hidden_cells, np.nan, chance.random((LAYERS, count, count))) for scope in ("Attn", LAST)}
    item = analysis({"AttnW": np.nan_to_num(weights).mean(1), **maps}, tokens, heads={"AttnW": weights, "Attn": norms})
    states = 1 + 0.1 * chance.random((LAYERS, count))
    for layer, token in massive:
        states[layer, token] = 20.0
    results: dict[Any, Any] = {HiddenNorms(): states, ValueNorms(): chance.random((LAYERS, HEADS, count))}
    return Observation(item, seed, results=results)


def _outcome(observations: list[Observation], *, causal: bool = False, **options: Any) -> Outcome:
    chosen = Sinks(**options)
    model = replace(ModelFacts.of_analysis(observations[0].analysis), causal=causal)
    return chosen.finish(merged(chosen.observe(item, model) for item in observations), RunFacts(model))


def _class_of(item: Observation, layer: int, token: int) -> str:
    states = item.results[HiddenNorms()][layer]
    if token == 0:
        return "first"
    if item.tokens[token] == "[SEP]":
        return "special"
    return "massive" if states[token] > 5 * np.median(states) else "other"


def _share(item: Observation, values: np.ndarray, layer: int, kind: str, first: int = 0) -> float:
    """The share of a class's columns in each row `[query, key]`, mean over queries."""
    found = []
    for row in values[first:]:
        seen = [(key, value) for key, value in enumerate(row) if not np.isnan(value)]
        found.append(sum(v for key, v in seen if _class_of(item, layer, key) == kind) / sum(v for _, v in seen))
    return float(np.mean(found))


@pytest.mark.parametrize("causal", [False, True])
def test_shares_are_sums_over_the_columns_of_a_class_in_each_row(causal: bool) -> None:
    items = [_sequence(0, FIRST, [(1, 2)], causal=causal), _sequence(1, SECOND, [], causal=causal)]
    outcome = _outcome(items, causal=causal)
    first = int(causal)  # the first query of a causal model sees only itself
    for layer in range(LAYERS):
        for kind in CLASSES:
            (row,) = rows(outcome, "sinks", layer=layer + 1, **{"class": kind})
            for column, scope in (("attention", "Attn"), ("map", LAST)):
                shares = [_share(item, item.map(scope)[layer], layer, kind, first) for item in items]
                assert row[column] == pytest.approx(np.mean(shares), abs=1e-12)
            for head in range(HEADS):
                (single,) = rows(outcome, "sinks-heads", layer=layer + 1, head=head + 1, **{"class": kind})
                for column, scope in (("weights", "AttnW"), ("norms", "Attn")):
                    maps = [item.analysis.map(scope, heads=True).values[layer, head] for item in items]
                    shares = [_share(item, each, layer, kind, first) for item, each in zip(items, maps, strict=True)]
                    assert single[column] == pytest.approx(np.mean(shares), abs=1e-12)
        total = sum(row["weights"] for row in rows(outcome, "sinks", layer=layer + 1))
        assert total == pytest.approx(1)


def test_states_and_vectors_are_means_over_the_tokens_that_are_in_the_class_in_that_layer() -> None:
    items = [_sequence(0, FIRST, [(1, 2)]), _sequence(1, SECOND, [(0, 0)])]
    outcome = _outcome(items)
    (massive,) = rows(outcome, "sinks", layer=2, **{"class": "massive"})
    states = items[0].results[HiddenNorms()][1]
    assert (massive["state"], massive["sequences"], massive["tokens"]) == (20.0, 1, 0.5)
    assert massive["state_ratio"] == pytest.approx(20 / np.median(states))
    assert massive["f"] == pytest.approx(items[0].results[ValueNorms()][1, :, 2].mean())
    (none,) = rows(
        outcome, "sinks", layer=1, **{"class": "massive"}
    )  # the first token is massive there, but it is the first
    assert (none["state"], none["f"], none["weights"], none["sequences"]) == (None, None, 0.0, 0)
    assert rows(outcome, "sinks", layer=1, **{"class": "first"})[0]["state"] > 10
    assert rows(_outcome(items, massive=30.0), "sinks", layer=2, **{"class": "massive"})[0]["tokens"] == 0


def test_without_sinks_weights_and_norms_are_compared_over_the_other_keys() -> None:
    item = _sequence(0, FIRST, [(1, 2)])
    outcome = _outcome([item])
    weights, norms = item.analysis.map("AttnW", heads=True).values[1].mean(0), item.map("Attn")[1]
    for keys, chosen in (("all", range(5)), ("without sinks", [1, 3])):
        (row,) = rows(outcome, "sinks-maps", layer=2, keys=keys)
        cells = [(weights[query, key], norms[query, key]) for query in range(5) for key in chosen]
        assert row["correlation"] == pytest.approx(np.corrcoef(np.array(cells).T)[0, 1])
        others = rows(outcome, "sinks", layer=2, **{"class": "other"})[0]["map"]
        assert row["share"] == pytest.approx(1 if keys == "all" else others)


def test_figures_show_the_classes_that_there_are() -> None:
    outcome = _outcome([_sequence(0, FIRST, []), _sequence(1, SECOND, [])])
    axes = outcome.figures["sinks"]().axes
    assert [line.get_label() for line in axes[0].lines] == ["first", "special", "other"]
    assert outcome.figures["sinks-heads"]().axes


def test_a_multiple_of_the_median_below_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"massive is a multiple of the median norm, more than 1, not 0\.5"):
        Sinks(massive=0.5)
