"""Gradients at the states that enter the first block: their norms, times the states, and integrated from zero by captum."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.errors import InputError
from normscope.explain.model_values import Values
from normscope.explain.task import Asked, Attributed
from normscope.methods import declared
from normscope.methods.prediction import STATES_AT_ONCE, SharesOnly


class _Gradient(declared.Gradient, SharesOnly):
    """A method that reads the gradient of each value at the states that enter the first block."""

    def attribute(self, asked: Asked) -> Attributed:
        values = Values(asked.model, asked.sequence, asked.question)
        states = tuple(each.detach().requires_grad_() for each in values.entering)
        with torch.enable_grad():
            outputs = values.of_states(*states)[0]
        shares = [
            [self.share(gradient[0], state[0]) for gradient, state in zip(gradients, states, strict=True)]
            for gradients in (torch.autograd.grad(output, states, retain_graph=True) for output in outputs)
        ]
        main, *encoder = (torch.stack(list(each)).detach() for each in zip(*shares, strict=True))
        return Attributed(values.answers, values.logits, values.own, main, encoder[0] if encoder else None)

    @abstractmethod
    def share(self, gradient: Float[Tensor, "token d"], state: Float[Tensor, "token d"]) -> Float[Tensor, " token"]:
        """A token's share, from its gradient and its state."""


@dataclass(frozen=True)
class GradientNorm(declared.GradientNorm, _Gradient):
    """How sensitive a value is to a token."""

    def share(self, gradient: Float[Tensor, "token d"], state: Float[Tensor, "token d"]) -> Float[Tensor, " token"]:
        return gradient.norm(dim=-1)


@dataclass(frozen=True)
class GradientTimesInput(declared.GradientTimesInput, _Gradient):
    """A linear guess at what a token puts into a value."""

    def share(self, gradient: Float[Tensor, "token d"], state: Float[Tensor, "token d"]) -> Float[Tensor, " token"]:
        return (gradient * state).sum(-1)


@dataclass(frozen=True)
class IntegratedGradients(declared.IntegratedGradients, SharesOnly):
    """Gradients along the straight path from zero embeddings, by captum."""

    def calls(self, length: int) -> int:
        return 3 * self.steps

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"Integrated gradients take at least one step, not {self.steps}.")

    def attribute(self, asked: Asked) -> Attributed:
        integrated = _captum().IntegratedGradients
        values = Values(asked.model, asked.sequence, asked.question)
        zero = tuple(torch.zeros_like(each) for each in values.entering)
        at_once = max(1, STATES_AT_ONCE // max(each.shape[1] for each in zero))
        found = [
            integrated(values.of_states).attribute(
                values.entering, zero, target=target, n_steps=self.steps, internal_batch_size=at_once
            )
            for target in range(len(values.answers))
        ]
        main, *encoder = (torch.cat([each[side].sum(-1) for each in found]).detach() for side in range(len(zero)))
        with torch.no_grad():
            bias, own = values.of_states(*zero)[0], values.own
        every = torch.cat([main, *encoder], dim=-1)
        size = torch.maximum(every.abs().sum(-1) + bias.abs(), own.abs())
        errors = (every.sum(-1) + bias - own).abs() / size
        return Attributed(values.answers, values.logits, own, main, encoder[0] if encoder else None, bias, errors)


def _captum() -> ModuleType:
    try:
        import captum.attr  # noqa: PLC0415  (an extra, and slow to import)
    except ImportError as error:
        raise InputError(
            "The method 'integrated-gradients' needs captum, which is not installed: pip install 'normscope[captum]'."
        ) from error
    return captum.attr
