"""A pair of element-wise functions in float32, by straight lines between exact values in a table.

An exact value may take dozens of operations in float64; looking it up takes a handful in float32. A table is used only
if it is as exact as float32 midway between its places, which a kink would spoil, and only for chunks of a few thousand
numbers that all lie within it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Pair = tuple[Tensor, Tensor]

_REACH, _PER_UNIT = 16, 4096
_AT_ONCE = 8192
"""Numbers that are looked up together, so that what is computed on the way stays in the processor's cache."""

_PRECISION = 6e-8
"""Error of a table, relative to one or to the value if that is larger: half of the last digit of a float32 number."""


@dataclass(frozen=True)
class Table:
    """The values of two functions at every `1 / 4096` between -16 and 16, and the functions themselves."""

    first: Float[Tensor, " place"]
    second: Float[Tensor, " place"]
    exact: Callable[[Tensor], Pair]

    @staticmethod
    def of(exact: Callable[[Tensor], Pair]) -> Table | None:
        """The table of a pair of functions; none if straight lines between its places are not exact."""
        count = _REACH * _PER_UNIT
        with torch.no_grad():
            places = torch.arange(-count, count + 1, dtype=torch.float64, device="cpu") / _PER_UNIT
            values, midway = exact(places), exact(places[:-1] + 0.5 / _PER_UNIT)
        for value, between in zip(values, midway, strict=True):
            errors = (torch.lerp(value[:-1], value[1:], 0.5) - between).abs() / between.abs().clamp(min=1)
            if not float(errors.amax()) <= _PRECISION:
                return None
        return Table(values[0].float(), values[1].float(), exact)

    def at(self, numbers: Float[Tensor, "..."]) -> Pair:
        """Both functions: from the table for chunks that lie within it, and computed directly for others."""
        flat = numbers.reshape(-1)
        first, second = torch.empty_like(flat), torch.empty_like(flat)
        for some, *out in zip(*(each.split(_AT_ONCE) for each in (flat, first, second)), strict=True):
            low, high = (float(end) for end in some.aminmax())
            if low >= -_REACH and high < _REACH:
                self._look_up(some, *out)
            else:  # also where there is no number
                for result, computed in zip(out, self.exact(some), strict=True):
                    result.copy_(computed)
        return first.view(numbers.shape), second.view(numbers.shape)

    def _look_up(self, numbers: Float[Tensor, " number"], *out: Float[Tensor, " number"]) -> None:
        scaled = numbers * _PER_UNIT
        cell = scaled.floor()
        place, within = cell.int() + _REACH * _PER_UNIT, scaled - cell
        for table, result in zip((self.first, self.second), out, strict=True):
            torch.lerp(table.index_select(0, place), table.index_select(0, place + 1), within, out=result)
