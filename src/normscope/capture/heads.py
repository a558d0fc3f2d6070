"""Capture of a task head: one forward pass of the whole model, heard by hooks, yields the trace of its head.

A `HeadListener` may listen to a pass that others listen to as well; `capture_head` runs one for the head alone. Knows
Hugging Face and hooks; knows no mathematics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from normscope.activations import recognise, soft_cap
from normscope.capture import blocks_of
from normscope.capture.session import evaluation_mode, hooks
from normscope.capture.weights import BlockWeights
from normscope.errors import HeadError
from normscope.families import Family
from normscope.families.head_spec import (
    ActivationPart,
    AveragePart,
    EndToken,
    Head,
    HeadPart,
    LastPosition,
    LastToken,
    LinearPart,
    MatrixPart,
    MeanOfPositions,
    MeanOfTokens,
    NamedActivationPart,
    PickPart,
    ScalePart,
    ShiftPart,
    SoftCapPart,
    SpanPart,
    TokenAt,
)
from normscope.families.heads import head_of
from normscope.families.spec import LayerNormPart, RmsNormPart
from normscope.head_trace import Activate, Average, Factor, HeadStep, HeadTrace, Pick, Products, Scale, Shift
from normscope.trace import Linear, Normalise

__all__ = ["HeadListener", "capture_head"]


def capture_head(
    model: PreTrainedModel, family: Family, inputs: Mapping[str, Any], lengths: Sequence[int], *, dtype: torch.dtype
) -> list[HeadTrace]:
    """Run a batch (padded on the right to `lengths`) through the whole model: the trace of its head for every sequence."""
    listener = HeadListener(model, family, lengths, dtype=dtype)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(model.device.type, enabled=False))
        stack.enter_context(evaluation_mode(model))
        handles = stack.enter_context(hooks())
        handles += listener.hook()
        model(**inputs)
    return listener.traces()


@dataclass
class _Heard:
    """What one pass of the whole model showed, for a padded batch."""

    arguments: dict[str, Any] = field(default_factory=dict)
    states: Tensor | None = None
    taken: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    given: dict[str, Tensor] = field(default_factory=dict)
    output: Any = None


class HeadListener:
    """Listens to one forward pass of a model with its head: hook, run the whole model, and read the traces.

    `lengths` are those of the sequences that the head's stack of blocks sees: of a multiple-choice model every choice is a
    sequence of its own (with one row and one label), choice by choice within each example.
    """

    def __init__(self, model: PreTrainedModel, family: Family, lengths: Sequence[int], *, dtype: torch.dtype) -> None:
        self.model, self.lengths, self.dtype = model, lengths, dtype
        self.head = head_of(model)
        stack = family.encoder if self.head.reads_encoder and family.encoder is not None else family.stack
        self.blocks = blocks_of(model, stack)
        self.heard = _Heard()

    def hook(self) -> list[Any]:
        """Hooks on the model, its blocks and the parts of its head; the caller removes them."""
        handles: list[Any] = [self.model.register_forward_pre_hook(self._starts, with_kwargs=True)]
        handles += [block.register_forward_hook(self._block_ends) for block in self.blocks]
        for path in dict.fromkeys(_watched(self.head.parts)):
            handles.append(self._module(path).register_forward_hook(self._noter(path), with_kwargs=True))
        return [*handles, self.model.register_forward_hook(self._ends)]

    def traces(self) -> list[HeadTrace]:
        """The trace of every sequence, after the pass."""
        if self.heard.output is None or self.heard.states is None:
            raise HeadError(
                f"The head of {type(self.model).__name__} was not reached: the forward pass ended before its end."
            )
        return [
            _BoundHead(self.model, self.head, self.heard, sequence, length, self.dtype).trace()
            for sequence, length in enumerate(self.lengths)
        ]

    def _module(self, path: str) -> nn.Module:
        try:
            return self.model.get_submodule(path)
        except AttributeError as error:
            raise HeadError(
                f"{type(self.model).__name__} has no {path!r}, where the description of its head expects it."
            ) from error

    def _starts(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self.heard = _Heard(arguments={**({"input_ids": args[0]} if args else {}), **kwargs})
        return args, {**kwargs, "return_dict": True}

    def _block_ends(self, _: nn.Module, __: tuple[Any, ...], output: Tensor | tuple[Any, ...]) -> None:
        """The last block to end has the last word; a copy, as some models go on to add in place."""
        self.heard.states = (output if isinstance(output, Tensor) else output[0]).clone()

    def _noter(self, path: str) -> Any:
        def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            self.heard.taken[path] = (*args, *kwargs.values())
            self.heard.given[path] = output

        return note

    def _ends(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self.heard.output = output


def _watched(parts: Sequence[HeadPart]) -> Iterator[str]:
    """The modules whose input or output a head needs."""
    for part in parts:
        match part:
            case LayerNormPart() | RmsNormPart():
                yield part.module
            case ActivationPart() | NamedActivationPart() | SoftCapPart():
                yield part.after
            case AveragePart():
                for branch in part.branches:
                    yield from _watched(branch)
            case SpanPart():
                yield part.module
                for chain in (chain for pair in part.labels for chain in pair):
                    yield from _watched(chain)
                    yield _last_module(chain)
            case _:
                pass


def _last_module(chain: Sequence[HeadPart]) -> str:
    part = chain[-1]
    if isinstance(part, LinearPart | LayerNormPart | RmsNormPart):
        return part.module
    raise HeadError(f"A factor of a product of a head has to end in a module that shows it, not in a {type(part).__name__}.")


@dataclass(frozen=True)
class _BoundHead:
    """A head's description bound to what was heard of one sequence."""

    model: PreTrainedModel
    head: Head
    heard: _Heard
    sequence: int
    length: int
    dtype: torch.dtype

    def trace(self) -> HeadTrace:
        assert self.heard.states is not None
        states = self._cut(self.heard.states, self.length)
        return HeadTrace(states, self._steps(self.head.parts, self.length), self._logits())

    def _cut(self, tensor: Tensor, rows: int) -> Tensor:
        """The rows of this sequence in `[batch, position, ...]` or, once there is one row, `[batch, ...]`."""
        return tensor[self.sequence].reshape(-1, tensor.shape[-1])[:rows].to(self.dtype)

    def _logits(self) -> Tensor:
        """`[row, label]` of `[batch, position, label]`, `[batch, label]`, or one `[batch, (question,) position]` a label."""
        parts = [self.heard.output[name] for name in self.head.logits]
        if self.head.task == "multiple-choice":
            return parts[0].reshape(-1, 1, 1)[self.sequence]
        if self.head.task in ("question-answering", "replaced-token"):
            return torch.stack([part[self.sequence, ..., : self.length].flatten() for part in parts], dim=-1)
        logits = parts[0][self.sequence]
        return logits[None] if logits.dim() == 1 else logits[: self.length]

    # ---- steps ---------------------------------------------------------------------------------------------------------

    def _steps(self, parts: Sequence[HeadPart], rows: int) -> tuple[HeadStep, ...]:
        steps: list[HeadStep] = []
        for part in parts:
            step = self._step(part, rows)
            rows = len(step.sources) if isinstance(step, Pick) else rows
            steps.append(step)
        return tuple(steps)

    def _step(self, part: HeadPart, rows: int) -> HeadStep:
        weights = BlockWeights(self.model, self.dtype)
        match part:
            case LayerNormPart() | RmsNormPart():
                return Normalise(weights.norm(part), self._cut(self.heard.taken[part.module][0], rows))
            case LinearPart():
                return self._linear(part.module)
            case MatrixPart():
                return Linear(weights.attribute(part.weight).detach(), weights.attribute(part.bias).detach())
            case ActivationPart():
                return Activate(weights.activation(part.activation), self._cut(self.heard.given[part.after], rows))
            case NamedActivationPart():
                return Activate(recognise(ACT2FN[part.name]), self._cut(self.heard.given[part.after], rows))
            case SoftCapPart():
                return Activate(soft_cap(part.cap), self._cut(self.heard.given[part.after], rows))
            case ScalePart():
                return Scale(part.factor)
            case ShiftPart():
                return Shift(weights.attribute(part.bias).detach().flatten())
            case AveragePart():
                return Average(tuple(self._steps(branch, rows) for branch in part.branches))
            case SpanPart():
                return self._products(part)
            case _:
                return self._pick(part)

    def _linear(self, path: str) -> Linear:
        """In the model's own dtype where it shows: a vocabulary's matrix is not converted as a whole."""
        weight = getattr(self.model.get_submodule(path), "weight", None)
        shown = isinstance(weight, Tensor) and weight.is_floating_point()
        return BlockWeights(self.model, weight.dtype if shown else self.dtype).linear(path)

    # ---- rows ----------------------------------------------------------------------------------------------------------

    def _pick(self, part: PickPart) -> Pick:
        match part:
            case TokenAt():
                return self._one(part.position)
            case LastToken():
                return self._one(self._last_token())
            case EndToken():
                return self._one(self._last_of(self._ids() == self.model.config.eos_token_id))
            case LastPosition():
                return self._one(self._positions() - 1)
            case MeanOfTokens():
                return self._mean()
            case MeanOfPositions():
                self._refuse_padding(self._positions() - 1)
                return self._mean()

    def _one(self, position: int) -> Pick:
        self._refuse_padding(position)
        return self._pick_of([[position]])

    def _mean(self) -> Pick:
        return self._pick_of([list(range(self.length))])

    def _pick_of(self, sources: list[list[int]]) -> Pick:
        """Each row the mean of its sources."""
        device = self.model.device
        indices = torch.tensor(sources, device=device)
        return Pick(indices, torch.full(indices.shape, 1 / indices.shape[1], dtype=self.dtype, device=device))

    def _refuse_padding(self, position: int) -> None:
        if position >= self.length:
            raise HeadError(
                f"{type(self.model).__name__} reads its logits off position {position + 1} of a sequence of {self.length} "
                f"tokens, which is padding. Run this sequence alone, without padding."
            )

    def _positions(self) -> int:
        assert self.heard.states is not None
        return self.heard.states.shape[1]

    def _ids(self) -> Tensor:
        ids = self.heard.arguments.get("input_ids")
        if ids is None:
            raise HeadError(f"The head of {type(self.model).__name__} finds its token by input_ids, which were not given.")
        return ids.reshape(-1, ids.shape[-1])[self.sequence]

    def _last_token(self) -> int:
        padding = self.model.config.get_text_config().pad_token_id
        if padding is None or self.heard.arguments.get("input_ids") is None:
            return self._positions() - 1
        return self._last_of(self._ids() != padding)

    def _last_of(self, wanted: Tensor) -> int:
        positions = wanted.nonzero().flatten()
        return int(positions[-1]) if len(positions) else 0

    # ---- products ------------------------------------------------------------------------------------------------------

    def _products(self, part: SpanPart) -> Products:
        """A row for each question and token, question by question."""
        questions = self.heard.taken[part.module][1][self.sequence].tolist()
        of_question = self._pick_of([[index] for index in range(len(questions)) for _ in range(self.length)])
        of_token = self._pick_of([[index] for _ in questions for index in range(self.length)])
        first = self._pick_of([[position] for position in questions])
        pairs = [
            (self._factor((first,), left, len(questions), of_question), self._factor((), right, self.length, of_token))
            for left, right in part.labels
        ]
        return Products(tuple(pairs))

    def _factor(self, before: tuple[Pick, ...], chain: Sequence[HeadPart], rows: int, after: Pick) -> Factor:
        output = self._cut(self.heard.given[_last_module(chain)], rows)[after.sources[:, 0]]
        return Factor((*before, *self._steps(chain, rows), after), output)
