"""The oracle against what can be worked out without it: by hand, by closed forms, and by the model itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import special
from support.traces import TOPOLOGIES, Block, Shape, cross_post_norm, gated_pre_norm, make_trace, post_norm, run_network
from torch import Tensor
from torch.nn import functional

from normscope.chain.activations import Activation
from normscope.chain.trace import (
    Attention,
    Expert,
    FeedForward,
    Fork,
    LayerNorm,
    LayerTrace,
    Normalise,
    OwnFeedForward,
    Plain,
    Residual,
    RmsNorm,
    SelfAttention,
    Step,
)
from normscope.decompose import decompose
from normscope.scopes import scopes_of
from normscope.testing.oracle import oracle, oracle_weights, path_integrals

NAN = math.nan
EVERY_TOPOLOGY = pytest.mark.parametrize("topology", list(TOPOLOGIES))
WIDE = Shape(dtype=torch.float64)


def doubles(*numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


# ---- integrals along the path ------------------------------------------------------------------------------------------

POINTS = doubles(-100.0, -31.7, -6.0, -1.0, -0.3, -1e-3, 1e-3, 0.5, 1.0, 2.5, 12.0, 100.0)


def gelu_mean(z: np.ndarray) -> np.ndarray:
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return (((z**2 - 1) * special.ndtr(z) + z * density) / 2 + 1 / 4) / z


def silu_mean(z: np.ndarray) -> np.ndarray:
    return (z * np.logaddexp(0, z) + special.spence(1 + np.exp(z)) + math.pi**2 / 12) / z


@pytest.mark.parametrize(
    ("function", "mean", "mean_gradient"),
    [
        (functional.gelu, gelu_mean, special.ndtr),
        (functional.silu, silu_mean, special.expit),
        (functional.relu, lambda z: z * (z > 0) / 2, lambda z: z > 0),
        (lambda z: z**3, lambda z: z**3 / 4, lambda z: z**2),
        (torch.cos, lambda z: np.sin(z) / z, lambda z: (np.cos(z) - 1) / z),
        (functional.relu6, lambda z: np.where(z < 6, z * (z > 0) / 2, 6 - 18 / z), lambda z: np.clip(z, 0, 6) / z),
    ],
    ids=["gelu", "silu", "relu", "cube", "cosine", "relu6"],
)
def test_path_integrals_are_their_closed_forms(
    function: Callable[[Tensor], Tensor],
    mean: Callable[[np.ndarray], np.ndarray],
    mean_gradient: Callable[[np.ndarray], np.ndarray],
) -> None:
    value, gradient, ramped_gradient = path_integrals(function, POINTS)
    z = POINTS.numpy()
    np.testing.assert_allclose(value, mean(z), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(gradient, mean_gradient(z), rtol=1e-11, atol=1e-11)
    # By parts: the integral of t g'(t z) is (g(z) - mean) / z.
    np.testing.assert_allclose(ramped_gradient, (function(POINTS).numpy() - mean(z)) / z, rtol=1e-9, atol=1e-9)


def test_path_integrals_at_zero_are_the_value_and_the_derivative() -> None:
    value, gradient, ramped_gradient = path_integrals(torch.sigmoid, torch.zeros(1))
    assert value.item() == pytest.approx(0.5, rel=1e-14)
    assert gradient.item() == pytest.approx(0.25, rel=1e-14)
    assert ramped_gradient.item() == pytest.approx(0.125, rel=1e-14)


# ---- by hand -----------------------------------------------------------------------------------------------------------


def toy_steps() -> tuple[Step, ...]:
    """One head that passes values on as they are, and a norm that is all gamma and beta."""
    attention = SelfAttention(
        weights=doubles([[0.5, 0.5], [0.25, 0.75]]),
        values=doubles([[3.0, 4.0], [0.0, 2.0]]),
        output=torch.eye(2, dtype=torch.float64)[None],
        bias=doubles(0.0, 1.0),
    )
    return (Fork(), attention, Residual())


def toy_trace(*more: Step) -> LayerTrace:
    steps = (*toy_steps(), *more)
    hidden = doubles([1.0, 0.0], [0.0, 1.0])
    return LayerTrace(hidden, torch.arange(2), steps, (None,) * len(steps), length=2)


def test_attention_and_residual_by_hand() -> None:
    results = oracle(toy_trace())
    assert list(results) == ["Attn", "AttnRes"]
    assert results["Attn"].parts.tolist() == [[[1.5, 2.0], [0.0, 1.0]], [[0.75, 1.0], [0.0, 1.5]]]
    assert results["Attn"].bias.tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert results["Attn"].map.tolist() == [[2.5, 1.0], [1.25, 1.5]]
    assert results["AttnRes"].parts.tolist() == [[[2.5, 2.0], [0.0, 1.0]], [[0.75, 1.0], [0.0, 2.5]]]
    assert results["AttnRes"].state.tolist() == [[2.5, 4.0], [0.75, 4.5]]
    assert results["AttnRes"].mixing_ratio.tolist() == [1 / (1 + math.sqrt(10.25)), 1.25 / (1.25 + 2.5)]


def test_a_layer_norm_centres_every_part_by_its_own_mean_and_divides_all_by_the_same_deviation() -> None:
    norm = LayerNorm(weight=doubles(2.0, 3.0), bias=doubles(5.0, 7.0), epsilon=0.0)
    result = oracle(toy_trace(Normalise(norm, torch.full((2, 2), NAN))))["AttnResLn"]
    # The first state, (2.5, 4), has mean 3.25 and deviation 0.75.
    torch.testing.assert_close(result.parts[0], doubles([0.25 * 2, -0.25 * 3], [-0.5 * 2, 0.5 * 3]) / 0.75)
    torch.testing.assert_close(result.bias[0], doubles(5 - 0.5 * 2 / 0.75, 7 + 0.5 * 3 / 0.75))
    torch.testing.assert_close(result.state[0], doubles(5 - 2, 7 + 3))


def test_a_root_mean_square_norm_centres_nothing() -> None:
    result = oracle(toy_trace(Normalise(RmsNorm(doubles(2.0, 3.0), 0.0), torch.full((2, 2), NAN))))["AttnResLn"]
    deviation = math.sqrt((2.5**2 + 4.0**2) / 2)
    torch.testing.assert_close(result.parts[0], doubles([2.5 * 2, 2 * 3], [0, 3]) / deviation)
    torch.testing.assert_close(result.bias[0], doubles(0, 3) / deviation)


def test_the_norm_of_the_sum_of_others_makes_the_mixing_ratio_not_the_sum_of_their_norms() -> None:
    attention = SelfAttention(
        weights=torch.ones(1, 1, 3, dtype=torch.float64),
        values=doubles([[5.0], [2.0], [-2.0]]),
        output=torch.ones(1, 1, 1, dtype=torch.float64),
        bias=None,
    )
    trace = LayerTrace(doubles([0.0]), torch.tensor([0]), (attention,), (None,), length=3)
    result = oracle(trace)["Attn"]
    assert result.map.tolist() == [[5.0, 2.0, 2.0]]
    assert result.mixing_ratio.tolist() == [0.0]


# ---- by the model itself -----------------------------------------------------------------------------------------------


@EVERY_TOPOLOGY
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("value_bias", ["token", "bias"])
def test_parts_and_bias_add_up_to_the_models_state_at_every_scope(topology: str, causal: bool, value_bias: str) -> None:
    trace = make_trace(topology, replace(WIDE, causal=causal, sink=True))
    results = oracle(trace, value_bias=value_bias)
    states = [state for state in trace.states if state is not None]
    assert list(results) == scopes_of(trace.components, weights=False)
    for result, state in zip(results.values(), states, strict=True):
        torch.testing.assert_close(result.state, state, rtol=1e-11, atol=1e-11)


def unknowing(trace: LayerTrace) -> LayerTrace:
    """The trace without what a capture saw inside the block but the attention, and without slopes in closed form."""
    steps = tuple(_unknowing(step) for step in trace.steps)
    return replace(trace, steps=steps, states=(None,) * len(steps))


def _unknowing(step: Step) -> Step:
    match step:
        case Normalise():
            return replace(step, state_before=torch.full_like(step.state_before, NAN))
        case FeedForward():
            return replace(step, experts=tuple(_unknowing_expert(expert) for expert in step.experts))
        case _:
            return step


def _unknowing_expert(expert: Expert) -> Expert:
    function = expert.network.activation.function
    activation = Activation("unknown", function, slope=lambda z: z * NAN, at_zero=NAN)
    return replace(
        expert,
        network=replace(expert.network, activation=activation),
        pre_activations=tuple(z * NAN for z in expert.pre_activations),
    )


@EVERY_TOPOLOGY
def test_it_uses_nothing_that_a_capture_saw_but_the_input_and_the_attention(topology: str) -> None:
    trace = make_trace(topology)
    for known, unknown in zip(oracle(trace).values(), oracle(unknowing(trace)).values(), strict=True):
        assert torch.equal(known.parts, unknown.parts)
        assert torch.equal(known.bias, unknown.bias)


@pytest.mark.parametrize("topology", [post_norm, gated_pre_norm])
def test_feed_forward_parts_are_integrated_gradients_of_the_whole_network(topology: Callable[[Block], None]) -> None:
    """Along the path, the network's own directional derivative in the direction of each part, without any formula."""
    trace = make_trace(topology, WIDE)
    scopes = list(oracle(trace))
    after = next(scope for scope in scopes if scope.endswith("Ff"))
    before, result = oracle(trace)[scopes[scopes.index(after) - 1]], oracle(trace)[after]
    (expert,) = next(step for step in trace.steps if isinstance(step, FeedForward)).experts
    network = expert.network

    def neurons(*pre_activations: Tensor) -> Tensor:
        g = network.activation.function(pre_activations[0])
        return (g if isinstance(network, Plain) else g * pre_activations[1]) @ out.weight.T

    firsts = (network.first,) if isinstance(network, Plain) else (network.gate, network.up)
    out = network.second if isinstance(network, Plain) else network.down
    directions = tuple(before.parts[:, 2] @ linear.weight.T for linear in firsts)
    expected = torch.zeros_like(result.bias)
    for node, weight in zip(*np.polynomial.legendre.leggauss(60), strict=True):
        points = tuple(z * (node + 1) / 2 for z in expert.pre_activations)
        expected += weight / 2 * torch.func.jvp(neurons, points, directions)[1]
    torch.testing.assert_close(result.parts[:, 2], expected, rtol=1e-10, atol=1e-10)


def test_a_mixture_adds_up_experts_by_their_router_weights() -> None:
    trace = make_trace("mixture", WIDE)
    before, after = oracle(trace)["AttnResLn"], oracle(trace)["AttnResLnFf"]
    (step,) = (step for step in trace.steps if isinstance(step, FeedForward))
    expected = torch.zeros_like(after.state)
    for expert in step.experts:
        for row, weight in zip(expert.rows.tolist(), expert.weights, strict=True):
            expected[row] += weight * run_network(expert.network, before.state[row])[0]
    torch.testing.assert_close(after.state, expected, rtol=1e-11, atol=1e-11)


def test_a_parallel_feed_forward_adds_to_the_own_token_and_to_the_bias_alone() -> None:
    trace = make_trace("parallel", WIDE)
    before, after = oracle(trace)["Attn"], oracle(trace)["AttnFf"]
    difference = after.parts - before.parts
    off_diagonal = ~torch.eye(trace.length, dtype=torch.bool)
    assert difference[off_diagonal].abs().max() == 0
    assert (difference[~off_diagonal].norm(dim=-1) > 0.1).all()
    step = next(step for step in trace.steps if isinstance(step, OwnFeedForward))
    out, _ = run_network(step.experts[0].network, step.hidden)
    torch.testing.assert_close(difference[~off_diagonal] + after.bias - before.bias, out)


def test_moving_the_value_bias_changes_parts_but_no_state() -> None:
    trace = make_trace("post_norm", replace(WIDE, sink=True))
    moved = oracle(trace, value_bias="bias")
    for scope, result in oracle(trace).items():
        torch.testing.assert_close(result.state, moved[scope].state, rtol=1e-11, atol=1e-11)
        assert (result.map - moved[scope].map).abs().max() > 0.01


def test_a_value_bias_cannot_be_moved_where_the_capture_did_not_go_below_attention() -> None:
    trace = make_trace("post_norm")
    steps = tuple(replace(step, source=None) if isinstance(step, Attention) else step for step in trace.steps)
    for analyse in (oracle, partial(decompose, scopes=["Attn"])):
        with pytest.raises(ValueError, match="captured below attention"):
            analyse(replace(trace, steps=steps), value_bias="bias")


# ---- keys and queries --------------------------------------------------------------------------------------------------


def exists(matrix: Tensor) -> list[str]:
    return ["".join("x" if here else "." for here in row) for row in (~matrix.isnan()).tolist()]


def test_keys_that_do_not_exist_at_a_scope_are_nan() -> None:
    trace = make_trace(cross_post_norm, Shape(tokens=3, source=2, causal=True))
    own, source, both = ["x....", "xx...", "xxx.."], ["...xx"] * 3, ["x..xx", "xx.xx", "xxxxx"]
    found = {scope: exists(result.map) for scope, result in oracle(trace).items()}
    weights = {scope: exists(matrix) for scope, matrix in oracle_weights(trace).items()}
    assert weights == {"AttnW": own, "CrossW": source}
    assert found == {
        "Attn": own,
        "AttnRes": own,
        "AttnResLn": own,
        "AttnResLnCross": source,
        "AttnResLnCrossRes": both,
        "AttnResLnCrossResLn": both,
        "AttnResLnCrossResLnFf": both,
        "AttnResLnCrossResLnFfRes": both,
        "AttnResLnCrossResLnFfResLn": both,
    }


def test_weights_are_means_over_heads() -> None:
    trace = make_trace(cross_post_norm)
    attention, cross = (step for step in trace.steps if isinstance(step, Attention))
    maps = oracle_weights(trace)
    torch.testing.assert_close(maps["AttnW"][:, : trace.length], attention.weights.double().mean(0))
    torch.testing.assert_close(maps["CrossW"][:, trace.length :], cross.weights.double().mean(0))


def test_encoder_tokens_count_as_others_in_the_mixing_ratio() -> None:
    results = oracle(make_trace(cross_post_norm))
    torch.testing.assert_close(results["AttnResLnCross"].mixing_ratio, torch.ones(7, dtype=torch.float64))
    result = results["AttnResLnCrossRes"]
    query = 2
    others = sum(result.parts[query, key] for key in range(12) if key != query)
    own = result.parts[query, query].norm()
    assert result.mixing_ratio[query].item() == pytest.approx((others.norm() / (others.norm() + own)).item())


@EVERY_TOPOLOGY
def test_selected_queries_have_the_same_rows_as_in_the_whole(topology: str) -> None:
    trace = make_trace(topology, Shape(causal=True))
    rows = torch.tensor([5, 0, 3])
    for whole, some in zip(oracle(trace).values(), oracle(trace.select(rows)).values(), strict=True):
        torch.testing.assert_close(some.map, whole.map[rows], equal_nan=True, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(some.mixing_ratio, whole.mixing_ratio[rows], rtol=1e-12, atol=1e-12)
