"""From records to tokenized items: texts and pairs, words with entities, ready-made tokens, sentence pairs, packed text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from tokenizers import decoders
from transformers import PreTrainedTokenizerBase

from normscope.choices import TooLong
from normscope.corpora.item import Item
from normscope.corpora.problems import CorpusError, Problems
from normscope.corpora.record import Record
from normscope.inputs import NO_WORD, TokenSequence, read_inputs

_FIRST, _SEPARATOR = "[CLS]", "[SEP]"
"""The special tokens of ready-made WordPiece tokens."""


class Encoder:
    """Tokenizes records one after another. Sequences over `max_tokens` are cut, left out or refused."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        problems: Problems,
        *,
        max_tokens: int,
        too_long: TooLong = "truncate",
        lowercase: bool = False,
    ) -> None:
        self.tokenizer, self.problems = tokenizer, problems
        self.max_tokens, self.too_long, self.lowercase = max_tokens, too_long, lowercase

    def items(self, records: Iterable[Record]) -> Iterator[Item]:
        """One item per record that can be used, numbered from 0."""
        number = 0
        for record in records:
            item = self._item(record, number)
            if item is not None:
                number += 1
                yield item

    def _item(self, record: Record, number: int) -> Item | None:
        if record.target is not None:
            return self._pair(record, number)
        if record.words is not None:
            return self._words(record, number)
        sequence = self._tokens(record) if record.tokens is not None else self._text(record)
        return None if sequence is None else Item(number, record.where, sequence)

    def _cased(self, text: str) -> str:
        return text.lower() if self.lowercase else text

    # ---- texts ---------------------------------------------------------------------------------------------------------

    def _text(self, record: Record) -> TokenSequence | None:
        text = record.text
        assert text is not None
        cased = self._cased(text) if isinstance(text, str) else (self._cased(text[0]), self._cased(text[1]))
        sequence = self._read(cased, truncate=False)
        if all(sequence.special):
            self.problems.left_out("empty text")
            return None
        if not self._fits(record, len(sequence)):
            return None
        return sequence if len(sequence) <= self.max_tokens else self._read(cased, truncate=True)

    def _read(self, text: str | tuple[str, str], *, truncate: bool) -> TokenSequence:
        limit = self.max_tokens if truncate else None
        (sequence,), _ = read_inputs(text, self.tokenizer, limit, words=False, truncate=truncate)
        return sequence

    def _fits(self, record: Record, length: int) -> bool:
        """Whether a record stays, cut if need be."""
        if length <= self.max_tokens:
            return True
        if self.too_long == "refuse":
            raise CorpusError(
                f"{record.where}: {length} tokens, but at most {self.max_tokens} are wanted. "
                f"Raise max_tokens, or cut or leave out long sequences (--too-long truncate or skip)."
            )
        self.problems.left_out("too long, cut" if self.too_long == "truncate" else "too long, left out")
        return self.too_long == "truncate"

    # ---- ready-made tokens -----------------------------------------------------------------------------------------------

    def _tokens(self, record: Record) -> TokenSequence | None:
        """Tokens as they are where the tokenizer frames sequences in the same way; otherwise their text, tokenized again."""
        if str(self.tokenizer.cls_token) == _FIRST or _FIRST not in (record.tokens or ()):
            return self._ready(record)
        text = _decoded(record.tokens or ())
        if text is None:
            self.problems.bad_row(
                record.where, "malformed row", "expected [CLS], a text or two, each followed by [SEP]."
            )
            return None
        return self._text(replace(record, text=text, tokens=None))

    def _ready(self, record: Record) -> TokenSequence | None:
        """Tokens as they are, with segment ids 0 up to the first separator and 1 after it."""
        tokens = list(record.tokens or ())
        if not self._fits(record, len(tokens)):
            return None
        tokens = tokens[: self.max_tokens]
        ids = cast(list[Any], self.tokenizer.convert_tokens_to_ids(tokens))
        unknown = self.tokenizer.unk_token_id
        lost = [
            t for t, i in zip(tokens, ids, strict=True) if i is None or (i == unknown and t != self.tokenizer.unk_token)
        ]
        if lost:
            what = f"the token {lost[0]!r:.40} is not in the model's vocabulary."
            self.problems.bad_row(record.where, "unknown token", what)
            return None
        separator = str(self.tokenizer.sep_token)
        first = tokens.index(separator) if separator in tokens else len(tokens)
        framing = {str(getattr(self.tokenizer, name, None)) for name in ("cls_token", "sep_token", "pad_token")}
        features = {"input_ids": [int(i) for i in ids]}
        if "token_type_ids" in self.tokenizer.model_input_names:
            features["token_type_ids"] = [int(place > first) for place in range(len(tokens))]
        return TokenSequence(
            features=features,
            tokens=tokens,
            special=[token in framing for token in tokens],
            word_ids=_words_of_pieces(tokens, framing),
            words=tokens,
            text=" ".join(tokens),
        )

    # ---- words with entities ---------------------------------------------------------------------------------------------

    def _words(self, record: Record, number: int) -> Item | None:
        words = [self._cased(word) for word in record.words or ()]
        text = " ".join(words)
        sequence = self._text(replace(record, text=text, words=None))
        if sequence is None:
            return None
        owners = self._owners(words, text, len(sequence))
        entities = np.array([-1 if owner < 0 else (record.entities or ())[owner] for owner in owners])
        return Item(number, record.where, sequence, entities=entities)

    def _owners(self, words: list[str], text: str, length: int) -> list[int]:
        """For every token the word it comes from, by the characters it covers; -1 for special tokens."""
        if not self.tokenizer.is_fast:
            raise CorpusError("Entities need a fast tokenizer, which says what characters a token covers.")
        encoding = self.tokenizer(
            text,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            truncation=True,
            max_length=max(length, 1),
        )
        at = [word for word, string in enumerate(words) for _ in range(len(string) + 1)]
        spans = cast(list[tuple[int, int]], encoding["offset_mapping"])
        special = cast(list[int], encoding["special_tokens_mask"])
        return [
            NO_WORD if flag or end <= start else at[end - 1] for (start, end), flag in zip(spans, special, strict=True)
        ]

    # ---- sentence pairs --------------------------------------------------------------------------------------------------

    def _pair(self, record: Record, number: int) -> Item | None:
        source, source_words = self._by_word(record.words or ())
        target, target_words = self._by_word(record.target or (), target=True)
        longest = max(len(source), len(target))
        if longest > self.max_tokens:
            if self.too_long == "truncate":  # a cut pair would have lost words that its gold links name
                self.problems.left_out("too long, left out")
                return None
            if not self._fits(record, longest):
                return None
        return Item(
            number,
            record.where,
            source,
            target=target,
            source_words=source_words,
            target_words=target_words,
            gold=record.gold,
        )

    def _by_word(self, words: Iterable[str], *, target: bool = False) -> tuple[TokenSequence, np.ndarray]:
        """Words tokenized one by one, so that every token has its word, and the end-of-sentence token after them."""
        ids: list[int] = []
        owners: list[int] = []
        for place, word in enumerate(words):
            option: dict[str, Any] = {"text_target" if target else "text": self._cased(word)}
            pieces = cast(list[int], self.tokenizer(**option, add_special_tokens=False)["input_ids"])
            ids += pieces
            owners += [place] * len(pieces)
        end = self.tokenizer.eos_token_id
        if end is not None:
            ids.append(cast(int, end))
            owners.append(NO_WORD)
        tokens = [str(token) for token in cast(list[Any], self.tokenizer.convert_ids_to_tokens(ids))]
        special = [owner == NO_WORD for owner in owners]
        sequence = TokenSequence({"input_ids": ids}, tokens, special, owners, tokens, " ".join(words))
        return sequence, np.array(owners)

    # ---- packed ----------------------------------------------------------------------------------------------------------

    def packed(self, records: Iterable[Record]) -> Iterator[Item]:
        """All texts as one stream, cut into sequences of exactly `max_tokens` tokens; a shorter rest is left out."""
        before, after = self._frame()
        room = self.max_tokens - len(before) - len(after)
        if room < 1:
            raise CorpusError(f"{self.max_tokens} tokens leave no room beside the special ones: pack to more tokens.")
        stream = _Stream()
        number = 0
        for record in records:
            if not isinstance(record.text, str):
                raise CorpusError(
                    f"{record.where}: only plain texts can be packed, and this is a pair, or already in words or tokens."
                )
            stream.add(self._read(self._cased(record.text), truncate=False), record.where)
            while len(stream.ids) >= room:
                yield Item(number, stream.where, self._framed(stream.take(room), before, after))
                number += 1
        if stream.ids:
            self.problems.left_out("rest after packing")

    def _frame(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text."""
        sequence = self._read("a", truncate=False)
        content = [place for place, flag in enumerate(sequence.special) if not flag]
        ids = sequence.features["input_ids"]
        return ids[: content[0]], ids[content[-1] + 1 :]

    def _framed(self, content: tuple[list[int], list[int]], before: list[int], after: list[int]) -> TokenSequence:
        ids, words = content
        whole = [*before, *ids, *after]
        tokens = [str(token) for token in cast(list[Any], self.tokenizer.convert_ids_to_tokens(whole))]
        features = {"input_ids": whole}
        if "token_type_ids" in self.tokenizer.model_input_names:
            features["token_type_ids"] = [0] * len(whole)
        return TokenSequence(
            features=features,
            tokens=tokens,
            special=[True] * len(before) + [False] * len(ids) + [True] * len(after),
            word_ids=[NO_WORD] * len(before) + words + [NO_WORD] * len(after),
            words=tokens,
            text=cast(str, self.tokenizer.decode(ids)),
        )


class _Stream:
    """Token ids of texts one after another, with words numbered through."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.words: list[int] = []
        self.where = ""
        self._next_where = ""
        self._next_word = 0

    def add(self, sequence: TokenSequence, where: str) -> None:
        if not self.ids:
            self.where = where
        self._next_where = where
        words = sequence.word_ids or list(range(len(sequence)))
        for number, special, word in zip(sequence.features["input_ids"], sequence.special, words, strict=True):
            if not special:
                self.ids.append(number)
                self.words.append(self._next_word + word)
        self._next_word += 1 + max(words, default=0)

    def take(self, count: int) -> tuple[list[int], list[int]]:
        ids, words = self.ids[:count], self.words[:count]
        self.ids, self.words = self.ids[count:], self.words[count:]
        self.where = self._next_where
        return ids, [word - words[0] for word in words]


def _words_of_pieces(tokens: list[str], framing: set[str]) -> list[int]:
    """Words from WordPiece marks: a token that starts with ## belongs to the word before it."""
    words: list[int] = []
    current = -1
    for token in tokens:
        current += token not in framing and not token.startswith("##")
        words.append(NO_WORD if token in framing else max(current, 0))
    return words


def _decoded(tokens: Sequence[str]) -> str | tuple[str, str] | None:
    """The text, or the pair of texts, of WordPiece tokens `[CLS] A [SEP] B [SEP]`, as BERT's tokenizer decodes them."""
    texts: list[list[str]] = [[]]
    for token in tokens:
        if token == _SEPARATOR:
            texts.append([])
        elif token != _FIRST:
            texts[-1].append(token)
    decoder = decoders.WordPiece(prefix="##", cleanup=True)
    match [decoder.decode(text) for text in texts if text]:
        case [text]:
            return text
        case [first, second]:
            return first, second
        case _:
            return None
