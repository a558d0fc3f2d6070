"""Recurrences whose weights differ by channel (Mamba-1, RG-LRU): every channel is a head of one number.

Their weights are the output of the model's own function for the identity: in each row of a batch, one key token alone has
values. There is a number for every query, key and channel, so inputs have to be short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.capture.view import Keywords, MixingCall, SequenceView
from normscope.errors import InputError
from normscope.families.spec import ChannelScan, LinearMixer

MOST_WEIGHTS = 1 << 28
"""How many weights of one layer are computed: a gibibyte of float32."""

_STATES_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Scanned:
    """A scan with the numbers of one sequence, tokens before channels."""

    scan: ChannelScan
    call: MixingCall
    arguments: Keywords
    length: int
    channels: int

    @staticmethod
    def of(part: LinearMixer, scan: ChannelScan, view: SequenceView) -> Scanned:
        """As the model called it for the sequence of a view; half precision as float32."""
        if part.heads * view.length**2 > MOST_WEIGHTS:
            raise InputError(
                f"A recurrence with weights of its own for each of its {part.heads} channels has "
                f"{part.heads * view.length**2:,} of them for {view.length} tokens, where {MOST_WEIGHTS:,} are computed at "
                f"most. Inputs of this model may have {int((MOST_WEIGHTS / part.heads) ** 0.5)} tokens."
            )
        call = view.mixing(part.module)
        token = 2 if scan.channels_first else 1
        whole: Tensor = call.arguments["hidden_states"]
        batch, positions = len(whole), whole.shape[token]

        def cut(value: Any) -> Any:
            if isinstance(value, Tensor) and value.dim() == whole.dim() and value.shape[token] == positions:
                row = min(view.sequence, len(value) - 1)  # positions may be the same for the whole batch
                value = value[row : row + 1].narrow(token, 0, view.length)
            half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
            return value.float() if half else value

        assert batch > view.sequence
        arguments = {name: None if name in scan.without else cut(value) for name, value in call.arguments.items()}
        return Scanned(scan, call, arguments, view.length, part.heads)

    @property
    def values(self) -> Float[Tensor, "head key channel"]:
        """The inputs of the recurrence, every channel a head."""
        values: Tensor = self.arguments["hidden_states"][0]
        return (values if self.scan.channels_first else values.T)[:, :, None]

    def weights(self) -> Float[Tensor, "head query key"]:
        """The output of the function for the identity, some keys at a time."""
        weights = self.values.new_zeros(self.channels, self.length, self.length)
        some = max(1, _STATES_AT_ONCE // (self.channels * self.length))
        for start in range(0, self.length, some):
            keys = torch.arange(start, min(start + some, self.length), device=weights.device)
            weights[:, :, keys] = self._response(keys)
        return weights

    def _response(self, keys: Tensor) -> Float[Tensor, "head query some_key"]:
        values: Tensor = self.arguments["hidden_states"]
        token = 2 if self.scan.channels_first else 1
        only = torch.zeros(len(keys), *values.shape[1:], dtype=values.dtype, device=values.device)
        each = torch.arange(len(keys), device=keys.device)
        if token == 2:
            only[each, :, keys] = 1
        else:
            only[each, keys] = 1
        arguments = {name: self._for_each(value, len(keys)) for name, value in self.arguments.items()}
        mixed = self.call.run({**arguments, "hidden_states": only})
        return mixed.permute(1, 2, 0) if token == 2 else mixed.permute(2, 1, 0)

    def _for_each(self, value: Any, count: int) -> Any:
        by_token = isinstance(value, Tensor) and value.dim() == self.arguments["hidden_states"].dim()
        return value.expand(count, *value.shape[1:]) if by_token else value


def joined_taps(
    own: Float[Tensor, "head query key"], slopes: Float[Tensor, "tap_head key one"], offset: Tensor | None
) -> Float[Tensor, "joined_head query key"]:
    """The weights of the projection's outputs, summed over the taps of the convolution: `sum_s a[i, j + s] slopes[s, j]`.

    If the convolution has a bias, its weights (the recurrence's `own`) come before them.
    """
    heads = len(own)
    weights = own.new_zeros(heads if offset is None else 2 * heads, *own.shape[1:])
    for lag, slope in enumerate(slopes.unflatten(0, (-1, heads))):
        keys = own.shape[-1] - lag
        weights[-heads:, :, : max(0, keys)] += own[:, :, lag:] * slope[:, None, : max(0, keys), 0]
    if offset is not None:
        weights[:heads] = own
    return weights
