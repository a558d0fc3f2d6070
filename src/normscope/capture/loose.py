"""Blocks that are not modules, or are not called as such: their parts, with hooks where states enter and leave.

A loose block stands for its parts wherever a block is looked at. States in another layout than `[batch, token, d]` are
passed to hooks in that layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import Seams


class LooseBlock(nn.Module):
    """The parts of a block, by the names that its family uses. Hooks on it are hooks on the first and last of them."""

    def __init__(self, parts: Mapping[str, nn.Module], seams: Seams) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.seams = seams

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LooseBlock) and list(self.children()) == list(other.children())

    def __hash__(self) -> int:
        return hash(tuple(self.children()))

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """A hook on the input of the block."""

        def enters(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            read = tuple(turned(arg, self.seams.axes) for arg in args)
            _refuse_change(hook(self, read, kwargs) if with_kwargs else hook(self, read))

        first = self.get_submodule(self.seams.first)
        return first.register_forward_pre_hook(enters, prepend=prepend, with_kwargs=True)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """A hook on the output of the block."""

        def leaves(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
            given = turned(output, self.seams.axes)
            _refuse_change(hook(self, args, kwargs, given) if with_kwargs else hook(self, args, given))

        last = self.get_submodule(self.seams.last)
        return last.register_forward_hook(leaves, prepend=prepend, with_kwargs=True, always_call=always_call)


class HalfBlock(nn.Module):
    """One half of a block that is cut where one of its parts reads: what this part reads is where the halves meet."""

    block: nn.Module

    def __init__(self, block: nn.Module, cut: str, *, first: bool) -> None:
        super().__init__()
        for name, part in block.named_children():
            self.add_module(name, part)
        self.__dict__["block"] = block  # no child, so that paths are those of the block
        self.cut, self.first = cut, first

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HalfBlock) and (self.block, self.first) == (other.block, other.first)

    def __hash__(self) -> int:
        return hash((self.block, self.first))

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """On what enters the half."""

        def enters(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            _refuse_change(hook(self, args, kwargs) if with_kwargs else hook(self, args))

        start = self.block if self.first else self.get_submodule(self.cut)
        return start.register_forward_pre_hook(enters, prepend=prepend, with_kwargs=True)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """On what leaves the half."""

        def leaves(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
            _refuse_change(hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output))

        def meets(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            leaves(module, args, kwargs, args[0])

        if self.first:
            return self.get_submodule(self.cut).register_forward_pre_hook(meets, prepend=prepend, with_kwargs=True)
        return self.block.register_forward_hook(leaves, prepend=prepend, with_kwargs=True, always_call=always_call)


def turned(value: Any, axes: tuple[int, int] | None) -> Any:
    """States with two of their axes exchanged; anything else unchanged."""
    return value.transpose(*axes) if axes is not None and isinstance(value, Tensor) and value.dim() == 3 else value


def _refuse_change(result: object) -> None:
    """The states also bypass the first part of the block, so replacing them there would not reach all of it."""
    if result is not None:
        raise UnsupportedArchitectureError(
            "The blocks of this model are no modules that are called with a state and give one out, so that its states "
            "cannot be replaced, as gradients, removal and skipping do. Maps, mixing ratios and the pull-back need no such."
        )
