"""Capture of a task head: one forward pass of the whole model, heard by hooks, yields the trace of its head.

A `HeadListener` may listen to a pass that others listen to as well; `capture_head` runs one for the head alone. Knows
Hugging Face and hooks; knows no mathematics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from normscope.capture import blocks_of
from normscope.capture.head_blocks import BoundHead, Heard, head_modules
from normscope.capture.hooks import forward_pass
from normscope.chain.head_trace import EncoderEnd, HeadTrace
from normscope.errors import HeadError
from normscope.families import Family
from normscope.families.heads import encoder_end, head_of
from normscope.families.heads.spec import Head

__all__ = ["HeadListener", "capture_head"]

_HEAD, _ENCODER = "head", "encoder"


def capture_head(
    model: PreTrainedModel, family: Family, inputs: Mapping[str, Any], lengths: Sequence[int], *, dtype: torch.dtype
) -> list[HeadTrace]:
    """Run a batch (padded on the right to `lengths`) through the whole model: the trace of its head for every sequence."""
    listener = HeadListener(model, family, lengths, dtype=dtype)
    with torch.no_grad(), forward_pass(model) as handles:
        handles.extend(listener.hook())
        model(**inputs)
    return listener.traces()


class HeadListener:
    """Listens to one forward pass of a model with its head: hook, run the whole model, and read the traces.

    `lengths` are those of the sequences that the head's stack of blocks sees: of a multiple-choice model every choice is a
    sequence of its own (with one row and one label), choice by choice within each example. With `encoder_lengths` the end
    of an encoder is heard as well, or alone, without `head`. By default the head is the model's own.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        family: Family,
        lengths: Sequence[int],
        *,
        dtype: torch.dtype,
        encoder_lengths: Sequence[int] | None = None,
        head: bool | Head = True,
    ) -> None:
        self.model, self.lengths, self.dtype, self.encoder_lengths = model, lengths, dtype, encoder_lengths
        self.head = head if isinstance(head, Head) else head_of(model) if head else None
        self.encoder_parts = () if encoder_lengths is None else encoder_end(family)
        reads_encoder = self.head is not None and self.head.reads_encoder
        stack = family.encoder if reads_encoder and family.encoder is not None else family.stack
        self.blocks = {_HEAD: blocks_of(model, stack)}
        if encoder_lengths is not None and family.encoder is not None:
            self.blocks[_ENCODER] = blocks_of(model, family.encoder)
        self._forget()

    def hook(self) -> list[Any]:
        """Hooks on the model, its blocks and the parts of its head; the caller removes them."""
        handles: list[Any] = [self.model.register_forward_pre_hook(self._starts, with_kwargs=True)]
        for stack, blocks in self.blocks.items():
            handles += [block.register_forward_hook(self._state_noter(stack)) for block in blocks]
        parts = () if self.head is None else self.head.parts
        for path in dict.fromkeys(head_modules((*parts, *self.encoder_parts))):
            handles.append(self._module(path).register_forward_hook(self._noter(path), with_kwargs=True))
        return [*handles, self.model.register_forward_hook(self._ends)]

    def traces(self) -> list[HeadTrace]:
        """The head's trace of every sequence, after the pass."""
        assert self.head is not None
        return [bound.trace(self.head) for bound in self._bound(_HEAD, self.lengths)]

    def encoder_ends(self) -> list[EncoderEnd]:
        """What acted between the encoder's last block and the states that the decoder reads, for every sequence."""
        return [
            EncoderEnd(bound.own_states(), bound.steps(self.encoder_parts, bound.length))
            for bound in self._bound(_ENCODER, self.encoder_lengths or ())
        ]

    def _bound(self, stack: str, lengths: Sequence[int]) -> list[BoundHead]:
        if self.heard.output is None:
            raise HeadError(
                f"The head of {type(self.model).__name__} was not reached: the forward pass ended before its end."
            )
        return [
            BoundHead(self.model, self.heard, self.states[stack], sequence, length, self.dtype)
            for sequence, length in enumerate(lengths)
        ]

    def _module(self, path: str) -> nn.Module:
        try:
            return self.model.get_submodule(path)
        except AttributeError as error:
            raise HeadError(
                f"{type(self.model).__name__} has no {path!r}, where the description of its head expects it."
            ) from error

    def _forget(self) -> None:
        self.heard = Heard()
        self.states: dict[str, Tensor] = {}

    def _starts(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._forget()
        self.heard.arguments = {**({"input_ids": args[0]} if args else {}), **kwargs}
        return args, {**kwargs, "return_dict": True}

    def _state_noter(self, stack: str) -> Callable[..., None]:
        """The last block to end has the last word; a copy, as some models then add to it in place."""

        def note(_: nn.Module, __: tuple[Any, ...], output: Tensor | tuple[Any, ...]) -> None:
            self.states[stack] = (output if isinstance(output, Tensor) else output[0]).clone()

        return note

    def _noter(self, path: str) -> Callable[..., None]:
        def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            self.heard.taken[path] = (*args, *kwargs.values())
            self.heard.given[path] = output

        return note

    def _ends(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self.heard.output = output
