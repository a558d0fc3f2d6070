"""What a user says in a question, in the types that the rest works with: texts, whole numbers, lists of ids, a vector; the
same for all texts of a list, or something else for each.

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
from normscope.families.heads import labels_of
from normscope.inputs import encodable
from normscope.models.model import Model
from normscope.options import MOST_DIGITS, is_whole, objective_of, whole_number, whole_numbers

_TOKEN_IDS = ("target", "decoder_text")
"""What may be a list of token ids of one text."""


def checked_each(count: int, *, tokens: bool, objective: str | None, said: dict[str, object]) -> list[Wanted]:
    """The questions about the texts of a list. A list has something for each of them, a text or a number is for all.

    With `tokens`, labels are tokens, so that a list of numbers is a continuation.
    """
    spread = {name: _spread(name, value, count, tokens=tokens) for name, value in said.items()}
    return [
        checked(**{name: values[place] for name, values in spread.items()}, objective=objective)
        for place in range(count)
    ]


def _spread(name: str, value: object, count: int, *, tokens: bool) -> list[object]:
    """A value for each text."""
    array: Any = value
    listed: Any = array.tolist() if getattr(value, "ndim", 0) == 1 and name != "direction" else value
    if name in ("direction", "continue_for") or not isinstance(listed, list | tuple):
        return [value] * count
    items = cast("list[object]", list(listed))
    ids = name in _TOKEN_IDS and (tokens or name != "target") and bool(items) and all(map(is_whole, items))
    if ids and (len(items) != count or count == 1):
        return [items] * count
    if ids:
        raise InputError(
            f"{name}={items!r:.60} may be {count} token ids, the same for all texts, or one for each of the {count}. Say "
            f"which: a list of lists, such as [[{items[0]}], ...], has the ids for each text."
        )
    if len(items) != count:
        raise InputError(
            f"{name} is a list of {len(items)} for {count} texts: give one for each of them, or a single one for all."
        )
    return items


def label_or_number(model: Model, text: str) -> LabelName:
    """What a label that was written as text stands for: a number, if no label is called so and it can only be one."""
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        return text
    if model.tokenizer is None:
        return int(text)
    names = labels_of(model.module)
    return text if names is None or text in names else int(text)


def checked(
    target: object,
    against: object,
    at: object,
    continue_for: object,
    direction: object,
    decoder_text: object,
    objective: str | None = None,
) -> Wanted:
    """The question that a user asks."""
    return Wanted(
        None if target is None else _said(target, "target"),
        None if against is None else _label(against),
        at if at is None or isinstance(at, str) else whole_number(at, "A position (at)"),
        None if continue_for is None else whole_number(continue_for, "The number of tokens (continue_for)"),
        None if direction is None else _direction(direction),
        None if decoder_text is None else _decoder_text(decoder_text),
        None if objective is None else objective_of(objective),
    )


def _said(value: object, what: str) -> LabelName | list[int]:
    """A word or label, its number, or a list of token ids."""
    if isinstance(value, str):
        return encodable(value)
    if is_whole(value):
        return whole_number(value, what)
    if isinstance(value, Sequence) and any(isinstance(item, str) for item in cast("Sequence[object]", value)):
        raise InputError(
            f"One {what} is explained at a time, not the list {value!r:.60}. Call explain for each, or give a list of texts "
            f"with one for each of them; the tokens of one continuation are a text, or a list of their ids."
        )
    try:
        return whole_numbers(value, f"A token id of the {what}")
    except SelectionError as error:
        raise InputError(
            f"The {what} is a text, the name or number of a label, or a list of token ids, not {value!r:.60}."
        ) from error


def _label(value: object) -> LabelName:
    label = _said(value, "contrast (against)")
    if not isinstance(label, str | int):
        raise InputError(f"A contrast (against) is one word or label, or its number, not {value!r:.60}.")
    return label


def _decoder_text(value: object) -> str | list[int]:
    text = _said(value, "text of the decoder (decoder_text)")
    return [text] if isinstance(text, int) else text


def _direction(value: object) -> Tensor | Literal["state"]:
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
