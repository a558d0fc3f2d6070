"""What a user says in a question, in the types that the rest works with: texts, whole numbers, lists of ids, a vector.

Numbers may be Python's, numpy's or torch's. What is none of what is meant is refused here, before a model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from normscope.errors import InputError, SelectionError
from normscope.explain.question import LabelName, Wanted
from normscope.inputs import encodable
from normscope.numerals import is_whole, whole_number, whole_numbers


def checked(target: Any, against: Any, at: Any, continue_for: Any, direction: Any, reply: Any) -> Wanted:
    """The question that a user asks."""
    return Wanted(
        None if target is None else _said(target, "target"),
        None if against is None else _label(against),
        None if at is None else whole_number(at, "A position (at)"),
        None if continue_for is None else whole_number(continue_for, "The number of tokens (continue_for)"),
        None if direction is None else _direction(direction),
        None if reply is None else _reply(reply),
    )


def _said(value: Any, what: str) -> LabelName | list[int]:
    """A word or label, its number, or a list of token ids."""
    if isinstance(value, str):
        return encodable(value)
    if is_whole(value):
        return whole_number(value, what)
    if isinstance(value, Sequence) and any(isinstance(item, str) for item in cast("Sequence[Any]", value)):
        raise InputError(
            f"One {what} is explained at a time, not the list {value!r:.60}. Call explain for each; the tokens of one "
            f"continuation are given as a text, or as a list of their ids."
        )
    try:
        return whole_numbers(value, f"A token id of the {what}")
    except SelectionError as error:
        raise InputError(
            f"The {what} is a text, the name or number of a label, or a list of token ids, not {value!r:.60}."
        ) from error


def _label(value: Any) -> LabelName:
    label = _said(value, "contrast (against)")
    if not isinstance(label, str | int):
        raise InputError(f"A contrast (against) is one word or label, or its number, not {value!r:.60}.")
    return label


def _reply(value: Any) -> str | list[int]:
    reply = _said(value, "reply")
    return [reply] if isinstance(reply, int) else reply


def _direction(value: Any) -> Tensor | Literal["state"]:
    if isinstance(value, str):
        if value != "state":
            raise InputError(f"A direction is a vector, or 'state' for the state itself, not {value!r:.60}.")
        return "state"
    try:
        vector = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"A direction is a vector of numbers, or 'state', not {value!r:.60}.") from error
    if vector.ndim != 1 or vector.is_complex():
        raise InputError(f"A direction is one vector [d] of numbers, not of shape {tuple(vector.shape)}.")
    if not bool(vector.isfinite().all()) or not bool(vector.any()):
        raise InputError("A direction is a vector of finite numbers, not all of them zero.")
    return vector.to(torch.promote_types(vector.dtype, torch.float32))
