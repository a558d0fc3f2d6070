"""Activations as integrated gradients see them: one secant slope per neuron.

Integrated gradients from the zero baseline along the straight path, taken element-wise, attribute
`z_j * (g(z) - g(0)) / z` to the share `z_j` of a pre-activation `z`. The factor is the *secant slope* of the activation,
known in closed form for the common ones and evaluated as it stands for any other. A gated feed-forward `g(a) * u` has two
such factors, both from `I(a)`, the mean of `g` between 0 and `a`. From another baseline they are the secant and the mean
between the two ends. This module owns slopes and integrals, and the recognition of an activation from the model's own
module; the feed-forward that uses them is `decompose`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from normscope.chain.tabulated import Table

Function = Callable[[Tensor], Tensor]

_NEAR_ZERO = 1e-7
"""Closer to zero than this, the secant is taken at this distance instead, where float64 keeps an accuracy of 1e-8."""


@dataclass(frozen=True)
class Activation:
    """An element-wise function `g`, its secant slope `c(z) = (g(z) - g(0)) / z`, and `g(0)`."""

    name: str
    function: Function
    slope: Function
    at_zero: float = 0.0

    def gate_slopes(self, a: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """`((g(a) - I) / a, I)`, with `I(a)` the integral of `g(t a)` over `t` from 0 to 1: the slopes of `g(a) * u`.

        Integrated gradients of the product on the joint path give `a_j * u * (g(a) - I) / a + u_j * I`.
        """
        if a.dtype == torch.float32 and a.numel() >= _WORTH_A_TABLE and a.device.type == "cpu":
            table = _gate_table(self.function)
            if table is not None:
                return table.at(a)
        return _gate_slopes(self.function, a)

    def secant(self, start: Float[Tensor, "..."], end: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """`(g(end) - g(start)) / (end - start)`, and `g'` where the two are the same."""
        return _secant(self.function, start.double(), end.double()).to(end.dtype)

    def gate_secants(
        self, starts: tuple[Tensor, Tensor], ends: tuple[Tensor, Tensor]
    ) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """The slopes of `g(a) * u` on the straight path from the starts `(a, u)` to the ends: the integrals over it of
        `g'(a) u` and of `g(a)`.

        With `M` the mean of `g` between both ends of `a`, and `u` growing by `e` on the way, the first is, by parts,
        `u_start (g(a_end) - g(a_start)) / (a_end - a_start) + e (g(a_end) - M) / (a_end - a_start)`.
        """
        (a0, u0), (a1, u1) = ([each.double() for each in pair] for pair in (starts, ends))
        far = a0 + _off_zero(a1 - a0)
        width = far - a0
        mean = _integral_between(self.function, a0, far) / width
        of_gate = u0 * _secant(self.function, a0, a1) + (u1 - u0) * (self.function(far) - mean) / width
        return of_gate.to(ends[0].dtype), mean.to(ends[0].dtype)


def _gate_slopes(function: Function, a: Tensor) -> tuple[Tensor, Tensor]:
    point = _off_zero(a.double())  # in float32 `g(a) - I` loses its digits near zero, where `g(0)` is not zero
    mean = _integral_from_zero(function, point) / point
    return ((function(point) - mean) / point).to(a.dtype), mean.to(a.dtype)


_WORTH_A_TABLE = 2**14
"""Smaller inputs than this are computed directly."""


@lru_cache(maxsize=64)
def _gate_table(function: Function) -> Table | None:
    return Table.of(lambda a: _gate_slopes(function, a))


def _secant(function: Function, start: Tensor, end: Tensor) -> Tensor:
    """In float64; between ends that are nearly the same, the symmetric difference around them."""
    close = (end - start).abs() < _NEAR_ZERO
    low = torch.where(close, end - _NEAR_ZERO, start)
    high = torch.where(close, end + _NEAR_ZERO, end)
    return (function(high) - function(low)) / (high - low)


def secant_slope(function: Function, z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """`(g(z) - g(0)) / z` evaluated in float64, with the symmetric difference `g'(0)` at `z = 0`."""
    wide = z.double()
    point, near = _off_zero(wide), torch.full_like(wide, _NEAR_ZERO)
    slope = (function(point) - function(torch.zeros_like(point))) / point
    at_zero = (function(near) - function(-near)) / (2 * near)
    return torch.where(wide == 0, at_zero, slope).to(z.dtype)


def _off_zero(z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """`z`, moved away from zero where it is too near, on its own side of it."""
    return torch.where(z.abs() < _NEAR_ZERO, torch.full_like(z, _NEAR_ZERO).copysign(z), z)


# Gauss-Legendre with three points, exact to 1e-11 on a cell this short; cells join at 0 and at whole numbers, so the kinks
# of piecewise activations fall between them. Beyond the table every activation is straight, and the rule exact again.
_CELLS_PER_UNIT = 32
_TABLE_REACH = 128
_POINTS = (0.5 - math.sqrt(0.15), 0.5, 0.5 + math.sqrt(0.15))
_WEIGHTS = (5 / 18, 8 / 18, 5 / 18)


def _integral_from_zero(function: Function, a: Tensor) -> Tensor:
    """The integral of `g` from 0 to `a`: whole cells from a table, the rest of the last cell by quadrature."""
    cells = _TABLE_REACH * _CELLS_PER_UNIT
    cell = (a * _CELLS_PER_UNIT).trunc().clamp(-cells, cells)
    start = cell / _CELLS_PER_UNIT
    table = _whole_cells(function).to(a.device, a.dtype)
    return table[cell.nan_to_num().long() + cells] + _quadrature(function, start, a - start)


def _integral_between(function: Function, start: Tensor, end: Tensor) -> Tensor:
    """The integral of `g` from one point to another. In the same cell or its neighbour by quadrature, which keeps its digits
    however near the points are, and otherwise as a difference of integrals from zero."""
    cells = [(point * _CELLS_PER_UNIT).floor() for point in (start, end)]
    border = torch.maximum(*cells) / _CELLS_PER_UNIT
    border = torch.minimum(torch.maximum(border, torch.minimum(start, end)), torch.maximum(start, end))
    near = _quadrature(function, start, border - start) + _quadrature(function, border, end - border)
    far = _integral_from_zero(function, end) - _integral_from_zero(function, start)
    return torch.where((cells[1] - cells[0]).abs() <= 1, near, far)


def _quadrature(function: Function, start: Tensor, width: Tensor) -> Tensor:
    terms = [weight * function(start + point * width) for point, weight in zip(_POINTS, _WEIGHTS, strict=True)]
    return width * (terms[0] + terms[1] + terms[2])


@lru_cache(maxsize=64)
def _whole_cells(function: Function) -> Tensor:
    """Integrals from 0 to every cell border, in float64."""
    starts = torch.arange(_TABLE_REACH * _CELLS_PER_UNIT, dtype=torch.float64) / _CELLS_PER_UNIT
    width = torch.tensor(1 / _CELLS_PER_UNIT, dtype=torch.float64)
    with torch.no_grad():
        right = _quadrature(function, starts, width).cumsum(0)
        left = _quadrature(function, -starts, -width).cumsum(0)
    return torch.cat([left.flip(0), torch.zeros(1, dtype=torch.float64), right])


def _normal_cdf(z: Tensor) -> Tensor:
    return torch.special.erfc(z * -math.sqrt(0.5)) * 0.5


def _tanh_gelu_slope(z: Tensor) -> Tensor:
    # (1 + tanh x) / 2 is sigmoid(2x), which does not cancel for large negative x.
    return torch.sigmoid(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))


GELU = Activation("gelu", functional.gelu, _normal_cdf)
TANH_GELU = Activation("gelu_tanh", lambda z: functional.gelu(z, approximate="tanh"), _tanh_gelu_slope)
QUICK_GELU = Activation("quick_gelu", lambda z: z * torch.sigmoid(1.702 * z), lambda z: torch.sigmoid(1.702 * z))
SILU = Activation("silu", functional.silu, torch.sigmoid)
SQUARED_RELU = Activation("relu_squared", lambda z: functional.relu(z).square(), functional.relu)
RELU = Activation("relu", functional.relu, lambda z: (z > 0).to(z.dtype))
IDENTITY = Activation("linear", lambda z: z, torch.ones_like)

CLOSED_FORMS: dict[str, Activation] = {
    "GELUActivation": GELU,
    "NewGELUActivation": TANH_GELU,
    "FastGELUActivation": TANH_GELU,
    "AccurateGELUActivation": TANH_GELU,
    "GELUTanh": TANH_GELU,
    "QuickGELUActivation": QUICK_GELU,
    "SiLUActivation": SILU,
    "SiLU": SILU,
    "ReLU": RELU,
    "ReLUSquaredActivation": SQUARED_RELU,
    "LinearActivation": IDENTITY,
    "BloomGelu": TANH_GELU,
    "gelu": GELU,
    "silu": SILU,
    "relu": RELU,
}
"""Class (or function) names of activations with a closed-form slope. Anything else takes the secant itself."""


@lru_cache
def clamped_swish(alpha: float, limit: float) -> Activation:
    """`min(z, limit) * sigmoid(alpha * min(z, limit))`, the gate of GPT-OSS."""

    def function(z: Tensor) -> Tensor:
        below = z.clamp(max=limit)
        return below * torch.sigmoid(alpha * below)

    return Activation("clamped_swish", function, lambda z: secant_slope(function, z))


@lru_cache
def soft_cap(limit: float) -> Activation:
    """`limit * tanh(z / limit)`, which keeps logits within a limit (Gemma 2)."""

    def function(z: Tensor) -> Tensor:
        return limit * torch.tanh(z / limit)

    return Activation("soft_cap", function, lambda z: secant_slope(function, z))


def xielu(alpha_p: float, alpha_n: float, beta: float) -> Activation:
    """`alpha_p z^2 + beta z` above zero and `alpha_n (e^z - 1 - z) + beta z` below it (Apertus).

    transformers cuts `z` off at -1e-6 in the exponential, which makes a step at zero; the function itself has none.
    """

    def function(z: Tensor) -> Tensor:
        return torch.where(z > 0, alpha_p * z * z, alpha_n * (torch.expm1(z.clamp(max=0)) - z)) + beta * z

    def slope(z: Tensor) -> Tensor:
        below = _off_zero(z.double().clamp(max=0))
        negative = alpha_n * (torch.expm1(below) / below - 1)
        return torch.where(z > 0, alpha_p * z, negative.to(z.dtype)) + beta

    return Activation("xielu", function, slope)


def _xielu_of(module: nn.Module) -> Activation:
    """With the parameters of a model's own activation."""
    own = cast(Any, module)
    beta = float(own.beta)
    positive, negative = (float(functional.softplus(each.detach().double())) for each in (own.alpha_p, own.alpha_n))
    return xielu(positive, beta + negative, beta)


def recognise(activation: nn.Module | Function) -> Activation:
    """The `Activation` of a model's own activation module or function."""
    name = getattr(activation, "__name__", type(activation).__name__)
    if name == "XIELUActivation":
        return _xielu_of(cast(nn.Module, activation))
    if isinstance(activation, nn.GELU):
        return TANH_GELU if activation.approximate == "tanh" else GELU
    if name in CLOSED_FORMS:
        return CLOSED_FORMS[name]
    return by_secant(name, activation)


def by_secant(name: str, activation: nn.Module | Function) -> Activation:
    """Any element-wise activation, by its secant in float64 (on a copy, so that the model's own stays as it is)."""
    if isinstance(activation, nn.Module):
        activation = copy.deepcopy(activation).double().requires_grad_(False)
    function = cast(Function, activation)
    with torch.no_grad():
        at_zero = float(function(torch.zeros(1, dtype=torch.float64)))
    return Activation(name, function, lambda z: secant_slope(function, z), at_zero)
