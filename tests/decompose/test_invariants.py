"""What holds for any block at all, by examples that hypothesis makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.traces import (
    TOPOLOGIES,
    Shape,
    make_trace,
)
from torch import Tensor

from normscope.chain.trace import Attention, CrossAttention, LayerTrace, Normalise
from normscope.decompose import LayerRequest, decompose, decomposed
from normscope.testing.oracle import oracle

from .truth import (
    FLOAT32,
    FLOAT64,
    all_scopes,
)

SMALL_SHAPES = st.builds(
    Shape,
    tokens=st.integers(1, 6),
    heads=st.integers(1, 4),
    d_head=st.integers(1, 4),
    d=st.integers(3, 9),
    neurons=st.integers(1, 9),
    source=st.integers(1, 4),
    causal=st.booleans(),
    sink=st.booleans(),
    value_bias=st.sampled_from(["token", "bias"]),
    dtype=st.just(FLOAT64),
)
SEEDS = st.integers(0, 2**31)
ANY_TOPOLOGY = st.sampled_from(list(TOPOLOGIES))
# Examples are small as they come: shrinking them takes minutes and tells no more.
FEW = settings(max_examples=25, deadline=None, derandomize=True, database=None, phases=[Phase.generate])


@FEW
@given(ANY_TOPOLOGY, SMALL_SHAPES, SEEDS)
def test_any_block_at_all_agrees_with_the_oracle(topology: str, shape: Shape, seed: int) -> None:
    trace = make_trace(topology, shape, seed)
    result = decompose(trace, all_scopes(trace), value_bias=shape.value_bias)
    truth = oracle(trace, value_bias=shape.value_bias)
    for scope, expected in truth.items():
        # Relative to the largest of a row: here an entry can be small because heads happen to cancel.
        error = (result.maps[scope] - expected.map).abs().nan_to_num() / expected.map.nan_to_num().amax(1, keepdim=True)
        assert error.max() <= 1e-8
        assert torch.equal(result.maps[scope].isnan(), expected.map.isnan())


@FEW
@given(ANY_TOPOLOGY, SMALL_SHAPES, SEEDS)
def test_parts_and_bias_always_add_up_to_the_models_state(topology: str, shape: Shape, seed: int) -> None:
    trace = make_trace(topology, shape, seed)
    states = [state for state in trace.states if state is not None]
    for result, state in zip(oracle(trace, value_bias=shape.value_bias).values(), states, strict=True):
        assert (result.state - state).abs().max() <= 1e-9 * state.abs().max()
    scopes = tuple(all_scopes(trace))
    for request in (LayerRequest(maps=scopes), LayerRequest(ratios=scopes)):
        for errors in decomposed(trace, replace(request, value_bias=shape.value_bias)).errors.values():
            assert errors.max() <= 1e-9


@FEW
@given(ANY_TOPOLOGY, SMALL_SHAPES, SEEDS)
def test_norms_are_never_negative_and_mixing_ratios_lie_between_0_and_1(topology: str, shape: Shape, seed: int) -> None:
    trace = make_trace(topology, replace(shape, dtype=FLOAT32), seed)
    result = decompose(trace, all_scopes(trace), value_bias=shape.value_bias)
    for matrix in result.maps.values():
        assert matrix.nan_to_num().min() >= 0
    for scope, ratios in result.mixing.items():
        assert ratios.min() >= 0, scope
        assert ratios.max() <= 1, scope
    for scope, ratios in result.source_mixing.items():
        assert (ratios <= result.mixing[scope]).all(), scope


@FEW
@given(SMALL_SHAPES, SEEDS, st.floats(0.01, 100.0))
def test_a_larger_branch_and_input_scale_maps_up_to_the_norm_and_nothing_after_it(
    shape: Shape, seed: int, factor: float
) -> None:
    trace = make_trace("post_norm", replace(shape, tokens=max(2, shape.tokens)), seed)
    steps = list(trace.steps)
    attention, norm = steps[1], steps[3]
    assert isinstance(attention, Attention)
    assert isinstance(norm, Normalise)
    assert attention.bias is not None
    exact_norm = replace(norm.norm, epsilon=0.0)
    steps[3] = replace(norm, norm=exact_norm)
    plain = replace(trace, steps=tuple(steps))
    steps[1] = replace(attention, output=attention.output * factor, bias=attention.bias * factor)
    steps[3] = replace(norm, norm=exact_norm, state_before=norm.state_before * factor)
    scaled = replace(trace, hidden=trace.hidden * factor, steps=tuple(steps))
    before, after = (decompose(each, all_scopes(trace)).maps for each in (plain, scaled))
    for scope in all_scopes(trace):
        gain = factor if scope in ("Attn", "AttnRes") else 1.0
        torch.testing.assert_close(after[scope], before[scope] * gain, equal_nan=True, rtol=1e-7, atol=1e-9)


@FEW
@given(ANY_TOPOLOGY, SMALL_SHAPES, SEEDS, st.randoms(use_true_random=False))
def test_reordering_the_tokens_reorders_the_map(topology: str, shape: Shape, seed: int, random: Any) -> None:
    trace = make_trace(topology, replace(shape, causal=False), seed)
    order = list(range(trace.length))
    random.shuffle(order)
    new = torch.tensor(order)
    reordered = _with_keys_in_order(trace.select(new), new)
    before, after = (decompose(each, all_scopes(trace), value_bias=shape.value_bias) for each in (trace, reordered))
    keys = torch.tensor([*order, *range(trace.length, trace.length + trace.source_length)])
    for scope, matrix in before.maps.items():
        torch.testing.assert_close(after.maps[scope], matrix[new][:, keys], equal_nan=True, rtol=1e-7, atol=1e-9)
    for scope, ratios in before.mixing.items():
        torch.testing.assert_close(after.mixing[scope], ratios[new], rtol=1e-7, atol=1e-9)


def _with_keys_in_order(trace: LayerTrace, order: Tensor) -> LayerTrace:
    """The trace of the sequence in which the token that was at `order[k]` is at `k`."""
    steps = tuple(
        replace(step, weights=step.weights[:, :, order], values=step.values[:, order])
        if isinstance(step, Attention) and not isinstance(step, CrossAttention)
        else step
        for step in trace.steps
    )
    return replace(trace, queries=torch.arange(trace.length), steps=steps)
