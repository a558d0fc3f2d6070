"""Experts that serve some queries, all of them or none."""

from __future__ import annotations

import pytest
import torch
from support.traces import (
    Block,
    Shape,
    make_trace,
    mixture,
    run_network,
)

from normscope.chain.activations import GELU
from normscope.chain.trace import Expert, FeedForward, LayerTrace, SequentialFeedForward
from normscope.decompose import decompose
from normscope.testing.oracle import oracle

from .truth import (
    all_scopes,
    assert_correct,
    assert_same_numbers,
)


def test_experts_without_queries_do_no_harm() -> None:
    trace = make_trace(mixture, Shape(tokens=2))
    (step,) = (step for step in trace.steps if isinstance(step, FeedForward))
    assert 0 in [len(expert.rows) for expert in step.experts]
    assert_correct(decompose(trace, all_scopes(trace)), trace, oracle(trace))


def one_expert(rows: list[int]) -> LayerTrace:
    """A single expert for these queries, in this order; the others have no feed-forward at all."""

    def topology(block: Block) -> None:
        block.fork()
        block.attend(block.rms_norm())
        block.residual()
        block.fork()
        block.normalise(block.rms_norm())
        network, chosen, weights = block.plain(GELU), torch.tensor(rows), block.uniform(len(rows))
        out, pre_activations = run_network(network, block.state[chosen])
        state = torch.zeros_like(block.state).index_add(0, chosen, weights[:, None] * out)
        block.done(SequentialFeedForward((Expert(network, chosen, weights, pre_activations),)), state)
        block.residual()

    return make_trace(topology)


@pytest.mark.parametrize("rows", [[6, 2, 4, 0, 1, 3, 5], [4, 1], [3]], ids=str)
def test_a_single_expert_may_serve_its_queries_in_any_order_and_not_all_of_them(rows: list[int]) -> None:
    trace = one_expert(rows)
    maps, truth = decompose(trace, all_scopes(trace)).maps, oracle(trace)
    for scope, expected in truth.items():
        assert_same_numbers(maps[scope], expected.map, 1e-5)


def test_queries_that_no_expert_serves_have_a_feed_forward_of_nothing() -> None:
    trace = one_expert([3]).select(torch.tensor([1, 5]))
    result = decompose(trace, all_scopes(trace))
    assert result.maps["AttnResLnFf"].max() == 0
    assert_same_numbers(result.maps["AttnResLnFfRes"], oracle(trace)["AttnRes"].map, 1e-5)
