"""Projection maps against the definition with the oracle's parts, for every topology."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import normscope as ns
from methods.samples import IDS, MODELS, asked, assert_close, double, every_model, traces
from normscope.chain.trace import Attention, LayerTrace
from normscope.methods.projections import Projections
from normscope.testing.oracle import OracleResult, oracle


def _projection(truth: OracleResult) -> torch.Tensor:
    """`<part, y> / ||y||^2`, missing where the key does not exist."""
    state = truth.state
    scores = (truth.parts * state[:, None]).sum(-1) / state.square().sum(-1)[:, None]
    present = truth.present | (scores != 0)
    return scores.masked_fill(~present, torch.nan)


@every_model
def test_projections_are_those_of_the_parts_on_the_state(name: str) -> None:
    analyzer = double(name)
    analysis = analyzer.analyze(IDS, projections=True, heads=True, **asked(analyzer))
    for layer, trace in enumerate(traces(analyzer), start=1):
        for scope, truth in oracle(trace).items():
            values = analysis.map(scope, quantity="projection").sel(layer=layer)
            assert values.attrs["quantity"] == "projection"
            assert_close(np.nan_to_num(values.values), _projection(truth).nan_to_num())
            assert not np.isnan(values.values[truth.present.numpy()]).any()


@every_model
def test_projections_add_up_to_one_with_the_share_of_the_bias(name: str) -> None:
    analyzer = double(name)
    dataset = analyzer.analyze(IDS, projections=True, **asked(analyzer)).dataset
    sums = dataset["projection"].sum("key") + dataset["projection_bias"]
    np.testing.assert_allclose(sums.values, 1, atol=1e-6)


@every_model
def test_the_heads_and_what_the_token_keeps_make_up_the_map_at_every_scope(name: str) -> None:
    analyzer = double(name)
    analysis = analyzer.analyze(IDS, projections=True, heads=True, **asked(analyzer))
    for scope in analysis.dataset["projection_scope"].values:
        whole = np.nan_to_num(analysis.map(scope, quantity="projection").values)
        heads = np.nan_to_num(analysis.map(scope, quantity="projection", heads=True).sum("head").values)
        own = whole - heads
        rows = np.arange(whole.shape[1])
        kept = own[:, rows, rows].copy()
        own[:, rows, rows] = 0
        np.testing.assert_allclose(own, 0, atol=1e-9)
        assert np.abs(kept).max() > 1e-3 or scope in ("Attn", "AttnLn") or scope.endswith("Cross")


@pytest.mark.parametrize("name", ["bert", "llama", "gemma2", "gptj"])
def test_a_head_projects_what_its_own_parts_do_through_the_frozen_block(name: str) -> None:
    """What remains of a projection when all other heads' weights are zero, but deviations and slopes are the model's own."""
    analyzer = double(name)
    trace = traces(analyzer)[0]
    analysis = analyzer.analyze(IDS, method="projections", heads=True, layers=1)
    scopes = [scope for scope in analyzer.scopes if scope.quantity == "norm"]
    directions = {scope: truth.state for scope, truth in oracle(trace).items()}
    for head in (0, 2):
        alone = Projections(tuple(scopes), heads=True).of_layer(_with_one_head(trace, head))
        for scope in scopes:
            # The direction is the model's own state in both, as a trace keeps its states.
            mine = analysis.map(scope, heads=True).sel(layer=1, head=head + 1).values
            assert directions[scope].shape[0] == mine.shape[0]
            assert_close(mine, alone.heads[scope][head])
            others = np.delete(alone.heads[scope].numpy(), head, axis=0)
            assert np.nanmax(np.abs(others)) == 0


def _with_one_head(trace: LayerTrace, head: int) -> LayerTrace:
    def alone(step: Attention) -> Attention:
        mask = torch.zeros_like(step.weights)
        mask[head] = 1
        return replace(step, weights=step.weights * mask)

    steps = tuple(alone(step) if isinstance(step, Attention) else step for step in trace.steps)
    return replace(trace, steps=steps)


def test_projections_alone_take_the_place_of_the_norms() -> None:
    analyzer = double("llama")
    alone = analyzer.analyze(IDS, method="projections", heads=True)
    both = analyzer.analyze(IDS, projections=True, heads=True)
    assert alone.method == "projections"
    assert alone.scopes == [scope for scope in analyzer.scopes if scope != "AttnW"]
    for scope in alone.scopes:
        for heads in (False, True):
            beside = both.map(scope, quantity="projection", heads=heads).values
            np.testing.assert_array_equal(alone.map(scope, heads=heads).values, beside)
            np.testing.assert_array_equal(alone.map(scope, quantity="projection", heads=heads).values, beside)
    assert float(alone.completeness.max()) < 1e-6
    assert any(float(alone.map(scope).min()) < 0 for scope in alone.scopes)


def test_the_encoder_of_an_encoder_decoder_has_projections_too() -> None:
    analysis = double("bart").analyze(IDS, projections=True, **asked(double("bart")))
    values = analysis.encoder.map("AttnResLnFfResLn", quantity="projection")
    assert values.shape == (2, 6, 6)
    bias = analysis.encoder.dataset["projection_bias"].sel(projection_scope="AttnResLnFfResLn")
    np.testing.assert_allclose((values.sum("key") + bias).values, 1, atol=1e-6)


def test_a_quantity_that_was_not_computed_is_refused_with_what_to_do() -> None:
    analysis = double("bert").analyze(IDS)
    with pytest.raises(
        ns.SelectionError, match=r"no quantity 'projection' here.*of the norm: analyse with projections"
    ):
        analysis.map("Attn", quantity="projection")
    with pytest.raises(ns.SelectionError, match=r"'projection' of single heads.*projections=True, heads=True"):
        double("bert").analyze(IDS, projections=True).map("Attn", quantity="projection", heads=True)
    with pytest.raises(ns.SelectionError, match="no quantity 'entropy' here"):
        analysis.map("Attn", quantity="entropy")
    np.testing.assert_array_equal(analysis.map("Attn", quantity="norm"), analysis.map("Attn"))


def test_attention_weights_have_no_projection() -> None:
    with pytest.raises(ns.SelectionError, match="no projections at AttnW"):
        double("bert").analyze(IDS, scopes="AttnW", method="projections")
    with pytest.raises(ns.ScopeError, match="AttnW"):
        double("bert").analyze(IDS, projections=True).map("AttnW", quantity="projection")


def test_every_topology_is_among_the_models() -> None:
    assert {"bert", "llama", "gptj", "gemma2", "olmo2", "mixtral", "bart", "t5"} <= set(MODELS)
