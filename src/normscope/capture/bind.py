"""From the description of a block, its modules and what was seen in a call, to the steps of a trace.

Knows how Hugging Face modules hold their weights (`torch.nn.Linear`, norms by their attributes) and nothing of what is
computed with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from normscope.activations import Activation, recognise
from normscope.errors import ModelError, UnsupportedArchitectureError
from normscope.families.spec import (
    AttentionPart,
    DispatchedAttention,
    ForkPart,
    FusedPerHead,
    HookedAttention,
    NormPart,
    Part,
    PlainPart,
    ResidualPart,
    SplitHeads,
)
from normscope.trace import (
    Attention,
    Expert,
    FeedForward,
    Fork,
    LayerNorm,
    LayerTrace,
    Linear,
    Network,
    Normalise,
    Plain,
    Residual,
    Step,
)


@dataclass
class Seen:
    """What one call of a block showed, for a whole padded batch: tensors `[batch, position, ...]` by module path."""

    hidden: Tensor | None = None
    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    attention: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


def watched(part: Part) -> tuple[str, ...]:
    """The submodules whose input and output a part needs."""
    match part:
        case DispatchedAttention():
            return (part.output,)
        case HookedAttention():
            return (part.weights, part.value.module, part.output)
        case NormPart():
            return (part.module,)
        case PlainPart():
            return (part.first, part.second)
        case ForkPart() | ResidualPart():
            return ()


def whole(network: Network, *pre_activations: Tensor) -> Expert:
    """A network that serves every query with weight one."""
    z = pre_activations[0]
    return Expert(network, torch.arange(len(z), device=z.device), z.new_ones(len(z)), pre_activations)


class BoundBlock:
    """A block's weights in the dtype of the analysis, ready to make traces of its calls."""

    def __init__(self, block: nn.Module, chain: Sequence[Part], dtype: torch.dtype, *, value_bias: bool) -> None:
        self.block, self.chain, self.dtype, self.value_bias = block, chain, dtype, value_bias

    def trace(self, seen: Seen, output: Tensor, sequence: int, length: int) -> LayerTrace:
        """The trace of one sequence of the batch, without its padding."""
        view = _SequenceView(seen, output, sequence, length, self.dtype)
        steps = tuple(self._step(part, view) for part in self.chain)
        states = tuple(self._state_after(index, view) for index in range(len(self.chain)))
        queries = torch.arange(length, device=output.device)
        return LayerTrace(hidden=view.hidden(), queries=queries, steps=steps, states=states, length=length)

    def _step(self, part: Part, view: _SequenceView) -> Step:
        match part:
            case ForkPart():
                return Fork()
            case ResidualPart():
                return Residual()
            case NormPart():
                return Normalise(self._norm(part.module), state_before=view.input(part.module))
            case PlainPart():
                return FeedForward((whole(self._plain(part), view.output(part.first)),))
            case DispatchedAttention() | HookedAttention():
                return self._attention(part, view)

    def _state_after(self, index: int, view: _SequenceView) -> Tensor | None:
        """The model's own state after a part, where the model shows it."""
        match part := self.chain[index]:
            case ForkPart():
                return None
            case DispatchedAttention() | HookedAttention():
                return view.output(part.output)
            case NormPart():
                return view.output(part.module)
            case PlainPart():
                return view.output(part.second)
            case ResidualPart():
                following = [part for part in self.chain[index + 1 :] if not isinstance(part, ForkPart)]
                if not following:
                    return view.block_output()
                return view.input(following[0].module) if isinstance(following[0], NormPart) else None

    def _attention(self, part: AttentionPart, view: _SequenceView) -> Attention:
        match part:
            case DispatchedAttention():
                weights, values = view.attention(part.module)
                value_bias = self._linear(part.value).bias
            case HookedAttention():
                weights = view.weights(part.weights)
                values, value_bias = self._hooked_values(part.value, view, heads=len(weights))
        linear = self._linear(part.output)
        heads, _, d_head = values.shape
        return Attention(
            weights=weights,
            values=values,
            output=linear.weight.T.reshape(heads, d_head, -1),
            bias=linear.bias,
            value_bias=value_bias.reshape(heads, d_head) if self.value_bias and value_bias is not None else None,
        )

    def _hooked_values(
        self, value: SplitHeads | FusedPerHead, view: _SequenceView, heads: int
    ) -> tuple[Tensor, Tensor | None]:
        projected = view.output(value.module)
        by_head = projected.reshape(len(projected), heads, -1).transpose(0, 1)
        match value:
            case SplitHeads():
                return by_head, self._linear(value.module).bias
            case FusedPerHead():
                bias = self._parameter(value.bias).reshape(heads, 1, -1)
                return by_head.chunk(3, dim=-1)[2] + bias, bias

    def _plain(self, part: PlainPart) -> Plain:
        return Plain(self._linear(part.first), self._activation(part.activation), self._linear(part.second))

    def _norm(self, path: str) -> LayerNorm:
        module = self.block.get_submodule(path)
        epsilon = getattr(module, "eps", getattr(module, "variance_epsilon", None))
        if epsilon is None:
            raise UnsupportedArchitectureError(f"The norm {path} ({type(module).__name__}) has no known epsilon.")
        return LayerNorm(self._parameter(f"{path}.weight"), self._parameter(f"{path}.bias"), float(epsilon))

    def _linear(self, path: str) -> Linear:
        module = self.block.get_submodule(path)
        if not isinstance(module, nn.Linear):
            raise ModelError(
                f"{path} is a {type(module).__name__}, not a plain linear layer: its weight matrix cannot be read. "
                f"Load the model without quantisation or adapters (or merge the adapters first)."
            )
        bias = None if module.bias is None else module.bias.detach().to(self.dtype)
        return Linear(module.weight.detach().to(self.dtype), bias)

    def _parameter(self, path: str) -> Tensor:
        return self.block.get_parameter(path).detach().to(self.dtype)

    def _activation(self, path: str) -> Activation:
        owner, _, name = path.rpartition(".")
        return recognise(getattr(self.block.get_submodule(owner), name))


class _SequenceView:
    """One sequence of what was seen: without its padding, in the dtype of the analysis."""

    def __init__(self, seen: Seen, output: Tensor, sequence: int, length: int, dtype: torch.dtype) -> None:
        self._seen, self._output = seen, output
        self._sequence, self._length, self._dtype = sequence, length, dtype

    def _cut(self, tensor: Tensor) -> Tensor:
        return tensor[self._sequence, : self._length].to(self._dtype)

    def hidden(self) -> Tensor:
        return self._cut(cast(Tensor, self._seen.hidden))

    def block_output(self) -> Tensor:
        return self._cut(self._output)

    def input(self, path: str) -> Tensor:
        return self._cut(self._seen.inputs[path])

    def output(self, path: str) -> Tensor:
        return self._cut(self._seen.outputs[path])

    def weights(self, path: str) -> Tensor:
        return self._square(self._seen.outputs[path])

    def attention(self, path: str) -> tuple[Tensor, Tensor]:
        weights, values = self._seen.attention[path]
        cut = values[self._sequence, :, : self._length].to(self._dtype)
        return self._square(weights), cut.repeat_interleave(weights.shape[1] // values.shape[1], dim=0)

    def _square(self, weights: Tensor) -> Tensor:
        return weights[self._sequence, :, : self._length, : self._length].to(self._dtype)
