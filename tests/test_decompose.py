"""The engine against the oracle, on random blocks of every topology.

Tolerances. In float32 the engine starts from what a model computed in float32, and the oracle from the block's input
in float64: they differ by rounding alone, some 1e-7 of an entry; 1e-5 is asked for, of every entry. In float64 they
agree to 1e-13 where heads do not cancel. Where they do, a norm from a Gram matrix is the root of a difference of large
numbers, good to the root of float64's rounding: 1e-8 of what cancels, as the tests of cancelling heads ask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from traces import (
    SIGMOID,
    TOPOLOGIES,
    Block,
    Shape,
    cross_post_norm,
    gated_pre_norm,
    make_trace,
    mixture,
    post_norm,
    run_network,
)

from normscope.activations import GELU, QUICK_GELU, RELU, SILU, TANH_GELU, Activation
from normscope.decompose import LayerResult, decompose, expand, factored, mixing_ratios
from normscope.errors import UnsupportedArchitectureError
from normscope.materialised import OracleResult, oracle, oracle_weights
from normscope.scopes import scopes_of
from normscope.trace import (
    Attention,
    CrossAttention,
    Expert,
    FeedForward,
    LayerTrace,
    Linear,
    Normalise,
    Residual,
    SequentialFeedForward,
    ValueSource,
)

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


# ---- against the oracle ------------------------------------------------------------------------------------------------


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
    result = mixing_ratios(trace, all_scopes(trace), value_bias=shape.value_bias)
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


# ---- order of the work -------------------------------------------------------------------------------------------------


@EVERY_TOPOLOGY
@BOTH_DIRECTIONS
@pytest.mark.parametrize("vectors", [1, 20])
def test_the_size_of_tiles_makes_no_difference(
    topology: str, causal: bool, vectors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expand, "TILE_VECTORS", vectors)
    monkeypatch.setattr(factored, "_GRAM_ELEMENTS", vectors)
    trace, truth = solved(topology, Shape(causal=causal))
    assert_correct(decompose(trace, all_scopes(trace)), trace, truth)


@EVERY_TOPOLOGY
@BOTH_DIRECTIONS
@pytest.mark.parametrize("folded", [False, True], ids=["expanded", "folded"])
def test_the_order_of_multiplication_makes_no_difference(
    topology: str, causal: bool, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expand.ExpandedNetwork, "_folding_is_cheaper", lambda *_: folded)
    monkeypatch.setattr(expand, "TILE_VECTORS", 20)
    trace, truth = solved(topology, Shape(causal=causal))
    assert_correct(decompose(trace, all_scopes(trace)), trace, truth)


@pytest.mark.parametrize(("shape", "order"), [(Shape(), "_write_expanded"), (LONG_AND_NARROW, "_write_folded")])
def test_many_keys_of_few_dimensions_are_folded_and_others_expanded(
    shape: Shape, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = set[str]()

    def spy(name: str) -> Callable[..., None]:
        original = getattr(expand.ExpandedNetwork, name)

        def write(*args: Any) -> None:
            used.add(name)
            original(*args)

        return write

    for name in ("_write_expanded", "_write_folded"):
        monkeypatch.setattr(expand.ExpandedNetwork, name, spy(name))
    trace = make_trace("gated_pre_norm", shape)
    decompose(trace, all_scopes(trace))
    assert used == {order}


# ---- only what is asked for --------------------------------------------------------------------------------------------


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


# ---- mixtures ----------------------------------------------------------------------------------------------------------


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


# ---- heads that cancel -------------------------------------------------------------------------------------------------


def cancelling(dtype: torch.dtype, surplus: float) -> LayerTrace:
    """Heads alike but for their size and sign, the last larger by `surplus`: parts are that small beside each head's."""
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


@pytest.mark.parametrize(("dtype", "small"), [(FLOAT32, 1e-6), (FLOAT64, 1e-7)])
def test_heads_that_cancel_leave_nothing_and_never_nan(dtype: torch.dtype, small: float) -> None:
    trace = cancelling(dtype, surplus=0.0)
    result = decompose(trace, all_scopes(trace), heads=True)
    assert (result.heads["Attn"][0] > 0.01).any()
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


# ---- what must not pass ------------------------------------------------------------------------------------------------


def test_a_state_that_does_not_fit_shows_in_the_error_of_its_query_and_scope() -> None:
    trace = make_trace("post_norm")
    wrong = [None if state is None else state.clone() for state in trace.states]
    assert wrong[-1] is not None
    wrong[-1][3] *= 1.01
    errors = decompose(replace(trace, states=tuple(wrong)), all_scopes(trace)).errors
    assert errors["AttnResLnFfResLn"][3].item() == pytest.approx(0.01 / 1.01, rel=1e-3)
    assert errors["AttnResLnFfResLn"][[0, 1, 2, 4, 5, 6]].max() < 1e-5
    assert errors["AttnResLnFfRes"].max() < 1e-5


def poisoned(step: Any) -> list[Any]:
    """The step again and again, each time with one other of its weight tensors holding one NaN."""
    weights = {Attention: ("values", "output", "bias", "weights"), Linear: ("weight", "bias")}
    names = next((names for kind, names in weights.items() if isinstance(step, kind)), None)
    found = list[Any]()
    for each in fields(step):
        value = getattr(step, each.name)
        if isinstance(value, Tensor) and value.is_floating_point() and (names is None or each.name in names):
            bad = value.clone()
            bad.view(-1)[0] = math.nan
            found.append(replace(step, **{each.name: bad}))
        elif isinstance(value, tuple) and is_dataclass(value[0]):
            found += [replace(step, **{each.name: (bad, *value[1:])}) for bad in poisoned(value[0])]
        elif is_dataclass(value) and not isinstance(
            value, Activation | ValueSource | Normalise
        ):  # the last two lie below
            found += [replace(step, **{each.name: bad}) for bad in poisoned(value)]
    return found


@EVERY_TOPOLOGY
@pytest.mark.parametrize("analyse", [decompose, mixing_ratios])
def test_a_weight_that_is_not_a_number_makes_the_error_not_a_number(
    topology: str, analyse: Callable[..., LayerResult]
) -> None:
    trace = make_trace(topology)
    scopes = all_scopes(trace)
    for index, step in enumerate(trace.steps):
        for bad in poisoned(step):
            steps = (*trace.steps[:index], bad, *trace.steps[index + 1 :])
            errors = analyse(replace(trace, steps=steps), scopes[-1:]).errors[scopes[-1]]
            assert errors.max().isnan()


@EVERY_TOPOLOGY
@pytest.mark.parametrize("analyse", [decompose, mixing_ratios])
def test_a_model_that_computes_no_number_makes_the_error_not_a_number(
    topology: str, analyse: Callable[..., LayerResult]
) -> None:
    def broken(block: Block) -> None:
        block.hidden[2, 0] = math.nan
        TOPOLOGIES[topology](block)

    trace = make_trace(broken)
    scope = all_scopes(trace)[-1]
    assert analyse(trace, [scope]).errors[scope][2].isnan()


# ---- invariants --------------------------------------------------------------------------------------------------------

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
    for analyse in (decompose, mixing_ratios):
        for errors in analyse(trace, all_scopes(trace), value_bias=shape.value_bias).errors.values():
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


# ---- chains that no map exists for ---------------------------------------------------------------------------------------


def again(block: Block) -> None:
    """Attention once more, after the feed-forward of the same block."""
    TOPOLOGIES["post_norm"](block)
    block.attend()


def branch_after_feed_forward(block: Block) -> None:
    block.attend()
    block.feed_forward(block.plain(GELU))
    block.fork()
    block.normalise(block.layer_norm())
    block.residual()


def attention_on_both_branches(block: Block) -> None:
    block.attend()
    block.fork()
    block.attend()
    block.residual()


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        (again, "after its feed-forward"),
        (branch_after_feed_forward, "after its feed-forward"),
        (attention_on_both_branches, "parts of the same keys"),
    ],
)
def test_a_chain_whose_parts_cannot_be_followed_is_refused(topology: Callable[[Block], None], why: str) -> None:
    trace = make_trace(topology)
    with pytest.raises(UnsupportedArchitectureError, match=why):
        decompose(trace, all_scopes(trace))


def test_mixing_ratios_need_no_single_keys_so_they_follow_any_chain() -> None:
    trace = make_trace(again)
    scopes = all_scopes(trace)
    assert max(errors.max() for errors in mixing_ratios(trace, scopes).errors.values()) < 1e-5


@pytest.mark.parametrize("kind", [Attention, FeedForward])
def test_the_kinds_that_steps_have_in_common_are_no_steps_themselves(kind: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        kind()


def test_sequences_of_a_batch_share_what_follows_from_the_weights_alone() -> None:
    """The fold of two matrices is one object for two traces of a block, and the maps are those of each alone."""
    first, second = (make_trace("post_norm", LONG_AND_NARROW, seed=seed) for seed in (0, 0))
    attention = next(step for step in first.steps if isinstance(step, Attention))
    network = next(step for step in first.steps if isinstance(step, FeedForward)).experts[0].network
    steps = tuple(
        replace(step, shared=attention.shared)
        if isinstance(step, Attention)
        else replace(step, experts=(replace(step.experts[0], network=network),))
        if isinstance(step, FeedForward)
        else step
        for step in second.steps
    )
    scopes = all_scopes(first)
    alone, kept = decompose(second, scopes).maps, attention.shared
    decompose(first, scopes)
    made = dict(kept._kept)
    together = decompose(replace(second, steps=steps), scopes).maps
    assert made
    assert kept._kept == made
    for scope in scopes:
        assert torch.equal(together[scope].nan_to_num(), alone[scope].nan_to_num())
