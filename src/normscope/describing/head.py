"""Heads: from the states that leave the last block, module by module, to the logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from normscope.describing.observe import Call, Observation, same
from normscope.describing.parts import activation_of, is_linear, named_activation, norm_part, plain_number
from normscope.errors import HeadError, listing
from normscope.families.heads.spec import (
    ActivationPart,
    Head,
    HeadPart,
    LastToken,
    LinearPart,
    MeanOfPositions,
    NamedActivationPart,
    PickPart,
    ScalePart,
    ShiftPart,
    SoftCapPart,
    Task,
    TokenAt,
)
from normscope.families.spec import Config

_PICKS: tuple[tuple[PickPart, slice], ...] = ((TokenAt(), slice(0, 1)), (LastToken(), slice(-1, None)))
_SPANS = ("start_logits", "end_logits")


def describe_head(seen: Observation, *, causal: bool) -> Head:
    """The head of an observed model; raises with how far it was followed."""
    logits, names = _logits(seen.output)
    task = _task(seen.model.config, logits, names, causal=causal)
    found = _Search(seen, logits).parts()
    labels = ("start", "end") if task == "question-answering" else None
    return Head(task, tuple(found), names, labels)


def _logits(output: Any) -> tuple[Tensor, tuple[str, ...]]:
    if all(name in output for name in _SPANS):
        return torch.stack([output[name][0] for name in _SPANS], dim=-1), _SPANS
    name = next((name for name in ("logits", "prediction_logits") if name in output), None)
    if name is None:
        raise HeadError(f"The model has no logits among its outputs ({listing(output)}).")
    logits: Tensor = output[name]
    return logits.reshape(-1, logits.shape[-1]), (name,)


def _task(config: Config, logits: Tensor, names: tuple[str, ...], *, causal: bool) -> Task:
    if names == _SPANS:
        return "question-answering"
    if getattr(config.get_text_config(), "vocab_size", None) == logits.shape[-1] and len(logits) > 1:
        return "causal-lm" if causal else "masked-lm"
    if len(logits) > 1:
        return "token-classification"
    return "sequence-classification"


@dataclass
class _Search:
    """The parts found so far lead to `states`, which `last` (a module) returned."""

    seen: Observation
    logits: Tensor

    def __post_init__(self) -> None:
        self.model: nn.Module = self.seen.model
        last = self.seen.runs[-1]
        self.states, self.last, self.time = last.returns, "", last.call.end
        self.calls = [
            call
            for call in self.seen.outside
            if call.start > self.time and call.transforms and not any(True for _ in call.module.children())
        ]

    def parts(self) -> Iterator[HeadPart]:
        while not same(self.states, self.logits):
            ending = self._ending()
            if ending is not None:
                yield ending
                return
            yield from self._next()

    def _next(self) -> Iterator[HeadPart]:
        """The parts up to and with the next module."""
        for call in self.calls:
            if call.start <= self.time:
                continue
            for before, entering in self._ways(call):
                part = self._module(call, entering)
                if part is not None:
                    yield from before
                    yield part
                    self.states, self.last, self.time = call.returns, call.path, call.end
                    return
        raise HeadError(
            f"The head was followed to {self.last or 'the last block'}, and what is made of its output was not found."
        )

    def _ways(self, call: Call) -> Iterator[tuple[list[HeadPart], Tensor]]:
        """The operations that may come between the states and the input of a module."""
        reads, states = call.reads, self.states
        if same(states, reads):
            yield [], reads
            return
        for part, rows in _PICKS:
            if same(states[rows], reads) and len(states) > 1:
                yield [part], reads
                return
        if len(states) > 1 and same(states.mean(0, keepdim=True), reads):
            yield [MeanOfPositions()], reads
        if states.shape != reads.shape:
            return
        factor = _ratio(reads, states)
        if factor is not None:
            yield [ScalePart(factor)], reads
        elif self.last:
            activation = self._activation(states, reads)
            if activation is not None:
                yield [activation], reads

    def _activation(self, states: Tensor, reads: Tensor) -> HeadPart | None:
        held = activation_of(self.model, states, reads, near=self.last)
        if held is not None:
            return ActivationPart(self.last_path, self._named(held))
        named = named_activation(states, reads)
        return None if named is None else NamedActivationPart(self.last_path, named.name)

    def _module(self, call: Call, entering: Tensor) -> HeadPart | None:
        if is_linear(self.model, call):
            return LinearPart(self._named(call.path))
        if call.reads.shape != call.returns.shape or isinstance(call.module, nn.Dropout | nn.Identity):
            return None
        norm = norm_part(self.model, call.path, entering, call.returns)
        return None if norm is None else replace(norm, module=self._named(call.path))

    def _ending(self) -> HeadPart | None:
        """The operations on the last states without a module."""
        states, logits = self.states, self.logits
        if len(logits) == 1 < len(states) and same(states[-1:], logits):
            return LastToken()
        if states.shape != logits.shape or not self.last:
            return None
        factor = _ratio(logits, states)
        if factor is not None:
            return ScalePart(factor)
        for value in _numbers(self.seen.model.config):
            if value > 0 and same(value * torch.tanh(states / value), logits):
                return SoftCapPart(self.last_path, value)
        for path, parameter in self.model.named_parameters():
            if parameter.shape == logits.shape[-1:] and same(states + parameter.detach(), logits):
                return ShiftPart(self._named(path))
        return None

    @property
    def last_path(self) -> str:
        return self._named(self.last)

    def _named(self, path: str) -> str:
        """A path as heads are described: below `base_model` where it lies in the bare model."""
        base = self.seen.model.base_model_prefix
        inside = base and self.seen.model.base_model is not self.seen.model and path.startswith(f"{base}.")
        return f"base_model.{path.removeprefix(f'{base}.')}" if inside else path


def _ratio(one: Tensor, other: Tensor) -> float | None:
    factor = float((one * other).sum() / other.square().sum().clamp(min=1e-30))
    return plain_number(factor) if same(factor * other, one) else None


def _numbers(config: Config) -> list[float]:
    """The numbers of a configuration, one of which may be a cap of the logits."""
    values = {**config.to_dict(), **config.get_text_config().to_dict()}.values()
    return [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
