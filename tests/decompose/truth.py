"""Random blocks, the truth about them, and what it means to agree with it.

Tolerances. In float32 the engine starts from what a model computed in float32, and the oracle from the block's input
in float64: they differ by rounding alone, some 1e-7 of an entry; 1e-5 is requested, of every entry. In float64 they
agree to 1e-13 where heads do not cancel. Where they do, a norm from a Gram matrix is the root of a difference of large
numbers, good to the root of float64's rounding: 1e-8 of what cancels, as the tests of cancelling heads ask.
"""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from support.traces import (
    TOPOLOGIES,
    Shape,
    make_trace,
)
from torch import Tensor

from normscope.chain.trace import Attention, LayerTrace
from normscope.decompose import LayerResult
from normscope.scopes import scopes_of
from normscope.testing.oracle import OracleResult, oracle, oracle_weights

FLOAT32, FLOAT64 = torch.float32, torch.float64
TOLERANCE = {FLOAT32: 1e-5, FLOAT64: 1e-10}

EVERY_TOPOLOGY = pytest.mark.parametrize("topology", list(TOPOLOGIES))
BOTH_DIRECTIONS = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])

LONG_AND_NARROW = Shape(tokens=40, heads=2, d_head=2, d=8, neurons=16, source=30)
"""So many keys that folding the two matrices around the slopes is the cheaper order."""

SHAPES = {
    "one token": Shape(tokens=1, source=1),
    "one head": Shape(heads=1),
    "odd sizes": Shape(tokens=9, heads=5, d_head=3, d=7, neurons=11, source=4, sink=True),
    "values wider than states": Shape(tokens=5, heads=3, d_head=8, d=6, neurons=5, sink=True, value_bias="bias"),
    "more source than tokens": Shape(tokens=3, source=11, value_bias="bias"),
    "long and narrow": LONG_AND_NARROW,
}


@lru_cache(maxsize=256)
def solved(topology: str, shape: Shape) -> tuple[LayerTrace, dict[str, OracleResult]]:
    """A random trace and the truth about it."""
    trace = make_trace(topology, shape)
    return trace, oracle(trace, value_bias=shape.value_bias)


def all_scopes(trace: LayerTrace) -> list[str]:
    return scopes_of(trace.components)


def assert_same_numbers(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Within `tolerance` of every number, and NaN at the same places."""
    assert actual.shape == expected.shape
    assert torch.equal(actual.isnan(), expected.isnan())
    there = ~expected.isnan()
    error = (actual.double() - expected).abs()[there]
    excess = error - tolerance * expected[there]
    assert (excess <= 0).all(), f"off by {error.max():.1e}; relative {(error / expected[there]).max():.1e}"


def assert_correct(result: LayerResult, trace: LayerTrace, truth: dict[str, OracleResult]) -> None:
    """Every map, mixing ratio and completeness error, at every scope."""
    tolerance = TOLERANCE[trace.hidden.dtype]
    for scope, expected in oracle_weights(trace).items():
        assert_same_numbers(result.maps[scope], expected, tolerance)
    for scope, expected in truth.items():
        assert_same_numbers(result.maps[scope], expected.map, tolerance)
    assert set(result.maps) == set(all_scopes(trace))
    assert_mixing_correct(result, trace, truth)
    assert_complete(result, trace)


def assert_mixing_correct(result: LayerResult, trace: LayerTrace, truth: dict[str, OracleResult]) -> None:
    tolerance = TOLERANCE[trace.hidden.dtype]
    for scope, expected in truth.items():
        assert (result.mixing[scope] - expected.mixing_ratio).abs().max() <= tolerance, scope
        if expected.present[:, trace.length :].any():
            assert (result.source_mixing[scope] - source_mixing(expected, trace)).abs().max() <= tolerance, scope
    weights = next(step.weights for step in trace.steps if isinstance(step, Attention)).double().mean(0)
    others = weights.clone()
    others[torch.arange(len(trace.queries)), trace.queries] = 0
    assert (result.mixing["AttnW"] - others.sum(-1) / weights.sum(-1)).abs().max() <= tolerance


def source_mixing(truth: OracleResult, trace: LayerTrace) -> Tensor:
    """The mixing ratio's share of the encoder's tokens, in proportion to the norms of the two sums."""
    source = truth.parts[:, trace.length :].sum(1).norm(dim=-1)
    others = (truth.parts[:, : trace.length].sum(1) - truth.own).norm(dim=-1)
    return truth.mixing_ratio * source / (source + others)


def assert_complete(result: LayerResult, trace: LayerTrace) -> None:
    assert list(result.errors) == scopes_of(trace.components, weights=False)
    for scope, errors in result.errors.items():
        assert errors.shape == trace.queries.shape
        assert errors.max() <= TOLERANCE[trace.hidden.dtype] / 2, scope
