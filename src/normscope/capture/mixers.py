"""Mixers that are linear in their values: their effective weights, and how a short convolution makes the values.

The weights are what the model's own mixing function makes of the identity as values, with everything else as in its call.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from normscope.capture.values import path_to_values, value_projection, value_share
from normscope.capture.view import MixingCall, SequenceView
from normscope.capture.weights import BlockWeights
from normscope.chain.activations import recognise
from normscope.chain.trace import ValueSource
from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import LinearMixer, ShortConvolution

# ---- The effective weights -----------------------------------------------------------------------------------------------


def mixing_weights(part: LinearMixer, view: SequenceView) -> Float[Tensor, "head query key"]:
    """`A`, with `o_i = sum_j A[h, i, j] v_hj`: what the mixing function makes of the identity, some tokens at a time."""
    if part.function is None:
        return torch.eye(view.length, dtype=view.dtype, device=view.device).expand(part.heads, -1, -1)
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


def shifted(weights: Float[Tensor, "head query key"], taps: int) -> Float[Tensor, "tap_head query key"]:
    """For every tap of a convolution, the weights of the token that many tokens after each key; zero after the last one."""
    if taps == 1:
        return weights
    keys = weights.shape[-1]
    padded = functional.pad(weights, (0, taps - 1))
    return torch.cat([padded[..., tap : tap + keys] for tap in range(taps)])


# ---- The values ----------------------------------------------------------------------------------------------------------


def mixed_values(
    part: LinearMixer, read: BlockWeights, view: SequenceView, d_head: int, *, below: bool
) -> tuple[Float[Tensor, "tap_head key d_head"], ValueSource | None]:
    """What every token puts into the values, by every tap of the convolution, and how that is made."""
    projected = value_share(part.value, view.output(part.value.module), part.heads, d_head).transpose(0, 1)
    slopes, offset = None, None
    values = projected
    if part.convolution is not None:
        slopes, offset = _convolved(part.convolution, read, view, projected)
        values = projected.repeat(len(slopes) // part.heads, 1, 1) * slopes
        values = values if offset is None else values + offset
    if not below:
        return values, None
    path = path_to_values(part, read, view)
    projection, bias = value_projection(part.value, read, part.heads, d_head)
    return values, ValueSource(path.states, tuple(path.steps), projection, bias, slopes=slopes, offset=offset)


def _convolved(
    part: ShortConvolution, read: BlockWeights, view: SequenceView, projected: Float[Tensor, "head key d_head"]
) -> tuple[Float[Tensor, "tap_head key d_head"], Float[Tensor, "tap_head key d_head"] | None]:
    """What every tap multiplies the projected values by, the slope of the activation included, and what the bias adds."""
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
    if part.activation is not None:
        slope = recognise(getattr(functional, part.activation)).slope(convolved)
    slopes = [tap * functional.pad(slope, (0, 0, 0, lag))[:, lag:] for lag, tap in enumerate(taps)]
    offset = None if bias is None else torch.cat([slope * bias, slope.new_zeros((len(taps) - 1) * heads, keys, d_head)])
    return torch.cat([each.expand_as(projected) for each in slopes]), offset


# ---- The calls of mixing functions, seen while the model runs ------------------------------------------------------------

_running = threading.local()
_lock = threading.Lock()


@dataclass
class _Replaced:
    """A function of a modelling file with ours in its place, and for how many captures."""

    original: Callable[..., Any]
    count: int = 0


_replaced: dict[tuple[str, str], _Replaced] = {}

MixingListener = Callable[[MixingCall], None]
"""A callback with one call of a mixing function."""


@dataclass(frozen=True)
class Mixer:
    """A mixer module whose calls of its mixing function are listened to."""

    module: nn.Module
    function: str
    listener: MixingListener = field(compare=False)

    @property
    def place(self) -> tuple[str, str]:
        """The file and name of its function."""
        return inspect.unwrap(type(self.module).forward).__globals__["__name__"], self.function


@contextmanager
def recorded_mixing(mixers: Iterable[Mixer]) -> Generator[None]:
    """While it lasts, listeners hear of every call of a mixing function inside of their mixers."""
    mixers = list(mixers)
    places = {mixer.place for mixer in mixers}
    handles = [handle for mixer in mixers for handle in _hooks(mixer)]
    for place in places:
        _replace(place)
    try:
        yield
    finally:
        for place in places:
            _restore(place)
        for handle in handles:
            handle.remove()


def _hooks(mixer: Mixer) -> list[Any]:
    def starts(*_: object) -> None:
        _running.mixer = mixer

    def ends(*_: object) -> None:
        _running.mixer = None

    return [mixer.module.register_forward_pre_hook(starts), mixer.module.register_forward_hook(ends)]


def _replace(place: tuple[str, str]) -> None:
    file, name = place
    names = vars(sys.modules[file])
    with _lock:
        if name not in names:
            raise UnsupportedArchitectureError(
                f"{file} has no function {name!r}, by which its family says that it mixes."
            )
        replaced = _replaced.setdefault(place, _Replaced(names[name]))
        replaced.count += 1
        if replaced.count == 1:
            replaced.original = names[name]
            names[name] = _listening(name, names[name])


def _restore(place: tuple[str, str]) -> None:
    file, name = place
    with _lock:
        replaced = _replaced[place]
        replaced.count -= 1
        if replaced.count == 0:
            vars(sys.modules[file])[name] = replaced.original


def _listening(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def mix(*args: Any, **kwargs: Any) -> Any:
        mixer: Mixer | None = getattr(_running, "mixer", None)
        if mixer is not None and mixer.function == name:
            mixer.listener(MixingCall.of(function, args, kwargs))
        return function(*args, **kwargs)

    return mix
