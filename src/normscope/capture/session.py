"""Everything that capture changes on a model, and its undoing: evaluation mode, attention implementation, hooks.

Each change is a context manager that restores exactly what it changed, also after an exception or Ctrl-C. Threads that
share a model take turns: one would hear the states of the other's input.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from normscope.capture.implementations import (
    IMPLEMENTATION,
    configurations,
    eager_attention_of,
    refuse_unknown_attention,
)
from normscope.errors import ModelError

Rows = slice | Tensor


@dataclass(frozen=True)
class RowWeights:
    """Attention weights of a long input, which are computed again for the rows that are looked at, never stored.

    `of_rows` is the model's own eager attention for some of its queries: `[batch, head, row, key]`.
    """

    heads: int
    of_rows: Callable[[Rows], Tensor]


AttentionListener = Callable[["Tensor | RowWeights", Tensor], None]
"""Told the attention weights and the value states of one call, both `[batch, head, ...]`."""

_listeners: WeakKeyDictionary[nn.Module, AttentionListener] = WeakKeyDictionary()
_rows_at_once: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_turns: WeakKeyDictionary[nn.Module, AbstractContextManager[Any]] = WeakKeyDictionary()
_turns_made = threading.Lock()


def turn(model: nn.Module) -> AbstractContextManager[Any]:
    """The lock that whoever changes or listens to a model holds; a thread may take it more than once."""
    with _turns_made:
        return _turns.setdefault(model, threading.RLock())


@contextmanager
def evaluation_mode(model: nn.Module) -> Generator[None]:
    """Every module in evaluation mode; afterwards each has the training flag it had."""
    with turn(model):
        training = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            yield
        finally:
            for module, flag in training:
                module.training = flag


@contextmanager
def shown_attention(
    model: PreTrainedModel, listeners: dict[nn.Module, AttentionListener], rows: int | None = None
) -> Generator[None]:
    """The model's own eager attention for all modules, with listeners on those that have one.

    With `rows`, attention to more queries than that is computed by so many at once, and listeners get `RowWeights`.
    """
    refuse_unknown_attention(model, listeners)
    AttentionInterface.register(IMPLEMENTATION, _shown_eager_attention)
    # Without a mask function of the same name, transformers would silently drop the mask.
    AttentionMaskInterface.register(IMPLEMENTATION, eager_mask)
    _listeners.update(listeners)
    if rows is not None:
        _rows_at_once.update(dict.fromkeys(listeners, rows))
    try:
        with _restored_implementations(model) as configs:
            model.set_attn_implementation(IMPLEMENTATION)
            if configs[0]._attn_implementation_internal != IMPLEMENTATION:
                raise ModelError(
                    f"{type(model).__name__} does not let its attention implementation be changed, "
                    f"which its family expects."
                )
            for module in listeners:  # some have a configuration of their own
                own: Any = getattr(module, "config", None)
                if hasattr(own, "_attn_implementation_internal"):
                    own._attn_implementation_internal = IMPLEMENTATION
            yield
    finally:
        for module in listeners:
            _listeners.pop(module, None)
            _rows_at_once.pop(module, None)


@contextmanager
def eager_attention(model: PreTrainedModel) -> Generator[None]:
    """Eager attention for models that choose it by their configuration alone, so that masks and weights are explicit."""
    refuse_unknown_attention(model, ())
    with _restored_implementations(model) as configs:
        for config in configs:
            config._attn_implementation_internal = "eager"
        yield


@contextmanager
def _restored_implementations(model: PreTrainedModel) -> Generator[list[Any]]:
    """The model's configurations, each of which has its own attention implementation back at the end."""
    configs = configurations(model)
    before = [config._attn_implementation_internal for config in configs]
    try:
        yield configs
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation_internal = implementation


@contextmanager
def hooks(model: nn.Module) -> Generator[list[Any]]:
    """A list for the handles of hooks on a model, all removed at the end."""
    handles: list[Any] = []
    with turn(model):
        try:
            yield handles
        finally:
            for handle in handles:
                handle.remove()


def _shown_eager_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    at_once, count = _rows_at_once.get(module), query.shape[2]
    if at_once is not None and count > at_once and _goes_by_rows(module, count, attention_mask, kwargs):
        return _attention_by_rows(module, query, key, value, attention_mask, at_once, **kwargs)
    output, weights = eager_attention_of(module)(module, query, key, value, attention_mask, **kwargs)
    listener = _listeners.get(module)
    if listener is not None:
        listener(weights, value)
    return output, weights


def _goes_by_rows(module: nn.Module, rows: int, mask: Tensor | None, kwargs: dict[str, Any]) -> bool:
    """Whether rows of queries do not depend on each other: all that tells them apart is a mask that shows every row."""
    if any(isinstance(value, Tensor) and value.dim() > 2 for value in kwargs.values()):
        return False
    if mask is None:
        return not getattr(module, "is_causal", True)
    return mask.dim() == 4 and mask.shape[2] == rows


def _attention_by_rows(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, at_once: int, **kwargs: Any
) -> tuple[Tensor, None]:
    eager = eager_attention_of(module)

    def part(rows: Rows) -> tuple[Tensor, Tensor]:
        return eager(module, query[:, :, rows], key, value, None if mask is None else mask[:, :, rows], **kwargs)

    starts = range(0, query.shape[2], at_once)
    output = torch.cat([part(slice(start, start + at_once))[0] for start in starts], dim=1)
    listener = _listeners.get(module)
    if listener is not None:
        listener(RowWeights(query.shape[1], lambda rows: part(rows)[1]), value)
    return output, None
