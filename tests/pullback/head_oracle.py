"""The attribution of a head's logits from the definitions, forwards, in float64: one part for every token, and a bias.

Slow and plain: parts `[token, row, f]` go through every step, norms divide by the deviation of the parts' own sum, and
activations and products are integrated along the straight path from zero. Shares no code with `pullback`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from normscope.chain.head_trace import Activate, Average, HeadStep, HeadTrace, Pick, Products, Scale, Shift
from normscope.chain.trace import LayerNorm, Linear, Normalise
from normscope.testing.oracle import path_integrals


@dataclass(frozen=True)
class Parts:
    """`sum over tokens of of_tokens[token, row] + bias[row]` is the state of a row."""

    of_tokens: Tensor
    bias: Tensor

    @property
    def state(self) -> Tensor:
        return self.of_tokens.sum(0) + self.bias


def parts_of_logits(trace: HeadTrace) -> Parts:
    """What every token, and the bias, contribute to every logit: `[token, row, label]` and `[row, label]`."""
    states = trace.states.double()
    own = torch.zeros(len(states), *states.shape, dtype=torch.float64)
    own[range(len(states)), range(len(states))] = states
    return _follow(trace.steps, Parts(own, torch.zeros_like(states)))


def _follow(steps: tuple[HeadStep, ...], parts: Parts) -> Parts:
    for step in steps:
        parts = _apply(step, parts)
    return parts


def _apply(step: HeadStep, parts: Parts) -> Parts:
    match step:
        case Linear():
            matrix = step.weight.double().T
            bias = 0 if step.bias is None else step.bias.double()
            return Parts(parts.of_tokens @ matrix, parts.bias @ matrix + bias)
        case Normalise():
            return _normalised(step, parts)
        case Activate():
            return _activated(step, parts)
        case Scale():
            return Parts(parts.of_tokens * step.factor, parts.bias * step.factor)
        case Shift():
            return replace(parts, bias=parts.bias + step.bias.double())
        case Pick():
            mixing = torch.zeros(len(step.sources), parts.bias.shape[0], dtype=torch.float64)
            mixing.scatter_add_(1, step.sources, step.weights.double())
            return Parts(mixing @ parts.of_tokens, mixing @ parts.bias)
        case Average():
            branches = [_follow(branch, parts) for branch in step.branches]
            mean = torch.stack([branch.of_tokens for branch in branches]).mean(0)
            return Parts(mean, torch.stack([branch.bias for branch in branches]).mean(0))
        case Products():
            labels = [_product(_follow(left.steps, parts), _follow(right.steps, parts)) for left, right in step.pairs]
            of_tokens = torch.stack([label.of_tokens for label in labels], dim=-1)
            return Parts(of_tokens, torch.stack([label.bias for label in labels], dim=-1))


def _normalised(step: Normalise, parts: Parts) -> Parts:
    state, norm = parts.state, step.norm
    centred = isinstance(norm, LayerNorm)

    def centre(vectors: Tensor) -> Tensor:
        return vectors - vectors.mean(-1, keepdim=True) if centred else vectors

    deviation = (centre(state).square().mean(-1, keepdim=True) + norm.epsilon).sqrt()
    factor = norm.weight.double() / deviation
    shift = norm.bias.double() if isinstance(norm, LayerNorm) and norm.bias is not None else 0
    return Parts(centre(parts.of_tokens) * factor, centre(parts.bias) * factor + shift)


def _activated(step: Activate, parts: Parts) -> Parts:
    """Every part times the mean gradient along the path."""
    _, mean, _ = path_integrals(step.activation.function, parts.state)
    at_zero = step.activation.function(torch.zeros_like(parts.state))
    return Parts(parts.of_tokens * mean, parts.bias * mean + at_zero)


def _product(left: Parts, right: Parts) -> Parts:
    """Along the path from zero both factors grow together, so that each has half of its gradient on average."""

    def share(one: Tensor, other: Tensor) -> Tensor:
        return (one * other).sum(-1) / 2

    of_tokens = share(left.of_tokens, right.state) + share(right.of_tokens, left.state)
    return Parts(of_tokens, share(left.bias, right.state) + share(right.bias, left.state))
