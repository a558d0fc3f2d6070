"""Attentions that are one call of PyTorch's `multi_head_attention_forward`, which gets the weights of their projections.

The call averages the attention weights over the heads, so the module is run again for those of each head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from normscope.capture.view import Arguments, CapturedCall, Keywords
from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import ProbedPart


def add_fused(
    captured: CapturedCall,
    block: nn.Module,
    part: ProbedPart,
    heads: int,
    args: Arguments,
    kwargs: Keywords,
    output: Any,
) -> None:
    """Add the weights and values of such an attention to what was captured, as if it had called its projections.

    `output` is what the attention gave out, which is that of its output projection.
    """
    states = cast(Tensor, args[0] if args else kwargs["hidden_states"])
    with _EveryHead() as mode:
        block.get_submodule(part.module).forward(*args, **kwargs)
    if len(mode.weights) != 1 or mode.weights[0].shape[1] != heads:
        raise UnsupportedArchitectureError(
            f"The attention {part.module!r} made {len(mode.weights)} calls of multi_head_attention_forward, not one with "
            f"{heads} heads, as its family says."
        )
    projection = block.get_submodule(part.value.module)
    values = functional.linear(states, cast(Tensor, projection.weight), cast("Tensor | None", projection.bias))
    mixed = mode.weights[0] @ values.unflatten(-1, (heads, -1)).transpose(1, 2)
    captured.add(part.value.module, states, values)
    captured.add(part.output, mixed.transpose(1, 2).flatten(-2), output if isinstance(output, Tensor) else output[0])
    captured.probed[part.module] = mode.weights[0]


class _EveryHead(TorchFunctionMode):
    """While it lasts, the attention weights of each head are kept when the function is called."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What the function gives; the weights are passed on as their mean, as without this."""
        named = dict(kwargs or {})
        if func is not torch.nn.functional.multi_head_attention_forward:
            return func(*args, **named)
        output, weights = func(*args, **{**named, "need_weights": True, "average_attn_weights": False})
        self.weights.append(weights)
        return output, weights.mean(dim=1)
