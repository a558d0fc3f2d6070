"""The weights of attentions that do not output them: their module is run again with the identity in place of its values.

Only that the attention is linear in its values is assumed, and the proof of the trace refuses it where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import Cache

from normscope.capture.values import projections, value_share
from normscope.capture.view import Arguments, Keywords
from normscope.families.spec import FusedPerHead, FusedTail, ProbedPart, SequenceFirst


def probed_weights(
    block: nn.Module, part: ProbedPart, heads: int, width: int, args: Arguments, kwargs: Keywords
) -> Float[Tensor, "batch head query key"]:
    """The factor of each value, from a call of the attention; `width` is that of the input of its output projection."""
    probe = _Probe(part, heads, width // heads)
    seen: list[Tensor] = []
    module = block.get_submodule(part.module)
    again = [_without_cache(argument) for argument in args]
    named = {name: _without_cache(argument) for name, argument in kwargs.items()}
    weights: list[Tensor] = []
    with ExitStack() as hooks:
        handles = [block.get_submodule(path).register_forward_hook(probe.replace) for path in projections(part.value)]
        mixes = block.get_submodule(getattr(part, "activation", None) or part.output)
        handles.append(mixes.register_forward_pre_hook(lambda _, read: seen.append(read[0])))
        for handle in handles:
            hooks.callback(handle.remove)
        while probe.keys is None or probe.start < probe.keys:
            with _LengthKept(getattr(part, "unit_context", None)):
                module.forward(*again, **named)
            mixed = seen.pop().unflatten(-1, (heads, -1)).transpose(1, 2)
            weights.append(mixed[..., : probe.advance()])
    return torch.cat(weights, dim=-1)


class _Probe:
    """The identity as values, as many keys at a time as a head has channels."""

    def __init__(self, part: ProbedPart, heads: int, d_head: int) -> None:
        self.value, self.d_head = part.value, d_head
        self.heads = heads // len(projections(part.value))
        self.start = 0
        self.keys: int | None = None

    def replace(self, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        """A hook on a value projection."""
        made = output.clone() if isinstance(self.value, FusedTail | FusedPerHead) else torch.zeros_like(output)
        share = made.transpose(0, 1) if isinstance(self.value, SequenceFirst) else made
        values = value_share(self.value, share, self.heads, self.d_head)
        values.zero_()
        self.keys = values.shape[1]
        channels = torch.arange(min(self.d_head, self.keys - self.start), device=made.device)
        values[:, self.start + channels, :, channels] = 1
        return made

    def advance(self) -> int:
        """Continue with the next keys; returns how many these were."""
        assert self.keys is not None
        count = min(self.d_head, self.keys - self.start)
        self.start += count
        return count


class _LengthKept(TorchFunctionMode):
    """While it lasts, `torch.nn.functional.normalize` changes nothing once it was called so many times."""

    def __init__(self, before: int | None) -> None:
        super().__init__()
        self.before = before

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What the function gives, or what it was given."""
        if self.before is not None and func is torch.nn.functional.normalize:
            self.before -= 1
            if self.before < 0:
                return args[0]
        return func(*args, **(kwargs or {}))


def _without_cache(argument: object) -> object:
    """A cache would take up the keys and values of every call."""
    return None if isinstance(argument, Cache) else argument
