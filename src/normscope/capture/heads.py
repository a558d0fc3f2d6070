"""Capture of a task head: hooks on one forward pass of the whole model record the trace of its head.

A `HeadListener` may record a pass that others record as well; `capture_head` runs one for the head alone. Knows
Hugging Face and hooks; knows no mathematics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from normscope.capture import blocks_of, family_in
from normscope.capture.head_blocks import CapturedHead, HeadTraceBuilder, head_modules
from normscope.capture.hooks import forward_pass
from normscope.chain.head_trace import EncoderEnd, HeadTrace
from normscope.errors import HeadError
from normscope.families import Family
from normscope.families.heads import encoder_end, head_of
from normscope.families.heads.spec import Head

__all__ = ["HeadListener", "capture_head"]

_HEAD, _ENCODER = "head", "encoder"


def capture_head(
    model: PreTrainedModel, family: Family, inputs: Mapping[str, object], lengths: Sequence[int], *, dtype: torch.dtype
) -> list[HeadTrace]:
    """Run a batch (padded on the right to `lengths`) through the whole model; returns the head's trace of every sequence."""
    listener = HeadListener(model, family_in(model, family), lengths, dtype=dtype)
    with torch.no_grad(), forward_pass(model) as handles:
        handles.extend(listener.hook())
        model(**inputs)
    return listener.traces()


class HeadListener:
    """Records one forward pass of a model with its head: hook, run the whole model, and read the traces.

    `lengths` are those of the sequences that the head's stack of blocks sees: in a multiple-choice model every choice is a
    sequence of its own (with one row and one label), choice by choice within each example. With `encoder_lengths` the end
    of an encoder is recorded as well, or alone, without `head`: then the pass may end before that of the model. By default
    the head is the model's own.
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
        if head and family.stage is not None and family.stage.number < family.stage.count:
            raise HeadError(
                f"This is {family.stage}, whose states end where their tokens are merged: what the model outputs is made of "
                f"the tokens of its last stage. Explain that one (leave out stage), or a state of this one (direction)."
            )
        self.head = head if isinstance(head, Head) else head_of(model) if head else None
        self.encoder_parts = () if encoder_lengths is None else encoder_end(family)
        reads_encoder = self.head is not None and self.head.reads_encoder
        stack = family.encoder if reads_encoder and family.encoder is not None else family.stack
        self.blocks = {_HEAD: blocks_of(model, stack)}
        if encoder_lengths is not None and family.encoder is not None:
            self.blocks[_ENCODER] = blocks_of(model, family.encoder)
        self._forget()

    def hook(self) -> list[RemovableHandle]:
        """Hooks on the model, its blocks and the modules of its head; the caller removes them."""
        handles = [self.model.register_forward_pre_hook(self._starts, with_kwargs=True)]
        for stack, blocks in self.blocks.items():
            handles += [block.register_forward_hook(self._state_recorder(stack)) for block in blocks]
        parts = () if self.head is None else self.head.parts
        for path in dict.fromkeys(head_modules((*parts, *self.encoder_parts))):
            handles.append(self._module(path).register_forward_hook(self._recorder(path), with_kwargs=True))
        return [*handles, self.model.register_forward_hook(self._ends)]

    def traces(self) -> list[HeadTrace]:
        """The head's trace of every sequence, after the pass."""
        assert self.head is not None
        if self.captured.output is None:
            raise HeadError(f"The head of {type(self.model).__name__} was not reached: the forward pass ended early.")
        return [builder.trace(self.head) for builder in self._builders(_HEAD, self.lengths)]

    def encoder_ends(self) -> list[EncoderEnd]:
        """The steps between the encoder's last block and the states that the decoder reads, for every sequence."""
        return [
            EncoderEnd(builder.own_states(), builder.steps(self.encoder_parts, builder.length))
            for builder in self._builders(_ENCODER, self.encoder_lengths or ())
        ]

    def _builders(self, stack: str, lengths: Sequence[int]) -> list[HeadTraceBuilder]:
        return [
            HeadTraceBuilder(self.model, self.captured, self.states[stack], sequence, length, self.dtype)
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
        self.captured = CapturedHead()
        self.states: dict[str, Tensor] = {}

    def _starts(
        self, _: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        self._forget()
        self.captured.arguments = {**({"input_ids": args[0]} if args else {}), **kwargs}
        return args, {**kwargs, "return_dict": True}

    def _state_recorder(self, stack: str) -> Callable[..., None]:
        """The last block to end overwrites the others; a copy, since some models then add to it in place."""

        def note(_: nn.Module, __: tuple[object, ...], output: Tensor | Sequence[Any]) -> None:
            self.states[stack] = (output if isinstance(output, Tensor) else output[0]).clone()

        return note

    def _recorder(self, path: str) -> Callable[..., None]:
        def note(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
            self.captured.taken[path] = (*args, *kwargs.values())
            self.captured.given[path] = output

        return note

    def _ends(self, _: nn.Module, __: tuple[object, ...], output: object) -> None:
        self.captured.output = output
