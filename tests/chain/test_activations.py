"""Slopes of activations against integrals along the path, taken of the model's own activation in float64."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from scipy import special
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import ACT2FN

from normscope.chain.activations import GELU, QUICK_GELU, RELU, SILU, TANH_GELU, Activation, by_secant, recognise
from normscope.testing.oracle import path_integrals

SIGMOID = by_secant("Sigmoid", nn.Sigmoid())

NEAR_ZERO = [1e-12, 1e-9, 1e-7, 1e-4]
AWAY = [1e-3, 0.01, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 2.9, 3.0, 4.7, 6.0, 8.2, 10.0, 12.0, 20.0, 33.3, 50.0, 88.0, 100.0]

KINKED_AT_ZERO = {"relu", "relu6", "leaky_relu", "prelu"}
XIELU_JUMP = 2e-6
"""transformers' xIELU jumps and bends by less than this around zero, where it guards its `expm1`. A secant sees the jump
and a gradient does not, so slopes differ by this over `z`: as little in the output as in the function itself."""

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
EVERY_ACTIVATION = pytest.mark.parametrize("name", list(ACT2FN))


def both_signs(sizes: list[float], dtype: torch.dtype) -> Tensor:
    positive = torch.tensor(sizes, dtype=dtype)
    return torch.cat([-positive.flip(0), positive])


def exact(name: str) -> nn.Module:
    """The model's own activation, in float64, frozen."""
    return copy.deepcopy(ACT2FN[name]).double().requires_grad_(False)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float | Tensor, where: Tensor) -> None:
    excess = (actual.double() - expected).abs() / (1 + expected.abs()) - tolerance
    worst = excess.argmax()
    assert excess[worst] <= 0, f"at {where[worst]}: {actual[worst]} for {expected[worst]}"


# ---- plain feed-forward ------------------------------------------------------------------------------------------------


@EVERY_ACTIVATION
@DTYPES
def test_the_slope_is_the_integrated_gradient_of_the_models_own_activation(name: str, dtype: torch.dtype) -> None:
    activation = recognise(ACT2FN[name])
    # Within 1e-7 of zero the secant is taken at 1e-7, which is off by half the curvature there.
    for sizes, tolerance in ((NEAR_ZERO, 1.5e-7), (AWAY, 1e-7 if dtype == torch.float32 else 1e-9)):
        z = both_signs(sizes, dtype)
        slope = activation.slope(z)
        _, gradient, _ = path_integrals(exact(name), z)
        assert slope.dtype == dtype
        assert not slope.requires_grad
        allowed = tolerance + (XIELU_JUMP / z.double().abs() if name == "xielu" else torch.zeros_like(z))
        assert_close(slope, gradient, allowed, z)


@pytest.mark.parametrize("name", [name for name in ACT2FN if name != "xielu"])  # which jumps there
@DTYPES
def test_the_slope_at_zero_is_the_derivative_or_lies_between_those_of_both_sides(name: str, dtype: torch.dtype) -> None:
    slope = recognise(ACT2FN[name]).slope(torch.zeros(1, dtype=dtype)).double()
    _, (left, at_zero, right), _ = path_integrals(exact(name), torch.tensor([-1e-9, 0.0, 1e-9], dtype=torch.float64))
    if name in KINKED_AT_ZERO:
        assert left <= slope <= right
        assert left < right
    else:
        assert_close(slope, at_zero[None], 1e-7, torch.zeros(1))


@EVERY_ACTIVATION
@DTYPES
def test_slope_times_z_and_the_value_at_zero_give_back_the_activation(name: str, dtype: torch.dtype) -> None:
    activation = recognise(ACT2FN[name])
    z = both_signs(NEAR_ZERO + AWAY, dtype)
    rebuilt = activation.slope(z).double() * z.double() + activation.at_zero
    with torch.no_grad():
        expected = exact(name)(z.double())
    tolerance = XIELU_JUMP if name == "xielu" else 1e-7 if dtype == torch.float32 else 1e-9
    assert_close(rebuilt, expected, tolerance, z)


@pytest.mark.parametrize(
    ("model_activation", "expected"),
    [
        (nn.GELU(), GELU),
        (nn.GELU(approximate="tanh"), TANH_GELU),
        (nn.SiLU(), SILU),
        (nn.ReLU(), RELU),
        (functional.gelu, GELU),
        (functional.silu, SILU),
        (functional.relu, RELU),
        (ACT2FN["gelu"], GELU),
        (ACT2FN["gelu_new"], TANH_GELU),
        (ACT2FN["quick_gelu"], QUICK_GELU),
    ],
)
def test_common_activations_are_recognised_as_modules_and_as_functions(
    model_activation: nn.Module, expected: Activation
) -> None:
    assert recognise(model_activation) is expected


def test_a_function_without_a_closed_form_takes_its_secant() -> None:
    activation = recognise(torch.cos)
    z = both_signs([0.1, 1.0, 3.0], torch.float64)
    torch.testing.assert_close(activation.slope(z), (z.cos() - 1) / z)
    assert activation.at_zero == 1.0


@pytest.mark.parametrize("name", ["prelu", "xielu"])
def test_the_models_own_activation_stays_as_it_is(name: str) -> None:
    module = copy.deepcopy(ACT2FN[name])
    before = {key: (value.dtype, value.clone()) for key, value in module.state_dict().items()}
    recognise(module).slope(torch.ones(3))
    for key, (dtype, value) in before.items():
        assert module.state_dict()[key].dtype == dtype
        assert torch.equal(module.state_dict()[key], value)


# ---- gated feed-forward ------------------------------------------------------------------------------------------------

GATES = pytest.mark.parametrize("gate", [SILU, GELU, TANH_GELU, RELU, QUICK_GELU, SIGMOID], ids=lambda gate: gate.name)
GRID = np.linspace(-100, 100, 401).tolist()


@GATES
@DTYPES
def test_gate_slopes_are_the_integrated_gradients_of_the_product(gate: Activation, dtype: torch.dtype) -> None:
    a = torch.cat([both_signs(NEAR_ZERO + AWAY, dtype), torch.tensor(GRID, dtype=dtype)])
    a = a[a != 0]
    of_gate, of_up = gate.gate_slopes(a)
    value, _, ramped_gradient = path_integrals(gate.function, a)
    assert of_gate.dtype == of_up.dtype == dtype
    assert_close(of_gate, ramped_gradient, 1e-7, a)
    assert_close(of_up, value, 1e-7, a)


ENDS = [
    (0.5, 3.25),
    (-2.0, 1.5),
    (-0.01, 0.02),
    (0.3, 0.3000001),
    (1.0, 1.0),
    (0.0, 0.0),
    (-70.5, 130.25),
    (200.0, 150.0),
]
"""Far and near, over kinks and beyond the table, and the same."""


@GATES
@DTYPES
def test_gate_secants_are_the_integrated_gradients_between_two_points(gate: Activation, dtype: torch.dtype) -> None:
    chance = torch.Generator().manual_seed(0)
    near = torch.rand(200, generator=chance, dtype=torch.float64) * 6 - 3
    starts = torch.cat([torch.tensor([start for start, _ in ENDS], dtype=torch.float64), near]).to(dtype)
    widths = 10 ** (torch.rand(200, generator=chance, dtype=torch.float64) * 7 - 6)
    ends = torch.cat([torch.tensor([end for _, end in ENDS], dtype=torch.float64), near + widths]).to(dtype)
    if gate is RELU:  # its derivative does not exist where both are 0
        there = ~((starts == 0) & (ends == 0))
        starts, ends = starts[there], ends[there]
    u_start, u_end = torch.full_like(starts, -0.7), torch.full_like(starts, 1.3)
    of_gate, of_up = gate.gate_secants((starts, u_start), (ends, u_end))
    value, gradient, ramped = path_integrals(gate.function, ends, starts)
    assert of_gate.dtype == of_up.dtype == dtype
    torch.testing.assert_close(of_gate.double(), -0.7 * gradient + 2.0 * ramped, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(of_up.double(), value, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gate.secant(starts, ends).double(), gradient, rtol=1e-6, atol=1e-6)


def test_path_integrals_from_a_start_are_their_closed_forms() -> None:
    """Of x^2: the mean of its square, of 2x and of 2tx on the way from s to z."""
    s, z = torch.tensor([0.5, -2.25, 3.0, 1.0]).double(), torch.tensor([2.75, 1.5, 3.0, -4.0]).double()
    value, gradient, ramped = path_integrals(torch.square, z, s)
    torch.testing.assert_close(value, (s * s + s * z + z * z) / 3)
    torch.testing.assert_close(gradient, s + z)
    torch.testing.assert_close(ramped, s + 2 * (z - s) / 3)


@GATES
@DTYPES
def test_gate_slopes_at_zero_are_half_the_derivative_and_the_value(gate: Activation, dtype: torch.dtype) -> None:
    of_gate, of_up = gate.gate_slopes(torch.zeros(1, dtype=dtype))
    _, (left, at_zero, right), _ = path_integrals(gate.function, torch.tensor([-1e-9, 0.0, 1e-9]))
    if gate is RELU:
        assert left / 2 - 1e-9 <= of_gate <= right / 2 + 1e-9
    else:
        assert of_gate.item() == pytest.approx(at_zero.item() / 2, abs=1e-7)
    assert of_up.item() == pytest.approx(gate.at_zero, abs=1e-7)


@GATES
@DTYPES
def test_gate_slopes_are_complete(gate: Activation, dtype: torch.dtype) -> None:
    a = torch.cat([torch.tensor(GRID, dtype=dtype), both_signs([*NEAR_ZERO, 127.99, 128.0, 130.0, 5000.0], dtype)])
    u = torch.linspace(-3, 3, len(a), dtype=dtype)
    of_gate, of_up = gate.gate_slopes(a)
    attributed = a.double() * (of_gate.double() * u.double()) + u.double() * of_up.double()
    expected = gate.function(a.double()) * u.double()
    assert_close(attributed, expected, 2e-7, a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mean_of_gelu_is_its_closed_form(dtype: torch.dtype) -> None:
    a = both_signs([*np.linspace(0.1, 100, 101), 128.0, 500.0, 5000.0], dtype)
    x = a.double().numpy()
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    expected = (((x**2 - 1) * special.ndtr(x) + x * density) / 2 + 1 / 4) / x
    assert_close(GELU.gate_slopes(a)[1], torch.from_numpy(expected), 1e-7 if dtype == torch.float32 else 1e-12, a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mean_of_silu_is_a_dilogarithm(dtype: torch.dtype) -> None:
    a = both_signs([*np.linspace(0.1, 100, 101), 128.0, 500.0], dtype)
    x = a.double().numpy()
    dilogarithm = special.spence(1 + np.exp(x))  # Li2(-exp x)
    expected = (x * np.logaddexp(0, x) + dilogarithm + math.pi**2 / 12) / x
    assert_close(SILU.gate_slopes(a)[1], torch.from_numpy(expected), 1e-7 if dtype == torch.float32 else 1e-12, a)


@GATES
def test_a_gate_that_is_not_a_number_has_slopes_that_are_not_numbers(gate: Activation) -> None:
    of_gate, of_up = gate.gate_slopes(torch.tensor([1.0, math.nan, -2.0]))
    for slopes in (of_gate, of_up):
        assert slopes.isnan().tolist() == [False, True, False]


@GATES
def test_slopes_of_many_numbers_are_those_of_each(gate: Activation) -> None:
    many = torch.linspace(-15.9, 15.9, 40_000)
    for numbers in (many, torch.cat([many, torch.tensor([200.0])])):  # within the reach of a table, and beyond it
        for of_many, exact_slope in zip(gate.gate_slopes(numbers), gate.gate_slopes(numbers.double()), strict=True):
            assert of_many.dtype == torch.float32
            assert_close(of_many, exact_slope, 2e-7, numbers)


def test_a_kink_between_its_places_leaves_an_activation_without_a_table() -> None:
    def bent(z: Tensor) -> Tensor:
        return (z - 0.3).clamp(min=0)

    kinked = by_secant("kinked", bent)
    numbers = torch.linspace(-2, 2, 40_000)
    for of_many, exact_slope in zip(kinked.gate_slopes(numbers), kinked.gate_slopes(numbers.double()), strict=True):
        assert_close(of_many, exact_slope, 1e-7, numbers)


def test_numbers_that_are_none_have_no_slopes() -> None:
    numbers = torch.zeros(40_000).index_fill(0, torch.tensor([7]), torch.nan)
    assert all(bool(slope[7].isnan()) and bool(slope[8:].isfinite().all()) for slope in SILU.gate_slopes(numbers))
