"""Attention sinks: tokens that take much of the attention whatever they say, mostly the first one or a separator.

A model parks attention there that has nothing to do. The token's state is often massive and its value vector short, so that
a large weight, or a large share of a logit, tells little about the word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normscope.chain.trace import LayerTrace, SelfAttention

SHARE = 0.2
"""A sink gets at least this much of the attention of the tokens that see it, mean over heads and layers ..."""

TIMES = 2.0
"""... and at least this many times what it would get if each of them attended equally to all that it sees."""


def received(trace: LayerTrace) -> Float[Tensor, " token"]:
    """The attention that every token of a layer gets from the others that see it: mean over heads and over those."""
    attention = next((step for step in trace.steps if isinstance(step, SelfAttention)), None)
    if attention is None:
        return torch.zeros(trace.length, device=trace.hidden.device)
    seen = _seen(trace.length, causal=trace.causal, device=trace.hidden.device).to(attention.weights.dtype)
    return (attention.mixing_weights.mean(0).abs() * seen).sum(0) / seen.sum(0).clamp(min=1)


def sinks(attention: Float[np.ndarray, "layer token"], *, causal: bool) -> np.ndarray:
    """Which tokens are sinks, from the attention that they receive in every layer."""
    count = attention.shape[-1]
    host = torch.device("cpu")
    seen = _seen(count, causal=causal, device=host).double()
    visible = torch.arange(1, 1 + count, device=host) if causal else torch.full((count,), count, device=host)
    equal = ((seen / visible[:, None]).sum(0) / seen.sum(0).clamp(min=1)).numpy()
    mean = attention.mean(0)
    return (mean >= SHARE) & (mean >= TIMES * equal)


def sinks_of_layers(received: Sequence[Float[Tensor, " token"]], *, causal: bool) -> Bool[Tensor, " token"]:
    """The same as a tensor, of layers one by one."""
    attention = torch.stack([each.float().cpu() for each in received]).numpy()
    return torch.from_numpy(sinks(attention, causal=causal))


def _seen(count: int, *, causal: bool, device: torch.device) -> Tensor:
    """`[query, key]`: 1 where a query sees another token."""
    others = 1 - torch.eye(count, device=device)
    return others.tril() if causal else others
