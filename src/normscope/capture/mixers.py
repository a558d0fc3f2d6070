"""Mixers that are linear in their values: their effective weights, and how a short convolution makes the values.

The weights are the output of the model's own mixing function for the identity as values, with all other arguments as in its
call.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from normscope.capture.grids import over_grid
from normscope.capture.scans import Scanned, joined_taps
from normscope.capture.values import path_to_values, value_projection, value_share
from normscope.capture.view import SequenceView
from normscope.capture.weights import BlockWeights
from normscope.chain.activations import recognise
from normscope.chain.trace import ValueSource
from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import ChannelScan, DecayedProducts, GridConvolution, LinearMixer, ShortConvolution

# ---- The effective weights -----------------------------------------------------------------------------------------------


def mixing_weights(part: LinearMixer, read: BlockWeights, view: SequenceView) -> Float[Tensor, "head query key"]:
    """`A`, with `o_i = sum_j A[h, i, j] v_hj`: the output of the mixing function for the identity, some tokens at a
    time."""
    if part.function is None:
        return torch.eye(view.length, dtype=view.dtype, device=view.device).expand(part.heads, -1, -1)
    if isinstance(part.function, DecayedProducts):
        return _decayed_products(part.function, part.heads, read, view)
    assert isinstance(part.function, str)
    call = view.mixing(part.module)
    arguments = call.of_sequence(view.sequence, view.length)
    if part.values not in arguments:
        raise UnsupportedArchitectureError(
            f"The mixing function {part.function!r} was called without an argument {part.values!r}, which its family says "
            f"are its values. It is {call.function.__qualname__} of {call.function.__module__}: put the function of "
            f"transformers back, or analyse the model with the transformers that its family was written for."
        )
    values = arguments[part.values]
    _, length, heads, width = values.shape
    weights = values.new_zeros(heads, length, length)
    for start in range(0, length, width):
        # Before the first of these tokens there is nothing to mix, so that the recurrence may begin with it.
        later = {name: value[:, start:] if call.is_by_token(name) else value for name, value in arguments.items()}
        count = min(width, length - start)
        identity = torch.eye(length - start, width, dtype=values.dtype, device=values.device)
        later[part.values] = identity[None, :, None].expand(1, -1, heads, -1).contiguous()
        mixed = call.run(later)[0].permute(1, 0, 2)
        weights[:, start:, start : start + count] = mixed[..., :count]
    return weights.to(view.device, view.dtype)


def _decayed_products(
    formula: DecayedProducts, heads: int, read: BlockWeights, view: SequenceView
) -> Float[Tensor, "head query key"]:
    """`<q_i, k_j> exp(-decay (i - j))`, for keys up to the query."""
    activated = getattr(functional, formula.activation)(view.output(formula.projection))
    query, key, _ = activated.unflatten(-1, (heads, 3, -1)).permute(2, 1, 0, 3)
    places = torch.arange(view.length, device=view.device)
    between = (places[:, None] - places).clamp(min=0)
    decay = read.parameter(formula.decay).view(heads, 1, 1)
    return (query @ key.mT * torch.exp(-decay * between)).tril()


def shifted(weights: Float[Tensor, "head query key"], taps: int) -> Float[Tensor, "tap_head query key"]:
    """For every tap of a convolution, the weights of the token that far after each key; zero after the last one."""
    if taps == 1:
        return weights
    keys = weights.shape[-1]
    padded = functional.pad(weights, (0, taps - 1))
    return torch.cat([padded[..., tap : tap + keys] for tap in range(taps)])


# ---- The values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixed:
    """The inputs of a mixer: the weights and values of every tap of its convolution, and how the values are computed."""

    weights: Float[Tensor, "tap_head query key"]
    values: Float[Tensor, "tap_head key d_head"]
    source: ValueSource | None


def mixed(part: LinearMixer, read: BlockWeights, view: SequenceView, d_head: int, *, below: bool) -> Mixed:
    """The weights, and the contribution of every token to the values; below attention also how it is computed."""
    projected = value_share(part.value, view.output(part.value.module), part.heads, d_head).transpose(0, 1)
    if isinstance(part.function, ChannelScan):
        weights, slopes, offset = _scanned(part, part.function, read, view, projected)
    elif isinstance(part.convolution, GridConvolution):
        weights, slopes, offset = over_grid(part.convolution, read, view, projected)
    else:
        slopes, offset = _slopes(part, read, view, projected)
        taps = 1 if slopes is None else len(slopes) // part.heads
        weights = shifted(mixing_weights(part, read, view), taps)
    values = projected if slopes is None else projected.repeat(len(slopes) // part.heads, 1, 1) * slopes
    values = values if offset is None else values + offset
    if not below:
        return Mixed(weights, values, None)
    path = path_to_values(part, read, view)
    projection, bias = value_projection(part.value, read, part.heads, d_head)
    source = ValueSource(path.states, tuple(path.steps), projection * path.factor, bias, slopes=slopes, offset=offset)
    return Mixed(weights, values, source)


def _scanned(
    part: LinearMixer, scan: ChannelScan, read: BlockWeights, view: SequenceView, projected: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The same for a recurrence by channel: its taps are part of its weights, so slopes only separate values from a
    bias."""
    assert isinstance(part.convolution, ShortConvolution)
    scanned = Scanned.of(part, scan, view)
    entering = scanned.values if scan.gates_values else None
    slopes, offset = _convolved(part.convolution, read, view, projected, entering)
    weights = joined_taps(scanned.weights().to(projected), slopes, offset)
    if offset is None:
        return weights, None, None
    first, nothing = offset[: part.heads], torch.zeros_like(projected)
    return weights, torch.cat([nothing, torch.ones_like(projected)]), torch.cat([first, nothing])


def _slopes(
    part: LinearMixer, read: BlockWeights, view: SequenceView, projected: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    if isinstance(part.convolution, ShortConvolution):
        return _convolved(part.convolution, read, view, projected)
    if isinstance(part.function, DecayedProducts):
        return recognise(getattr(functional, part.function.activation)).slope(projected), None
    return None, None


def _convolved(
    part: ShortConvolution,
    read: BlockWeights,
    view: SequenceView,
    projected: Float[Tensor, "head key d_head"],
    mixed_values: Float[Tensor, "head key d_head"] | None = None,
) -> tuple[Float[Tensor, "tap_head key d_head"], Float[Tensor, "tap_head key d_head"] | None]:
    """The factor of the projected values for every tap, including the slope of the activation, and what the bias adds. If
    the mixed values are known (`mixed_values`), the slope is their ratio to the output of the convolution.
    """
    heads, keys, d_head = projected.shape
    channels = slice(heads * d_head) if part.values_first else slice(-heads * d_head, None)
    kernel = read.parameter(f"{part.module}.weight")[channels, 0].view(heads, d_head, -1).flip(-1).movedim(-1, 0)
    bias = read.attribute(f"{part.module}.bias")
    bias = None if bias is None else bias.detach().to(projected)[channels].view(heads, 1, d_head)
    entering = projected.new_ones(1, 1, 1)
    if part.gate is not None:
        gates = value_share(part.gate.source, view.output(part.gate.source.module), heads, d_head)
        entering = gates.transpose(0, 1)
    taps = [tap[:, None] * entering for tap in kernel]  # of the token itself, of the one before it, ...
    convolved = torch.zeros_like(projected) if bias is None else bias.expand_as(projected).clone()
    for lag, tap in enumerate(taps):
        convolved[:, lag:] += (tap * projected)[:, : keys - lag]
    slope = torch.ones_like(convolved)
    if mixed_values is not None:
        slope = torch.where(convolved == 0, 0, mixed_values.to(convolved) / convolved)
    elif part.activation is not None:
        slope = recognise(getattr(functional, part.activation)).slope(convolved)
    slopes = [tap * functional.pad(slope, (0, 0, 0, lag))[:, lag:] for lag, tap in enumerate(taps)]
    offset = None if bias is None else torch.cat([slope * bias, slope.new_zeros((len(taps) - 1) * heads, keys, d_head)])
    return torch.cat([each.expand_as(projected) for each in slopes]), offset
