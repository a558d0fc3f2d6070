"""Where a model lies: on one device, on several, or partly set aside, on disk or in main memory, until its weights are used.

Knows what accelerate does to a model that it spreads: a module moves its inputs to where it computes, and a weight that was
set aside is on the meta device, without numbers, but while its module runs.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from normscope.errors import ModelError


def entry_device(model: nn.Module) -> torch.device:
    """The device of what a model reads: that on which its first weight is used.

    Raises `ModelError` for a model that has no numbers to compute with.
    """
    device = next(model.parameters()).device
    if device.type != "meta":
        return device
    first = next((module for module in model.modules() if _is_set_aside(module)), None)
    if first is None:
        raise _without_numbers()
    return torch.device(_hook(first).execution_device)


def has_numbers(model: nn.Module) -> bool:
    """Whether a model is more than its shapes: its weights lie somewhere, or were set aside."""
    return not next(model.parameters()).is_meta or any(_is_set_aside(module) for module in model.modules())


def _without_numbers() -> ModelError:
    return ModelError(
        "The model is on the meta device, where weights have shapes and no numbers: what it would take can be estimated "
        "without time (timed=False, --no-time), but nothing can be computed with it. Put it on another device."
    )


@contextmanager
def weights_at_hand(module: nn.Module) -> Generator[None]:
    """A module's own weights with their numbers, also where they were set aside."""
    if not _is_set_aside(module):
        yield
        return
    from accelerate.utils import align_module_device  # noqa: PLC0415  (an extra, without which nothing is set aside)

    with align_module_device(module):
        yield


def numbers_of(model: nn.Module, name: str, tensor: Tensor) -> Tensor:
    """A tensor of a model's `state_dict`, with its numbers; raises where there are none."""
    if not tensor.is_meta:
        return tensor
    owner, _, own_name = name.rpartition(".")
    module = model.get_submodule(owner)
    with weights_at_hand(module):
        numbers: Tensor = getattr(module, own_name).detach()
    if numbers.is_meta:
        raise _without_numbers()
    return numbers


@contextmanager
def without_autocast(model: nn.Module) -> Generator[None]:
    """The arithmetic of the model's weights, on every kind of device that it lies on."""
    kinds = {entry_device(model).type, *(parameter.device.type for parameter in model.parameters())} - {"meta"}
    with ExitStack() as stack:
        for kind in sorted(kinds):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _is_set_aside(module: nn.Module) -> bool:
    return _hook(module) is not None and any(parameter.is_meta for parameter in module.parameters(recurse=False))


def _hook(module: nn.Module) -> Any:
    """What accelerate put around a module's `forward`, if anything."""
    return getattr(module, "_hf_hook", None)
