"""Capture: runs an unmodified Hugging Face model and hands over each block's trace as soon as the block is done.

One layer's tensors live at a time: a trace is made in the block's own hook, consumed, and freed before the next block.
Knows Hugging Face and hooks; knows no mathematics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from normscope.capture.bind import BoundBlock, Seen, watched
from normscope.capture.session import evaluation_mode, hooks, shown_attention
from normscope.errors import UnsupportedArchitectureError
from normscope.families import Family
from normscope.families.spec import DispatchedAttention
from normscope.trace import LayerTrace

__all__ = ["blocks_of", "capture"]

Consumer = Callable[[int, int, LayerTrace], None]
"""Told the layer (from 1), the sequence of the batch (from 0), and the trace."""


class _LastLayerDone(Exception):
    """Ends a forward pass after the last block that is asked for."""


def bare_model(model: PreTrainedModel) -> nn.Module:
    """The model without its task head, whose cost would be for nothing."""
    return model.base_model


def blocks_of(model: PreTrainedModel, family: Family) -> list[nn.Module]:
    """The block modules of a model, each once; raises when the family's description does not fit."""
    pattern = re.compile(re.escape(family.blocks).replace(r"\*", r"\d+"))
    bare = bare_model(model)
    found = [module for name, module in bare.named_modules() if pattern.fullmatch(name)]
    if not found:
        raise UnsupportedArchitectureError(
            f"{type(model).__name__} says it is a {model.config.model_type}, "
            f"but has no blocks at {family.blocks!r} below {type(bare).__name__}."
        )
    for part in family.topology.chain():
        for path in watched(part):
            try:
                found[0].get_submodule(path)
            except AttributeError as error:
                raise UnsupportedArchitectureError(
                    f"The blocks of {type(model).__name__} have no {path!r}, where the family {family.name!r} expects it."
                ) from error
    return found


def capture(
    model: PreTrainedModel,
    family: Family,
    inputs: Mapping[str, Tensor],
    lengths: list[int],
    layers: list[int],
    consume: Consumer,
    *,
    dtype: torch.dtype,
    value_bias: bool = False,
) -> None:
    """Run a batch (padded on the right to `lengths`) and consume the trace of every sequence in every layer asked for."""
    listener = _Listener(family, lengths, set(layers), consume, dtype, value_bias)
    blocks = blocks_of(model, family)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(next(model.parameters()).device.type, enabled=False))
        stack.enter_context(evaluation_mode(model))
        handles = stack.enter_context(hooks())
        listeners = {}
        for block in blocks:
            handles += listener.hook(block)
            listeners |= listener.attention_listeners(block)
        if listeners:
            stack.enter_context(shown_attention(model, listeners))
        stack.enter_context(suppress(_LastLayerDone))
        bare_model(model)(**inputs)


class _Listener:
    """Follows a forward pass block by block. Layers are told apart by the order of calls, as modules may be shared."""

    def __init__(
        self,
        family: Family,
        lengths: list[int],
        layers: set[int],
        consume: Consumer,
        dtype: torch.dtype,
        value_bias: bool,
    ) -> None:
        self.chain = family.topology.chain()
        self.lengths, self.layers, self.consume = lengths, layers, consume
        self.dtype, self.value_bias = dtype, value_bias
        self.layer = 0
        self.seen = Seen()

    def hook(self, block: nn.Module) -> list[Any]:
        """Hooks on a block and on the parts of it that its chain watches."""
        handles: list[Any] = [
            block.register_forward_pre_hook(self._block_starts, with_kwargs=True),
            block.register_forward_hook(self._block_ends),
        ]
        for path in dict.fromkeys(path for part in self.chain for path in watched(part)):
            handles.append(block.get_submodule(path).register_forward_hook(self._noter(path)))
        return handles

    def attention_listeners(self, block: nn.Module) -> dict[nn.Module, Callable[[Tensor, Tensor], None]]:
        """Listeners for the attention modules of a block that go through the attention interface."""
        return {
            block.get_submodule(part.module): self._attention_noter(part.module)
            for part in self.chain
            if isinstance(part, DispatchedAttention)
        }

    @property
    def _wanted(self) -> bool:
        return self.layer in self.layers

    def _block_starts(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.layer += 1
        self.seen = Seen(hidden=cast(Tensor, args[0] if args else kwargs["hidden_states"]).clone())

    def _block_ends(self, block: nn.Module, _: tuple[Any, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        if self._wanted:
            bound = BoundBlock(block, self.chain, self.dtype, value_bias=self.value_bias)
            states = output if isinstance(output, Tensor) else output[0]
            for sequence, length in enumerate(self.lengths):
                self.consume(self.layer, sequence, bound.trace(self.seen, states, sequence, length))
        self.seen = Seen()
        if self.layer >= max(self.layers):
            raise _LastLayerDone

    def _noter(self, path: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def note(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._wanted:
                _append(self.seen.inputs, path, args[0])
                _append(self.seen.outputs, path, output)

        return note

    def _attention_noter(self, path: str) -> Callable[[Tensor, Tensor], None]:
        def note(weights: Tensor, values: Tensor) -> None:
            if self._wanted:
                self.seen.attention[path] = (weights, values)

        return note


def _append(into: dict[str, Tensor], path: str, tensor: Tensor) -> None:
    """Keep a copy. A module called again within its block ran on the next chunk of the sequence (dimension 1)."""
    into[path] = torch.cat([into[path], tensor], dim=1) if path in into else tensor.clone()
