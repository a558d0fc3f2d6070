"""Reading the weights of Hugging Face modules: linear layers of every kind, norms, activations, stacked experts.

Weights are converted to the dtype of the analysis, on the device on which the block computes. A layer whose matrix is hidden
(quantised, wrapped by an adapter) is probed: an affine map is determined by its values at zero and at the unit vectors. One
that is not affine, since it rounds what it reads, is refused.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.pytorch_utils import Conv1D

from normscope.chain.activations import Activation, recognise
from normscope.chain.trace import LayerNorm, Linear, Norm, RmsNorm
from normscope.errors import ModelError, UnsupportedArchitectureError
from normscope.families.spec import (
    Difference,
    FixedLayerNormPart,
    LayerNormPart,
    NamedActivation,
    NormPart,
    RmsNormPart,
    UnitLayerNormPart,
    UnitRmsNormPart,
)
from normscope.models.devices import is_packed, weights_at_hand

_PLAIN_SUBCLASSES = ("FalconLinear",)
"""Subclasses of linear layers whose own `forward` only multiplies and adds."""

_SMALL = 0.003
"""A number that vanishes beside one when both are rounded to eight bits."""


class BlockWeights:
    """The weights of one block, by the paths of its submodules; without a `device`, each stays on its own."""

    def __init__(self, block: nn.Module, dtype: torch.dtype, device: torch.device | None = None) -> None:
        self.block, self.dtype, self.device = block, dtype, device
        self._linear: dict[str, Linear] = {}

    def linear(self, path: str, scale: str | None = None) -> Linear:
        """The affine map of a submodule; cached, so that what is computed from it can be cached, too.

        Its outputs are multiplied by the vector at the path `scale`, where there is one.
        """
        if path not in self._linear:
            linear = self._affine(path)
            if scale is not None:
                factor = self.parameter(scale)
                bias = None if linear.bias is None else factor * linear.bias
                linear = Linear(factor[:, None] * linear.weight, bias)
            self._linear[path] = linear
        return self._linear[path]

    def _affine(self, path: str) -> Linear:
        module = self.block.get_submodule(path)
        with weights_at_hand(module):
            if isinstance(module, Conv1D):
                return Linear(self._read(module.weight).T, self._read(module.bias))
            if isinstance(module, nn.Conv1d) and module.kernel_size == (1,):
                return _pointwise(self._read(module.weight), self._read(cast(Tensor, module.bias)), module.groups)
            if isinstance(module, nn.Linear) and _shows_its_matrix(module):
                bias = cast("Tensor | None", module.bias)
                return Linear(self._read(module.weight), None if bias is None else self._read(bias))
            if isinstance(module, nn.BatchNorm1d):
                return self._batch_norm(module)
            parts = dict(module.named_children())
            if [type(part) for part in parts.values()] == [nn.Linear, nn.BatchNorm1d]:
                return _one_after_the_other(*(self._affine(f"{path}.{name}") for name in parts))
        return self._probe(path, module)

    def _batch_norm(self, module: nn.BatchNorm1d) -> Linear:
        """A batch norm that uses the statistics of its training."""
        mean, variance = module.running_mean, module.running_var
        if module.training or mean is None or variance is None:
            raise UnsupportedArchitectureError(
                "A batch norm uses the statistics of the inputs that it reads together, so that no token is by itself. "
                "Put the model into evaluation mode (model.eval())."
            )
        scale = torch.rsqrt(self._read(variance) + module.eps)
        scale = scale * self._read(module.weight) if module.affine else scale
        shift = -scale * self._read(mean)
        return Linear(torch.diag(scale), shift + self._read(module.bias) if module.affine else shift)

    def parameter(self, path: str) -> Tensor:
        return self._read(self.attribute(path))

    def slice_of(self, path: str, index: int) -> Tensor:
        """One slice of a stacked parameter; the stack as a whole is never converted."""
        return self._read(self.attribute(path)[index])

    def rows_of(self, path: str, index: int, count: int) -> Tensor:
        """One of `count` parts of a parameter that lie below each other."""
        parameter: Tensor = self.attribute(path)
        return self._read(parameter.unflatten(0, (count, -1))[index])

    def norm(self, part: NormPart, states: Tensor) -> Norm:
        """The norm of a submodule, which reads `states`."""
        module = self.block.get_submodule(part.module)
        with weights_at_hand(module):
            return self._norm(part, module, states)

    def _norm(self, part: NormPart, module: nn.Module, states: Tensor) -> Norm:
        epsilon = part.epsilon if isinstance(part, FixedLayerNormPart) else self.epsilon(part.module)
        weight = getattr(module, "weight", None)
        scale = states.new_ones(states.shape[-1], dtype=self.dtype) if weight is None else self._read(weight)
        match part:
            case UnitRmsNormPart():
                return RmsNorm(1 + scale, epsilon)
            case RmsNormPart():
                return RmsNorm(scale, epsilon)
            case LayerNormPart() | FixedLayerNormPart() | UnitLayerNormPart():
                bias = getattr(module, "bias", None)
                scale = 1 + scale if isinstance(part, UnitLayerNormPart) else scale
                return LayerNorm(scale, None if bias is None else self._read(bias), epsilon)

    def activation(self, path: str | NamedActivation) -> Activation:
        return recognise(ACT2FN[path.name] if isinstance(path, NamedActivation) else self.attribute(path))

    def attribute(self, path: str) -> Any:
        """Any attribute of a submodule, by its path."""
        owner, _, name = path.rpartition(".")
        module = self.block.get_submodule(owner)
        with weights_at_hand(module):
            return getattr(module, name)

    def share_of_second_heads(self, part: Difference) -> float:
        """The factor with which the weights of the second half of the heads are subtracted from those of the first."""
        products = [
            (self.parameter(f"{part.module}.lambda_q{one}") * self.parameter(f"{part.module}.lambda_k{one}")).sum()
            for one in (1, 2)
        ]
        first, second = (float(product.exp()) for product in products)
        return first - second + float(self.attribute(f"{part.module}.lambda_init"))

    def _read(self, tensor: Tensor) -> Tensor:
        return tensor.detach().to(self.device, self.dtype)

    def epsilon(self, path: str) -> float:
        """The epsilon that a norm adds before it takes the root."""
        module = self.block.get_submodule(path)
        for name in ("eps", "variance_epsilon", "epsilon"):
            value = getattr(module, name, None)
            if value is not None:
                return float(value)
        raise UnsupportedArchitectureError(f"The norm {path} ({type(module).__name__}) has no known epsilon.")

    def _probe(self, path: str, module: nn.Module) -> Linear:
        """The matrix and bias of a layer that hides them, from its values at zero and at the unit vectors.

        The layer's `forward` is called, not the layer, so that no hook sees it.
        """
        size = getattr(module, "in_features", None) or getattr(module, "input_size", None)
        if size is None:
            raise ModelError(
                f"{path} is a {type(module).__name__}: its weight matrix cannot be read, and its input size is unknown. "
                f"Load the model without quantisation or adapters (or merge the adapters first)."
            )
        numbers = [parameter for parameter in module.parameters() if not parameter.is_meta]
        device = numbers[0].device if numbers else self.device
        dtype = next((each.dtype for each in numbers if each.is_floating_point()), self.dtype)
        basis = torch.eye(size, dtype=dtype, device=device)[None]
        try:
            bias = self._read(_first(module.forward(torch.zeros_like(basis[:, :1]))))[0, 0]
            linear = Linear((self._read(_first(module.forward(basis)))[0] - bias).T, bias)
            output, mixed, small = _small_beside_one(linear, basis)
            found = self._read(_first(module.forward(mixed)))[0, 0] - bias
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise ModelError(
                f"{path} is a {type(module).__name__}, whose weight matrix is hidden and could not be probed: {error}"
            ) from error
        if abs(float(found[output] - linear.weight[output] @ self._read(mixed)[0, 0])) > small / 4:
            raise ModelError(
                f"{path} is a {type(module).__name__} that rounds what it reads, as layers do that quantise states along "
                f"with weights: what it makes of a sum is not the sum of what it makes of the parts, so nothing can be "
                f"attributed to them. Load the model with quantised weights alone (weight-only), or without quantisation."
            )
        return linear


def _one_after_the_other(first: Linear, second: Linear) -> Linear:
    """The second of two affine maps applied to what the first gives."""
    bias = second.bias
    if first.bias is not None:
        moved = second.weight @ first.bias
        bias = moved if bias is None else moved + bias
    return Linear(second.weight @ first.weight, bias)


def _small_beside_one(linear: Linear, basis: Tensor) -> tuple[int, Tensor, float]:
    """An output, a state `[1, 1, d]` of a one and small numbers that all add to that output, and the expected sum. A layer
    that rounds its input loses them next to the one.
    """
    output = int(linear.weight.abs().sum(-1).argmax())
    row = linear.weight[output]
    state = _SMALL * row.sign()
    state[row.abs().argmin()] = 1
    return output, state.to(basis.device, basis.dtype)[None, None], _SMALL * float(row.abs().sum())


def _first(output: Any) -> Tensor:
    """The output of a layer, without the scale that some layers also return."""
    return output if isinstance(output, Tensor) else cast(Tensor, output[0])


def _pointwise(weight: Tensor, bias: Tensor, groups: int) -> Linear:
    """A convolution over one token at a time, with channels in groups."""
    return Linear(torch.block_diag(*weight[..., 0].chunk(groups)), bias)


def _shows_its_matrix(module: nn.Linear) -> bool:
    """Whether a linear layer is a plain one: quantised ones pack their weight, adapters do more than multiply."""
    plain = type(module).forward is nn.Linear.forward or type(module).__name__ in _PLAIN_SUBCLASSES
    if not plain or is_packed(module.weight) or not module.weight.is_floating_point():
        return False
    return tuple(module.weight.shape) == (module.out_features, module.in_features)
