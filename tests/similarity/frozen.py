"""Similarities from their definition, in float64: every part of every token of both texts as a vector.

`n` frozen forward passes of each text, materialised by the oracle of propagated parts, then the pooling written out. Shares
no code with `similarity.account`, `decompose` and `pullback`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from methods.propagated_oracle import propagated
from torch import Tensor

from normscope.chain.trace import Normalise
from normscope.inputs import TokenSequence
from normscope.models.model import Model
from normscope.similarity.comparing import Comparison
from normscope.similarity.encoders import Encoder, Encoders
from normscope.similarity.recording import RecordedText, record
from normscope.similarity.spec import EmbeddingSpec
from normscope.similarity.texts import TextInput


def text_of(ids: Sequence[int], prompt_length: int = 0, scored: Sequence[bool] = ()) -> TextInput:
    """Token ids as a text."""
    names = [str(number) for number in ids]
    sequence = TokenSequence({"input_ids": list(ids)}, names, [False] * len(ids), None, names, "ids")
    return TextInput("ids", "", None, sequence, prompt_length, scored=tuple(scored) or (True,) * len(ids))


@dataclass(frozen=True)
class Parts:
    """`[row, token, d]`, and what belongs to no token, `[row, d]`."""

    parts: Tensor
    bias: Tensor

    def through(self, linear: Callable[[Tensor], Tensor], constant: Tensor | float = 0.0) -> Parts:
        """The parts behind something affine, whose constant belongs to no token."""
        return Parts(linear(self.parts), linear(self.bias) + constant)


def last_states(recorded: RecordedText) -> Parts:
    """The parts of the states that the model outputs: behind the last block, and the steps of the model's own end."""
    result = propagated(recorded.layers)[-1]
    current = Parts(result.parts, result.bias)
    states = recorded.head.states.double()
    for step in recorded.head.steps:
        if isinstance(step, Normalise):
            centred = hasattr(step.norm, "bias")
            weight, shift = step.norm.weight.double(), getattr(step.norm, "bias", None)
            inner = states - states.mean(-1, keepdim=True) if centred else states
            deviation = (inner.square().mean(-1) + step.norm.epsilon).sqrt()

            def normed(vectors: Tensor, weight=weight, deviation=deviation, centred=centred) -> Tensor:
                vectors = vectors - vectors.mean(-1, keepdim=True) if centred else vectors
                return vectors * weight / deviation.reshape(-1, *[1] * (vectors.dim() - 1))

            constant = 0.0 if shift is None else shift.double()
            current, states = current.through(normed, constant), normed(states) + constant
        else:
            return current
    return current


def of(model: Model, spec: EmbeddingSpec) -> Encoders:
    """The encoders of a model with a description of its own."""
    return Encoders(model.name, **{model.family.reads: Encoder(model, spec)})


def recorded_pair(model: Model, spec: EmbeddingSpec, *texts: TextInput) -> list[RecordedText]:
    return record(model, spec, texts)


def table_of(comparison: Comparison, first: TextInput, second: TextInput) -> Tensor:
    """Cells, with margins as the last row and column and the constant in the corner, as normscope computes them."""
    (dataset,) = comparison.datasets(first, [second])
    rows = torch.tensor(dataset["table"].values)
    column, row = torch.tensor(dataset["first_margin"].values), torch.tensor(dataset["second_margin"].values)
    top = torch.cat([rows, column[:, None]], 1)
    bottom = torch.cat([row, torch.tensor([float(dataset["constant"])]).to(row)])
    return torch.cat([top, bottom[None]])


def products(first: Parts, second: Parts, factor: float) -> Tensor:
    """The same from vectors."""
    one, other = (torch.cat([each.parts, each.bias[:, None]], 1) for each in (first, second))
    return torch.einsum("rkd,rld->kl", one, other) * factor
