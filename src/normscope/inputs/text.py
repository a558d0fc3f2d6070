"""Converts user input (texts, pairs, words, encodings, ids) to sequences of token ids.

Owns tokens, word ids and special flags, and the longest input. Knows tokenizers; knows neither blocks nor mathematics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

from normscope.errors import InputError, listing
from normscope.inputs.sequence import NO_SEGMENT, NO_WORD, NOWHERE, TokenSequence
from normscope.options import is_whole

Input = (
    str
    | tuple[str, str]
    | Sequence[str | tuple[str, str] | Sequence[str]]
    | BatchEncoding
    | Mapping[str, object]
    | Tensor
)
"""A text, a pair of texts, a list of these (or, with `pretokenized=True`, lists of words), an encoding, or token ids."""

_MODEL_FEATURES = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_IGNORED_FEATURES = ("special_tokens_mask", "offset_mapping", "length", "labels", "overflow_to_sample_mapping")


@dataclass(frozen=True)
class Reading:
    """How inputs are read: as texts or as lists of `words`, and whether one that is too long is cut or refused."""

    words: bool = False
    truncate: bool = False


AS_TEXTS = Reading()


def read_inputs(
    inputs: Input, tokenizer: PreTrainedTokenizerBase | None, longest: int | None, reading: Reading = AS_TEXTS
) -> tuple[list[TokenSequence], bool]:
    """The sequences of an input, and whether it was a single one."""
    if isinstance(inputs, Tensor):
        inputs = {"input_ids": inputs}
    if isinstance(inputs, BatchEncoding | Mapping):
        sequences = _from_encoding(inputs, tokenizer)
        single = len(sequences) == 1
    else:
        texts, single = _texts(inputs, words=reading.words)
        if tokenizer is None:
            raise InputError(
                "A text was given, but the model was loaded without a tokenizer. "
                "Name one (load(..., tokenizer=...), --tokenizer), or give token ids (in Python, {'input_ids': ...})."
            )
        reader = _TextReader(tokenizer, longest if reading.truncate else None, words=reading.words)
        sequences = [reader.read(text) for text in texts]
    if reading.truncate and longest is not None:
        sequences = [cut(sequence, longest) for sequence in sequences]
    for sequence in sequences:
        check_length(sequence, longest)
    return sequences, single


def cut(sequence: TokenSequence, longest: int) -> TokenSequence:
    """The beginning of a sequence. Texts were already cut by their tokenizer, which keeps its special tokens."""
    return sequence if len(sequence) <= longest else sequence.part(range(longest))


def check_length(sequence: TokenSequence, longest: int | None) -> None:
    """Raise for a sequence that is too long for the model, or that has nothing in it."""
    if longest is not None and len(sequence) > longest:
        raise InputError(
            f"The input has {len(sequence)} tokens, but the model takes at most {longest}. "
            f"Shorten it, or pass truncate=True (--truncate) to analyse its beginning."
        )
    if all(sequence.special):
        raise InputError(f"The input {sequence.text!r} is empty: it has only special tokens.")


def read_ids(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase | None) -> TokenSequence:
    """A sequence of the given token ids as they are, special or not; possibly empty."""
    if not ids:
        return TokenSequence({"input_ids": []}, [], [], None, [], "")
    (sequence,) = _from_encoding({"input_ids": [list(ids)]}, tokenizer)
    return sequence


# ---- texts -------------------------------------------------------------------------------------------------------------


def _texts(inputs: object, *, words: bool) -> tuple[list[object], bool]:
    """A list of texts (each a text or a pair, of strings or of word lists), and whether it was a single one."""
    if _is_text(inputs, words=words):
        return [inputs], True
    if not isinstance(inputs, Sequence) or isinstance(inputs, str):
        kind = "a list of words" if words else "a text"
        raise InputError(
            f"Expected {kind}, a pair, or a list of these, but got {type(inputs).__name__}: {inputs!r:.80}."
        )
    items = list(cast(Sequence[object], inputs))
    if not items:
        raise InputError("The list of inputs is empty. Give at least one text.")
    for index, item in enumerate(items):
        if not _is_text(item, words=words):
            raise InputError(
                f"Item {index} of the list is a {type(item).__name__} ({item!r:.60}), "
                f"not a {'list of words' if words else 'text'} or a pair of them."
                + ("" if words else " For pre-split words, pass pretokenized=True.")
            )
    return items, False


def _is_text(item: object, *, words: bool) -> bool:
    if (
        isinstance(item, tuple)
        and len(cast(tuple[object, ...], item)) == 2
        and not (words and isinstance(item[0], str))
    ):
        return all(_is_one_text(half, words=words) for half in cast(tuple[object, ...], item))
    return _is_one_text(item, words=words)


def _is_one_text(item: object, *, words: bool) -> bool:
    if not words:
        return isinstance(item, str)
    return isinstance(item, Sequence) and not isinstance(item, str) and all(isinstance(word, str) for word in item)


def encodable(text: str) -> str:
    """The text, if it has no lone surrogates; those come from bytes that are not UTF-8, or from JSON."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"The text {text!r:.60} contains half a character (a lone surrogate), which cannot be encoded."
        ) from error
    return text


class _TextReader:
    """Tokenizes one text (or pair) after another."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, truncate_to: int | None, *, words: bool) -> None:
        self.tokenizer, self.truncate_to, self.words = tokenizer, truncate_to, words

    def read(self, text: Any) -> TokenSequence:
        first, second = text if isinstance(text, tuple) else (text, None)
        halves = [half if isinstance(half, str) else " ".join(half) for half in (first, second) if half]
        if not "".join(halves).strip():
            raise InputError("The text is empty. Give at least one word.")
        for half in halves:
            encodable(half)
        encoding = self._encoded(first, second)
        ids = cast(list[int], encoding["input_ids"])
        word_ids = word_ids_of(encoding)
        return TokenSequence(
            features={name: list(encoding[name]) for name in ("input_ids", "token_type_ids") if name in encoding},
            tokens=_token_strings(ids, self.tokenizer),
            special=[bool(flag) for flag in cast(list[int], encoding["special_tokens_mask"])],
            word_ids=word_ids,
            words=word_strings(ids, word_ids, self.tokenizer),
            text=" | ".join(halves),
            segments=None if second is None else _segments(encoding),
            offsets=_offsets(encoding),
        )

    def _encoded(self, first: Any, second: Any) -> BatchEncoding:
        try:
            return self.tokenizer(
                first,
                second,
                is_split_into_words=self.words,
                return_special_tokens_mask=True,
                return_offsets_mapping=bool(self.tokenizer.is_fast) and not self.words,
                truncation=self.truncate_to is not None,
                max_length=self.truncate_to,
                verbose=False,
            )
        except (TypeError, ValueError, UnicodeError) as error:
            raise InputError(f"The tokenizer cannot read {first!r:.80}: {error}") from error


def _segments(encoding: BatchEncoding) -> list[int] | None:
    """Which text of a pair every token is of. Only fast tokenizers know it."""
    if not encoding.is_fast:
        return None
    return [NO_SEGMENT if text is None else text for text in encoding.sequence_ids(0)]


def _offsets(encoding: BatchEncoding) -> list[tuple[int, int]] | None:
    """The characters of every token in its text; not of words, which have no places in it."""
    if "offset_mapping" not in encoding:
        return None
    pairs = zip(encoding["offset_mapping"], encoding["special_tokens_mask"], strict=True)
    return [NOWHERE if special else (int(start), int(end)) for (start, end), special in cast("Any", pairs)]


# ---- encodings ---------------------------------------------------------------------------------------------------------


def _from_encoding(
    encoding: BatchEncoding | Mapping[str, object], tokenizer: PreTrainedTokenizerBase | None
) -> list[TokenSequence]:
    if "input_ids" not in encoding:
        raise InputError(f"The encoding has no 'input_ids', only: {listing(encoding.keys())}.")
    unknown = [name for name in encoding if name not in (*_MODEL_FEATURES, *_IGNORED_FEATURES)]
    if unknown:
        raise InputError(f"The encoding has features that are not understood: {listing(unknown)}.")
    features = {name: _rows(encoding[name], name) for name in _MODEL_FEATURES if name in encoding}
    count = len(features["input_ids"])
    if count == 0:
        raise InputError("The encoding has no sequences. Give at least one.")
    return [_one_of_encoding(encoding, features, row, tokenizer) for row in range(count)]


def _rows(values: object, name: str) -> list[list[int]]:
    """Ids as a list of rows, from tensors, arrays or lists, with or without a batch dimension."""
    listed = _listed(values)
    if is_whole(listed):
        raise InputError(f"The encoding's {name!r} is the single number {listed}: give a list of them.")
    if not isinstance(listed, Sequence) or isinstance(listed, str | bytes):
        raise InputError(f"The encoding's {name!r} must be whole numbers, not {listed!r:.60}.")
    items = [_listed(item) for item in cast("Sequence[Any]", listed)]
    rows = items if not items or isinstance(items[0], Sequence) else [items]
    return [_row(row, name) for row in rows]


def _listed(values: Any) -> Any:
    """A tensor or an array as a Python list or number."""
    return values.tolist() if hasattr(values, "tolist") else values


def _row(row: Any, name: str) -> list[int]:
    flags = name == "attention_mask"
    numbers: list[Any] = [_listed(value) for value in row] if isinstance(row, Sequence) else [None]
    if not all(is_whole(value) or (flags and isinstance(value, bool)) for value in numbers):
        raise InputError(f"The encoding's {name!r} must be whole numbers, one or two dimensions of them.")
    if any(value < 0 for value in numbers):
        raise InputError(f"The encoding's {name!r} has a negative number.")
    if flags:
        check_mask(numbers)
    return [int(value) for value in numbers]


def check_mask(mask: Sequence[int]) -> None:
    """Raise for an attention mask that has other values than 0 and 1."""
    other = next((value for value in mask if value not in (0, 1)), None)
    if other is not None:
        raise InputError(
            f"An attention mask is 1 for a token and 0 for padding, but here it has {other}. Texts that are packed into one "
            f"sequence (1, 1, 2, 2) are analysed one by one: give each as a sequence of its own."
        )


def _one_of_encoding(
    encoding: BatchEncoding | Mapping[str, object],
    features: dict[str, list[list[int]]],
    row: int,
    tokenizer: PreTrainedTokenizerBase | None,
) -> TokenSequence:
    length = len(features["input_ids"][row])
    for name, rows in features.items():
        if len(rows) != len(features["input_ids"]) or len(rows[row]) != length:
            raise InputError(f"The encoding's {name!r} does not have the shape of its 'input_ids'.")
    unmasked = _unmasked(features.get("attention_mask", [[1] * length] * (row + 1))[row])
    ids = features["input_ids"][row][unmasked]
    if not ids:
        raise InputError(f"Sequence {row} of the encoding has no tokens.")
    fast = isinstance(encoding, BatchEncoding) and encoding.is_fast
    word_ids = word_ids_of(cast(BatchEncoding, encoding), row)[unmasked] if fast else None  # pyright: ignore[reportOptionalSubscript]
    return TokenSequence(
        features={name: rows[row][unmasked] for name, rows in features.items() if name != "attention_mask"},
        tokens=_token_strings(ids, tokenizer),
        special=_special_flags(ids, tokenizer),
        word_ids=word_ids,
        words=word_strings(ids, word_ids, tokenizer),
        text="" if tokenizer is None else cast(str, tokenizer.decode(ids, skip_special_tokens=True)),
    )


def _unmasked(mask: list[int]) -> slice:
    """The unmasked range; padding may be on either side, but not inside."""
    first, last = (mask.index(1), len(mask) - mask[::-1].index(1)) if 1 in mask else (0, 0)
    if not all(mask[first:last]):
        raise InputError("The encoding's attention mask has holes: padding may only be at the beginning or the end.")
    return slice(first, last)


# ---- what tokenizers know ----------------------------------------------------------------------------------------------


def word_ids_of(encoding: BatchEncoding, row: int = 0) -> list[int] | None:
    """For every token its word, counted through both halves of a pair; `NO_WORD` for special tokens."""
    if not encoding.is_fast:
        return None
    numbers: dict[tuple[int | None, int], int] = {}
    word_ids: list[int] = []
    for half, word in zip(encoding.sequence_ids(row), encoding.word_ids(row), strict=True):
        word_ids.append(NO_WORD if word is None else numbers.setdefault((half, word), len(numbers)))
    return word_ids


def _token_strings(ids: list[int], tokenizer: PreTrainedTokenizerBase | None) -> list[str]:
    if tokenizer is None:
        return [str(number) for number in ids]
    return [
        str(number) if token is None else token for number, token in zip(ids, _converted(ids, tokenizer), strict=True)
    ]


def _converted(ids: list[int], tokenizer: PreTrainedTokenizerBase) -> list[str | None]:
    return cast("list[str | None]", tokenizer.convert_ids_to_tokens(ids))


def word_strings(ids: list[int], word_ids: list[int] | None, tokenizer: PreTrainedTokenizerBase | None) -> list[str]:
    """For every token the text of its word; its own string where it has none."""
    tokens = _token_strings(ids, tokenizer)
    if word_ids is None or tokenizer is None:
        return tokens
    members: dict[int, list[int]] = {}
    for number, word in zip(ids, word_ids, strict=True):
        members.setdefault(word, []).append(number)
    texts = {word: cast(str, tokenizer.decode(numbers)).strip() for word, numbers in members.items()}
    return [token if word == NO_WORD else texts[word] for token, word in zip(tokens, word_ids, strict=True)]


def _special_flags(ids: list[int], tokenizer: PreTrainedTokenizerBase | None) -> list[bool]:
    """Flags the tokens that frame a text. A mask or an unknown word stands for content and is not special."""
    if tokenizer is None:
        return [False] * len(ids)
    names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
    framing = {getattr(tokenizer, name, None) for name in names}
    return [number in framing for number in ids]
