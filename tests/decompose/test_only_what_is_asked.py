"""One scope or some queries have the numbers that they have in a full run, and cost no more than themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from support.traces import (
    Shape,
    cross_post_norm,
    make_trace,
)

from normscope.chain.trace import Residual
from normscope.decompose import LayerResult, decompose, mixing_ratios
from normscope.scopes import scopes_of
from normscope.testing.oracle import OracleResult

from .truth import (
    BOTH_DIRECTIONS,
    EVERY_TOPOLOGY,
    all_scopes,
    assert_correct,
    assert_mixing_correct,
    solved,
)


@EVERY_TOPOLOGY
def test_one_scope_alone_has_the_same_numbers_as_in_a_full_run(topology: str) -> None:
    trace = make_trace(topology, Shape(causal=True))
    everything = decompose(trace, all_scopes(trace))
    for scope in all_scopes(trace):
        alone = decompose(trace, [scope])
        assert list(alone.maps) == [scope]
        assert torch.equal(alone.maps[scope].nan_to_num(-1), everything.maps[scope].nan_to_num(-1))
        if scope != "CrossW":
            assert list(alone.mixing) == [scope]
            assert torch.equal(alone.mixing[scope], everything.mixing[scope])


@EVERY_TOPOLOGY
@pytest.mark.parametrize("analyse", [decompose, mixing_ratios])
def test_nothing_after_the_last_scope_asked_for_is_computed(topology: str, analyse: Callable[..., LayerResult]) -> None:
    trace = make_trace(topology)
    for index, step in enumerate(trace.steps):
        if step.name:
            scopes = scopes_of((step.name for step in trace.steps[: index + 1] if step.name), weights=False)
            steps = (*trace.steps[: index + 1], *[Residual()] * (len(trace.steps) - index - 1))  # with nothing to add
            result = analyse(replace(trace, steps=steps), scopes[-1:])
            assert list(result.errors) == scopes


def test_attention_weights_alone_are_proved_against_the_model_too() -> None:
    trace = make_trace("post_norm")
    assert list(decompose(trace, ["AttnW"]).errors) == ["Attn"]


@EVERY_TOPOLOGY
@pytest.mark.parametrize("rows", [[4], [5, 0, 3], [6, 5, 4, 3, 2, 1, 0]], ids=str)
@BOTH_DIRECTIONS
def test_selected_queries_have_the_rows_of_the_whole(topology: str, rows: list[int], causal: bool) -> None:
    trace, truth = solved(topology, Shape(causal=causal))
    some, chosen = trace.select(torch.tensor(rows)), torch.tensor(rows)
    whole = {
        scope: OracleResult(each.parts[chosen], each.bias[chosen], each.present[chosen], each.queries[chosen])
        for scope, each in truth.items()
    }
    assert_correct(decompose(some, all_scopes(some)), some, whole)
    assert_mixing_correct(mixing_ratios(some, all_scopes(some)), some, whole)


@EVERY_TOPOLOGY
def test_queries_may_be_selected_by_a_slice(topology: str) -> None:
    trace = make_trace(topology, Shape(causal=True))
    by_slice, by_number = (trace.select(rows) for rows in (slice(2, 6), torch.arange(2, 6)))
    found, expected = (decompose(each, all_scopes(trace)) for each in (by_slice, by_number))
    for scope, matrix in expected.maps.items():
        assert torch.equal(found.maps[scope].nan_to_num(-1), matrix.nan_to_num(-1))


def test_keys_that_do_not_exist_at_a_scope_are_nan() -> None:
    trace = make_trace(cross_post_norm, Shape(tokens=3, source=2, causal=True))
    maps = decompose(trace, all_scopes(trace)).maps
    own, source, both = ["x....", "xx...", "xxx.."], ["...xx"] * 3, ["x..xx", "xx.xx", "xxxxx"]
    for scope, matrix in maps.items():
        found = ["".join("x" if here else "." for here in row) for row in (~matrix.isnan()).tolist()]
        before_cross = "Cross" not in scope
        assert found == (own if before_cross else source if scope in ("CrossW", "AttnResLnCross") else both), scope
