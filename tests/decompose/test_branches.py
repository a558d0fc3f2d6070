"""The ways on from a feed-forward: they share what they have in common, and none of them changes another."""

from __future__ import annotations

import pytest
import torch
from support.traces import TOPOLOGIES, Shape, make_trace

from normscope.chain.linear import scale_, scale_back
from normscope.chain.trace import LayerTrace, Linear, Normalise
from normscope.decompose import Approximation, Branches, decompose
from normscope.decompose.approximate import main_slope as approximate
from normscope.decompose.key_groups import KeyGroup
from normscope.decompose.maps import LayerRequest, Walk
from normscope.scopes import scopes_of

ONE_NETWORK = [name for name in TOPOLOGIES if "mixture" not in name]
SHAPE = Shape(tokens=9, d=24, neurons=40, dtype=torch.float64)
NEAR = Approximation(1.0, 6)


def fed_scopes(trace: LayerTrace) -> list[str]:
    return [scope for scope in scopes_of(trace.components) if "Ff" in scope]


def branches_of(trace: LayerTrace) -> Branches:
    return Branches(Walk(trace, LayerRequest(tuple(scopes_of(trace.components)))))


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("causal", [False, True])
def test_a_sample_has_the_exact_maps_of_its_queries(topology: str, causal: bool) -> None:
    trace = make_trace(topology, Shape(causal=causal, dtype=torch.float64))
    scopes, rows = fed_scopes(trace), torch.tensor([1, len(trace.queries) - 1])
    exact, sample = decompose(trace, scopes).maps, branches_of(trace).sample(rows, scopes)
    for scope in scopes:
        torch.testing.assert_close(sample[scope], exact[scope][rows], equal_nan=True)


@pytest.mark.parametrize("topology", ONE_NETWORK)
def test_exact_maps_after_approximate_ones_are_exact(topology: str) -> None:
    trace = make_trace(topology, SHAPE)
    branches, scopes = branches_of(trace), scopes_of(trace.components)
    near, exact = branches.result(NEAR), branches.result()
    truth, approximated = decompose(trace, scopes), decompose(trace, scopes, approximation=NEAR)
    for scope in scopes:
        torch.testing.assert_close(exact.maps[scope], truth.maps[scope], equal_nan=True)
        torch.testing.assert_close(near.maps[scope], approximated.maps[scope], equal_nan=True)
    assert exact.errors.keys() == truth.errors.keys()


def test_what_keys_put_into_neurons_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[KeyGroup] = []
    through = KeyGroup.through

    def noting(group: KeyGroup, linear: Linear) -> torch.Tensor:
        calls.append(group)
        return through(group, linear)

    monkeypatch.setattr(KeyGroup, "through", noting)
    monkeypatch.setattr(approximate.ApproximateExpansion, "expands", True)
    trace = make_trace("post_norm", SHAPE)
    branches = branches_of(trace)
    branches.sample(torch.tensor([2]), fed_scopes(trace))
    branches.result(NEAR)
    assert len(calls) == 1


@pytest.mark.parametrize("topology", ["post_norm", "gated_pre_norm"])
def test_how_much_is_expanded_at_a_time_makes_no_difference(topology: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate.ApproximateExpansion, "expands", True)
    trace = make_trace(topology, SHAPE)
    scopes = fed_scopes(trace)
    together = decompose(trace, scopes, approximation=NEAR).maps
    monkeypatch.setattr(approximate, "EXPANDED_NUMBERS", 7 * 2 * 9)
    monkeypatch.setattr(approximate, "NEURONS", 7)
    for scope, maps in decompose(trace, scopes, approximation=NEAR).maps.items():
        torch.testing.assert_close(maps, together[scope])


@pytest.mark.parametrize("topology", ["post_norm", "gated_pre_norm"])
def test_a_norm_goes_back_to_the_same_products(topology: str) -> None:
    trace = make_trace(topology, SHAPE)
    norm = next(step.norm for step in trace.steps if isinstance(step, Normalise))
    vectors, covectors = torch.randn(2, 5, SHAPE.d, dtype=torch.float64)
    after = scale_(norm, vectors.clone()) @ covectors.T
    torch.testing.assert_close(vectors @ scale_back(norm, covectors).T, after)
