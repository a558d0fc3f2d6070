"""Inputs with tokens taken away: the model's input without them, and the rows of its values. A token is replaced by the
mask token, or dropped. Some cannot be removed, such as the one whose own label is explained.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import cast

from normscope.errors import InputError
from normscope.explain.question import DirectionQuestion, Question
from normscope.families.heads import head_of
from normscope.families.heads.spec import EndToken
from normscope.inputs import TokenSequence
from normscope.models.model import Model
from normscope.options import Removal

NO_ROW = -1
"""The row of a value that does not exist without the token."""


@dataclass(frozen=True)
class Without:
    """The input without the token at `place` (of the decoder's tokens, then the encoder's), and the values' rows."""

    place: int
    sequence: TokenSequence
    rows: list[int]


def removal_of(model: Model, sequence: TokenSequence, asked: Removal) -> Removal:
    """The removal that is meant: by default the mask token where there is one, otherwise dropping."""
    is_signal = sequence.signal is not None
    mask = getattr(model.tokenizer, "mask_token_id", None)
    if asked == "auto":
        return "mean" if is_signal else "drop" if mask is None else "mask"
    if is_signal and asked != "mean":
        raise InputError(
            f"A patch of an image or a frame of a sound is taken away by the mean embedding (removal='mean'), "
            f"not by {asked!r}."
        )
    if asked == "mask" and mask is None:
        raise InputError(f"{model.name} has no mask token to put in place of a token: use removal='drop' or 'mean'.")
    return asked


def without_each(
    model: Model, sequence: TokenSequence, question: Question, rows: Sequence[int], removal: Removal
) -> list[Without]:
    """The input without each of its tokens that can be taken away."""
    target = sequence.target
    own = sequence if target is None else target
    fixed = _fixed(model, sequence, question)
    inputs = [
        (place, _changed(model, own, [place], removal), _rows(model, question, rows, len(own), [place], removal))
        for place in range(len(own))
        if target is not None or place not in fixed
    ]
    withouts = [
        Without(place, changed if target is None else replace(sequence, target=changed), moved)
        for place, changed, moved in inputs
    ]
    if target is not None:
        withouts += [
            Without(len(target) + place, _changed(model, sequence, [place], removal), list(rows))
            for place in range(len(sequence))
            if place not in fixed
        ]
    return [
        each
        for each in withouts
        if any(row != NO_ROW for row in each.rows) and len(each.sequence.target or each.sequence)
    ]


def without(
    model: Model,
    sequence: TokenSequence,
    question: Question,
    rows: Sequence[int],
    places: Collection[int],
    removal: Removal,
) -> tuple[TokenSequence, list[int]]:
    """The input of one stack without several of its tokens, and the rows that its values are read off then."""
    changed = _changed(model, sequence, places, removal)
    return changed, _rows(model, question, rows, len(sequence), places, removal)


def _fixed(model: Model, sequence: TokenSequence, question: Question) -> set[int]:
    """Places of tokens by which a head finds what it reads."""
    if isinstance(question, DirectionQuestion):
        return set()
    config, ids = model.config, sequence.features.get("input_ids", [])
    wanted: set[int | None] = {getattr(config, "question_token_id", None)}
    if any(isinstance(part, EndToken) for part in head_of(model.module).parts):
        wanted.add(cast("int | None", config.eos_token_id))
    return {place for place, number in enumerate(ids) if number in wanted}


def _changed(model: Model, sequence: TokenSequence, places: Collection[int], removal: Removal) -> TokenSequence:
    """The sequence without some of its tokens; only what the model reads is kept right."""
    if removal == "mask":
        mask = cast(int, getattr(model.tokenizer, "mask_token_id", 0))
        ids = [mask if place in places else number for place, number in enumerate(sequence.features["input_ids"])]
        return replace(sequence, features={**sequence.features, "input_ids": ids})
    return sequence.part([place for place in range(len(sequence)) if place not in places])


def _rows(
    model: Model, question: Question, rows: Sequence[int], length: int, places: Collection[int], removal: Removal
) -> list[int]:
    """Where the values are read off without the tokens at some indices: the rows after them move up."""
    if removal == "mask":
        return list(rows)
    task = "direction" if isinstance(question, DirectionQuestion) else head_of(model.module).task
    match task:
        case "causal-lm" | "seq2seq-lm":
            return [row - sum(place <= row for place in places) for row in rows]  # NO_ROW where nothing is left to read
        case "masked-lm" | "token-classification" | "question-answering" | "replaced-token" | "ctc" | "direction":
            # The rows of several questions (Splinter) come one after the other.
            return [_moved(*divmod(row, length), length, places) for row in rows]
        case _:
            return list(rows)


def _moved(block: int, row: int, length: int, places: Collection[int]) -> int:
    if row in places:
        return NO_ROW
    return block * (length - len(places)) + row - sum(place < row for place in places)
