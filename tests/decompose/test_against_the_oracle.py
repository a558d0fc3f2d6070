"""The engine against the oracle: every topology, shape and activation, all heads and each alone."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch
from support.traces import (
    SIGMOID,
    Block,
    Shape,
    gated_pre_norm,
    make_trace,
    post_norm,
    run_network,
)

from normscope.chain.activations import GELU, QUICK_GELU, RELU, SILU, TANH_GELU, Activation
from normscope.chain.trace import Attention, FeedForward, LayerTrace, Normalise
from normscope.decompose import LayerRequest, decompose, decomposed
from normscope.testing.oracle import oracle, oracle_weights

from .truth import (
    BOTH_DIRECTIONS,
    EVERY_TOPOLOGY,
    FLOAT32,
    FLOAT64,
    LONG_AND_NARROW,
    SHAPES,
    all_scopes,
    assert_complete,
    assert_correct,
    assert_mixing_correct,
    assert_same_numbers,
    solved,
)


@EVERY_TOPOLOGY
@BOTH_DIRECTIONS
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=["float32", "float64"])
def test_maps_and_mixing_ratios_are_those_of_the_oracle_at_every_scope(
    topology: str, causal: bool, dtype: torch.dtype
) -> None:
    trace, truth = solved(topology, Shape(causal=causal, dtype=dtype))
    assert_correct(decompose(trace, all_scopes(trace)), trace, truth)


@EVERY_TOPOLOGY
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_any_shape_agrees_with_the_oracle(topology: str, shape: Shape) -> None:
    trace, truth = solved(
        topology, replace(shape, causal=topology in ("gated_pre_norm", "cross_post_norm", "parallel"))
    )
    assert_correct(decompose(trace, all_scopes(trace), value_bias=shape.value_bias), trace, truth)


@EVERY_TOPOLOGY
@pytest.mark.parametrize(
    "shape", [Shape(causal=True, value_bias="bias"), LONG_AND_NARROW], ids=["causal", "long and narrow"]
)
def test_mixing_ratios_alone_are_those_of_the_oracle_and_come_without_maps(topology: str, shape: Shape) -> None:
    trace, truth = solved(topology, shape)
    result = decomposed(trace, LayerRequest(ratios=tuple(all_scopes(trace)), value_bias=shape.value_bias))
    assert_mixing_correct(result, trace, truth)
    assert_complete(result, trace)
    assert not result.maps


@pytest.mark.parametrize("activation", [GELU, TANH_GELU, QUICK_GELU, SILU, RELU, SIGMOID], ids=lambda it: it.name)
@pytest.mark.parametrize("kind", ["plain", "gated", "gated with biases"])
def test_any_activation_agrees_with_the_oracle(activation: Activation, kind: str) -> None:
    def topology(block: Block) -> None:
        if kind == "plain":
            post_norm(block, activation)
        else:
            gated_pre_norm(block, activation, bias="bias" in kind)

    trace = make_trace(topology, seed=3)
    assert_correct(decompose(trace, all_scopes(trace)), trace, oracle(trace))


@pytest.mark.parametrize("kind", [Attention, Normalise, FeedForward])
def test_weights_without_biases_agree_with_the_oracle(kind: type) -> None:
    trace = make_trace("post_norm", seed=4)
    steps = tuple(_without_bias(step) if isinstance(step, kind) else step for step in trace.steps)
    trace = _rerun(replace(trace, steps=steps))
    assert_correct(decompose(trace, all_scopes(trace)), trace, oracle(trace))


def _without_bias(step: Any) -> Any:
    """The same with every bias taken away, at any depth."""
    if isinstance(step, tuple):
        return tuple(_without_bias(each) for each in step)
    if not is_dataclass(step):
        return step
    changes = {each.name: _without_bias(getattr(step, each.name)) for each in fields(step)}
    return replace(step, **changes | ({"bias": None} if "bias" in changes else {}))  # type: ignore[type-var]


def _rerun(trace: LayerTrace) -> LayerTrace:
    """A post-norm trace with states that fit its weights again, from the oracle's sums."""
    results = iter(oracle(trace).values())
    states = [next(results).state.float() if step.name else None for step in trace.steps]
    steps, before = list(trace.steps), trace.hidden
    for index, step in enumerate(steps):
        if isinstance(step, Normalise):
            steps[index] = replace(step, state_before=before)
        if isinstance(step, FeedForward):
            (expert,) = step.experts
            _, pre_activations = run_network(expert.network, before)
            steps[index] = replace(step, experts=(replace(expert, pre_activations=pre_activations),))
        before = before if states[index] is None else states[index]
    return replace(trace, steps=tuple(steps), states=tuple(states))


@EVERY_TOPOLOGY
@BOTH_DIRECTIONS
def test_each_head_has_the_maps_that_it_would_have_alone(topology: str, causal: bool) -> None:
    trace = make_trace(topology, Shape(causal=causal, value_bias="bias"))
    heads = decompose(trace, all_scopes(trace), heads=True, value_bias="bias").heads
    attentions = [step for step in trace.steps if isinstance(step, Attention)]
    assert set(heads) == {name for step in attentions for name in (step.name, f"{step.name}W")}
    for step in attentions:
        for head in range(3):
            alone = replace(trace, steps=(_only_head(step, head),), states=(None,))
            assert_same_numbers(heads[step.name][head], oracle(alone, value_bias="bias")[step.name].map, 1e-5)
            assert_same_numbers(heads[f"{step.name}W"][head], oracle_weights(alone)[f"{step.name}W"], 0.0)


def _only_head(step: Attention, head: int) -> Attention:
    assert step.source is not None and step.source.bias is not None
    of_head = {name: getattr(step.source, name)[head : head + 1] for name in ("projection", "bias")}
    source = replace(step.source, **of_head)
    names = ("weights", "values", "output")
    return replace(step, source=source, **{name: getattr(step, name)[head : head + 1] for name in names})
