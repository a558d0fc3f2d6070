"""Numbers as people give them, of Python, numpy or torch: whole ones, alone or several, places among others, and shares.

Layers, heads, positions, labels and token ids are read here, so that every call takes and refuses the same. Truth values and
fractions are no whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any, cast

from normscope.errors import SelectionError


def is_whole(value: object) -> bool:
    """Whether a value is one whole number."""
    try:
        whole_number(value, "")
    except SelectionError:
        return False
    return True


def whole_number(value: Any, what: str) -> int:
    """One whole number; `what` it counts is said where it is none."""
    try:
        if not _is_truth(value) and not getattr(
            value, "shape", ()
        ):  # numpy and torch take an array of one number for it
            return index(value)
    except (TypeError, RuntimeError):
        pass
    raise SelectionError(f"{what} is a whole number, not {value!r:.60}.")


def whole_numbers(values: Any, what: str) -> list[int]:
    """One whole number or several, as a list."""
    if is_whole(values):
        return [whole_number(values, what)]
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes) and getattr(values, "shape", True)
    if not several:
        raise SelectionError(f"{what} is a whole number, or a list of them, not {values!r:.60}.")
    return [whole_number(value, what) for value in cast("Iterable[Any]", values)]


def position_of(position: Any, length: int, what: str = "token") -> int:
    """A place among so many, negative from the end."""
    place = whole_number(position, f"The position of a {what}")
    if not -length <= place < length:
        raise SelectionError(
            f"There is no {what} {place}: the input has {length} tokens, 0 to {length - 1} (or -{length} to -1)."
        )
    return place % length


def is_share(value: Any) -> bool:
    """Whether a value is a number from 0 to 1."""
    try:
        return not _is_truth(value) and not isinstance(value, str | bytes) and 0 <= float(value) <= 1
    except (TypeError, ValueError, OverflowError):
        return False


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")
