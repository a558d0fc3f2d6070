"""Approximate maps against exact ones: what stays exact is exact, what is measured is true, and nothing else is promised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.traces import TOPOLOGIES, Shape, make_trace

import normscope as ns
from normscope.chain.trace import FeedForward, OwnFeedForward
from normscope.decompose import Approximation, decompose
from normscope.decompose.approximate import main_slope, patterns
from normscope.errors import InputError, UnsupportedArchitectureError
from normscope.methods import approximate
from normscope.methods.approximate import FEWEST, SAMPLED, Fast, sampled, spearman
from normscope.scopes import scopes_of
from normscope.testing.oracle import oracle

TEXT = (
    "The opera singer caught a soap bubble between two fingers, and the audience, which had waited for an hour in the "
    "rain, laughed so loudly that the conductor dropped his baton into the orchestra pit. Nobody ever found it again."
)
BESIDE_OR_MIXED = ("mixture", "parallel")


def usable(topology: str) -> bool:
    return not any(word in topology for word in BESIDE_OR_MIXED)


@pytest.mark.parametrize("topology", [name for name in TOPOLOGIES if usable(name)])
@pytest.mark.parametrize("causal", [False, True])
def test_with_all_directions_and_neurons_maps_are_those_of_the_oracle(topology: str, causal: bool) -> None:
    trace = make_trace(topology, Shape(causal=causal, dtype=torch.float64))
    truth = oracle(trace)
    scopes = scopes_of(trace.components, weights=False)
    shared = Approximation(1.0, 1000, patterns=len(trace.queries))
    for approximation in (Approximation(1.0, 1000), Approximation(0.999), Approximation(0.999, 1000), shared):
        maps = decompose(trace, scopes, approximation=approximation).maps
        for scope in scopes:
            torch.testing.assert_close(maps[scope], truth[scope].map, rtol=1e-7, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("topology", [name for name in TOPOLOGIES if usable(name)])
def test_what_is_not_approximated_is_exact(topology: str) -> None:
    """Scopes before the feed-forward, the diagonal, mixing ratios and the proof."""
    trace = make_trace(topology, Shape(tokens=12, d=24, neurons=40, dtype=torch.float64))
    scopes = scopes_of(trace.components)
    exact, near = (decompose(trace, scopes, approximation=each) for each in (None, Approximation(0.2, 6)))
    for scope in scopes:
        torch.testing.assert_close(near.mixing.get(scope), exact.mixing.get(scope))
        if "Ff" not in scope:
            torch.testing.assert_close(near.maps[scope], exact.maps[scope], equal_nan=True)
        elif "Cross" not in trace.components:
            torch.testing.assert_close(near.maps[scope].diagonal(), exact.maps[scope].diagonal())
    assert all(float(error.max()) < 1e-10 for error in near.errors.values())


@pytest.mark.parametrize("kind", ["post_norm", "gated_pre_norm"])
def test_more_patterns_come_nearer_to_the_exact_map(kind: str) -> None:
    trace = make_trace(kind, Shape(tokens=24, d=24, neurons=40, dtype=torch.float64))
    scope = next(scope for scope in scopes_of(trace.components) if scope.endswith("Ff"))
    exact = decompose(trace, [scope]).maps[scope]
    errors = [
        float((decompose(trace, [scope], approximation=Approximation(patterns=count)).maps[scope] - exact).norm())
        for count in (2, 8, 16, 24)
    ]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-9 < errors[0]


def test_a_batch_of_sums_of_patterns_is_that_of_each_query(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = make_trace("post_norm", Shape(tokens=24, d=24, neurons=40, dtype=torch.float64))
    scopes = [scope for scope in scopes_of(trace.components) if "Ff" in scope]
    together = decompose(trace, scopes, approximation=Approximation(patterns=6)).maps
    monkeypatch.setattr(main_slope, "FOLDED_VECTORS", 5 * 24)
    monkeypatch.setattr(main_slope, "EXPANDED_VECTORS", 5 * 24)
    monkeypatch.setattr(patterns, "_ROWS", 7)
    apart = decompose(trace, scopes, approximation=Approximation(patterns=6)).maps
    for scope in scopes:
        torch.testing.assert_close(apart[scope], together[scope])


def test_the_order_of_multiplication_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    from normscope.decompose.approximate.main_slope import ApproximateExpansion  # noqa: PLC0415

    trace = make_trace("post_norm", Shape(dtype=torch.float64))
    scopes = [scope for scope in scopes_of(trace.components) if "Ff" in scope]
    results = []
    for expands in (True, False):
        monkeypatch.setattr(ApproximateExpansion, "expands", expands)
        results.append(decompose(trace, scopes, approximation=Approximation(0.4, 4)).maps)
    for scope in scopes:
        torch.testing.assert_close(results[0][scope], results[1][scope])


def test_a_sketch_is_right_on_average() -> None:
    """The mean of squared norms over many sketches is the exact square."""
    trace = make_trace("post_norm", Shape(dtype=torch.float64))
    scope = next(scope for scope in scopes_of(trace.components) if scope.endswith("Ff"))
    exact = decompose(trace, [scope]).maps[scope]
    sketches = [decompose(trace, [scope], approximation=Approximation(1.0, 4, seed)).maps[scope] for seed in range(400)]
    squares = torch.stack(sketches).square().mean(0)
    assert float(((squares - exact.square()) / exact.square()).abs().mean()) < 0.08


def test_measured_errors_are_those_of_the_sampled_queries(analyzer: ns.Analyzer) -> None:
    exact, near = analyzer.analyze(TEXT), analyzer.analyze(TEXT, approximate="both")
    rows = sampled(len(exact.tokens), torch.device("cpu"))
    for place, layer in enumerate(exact.layers):
        for scope in ("AttnResLnFf", "AttnResLnFfResLn"):
            one, two = (torch.tensor(each.map(scope).sel(layer=layer).values)[rows] for each in (near, exact))
            stated = near.dataset["approximation_spearman"].sel(scope=scope).values[place]
            assert spearman(one, two) == pytest.approx(stated, abs=1e-4)
    assert near.attrs["approximate_spearman"] == pytest.approx(float(near.dataset["approximation_spearman"].min()))
    assert float((near.map("AttnResLn") - exact.map("AttnResLn")).max()) == 0
    assert len(rows) == FEWEST
    assert len(sampled(4096, torch.device("cpu"))) == SAMPLED


def test_fast_keeps_its_promise_in_every_layer_and_says_what_it_took(
    analyzer: ns.Analyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approximate, "WORTHWHILE", 1.0)  # so that a short text is worth it
    exact, near = analyzer.analyze(TEXT), analyzer.analyze(TEXT, approximate="fast")
    assert float(near.dataset["approximation_spearman"].min()) >= 0.999
    for layer in exact.layers:
        one, two = (torch.tensor(each.map("AttnResLnFf").sel(layer=layer).values) for each in (near, exact))
        assert spearman(one, two) > 0.998
    assert "approximate" in repr(near)
    assert near.approximate is not None
    assert exact.approximate is None


def test_fast_is_exact_where_nothing_would_save_time(analyzer: ns.Analyzer) -> None:
    near = analyzer.analyze("A soap bubble.", approximate="fast")
    assert near.approximate == "exact"
    assert "all maps are exact" in repr(near)


def test_a_layer_above_an_exact_one_is_tried_on_sampled_queries_first(
    analyzer: ns.Analyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a search in vain costs little."""
    monkeypatch.setattr(approximate, "WORTHWHILE", 1.0)
    heights: list[int] = []
    tiles = main_slope.ApproximateExpansion.tiles

    def noting(self: main_slope.ApproximateExpansion) -> Any:
        heights.append(len(self.sums.queries))
        return tiles(self)

    monkeypatch.setattr(main_slope.ApproximateExpansion, "tiles", noting)
    near = analyzer.analyze(TEXT, approximate=Fast(spearman=1 - 1e-9))
    assert near.approximate == "exact"
    assert set(heights) == {FEWEST}


def test_a_file_keeps_that_its_maps_are_approximate(analyzer: ns.Analyzer, tmp_path: Path) -> None:
    near = analyzer.analyze("A soap bubble.", approximate="slopes")
    again = ns.open(near.save(tmp_path / "near.nc"))
    assert again.approximate == "slopes"
    assert again.attrs["approximate_error"] == near.attrs["approximate_error"]


def test_mixtures_and_wrong_names_are_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(InputError, match="slopes, sketch, both"):
        analyzer.analyze("A soap bubble.", approximate="quick")
    with pytest.raises(InputError, match="share of neurons"):
        Approximation(0.0)
    with pytest.raises(InputError, match="at least 2 patterns"):
        Approximation(0.2, patterns=4)
    with pytest.raises(InputError, match="does not take approximate"):
        analyzer.analyze("A soap bubble.", method="alti", approximate="slopes")
    for topology in (name for name in TOPOLOGIES if "mixture" in name):
        trace = make_trace(topology, Shape())
        step = next(step for step in trace.steps if isinstance(step, FeedForward))
        if len(step.experts) > 1 and not isinstance(step, OwnFeedForward):
            with pytest.raises(UnsupportedArchitectureError, match="mixtures of experts"):
                decompose(trace, [scopes_of(trace.components)[-1]], approximation=Approximation(0.2))
