"""Heads that cancel, or nearly: norms from a Gram matrix keep their digits and are never NaN."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.traces import (
    Shape,
    make_trace,
)

from normscope.chain.trace import Attention, LayerTrace
from normscope.decompose import decompose
from normscope.testing.oracle import oracle

from .truth import (
    FLOAT32,
    FLOAT64,
    all_scopes,
    assert_same_numbers,
)


def cancelling(dtype: torch.dtype, surplus: float) -> LayerTrace:
    """Heads alike but for their size and sign, the last larger by `surplus`: parts are that small next to each head's."""
    trace = make_trace("gated_pre_norm", Shape(heads=3, dtype=dtype))
    steps = list(trace.steps)
    index, step = next((index, step) for index, step in enumerate(steps) if isinstance(step, Attention))
    weights, values, output = (tensor[:1] for tensor in (step.weights, step.values, step.output))
    steps[index] = replace(
        step,
        weights=weights.repeat(3, 1, 1),
        values=values.repeat(3, 1, 1),
        output=torch.cat([output, 0.7 * output, -1.7 * (1 + surplus) * output]),
    )
    return replace(trace, steps=tuple(steps))


@pytest.mark.parametrize(("dtype", "tolerance"), [(FLOAT32, 1e-5), (FLOAT64, 1e-7)])
def test_heads_that_cancel_leave_nothing_and_never_nan(dtype: torch.dtype, tolerance: float) -> None:
    """Nothing but the rounding of what cancels; a Gram matrix has the root of float64's, and in float32 it had 3e-4."""
    trace = cancelling(dtype, surplus=0.0)
    result = decompose(trace, all_scopes(trace), heads=True)
    small = tolerance * result.heads["Attn"].nan_to_num().max()
    assert small > tolerance
    off_diagonal = ~torch.eye(trace.length, dtype=torch.bool)
    for scope in oracle(trace):
        assert not result.maps[scope].isnan().any()
        assert result.maps[scope][off_diagonal].max() <= small, scope


@pytest.mark.parametrize(("dtype", "tolerance"), [(FLOAT32, 1e-3), (FLOAT64, 1e-8)])
def test_what_heads_leave_when_they_nearly_cancel_keeps_its_digits(dtype: torch.dtype, tolerance: float) -> None:
    """A Gram matrix in float32 would have lost them all: the square of what is left is 1e-6 of what cancels."""
    trace = cancelling(dtype, surplus=1e-3)
    maps, truth = decompose(trace, ["Attn", "AttnRes"]).maps, oracle(trace)
    for scope, found in maps.items():
        assert_same_numbers(found, truth[scope].map, tolerance)
