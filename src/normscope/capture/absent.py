"""Steps that stand for components which a layer lacks and other layers of its stack have.

Layers of different kinds then have the same scopes. A missing component adds nothing, or changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from normscope.capture.view import SequenceView
from normscope.chain.activations import recognise
from normscope.chain.trace import (
    Expert,
    Linear,
    Plain,
    Scale,
    SelfAttention,
    SequentialFeedForward,
    Step,
    ValueSource,
)


def absent(component: str, view: SequenceView, *, below: bool) -> Step:
    """The step of a component that a layer lacks."""
    match component:
        case "Attn":
            return _no_attention(view.hidden, below=below)
        case "Ff":
            return _no_network(view.hidden)
        case _:
            return Scale(1.0, component)


def _no_attention(hidden: Tensor, *, below: bool) -> SelfAttention:
    """One head whose weights are zero."""
    length, d = hidden.shape
    source = ValueSource(hidden, (), hidden.new_zeros(1, 1, d), None) if below else None
    weights = hidden.new_zeros(1).expand(1, length, length)  # takes no memory
    return SelfAttention(weights, hidden.new_zeros(1, length, 1), hidden.new_zeros(1, 1, d), None, source)


def _no_network(hidden: Tensor) -> SequentialFeedForward:
    """One neuron whose input and output weights are zero."""
    length, d = hidden.shape
    network = Plain(Linear(hidden.new_zeros(1, d)), recognise(torch.nn.functional.relu), Linear(hidden.new_zeros(d, 1)))
    rows = torch.arange(length, device=hidden.device)
    return SequentialFeedForward((Expert(network, rows, hidden.new_ones(length), (hidden.new_zeros(length, 1),)),))
