"""Shapley values against their enumeration, and the feed-forward maps that they are compared with."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_models import tiny
from transformers import LlamaConfig, LlamaModel

import normscope as ns
from experiments.made import check_bands
from normscope.experiments import experiment
from normscope.experiments.faithfulness.shapley_values import ShapleyMaps, exact, sampled
from normscope.inputs import read_inputs
from normscope.methods.resolve import measure_layers
from normscope.runs import run


def gated(inputs: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(inputs[:, 0]) * inputs[:, 1]


def plain(inputs: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(inputs[:, 0])


def drawn(branches: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(branches)
    players = torch.randn(5, branches, 7, generator=random, dtype=torch.float64)
    return players, torch.randn(branches, 7, generator=random, dtype=torch.float64)


def enumerated(neurons: Any, players: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    """The definition: what a player adds, averaged over all orders."""
    total = torch.zeros(len(players), players.shape[-1], dtype=torch.float64)
    orders = list(permutations(range(len(players))))
    for order in orders:
        entered = present.clone()
        for player in order:
            before = neurons(entered[None])[0]
            entered = entered + players[player]
            total[player] += neurons(entered[None])[0] - before
    return total / len(orders)


@pytest.mark.parametrize(("neurons", "branches"), [(plain, 1), (gated, 2)])
def test_exact_values_are_the_average_over_all_orders(neurons: Any, branches: int) -> None:
    players, present = drawn(branches)
    torch.testing.assert_close(exact(neurons, players, present), enumerated(neurons, players, present))


@pytest.mark.parametrize(("neurons", "branches"), [(plain, 1), (gated, 2)])
def test_sampled_values_add_up_and_are_within_their_standard_errors(neurons: Any, branches: int) -> None:
    players, present = drawn(branches)
    estimates = sampled(neurons, players, present, 200, torch.Generator().manual_seed(0))
    whole = neurons((present + players.sum(0))[None])[0] - neurons(present[None])[0]
    torch.testing.assert_close(estimates.sum(1), whole.expand(200, -1))
    error = estimates.std(0) / 200**0.5
    assert ((estimates.mean(0) - exact(neurons, players, present)).abs() <= 4.5 * error + 1e-12).all()


def test_integrated_gradients_here_are_those_of_the_maps_and_shapley_vectors_add_up(analyzer: ns.Analyzer) -> None:
    (sequence,), _ = read_inputs("a small test", analyzer.tokenizer, None)
    measure = ShapleyMaps(queries=9)
    (measured,) = measure_layers(analyzer, [sequence], [measure])
    maps = analyzer.analyze("a small test", scopes="AttnResLnFf").map("AttnResLnFf").values
    for layer, queries in measured.main[measure].items():
        assert {each.query for each in queries} == set(range(len(sequence)))
        for each in queries:
            np.testing.assert_allclose(each.integrated, maps[layer - 1, each.query], rtol=2e-3)
            assert each.is_exact and each.completeness < 1e-9 and not each.standard_error.any()


def test_where_the_activation_is_linear_both_methods_agree() -> None:
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        intermediate_size=20,
    )
    curved = ns.load(LlamaModel(config).eval())
    straight = tiny("bert", hidden_act="relu")
    with torch.no_grad():
        for layer in straight.encoder.layer:  # type: ignore[union-attr]
            layer.intermediate.dense.bias.fill_(1000.0)  # every neuron stays on the straight side
    ids = {"input_ids": torch.tensor([[5, 9, 7, 30, 12]])}
    for model, agree in ((ns.load(straight), True), (curved, False)):
        (sequence,), _ = read_inputs(ids, None, None)
        measure = ShapleyMaps(biases=("present",))
        (measured,) = measure_layers(model, [sequence], [measure])
        differences = [each.difference for queries in measured.main[measure].values() for each in queries]
        assert (max(differences) < 1e-3) == agree


def test_a_run_gives_layers_and_the_cells_of_largest_disagreement(analyzer: ns.Analyzer) -> None:
    options = {"shapley": {"exact": 6, "pairs": 4, "queries": 2, "cells": 3}}
    texts = ["one two three", "a dog saw the big red cat run", "no"]
    result = run(["shapley"], model=analyzer, corpus=texts, options=options)
    rows = result.tables["shapley"].to_pylist()
    spearman = [row for row in rows if row["measure"] == "spearman"]
    assert {row["layer"] for row in spearman} == {None, 1, 2, 3, 4, 5, 6}
    assert all(0 < row["mean"] <= 1 and 0 < row["exact_share"] < 1 for row in spearman)
    assert any(row["mean"] > 0 for row in rows if row["measure"] == "standard_error")
    cells = result.tables["shapley-cells"].to_pylist()
    gaps = [abs(cell["gap"]) for cell in cells]
    assert len(cells) == 3 and gaps == sorted(gaps, reverse=True) and gaps[0] > 0
    assert cells[0]["gap"] == pytest.approx(cells[0]["integrated"] - cells[0]["shapley"])
    (panel,) = result.outcomes["shapley"].figures["shapley-layers"]().axes
    check_bands(panel, [row for row in spearman if row["layer"] is not None], "bias")
    with pytest.raises(ns.InputError, match="from 1 to 16"):
        experiment("shapley", {"exact": 40})
    with pytest.raises(ns.UnsupportedArchitectureError, match="only the query's own token"):
        gpt = ns.load(_parallel(), analyzer.tokenizer)
        run(["shapley"], model=gpt, corpus=texts)


def _parallel() -> Any:
    from transformers import GPTNeoXConfig, GPTNeoXModel  # noqa: PLC0415

    config = GPTNeoXConfig(
        vocab_size=30522, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20
    )
    return GPTNeoXModel(config).eval()
