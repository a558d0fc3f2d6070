"""Device placement: one device, several, or weights offloaded to CPU or disk.

Follows accelerate's conventions: a module moves its inputs to its own device, and an offloaded weight is on the meta device,
without values, except while its module runs.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from normscope.errors import ModelError


def entry_device(model: nn.Module) -> torch.device:
    """The device of a model's inputs: the one on which its first weight is used.

    Raises `ModelError` for a model without values.
    """
    device = next(model.parameters()).device
    if device.type != "meta":
        return device
    first = next((module for module in model.modules() if _is_offloaded(module)), None)
    if first is None:
        raise _without_numbers()
    return torch.device(_hook(first).execution_device)


def has_numbers(model: nn.Module) -> bool:
    """Whether the weights of a model have values, on a device or offloaded, and not just shapes."""
    return not next(model.parameters()).is_meta or any(_is_offloaded(module) for module in model.modules())


def _without_numbers() -> ModelError:
    return ModelError(
        "The model is on the meta device, where weights have shapes and no numbers: what it would take can be estimated "
        "without time (timed=False, --no-time), but nothing can be computed with it. Put it on another device."
    )


@contextmanager
def weights_at_hand(module: nn.Module) -> Generator[None]:
    """Makes a module's own weights available, also if they are offloaded."""
    if not _is_offloaded(module):
        yield
        return
    from accelerate.utils import align_module_device  # noqa: PLC0415  (an extra, without which nothing is offloaded)

    with align_module_device(module):
        yield


def numbers_of(model: nn.Module, name: str, tensor: Tensor) -> Tensor:
    """A tensor of a model's `state_dict` with its values, also if it is offloaded or packed; raises if it has none."""
    if is_packed(tensor):
        return tensor.detach().dequantize()
    if not tensor.is_meta:
        return tensor
    owner, _, own_name = name.rpartition(".")
    module = model.get_submodule(owner)
    with weights_at_hand(module):
        numbers: Tensor = getattr(module, own_name).detach()
    if numbers.is_meta:
        raise _without_numbers()
    return numbers


def is_packed(tensor: Tensor) -> bool:
    """Whether a tensor is of a class that stores its numbers otherwise, as the quantised weights of torchao are."""
    return is_traceable_wrapper_subclass(tensor.data)


@contextmanager
def without_autocast(model: nn.Module) -> Generator[None]:
    """Disables autocast on every kind of device that the model uses, so that it computes in the dtype of its weights."""
    kinds = {entry_device(model).type, *(parameter.device.type for parameter in model.parameters())} - {"meta"}
    with ExitStack() as stack:
        for kind in sorted(kinds):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _is_offloaded(module: nn.Module) -> bool:
    return _hook(module) is not None and any(parameter.is_meta for parameter in module.parameters(recurse=False))


def _hook(module: nn.Module) -> Any:
    """The hook that accelerate has added to a module's `forward`, if any."""
    return getattr(module, "_hf_hook", None)
