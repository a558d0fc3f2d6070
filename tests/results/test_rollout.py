"""Rollouts: products of maps over layers, written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from methods.samples import IDS, asked, double

import normscope as ns


@pytest.fixture(scope="module")
def llama() -> ns.Analysis:
    return double("llama", num_hidden_layers=3).analyze(IDS, projections=True)


def _shares(values: np.ndarray) -> np.ndarray:
    return values / np.abs(values).sum(-1, keepdims=True)


def test_a_rollout_is_the_product_of_row_normalised_maps(llama: ns.Analysis) -> None:
    maps = np.nan_to_num(llama.map("AttnResLnFfRes").values)
    truth = np.eye(6)
    rolled = llama.rollout("AttnResLnFfRes")
    for layer in range(3):
        truth = _shares(maps[layer]) @ truth
        np.testing.assert_allclose(np.nan_to_num(rolled.values[layer]), truth, rtol=1e-9)
    np.testing.assert_allclose(rolled.sum("key").values, 1, rtol=1e-9)


def test_keys_after_the_query_stay_missing(llama: ns.Analysis) -> None:
    assert (np.isnan(llama.rollout("AttnRes").values[2]) == np.triu(np.ones((6, 6), bool), 1)).all()


def test_a_map_without_a_residual_gets_half_an_identity(llama: ns.Analysis) -> None:
    for scope in ("AttnW", "Attn"):
        maps = np.nan_to_num(llama.map(scope).values)
        truth = np.eye(6)
        for layer in range(3):
            truth = (0.5 * _shares(maps[layer]) + 0.5 * np.eye(6)) @ truth
        np.testing.assert_allclose(np.nan_to_num(llama.rollout(scope).values[2]), truth, rtol=1e-9)
    # The model's own softmax is in float32, so that its rows add up to 1 only so far.
    np.testing.assert_allclose(llama.rollout("AttnW").values, llama.rollout("AttnResW").values, rtol=1e-6)


def test_the_share_of_the_identity_is_an_option(llama: ns.Analysis) -> None:
    maps = np.nan_to_num(llama.map("AttnRes").values)
    truth = (0.7 * _shares(maps[0])) + 0.3 * np.eye(6)
    np.testing.assert_allclose(np.nan_to_num(llama.rollout("AttnRes", add_identity=0.3).values[0]), truth, rtol=1e-9)
    with pytest.raises(ns.InputError, match=r"share from 0 to 1, not 1\.5"):
        llama.rollout("AttnRes", add_identity=1.5)


def test_maps_are_multiplied_as_they_are_if_asked(llama: ns.Analysis) -> None:
    maps = np.nan_to_num(llama.map("AttnRes").values)
    rolled = llama.rollout("AttnRes", normalise=False)
    np.testing.assert_allclose(np.nan_to_num(rolled.values[2]), maps[2] @ maps[1] @ maps[0], rtol=1e-9)


def test_rows_of_a_signed_map_are_divided_by_the_sum_of_their_sizes() -> None:
    analysis = double("bert").analyze(IDS, method="projections")
    scope = next(scope for scope in analysis.scopes if "Res" in scope and float(analysis.map(scope).min()) < 0)
    maps = analysis.map(scope).values
    truth = _shares(maps[1]) @ _shares(maps[0])
    np.testing.assert_allclose(analysis.rollout(scope).values[1], truth, rtol=1e-9)


def test_later_layers_alone_are_rolled_out_from_their_own_inputs() -> None:
    analyzer = double("llama", num_hidden_layers=3)
    later = analyzer.analyze(IDS, layers=[2, 3])
    maps = np.nan_to_num(later.map("AttnRes").values)
    truth = _shares(maps[1]) @ _shares(maps[0])
    np.testing.assert_allclose(np.nan_to_num(later.rollout("AttnRes").values[1]), truth, rtol=1e-9)
    with pytest.raises(ns.SelectionError, match="layers that follow each other, not 1, 3"):
        analyzer.analyze(IDS, layers=[1, 3]).rollout("AttnRes")


def test_a_decoder_reads_its_own_tokens_and_the_encoders_states() -> None:
    analyzer = double("bart")
    analysis = analyzer.analyze(IDS, **asked(analyzer))
    scope = "AttnResLnCrossResLnFfResLn"
    maps = _shares(np.nan_to_num(analysis.map(scope).values))
    # Every layer as a square matrix over both groups, in which the encoder's states stay what they are.
    truth = np.eye(10)
    for layer in range(3):
        whole = np.eye(10)
        whole[:4] = maps[layer]
        truth = whole @ truth
        np.testing.assert_allclose(np.nan_to_num(analysis.rollout(scope).values[layer]), truth[:4], rtol=1e-9)
    assert analysis.encoder.rollout("AttnResLnFfResLn").shape == (2, 6, 6)


def test_a_map_of_the_encoders_states_alone_cannot_be_chained() -> None:
    analyzer = double("bart")
    analysis = analyzer.analyze(IDS, **asked(analyzer))
    with pytest.raises(ns.SelectionError, match="no keys among the queries' own tokens"):
        analysis.rollout("Cross")


def test_some_queries_alone_cannot_be_rolled_out() -> None:
    with pytest.raises(ns.SelectionError, match="2 queries for 6 keys"):
        double("bert").analyze(IDS, queries=[0, 1]).rollout("AttnRes")


def test_which_scope_must_be_said_where_there_are_several(llama: ns.Analysis) -> None:
    with pytest.raises(ns.SelectionError, match="Which scope to roll out"):
        llama.rollout()
