"""The captured tensors of one call of a block, for a padded batch, and a view of one of its sequences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from normscope.capture.hooks import RowWeights
from normscope.chain.trace import QueryRows
from normscope.errors import ModelError

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
"""The arguments of a module or a function, by position and by name."""

_Value = TypeVar("_Value")


class _Captured(dict[str, _Value]):
    """Captured tensors by the path of a module; raises for a module that was not called, though its family expects it."""

    def __missing__(self, path: str) -> _Value:
        raise ModelError(
            f"The module {path!r} of a block was not called, though the family of the model says that every block calls it. "
            f"Its forward pass was replaced, compiled or optimised: load the model as transformers has it."
        )


@dataclass(frozen=True)
class MixingCall:
    """One call of a mixing function, by the names of its arguments."""

    function: Callable[..., Any]
    arguments: Keywords
    others: Keywords
    batch: int
    positions: int

    @staticmethod
    def of(function: Callable[..., Any], args: Arguments, kwargs: Keywords) -> MixingCall:
        parameters = inspect.signature(function).parameters
        named = dict(zip(parameters, args, strict=False)) | kwargs
        by_name = {name: value for name, value in named.items() if name in parameters}
        others = {name: value for name, value in named.items() if name not in parameters}
        first = next(value for value in by_name.values() if isinstance(value, Tensor))
        return MixingCall(function, by_name, others, *first.shape[:2])

    def is_by_token(self, name: str) -> bool:
        """Whether an argument is `[batch, token, ...]`."""
        value = self.arguments[name]
        return isinstance(value, Tensor) and value.dim() > 2 and tuple(value.shape[:2]) == (self.batch, self.positions)

    def of_sequence(self, sequence: int, length: int) -> Keywords:
        """The arguments for one sequence without its padding, half precision as float32."""
        started = [name for name in ("initial_state", "initial_states") if self.arguments.get(name) is not None]
        if started:
            raise ModelError(
                "A mixer goes on from the state of an earlier input. Analyse the input as a whole, without it."
            )
        cut: Keywords = {}
        for name, value in self.arguments.items():
            kept = value[sequence : sequence + 1, :length] if self.is_by_token(name) else value
            half = isinstance(kept, Tensor) and kept.dtype in (torch.float16, torch.bfloat16)
            cut[name] = kept.float() if half else kept
        return cut

    def run(self, arguments: Keywords) -> Tensor:
        """The output of the function for other arguments."""
        output = self.function(**arguments, **self.others)
        return output if isinstance(output, Tensor) else output[0]


@dataclass
class CapturedCall:
    """Tensors `[batch, position, ...]` by the path of the module whose input or output they are."""

    hidden: Tensor
    source: Tensor | None = None
    """The encoder's states, if the block was called with them."""
    inputs: dict[str, Tensor] = field(default_factory=_Captured)
    outputs: dict[str, Any] = field(default_factory=_Captured)
    attention: dict[str, tuple[Tensor | RowWeights, Tensor]] = field(default_factory=_Captured)
    routing: dict[str, tuple[Tensor, Tensor]] = field(default_factory=_Captured)
    seconds: dict[str, Tensor] = field(default_factory=_Captured)
    """The second inputs of modules, where they have one."""
    mixing: dict[str, MixingCall] = field(default_factory=_Captured)
    calls: dict[str, tuple[Arguments, Keywords]] = field(default_factory=_Captured)
    """How attention modules were called, if their scores are requested."""
    probed: dict[str, Tensor] = field(default_factory=_Captured)
    """Weights `[batch, head, query, key]` of attentions that do not output them."""

    def add(self, path: str, inputs: Tensor, output: Any) -> None:
        """Store the input of a module, and a copy of its output, to which some models then add in place.

        A module called again within its block ran on the next chunk of the sequence (dimension 1).
        """
        if path in self.outputs:
            self.inputs[path] = torch.cat([self.inputs[path], inputs], dim=1)
            self.outputs[path] = torch.cat([self.outputs[path], output], dim=1)
        else:
            self.inputs[path] = inputs
            self.outputs[path] = output.clone() if isinstance(output, Tensor) else output


@dataclass(frozen=True)
class SequenceView:
    """One sequence of a batch: without its padding, in the dtype of the analysis, on the device of the block's output."""

    captured: CapturedCall
    output_states: Tensor
    sequence: int
    length: int
    source_length: int
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        """The device on which the block computes. Its input may still be on another device."""
        return self.output_states.device

    def for_rows(self, outputs: Sequence[str]) -> SequenceView:
        """What is needed to compute the weights of rows: queries, keys and values, and the outputs of some modules."""
        call, own = self.captured, _Captured({path: self.captured.outputs[path] for path in outputs})
        return replace(self, captured=CapturedCall(call.hidden, call.source, outputs=own, attention=call.attention))

    def _cut(self, tensor: Tensor, *, source: bool = False) -> Tensor:
        if source:
            return tensor[self.sequence, : self.source_length].to(self.device, self.dtype)
        batch, positions = self.captured.hidden.shape[:2]
        if tensor.dim() != 3:  # flattened positions (some feed-forwards), or a single head before them (latent values)
            tensor = tensor.reshape(batch, positions, -1)
        return tensor[self.sequence, : self.length].to(self.device, self.dtype)

    @cached_property
    def hidden(self) -> Tensor:
        return self._cut(self.captured.hidden)

    @property
    def block_output(self) -> Tensor:
        return self._cut(self.output_states)

    def source_states(self, reader: str) -> Tensor:
        """The encoder's states: as the block was called with them, or as a module of it reads them."""
        return (
            self.input(reader, source=True)
            if self.captured.source is None
            else self._cut(self.captured.source, source=True)
        )

    def input(self, path: str, *, source: bool = False) -> Tensor:
        """The input of a module, from the sequence itself or from the `source` that it attends to."""
        return self._cut(self.captured.inputs[path], source=source)

    def output(self, path: str, *, source: bool = False) -> Tensor:
        output = self.captured.outputs[path]
        return self._cut(output if isinstance(output, Tensor) else output[0], source=source)

    def second_input(self, path: str) -> Tensor:
        """The second input of a module, such as the gate of a norm."""
        return self._cut(self.captured.seconds[path])

    def grid(self, path: str) -> tuple[int, int]:
        """The rows and columns of the image that a convolution over tokens reads."""
        rows, columns = self.captured.inputs[path].shape[-2:]
        return rows, columns

    def mixing(self, path: str) -> MixingCall:
        """The call of the mixing function inside a mixer."""
        return self.captured.mixing[path]

    def routing(self, path: str) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of experts: states, choices and their weights, the last two `[position, choice]`."""
        choices, weights = self.captured.routing[path]
        batch = len(self.captured.hidden)
        choices = choices.reshape(batch, -1, choices.shape[-1])[self.sequence, : self.length]
        return self.input(path), choices.to(self.device), self._cut(weights)

    def weights(self, path: str) -> Tensor:
        """`[head, query, key]` from a module whose output is, or has second, the attention weights."""
        output = self.captured.outputs[path]
        return self._square(output if isinstance(output, Tensor) else output[1], self.length)

    def probed(self, path: str, *, source: bool) -> Tensor:
        """`[head, query, key]` of an attention that was run again to see them."""
        return self._square(self.captured.probed[path], self.source_length if source else self.length)

    def attention(self, path: str, *, source: bool) -> tuple[Tensor, Tensor]:
        """Weights `[head, query, key]` and values `[group, key, d_head]` of an attention that was recorded."""
        weights, values = self.captured.attention[path]
        keys = self.source_length if source else self.length
        if isinstance(weights, RowWeights):  # zeros that take no memory; those of the requested rows come later
            stored = self.hidden.new_zeros(1).expand(weights.heads, self.length, keys)
        else:
            stored = self._square(weights, keys)
        return stored, values[self.sequence, :, :keys].to(self.device, self.dtype)

    def row_weights(self, path: str, rows: QueryRows, keys: int) -> Tensor:
        """`[head, row, key]` of an attention whose weights are recomputed, for a number of keys."""
        weights, values = self.captured.attention[path]
        assert isinstance(weights, RowWeights)
        rows = rows if isinstance(rows, slice) else rows.to(values.device)
        return weights.of_rows(rows, keys)[self.sequence].to(self.device, self.dtype)

    @property
    def is_long(self) -> bool:
        """Whether attention weights are available by rows only."""
        kinds = {isinstance(weights, RowWeights) for weights, _ in self.captured.attention.values()}
        return kinds == {True}

    def _square(self, weights: Tensor, keys: int) -> Tensor:
        return weights[self.sequence, :, : self.length, :keys].to(self.device, self.dtype)
