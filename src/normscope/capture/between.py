"""What happens outside of the blocks: states reach the first block, and pass from block to block, as the model has them.

The proof of a trace begins at the states that enter its block. Whether these are the states of the tokens that a map names
is decided here: by the modules before the blocks, which must do what their classes say, and between each two blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from normscope.capture.stacks import bare_model
from normscope.errors import CompletenessError, ModelError, UnsupportedArchitectureError

_LIBRARIES = ("accelerate", "torch", "transformers")
"""Libraries whose functions may wrap the forward pass of a module: they move weights and states, and change none."""


# ---- from block to block -----------------------------------------------------------------------------------------------


class Joints:
    """Compares the input of each block of a stack with the output of the block before it. If a model modifies these states
    in place, values that it does not change are compared with a copy (`copied`).
    """

    def __init__(self, model: PreTrainedModel, *, copied: bool = False) -> None:
        self.model, self.copied = model, copied
        self.left: Tensor | None = None
        self.version: int | None = None

    def leave(self, states: Tensor) -> None:
        """Store the output of a block."""
        self.left = states.clone() if self.copied else states
        self.version = _version(self.left)

    def enter(self, states: Tensor, layer: int) -> None:
        """Raise if the input of a block is not the output of the block before it, also if that was changed in place."""
        left, self.left = self.left, None
        if left is None:
            return
        unchanged = _version(left) == self.version
        if not unchanged or not (states is left or torch.equal(left.to(states.device), states)):
            raise UnsupportedArchitectureError(
                f"What enters layer {layer} is not what leaves layer {layer - 1}: something acts between the two blocks of "
                f"{type(self.model).__name__}, a hook or a module that its family does not name, and whether a state is "
                f"still that of its token is not known."
            )


# ---- before the blocks -------------------------------------------------------------------------------------------------


def watch_outside(model: PreTrainedModel, blocks: Sequence[nn.Module]) -> list[RemovableHandle]:
    """Hooks that raise if another hook changes the input or output of a module outside of the blocks.

    Raises at once for a module whose forward pass was replaced.
    """
    inside = {module for block in blocks for module in block.modules()}
    handles: list[RemovableHandle] = []
    for path, module in bare_model(model).named_modules():
        if module in inside:
            continue
        _check_replaced(model, path, module)
        if _has_hooks(module):
            handles += _Watch(model, path).hook(module)
    return handles


def _has_hooks(module: Any) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


class _Watch:
    """Compares the input and output of a module before and after all its other hooks."""

    def __init__(self, model: PreTrainedModel, path: str) -> None:
        self.model, self.path = model, path
        self.before: list[tuple[Tensor, int | None]] = []

    def hook(self, module: nn.Module) -> list[RemovableHandle]:
        """The four hooks: before and after those on the module's input, and on its output."""

        def reads(_: nn.Module, *read: object) -> None:
            self._note(read)

        def has_read(_: nn.Module, *read: object) -> None:
            self._compare(read)

        return [
            module.register_forward_pre_hook(reads, prepend=True, with_kwargs=True),
            module.register_forward_pre_hook(has_read, with_kwargs=True),
            module.register_forward_hook(lambda _, __, output: self._note(output), prepend=True),
            module.register_forward_hook(lambda _, __, output: self._compare(output)),
        ]

    def _note(self, value: object) -> None:
        self.before = [(tensor, _version(tensor)) for tensor in _tensors(value)]

    def _compare(self, value: object) -> None:
        after = list(_tensors(value))
        if len(after) != len(self.before) or not all(map(_is_same, self.before, after)):
            raise CompletenessError(_changed(self.model, f"a hook changes the input or output of {_named(self.path)}"))


def _is_same(before: tuple[Tensor, int | None], after: Tensor) -> bool:
    tensor, version = before
    return _version(tensor) == version and (tensor is after or torch.equal(tensor, after.to(tensor.device)))


def _check_replaced(model: PreTrainedModel, path: str, module: nn.Module) -> None:
    """Raise for a forward pass that is neither that of the module's class nor wrapped by a library that changes nothing."""
    own = {cls.__module__ for cls in type(module).__mro__}
    for function in _wrapped(module.forward):
        origin = str(function.__globals__.get("__name__"))
        if origin not in own and origin.partition(".")[0] not in _LIBRARIES:
            name = f"{origin}.{function.__code__.co_qualname}"
            what = f"the forward pass of {_named(path)} is {name} and not that of {type(module).__name__}"
            raise ModelError(_changed(model, what))


def _wrapped(function: object) -> Iterator[FunctionType]:
    """A function, what it is a part of, and all that it wraps."""
    while function is not None:
        function = getattr(function, "__func__", function)
        if isinstance(function, partial):
            yield from _wrapped(function.func)
        else:
            called = function if isinstance(function, FunctionType) else vars(type(function)).get("__call__")
            if isinstance(called, FunctionType):
                yield called
        function = getattr(function, "__wrapped__", None)


def _named(path: str) -> str:
    return repr(path) if path else "the model itself"


def _changed(model: PreTrainedModel, what: str) -> str:
    return (
        f"In {type(model).__name__} {what}: whether a state is still that of its token is not known, and the result could "
        f"be wrong, so there is none. Remove it, and analyse the model as transformers has it."
    )


def _tensors(value: object) -> Iterator[Tensor]:
    """The tensors in the input or output of a module."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[Any, Any]", value).values():
            yield from _tensors(item)
    elif isinstance(value, tuple | list):
        for item in cast("Sequence[Any]", value):
            yield from _tensors(item)


def _version(tensor: Tensor) -> int | None:
    """A number that every change in place raises; tensors of inference mode have none."""
    return None if tensor.is_inference() else tensor._version
