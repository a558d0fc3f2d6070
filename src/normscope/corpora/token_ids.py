"""Rows of token ids, so that models without tokenizer files can be run: the columns of a row, and its item.

The names of the columns are those that tokenizers and data sets of Hugging Face use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from normscope.corpora.item import Item
from normscope.corpora.record import ID_COLUMNS, INPUT_IDS, Gold, is_text
from normscope.errors import InputError
from normscope.inputs import NO_WORD, TokenSequence, read_inputs
from normscope.inputs.text import check_mask

_PER_TOKEN = ID_COLUMNS[1:7]
_LEFT_OUT = -100
"""The label of tokens that are ignored (padding)."""

_MOST = 2**31 - 1
_FLAGS = ("attention_mask", "special_tokens_mask")


@dataclass(frozen=True)
class TokenIds:
    """The columns of a row, checked: whole numbers (`tokens`: texts), as many of each as there are tokens."""

    columns: Mapping[str, tuple[Any, ...]]
    labels: tuple[int, ...] | None = None
    label_words: tuple[int, ...] | None = None
    gold: Gold | None = None

    @classmethod
    def of_row(cls, row: Mapping[str, object]) -> TokenIds:
        """The ids of a row; raises `ValueError` if something is wrong with it."""
        present = {name: row[name] for name in ID_COLUMNS if row.get(name) is not None}
        if INPUT_IDS not in present:
            raise ValueError(f"{INPUT_IDS!r} is null.")
        columns = {name: _numbers(name, present[name]) for name in (INPUT_IDS, *_PER_TOKEN) if name in present}
        length = len(columns[INPUT_IDS])
        for name, values in columns.items():
            if len(values) != length:
                raise ValueError(f"{name!r} has {len(values)} values for {length} tokens.")
        labels = _numbers("labels", present["labels"]) if "labels" in present else None
        label_words = _numbers("label_word_ids", present["label_word_ids"]) if "label_word_ids" in present else None
        if label_words is not None and (labels is None or len(labels) != len(label_words)):
            raise ValueError(f"'label_word_ids' has {len(label_words)} values for {len(labels or ())} labels.")
        return cls(_without_padding(columns), *_unpadded_labels(labels, label_words), _gold(present))

    def item(
        self, number: int, where: str, tokenizer: PreTrainedTokenizerBase | None, special: Collection[int]
    ) -> Item:
        """The sequence. `special` has the ids of the model's special tokens, for rows that do not mark them."""
        columns = self.columns
        sequence = _sequence(
            {name: columns[name] for name in (INPUT_IDS, "token_type_ids") if name in columns}, tokenizer
        )
        if "tokens" in columns:
            sequence = replace(sequence, tokens=list(columns["tokens"]), words=list(columns["tokens"]))
        words = columns.get("word_ids")
        sequence = replace(
            sequence,
            special=_special(columns[INPUT_IDS], columns.get("special_tokens_mask"), tokenizer, special, sequence),
            word_ids=None if words is None else list(words),
        )
        if all(sequence.special):
            raise ValueError("it has only special tokens.")
        target = None if self.labels is None else _sequence({INPUT_IDS: self.labels}, tokenizer)
        return Item(
            number,
            where,
            sequence,
            entities=_array(columns.get("entities")),
            target=target,
            source_words=None if target is None else _array(words),
            target_words=_array(self.label_words),
            gold=self.gold,
        )

    def cut(self, length: int) -> TokenIds:
        """The beginning of the sequence."""
        return replace(self, columns={name: values[:length] for name, values in self.columns.items()})


def _numbers(name: str, values: object) -> tuple[Any, ...]:
    """A column's values: whole numbers, not negative except for words and entities (-1 or null: none)."""
    kind = str if name == "tokens" else int
    may_lack = name in ("word_ids", "label_word_ids", "entities")
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"{name!r} is not a list.")
    filled: list[Any] = [NO_WORD if value is None and may_lack else value for value in values]
    if not all(isinstance(value, kind) and (name in _FLAGS or not isinstance(value, bool)) for value in filled):
        raise ValueError(f"{name!r} has a value that is not a {'text' if kind is str else 'whole number'}.")
    least = 0 if not may_lack and name != "labels" else _LEFT_OUT
    if kind is int and any(value < least for value in filled):
        raise ValueError(f"{name!r} has a negative number.")
    if kind is int and any(value > _MOST for value in filled):
        raise ValueError(f"{name!r} has a number that is none of a token, a word or a mark: it is above {_MOST}.")
    if name == _FLAGS[1] and not {*filled} <= {0, 1}:
        raise ValueError(f"{name!r} has a number other than 0 and 1.")
    if kind is str and any(not is_text(value) for value in filled):
        raise ValueError(f"{name!r} has a token that cannot be encoded as UTF-8.")
    if not filled:
        raise ValueError(f"{name!r} is empty.")
    return tuple(filled) if kind is str else tuple(int(value) for value in filled)


def _without_padding(columns: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    mask = columns.pop("attention_mask", None)
    if mask is None:
        return columns
    try:
        check_mask(mask)
    except InputError as error:
        raise ValueError(str(error)) from error
    content = [index for index, flag in enumerate(mask) if flag]
    if not content or content != list(range(content[0], content[-1] + 1)):
        raise ValueError("'attention_mask' keeps no token, or has holes.")
    return {name: values[content[0] : content[-1] + 1] for name, values in columns.items()}


def _unpadded_labels(
    labels: tuple[int, ...] | None, words: tuple[int, ...] | None
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    if labels is None:
        return None, None
    content = [index for index, number in enumerate(labels) if number != _LEFT_OUT]
    if not content or any(labels[index] < 0 for index in content):
        raise ValueError(f"'labels' has no token, or a negative number other than {_LEFT_OUT}.")
    return tuple(labels[p] for p in content), None if words is None else tuple(words[p] for p in content)


def _gold(row: Mapping[str, Any]) -> Gold | None:
    """Links of the words of both sides, as pairs of numbers from 0."""
    if "sure" not in row and "possible" not in row:
        return None
    for name in ("sure", "possible"):
        if not isinstance(row.get(name, []), Sequence) or isinstance(row.get(name), str):
            raise ValueError(f"{name!r} is not a list of links.")
    links = {name: frozenset(map(_link, row.get(name, ()))) for name in ("sure", "possible")}
    return Gold(links["sure"], links["sure"] | links["possible"])


def _link(link: object) -> tuple[int, int]:
    if (
        not isinstance(link, Sequence)
        or len(link) != 2
        or not all(isinstance(word, int) and word >= 0 for word in link)
    ):
        raise ValueError(f"{link!r:.40} is not a link: a source word and a target word, both from 0.")
    return int(link[0]), int(link[1])


def _sequence(features: Mapping[str, tuple[int, ...]], tokenizer: PreTrainedTokenizerBase | None) -> TokenSequence:
    encoding = {name: [list(values)] for name, values in features.items()}
    try:
        (sequence,), _ = read_inputs(encoding, tokenizer, None)
    except InputError as error:
        raise ValueError(str(error)) from error
    return sequence


def _special(
    ids: Sequence[int],
    stated: Sequence[int] | None,
    tokenizer: PreTrainedTokenizerBase | None,
    special: Collection[int],
    sequence: TokenSequence,
) -> list[bool]:
    if stated is not None:
        return [bool(flag) for flag in stated]
    return [number in special for number in ids] if tokenizer is None else sequence.special


def _array(numbers: tuple[int, ...] | None) -> np.ndarray | None:
    return None if numbers is None else np.array(numbers, np.int64)
