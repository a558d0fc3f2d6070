"""An attention and a mixer side by side, as one attention that has the heads of both.

Heads of the narrower one get channels that hold nothing, and an attention the taps of the mixer's convolution, of which it
uses the first alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from normscope.chain.trace import Attention, Gating, SelfAttention, Shared, ValueSource
from normscope.errors import UnsupportedArchitectureError


def side_by_side(attention: Attention, mixer: Attention, factors: tuple[float, float], shared: Shared) -> SelfAttention:
    """The heads of the attention, then those of the mixer, whose outputs are multiplied by `factors`."""
    if attention.gates is not None or attention.norm is not None or mixer.norm is not None:
        raise UnsupportedArchitectureError(
            "An attention beside a mixer has gates, or one of the two a norm before its output: no component describes that."
        )
    width = max(each.output.shape[1] for each in (attention, mixer))
    heads = len(attention.output)
    first, second = (_widened(each.values, width) for each in (attention, mixer))
    outputs = [factor * _taller(each.output, width) for factor, each in zip(factors, (attention, mixer), strict=True)]
    biases = [
        factor * each.bias for factor, each in zip(factors, (attention, mixer), strict=True) if each.bias is not None
    ]
    gates = mixer.gates
    return SelfAttention(
        weights=_by_taps(attention.weights, mixer.weights, mixer.taps),
        values=_by_taps(first, second, mixer.taps),
        output=torch.cat(outputs),
        bias=sum(biases[1:], biases[0]) if biases else None,
        source=_sources(attention, mixer, width),
        shared=shared,
        gates=None if gates is None else torch.cat([_ones(heads, gates, width), _widened(gates, width)]),
        taps=mixer.taps,
        gating=_gating(mixer.gating, heads, width),
    )


def _sources(attention: Attention, mixer: Attention, width: int) -> ValueSource | None:
    first, second = attention.source, mixer.source
    if first is None or second is None:
        return None
    heads, keys = len(attention.output), len(first.states)
    slopes = second.slopes
    if slopes is not None:
        own = torch.ones(heads, keys, width, dtype=slopes.dtype, device=slopes.device)
        slopes = _by_taps(own, _widened(slopes, width), mixer.taps)
    offset = second.offset
    if offset is not None:
        offset = _by_taps(offset.new_zeros(heads, keys, width), _widened(offset, width), mixer.taps)
    return ValueSource(
        states=first.states,
        steps=first.steps,
        projection=torch.cat([_taller(first.projection, width), _taller(second.projection, width)]),
        bias=_biases(first, second, width),
        slopes=slopes,
        offset=offset,
    )


def _biases(first: ValueSource, second: ValueSource, width: int) -> Tensor | None:
    if first.bias is None and second.bias is None:
        return None
    each = [
        source.projection.new_zeros(source.projection.shape[:2]) if source.bias is None else source.bias
        for source in (first, second)
    ]
    return torch.cat([_widened(bias, width) for bias in each])


def _gating(gating: Gating | None, heads: int, width: int) -> Gating | None:
    """Those of the mixer's heads alone; what enters channels that hold nothing is one."""
    if gating is None:
        return None
    missing = width - gating.entering.shape[-1]
    return Gating(gating.activation, functional.pad(gating.entering, (0, missing), value=1.0), ungated=heads)


def _by_taps(first: Tensor, second: Tensor, taps: int) -> Tensor:
    """Heads of both, tap by tap; the first has one tap."""
    later = first.new_zeros((taps - 1, *first.shape))
    every = torch.cat([first[None], later])
    return torch.cat([every, second.unflatten(0, (taps, -1))], dim=1).flatten(0, 1)


def _ones(heads: int, like: Tensor, width: int) -> Tensor:
    return like.new_ones(heads, like.shape[1], width)


def _widened(tensor: Tensor, width: int) -> Tensor:
    """With zeros in the last dimension."""
    return functional.pad(tensor, (0, width - tensor.shape[-1]))


def _taller(tensor: Tensor, width: int) -> Tensor:
    """With zeros in the last but one."""
    return functional.pad(tensor, (0, 0, 0, width - tensor.shape[-2]))
