"""From records to tokenized items: texts and pairs, words with entities, ready-made tokens, token ids, sentence pairs,
packed text. `tokenize_pairs` frames the sides of a pair."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar, cast

import numpy as np
from tokenizers import decoders
from transformers import BatchEncoding, PreTrainedTokenizerBase

from normscope.corpora.evidence import context_of
from normscope.corpora.item import Item
from normscope.corpora.record import AskedSentences, CorpusError, Evidence, Problems, Record, TextPair, is_text
from normscope.corpora.token_ids import TokenIds
from normscope.corpora.tokenize_pairs import PairTokenizer, with_languages, words_of_tokens
from normscope.errors import InputError
from normscope.inputs import NO_WORD, Reading, TokenSequence, chat_sequence, read_inputs
from normscope.options import TooLong

_Read = TypeVar("_Read", Item, TokenSequence)

TOO_LONG = "too long"
"""The prefix of problems with sequences that have too many tokens."""

_FIRST, _SEPARATOR = "[CLS]", "[SEP]"
"""The special tokens of ready-made WordPiece tokens."""


class Encoder:
    """Tokenizes records one after another. Sequences over `max_tokens` are truncated, skipped, or an error.

    Without a tokenizer, records must be token ids; `special_ids` are those of the model's special tokens. `languages` are
    those of the source and the target of sentence pairs, for a tokenizer that marks them. With `chat`, a text is the message
    of a user.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None,
        problems: Problems,
        *,
        max_tokens: int,
        too_long: TooLong = "truncate",
        lowercase: bool = False,
        special_ids: Collection[int] = (),
        languages: tuple[str | None, str | None] = (None, None),
        chat: bool = False,
    ) -> None:
        self._tokenizer, self.problems = tokenizer, problems
        self.max_tokens, self.too_long, self.lowercase = max_tokens, too_long, lowercase
        self.special_ids, self.languages, self.chat = special_ids, languages, chat

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self.check_tokenizer()

    def check_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer; raises if there is none."""
        if self._tokenizer is None:
            raise CorpusError(
                "The model has no tokenizer, so a corpus of texts cannot be read. Name one (--tokenizer), or give token ids "
                "(rows with a field input_ids; --field input_ids where they also have texts)."
            )
        return self._tokenizer

    def items(self, records: Iterable[Record]) -> Iterator[Item]:
        """One item per record that can be used, numbered from 0."""
        number = 0
        for record in records:
            item = self._usable(record, partial(self._item, record, number))
            if item is not None:
                number += 1
                yield item if record.label is None else replace(item, label=record.label)

    def _usable(self, record: Record, read: Callable[[], _Read | None]) -> _Read | None:
        """What `read` returns; `None` for a record that the tokenizer cannot read, which is recorded as a bad row."""
        try:
            if all(map(is_text, record.texts())):
                return read()
            self.problems.bad_row(record.where, "unreadable text", "half of a surrogate pair is not a character.")
        except CorpusError:  # of all rows, or refused on purpose
            raise
        except InputError as error:
            self.problems.bad_row(record.where, "unreadable text", str(error))
        return None

    def _item(self, record: Record, number: int) -> Item | None:
        if record.ids is not None:
            return self._ids(record, number)
        if record.evidence is not None:
            return self._evidence(record, record.evidence, number)
        if record.compared is not None:
            return self._compared(record, record.compared, number)
        if record.asked is not None:
            return self._asked(record, record.asked, number)
        if record.target is not None:
            return self._pair(record, number)
        if record.words is not None:
            return self._words(record, number)
        if record.messages is not None or (self.chat and isinstance(record.text, str)):
            return self._chat(record, number)
        sequence = self._tokens(record) if record.tokens is not None else self._text(record)
        return None if sequence is None else Item(number, record.where, sequence)

    def _cased(self, text: str) -> str:
        return text.lower() if self.lowercase else text

    # ---- texts ---------------------------------------------------------------------------------------------------------

    def _text(self, record: Record) -> TokenSequence | None:
        text = record.text
        assert text is not None
        cased = self._cased(text) if isinstance(text, str) else (self._cased(text[0]), self._cased(text[1]))
        sequence = self._read(cased, None)
        if not self._fits(record, len(sequence)):
            return None
        return sequence if len(sequence) <= self.max_tokens else self._read(cased, self.max_tokens)

    def _read(self, text: str | tuple[str, str], longest: int | None) -> TokenSequence:
        (sequence,), _ = read_inputs(text, self.tokenizer, longest, Reading(truncate=longest is not None))
        return sequence

    def _fits(self, record: Record, length: int) -> bool:
        """Whether a record is used, truncated if necessary."""
        if length <= self.max_tokens:
            return True
        if self.too_long == "refuse":
            raise CorpusError(
                f"{record.where}: {length} tokens, but at most {self.max_tokens} are allowed. "
                f"Raise max_tokens, or cut or leave out long sequences (--too-long truncate or skip)."
            )
        self.problems.left_out(f"{TOO_LONG}, cut" if self.too_long == "truncate" else f"{TOO_LONG}, left out")
        return self.too_long == "truncate"

    # ---- chats -----------------------------------------------------------------------------------------------------------

    def _chat(self, record: Record, number: int) -> Item | None:
        """The messages of a row, or its text as that of a user. A chat that is cut has no end: what is too long is left
        out."""
        messages = record.messages or ({"role": "user", "content": str(record.text)},)
        cased = [{**message, "content": self._cased(message["content"])} for message in messages]
        sequence = chat_sequence(cased, self.tokenizer, None)
        if len(sequence) > self.max_tokens and self.too_long == "truncate":
            self.problems.left_out(f"{TOO_LONG}, left out")
            return None
        return Item(number, record.where, sequence) if self._fits(record, len(sequence)) else None

    # ---- ready-made tokens -----------------------------------------------------------------------------------------------

    def _tokens(self, record: Record) -> TokenSequence | None:
        """Tokens as they are if the tokenizer frames sequences in the same way; otherwise their text, tokenized again."""
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
            features["token_type_ids"] = [int(index > first) for index in range(len(tokens))]
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
        owners = words_of_tokens(words, self._offsets(text, len(sequence)))
        entities = np.array([-1 if owner < 0 else (record.entities or ())[owner] for owner in owners])
        return Item(number, record.where, sequence, entities=entities)

    def _offsets(self, text: str, length: int) -> BatchEncoding:
        if not self.tokenizer.is_fast:
            raise CorpusError("Entities need a fast tokenizer, which reports the characters that a token covers.")
        options: dict[str, Any] = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
        return self.tokenizer(text, truncation=True, max_length=max(length, 1), **options)

    # ---- texts with evidence ---------------------------------------------------------------------------------------------

    def _evidence(self, record: Record, evidence: Evidence, number: int) -> Item | None:
        assert isinstance(record.text, str)
        cased = Evidence(
            evidence.collection, self._cased(evidence.good), self._cased(evidence.bad), self._cased(evidence.words)
        )
        context = context_of(self.tokenizer, self._cased(record.text), cased)
        if isinstance(context, str):
            self.problems.bad_row(record.where, "unusable evidence", context)
            return None
        ids, tokens = context
        if not self._fits(record, len(ids)) or len(ids) > self.max_tokens:  # a cut text may have lost its evidence
            return None
        (sequence,), _ = read_inputs({"input_ids": [ids]}, self.tokenizer, None)
        return Item(number, record.where, replace(sequence, text=record.text), evidence=tokens)

    # ---- texts to compare --------------------------------------------------------------------------------------------

    def _compared(self, record: Record, pair: TextPair, number: int) -> Item | None:
        cased = replace(pair, first=self._cased(pair.first), second=self._cased(pair.second))
        first, second = (self._read(text, None) for text in (cased.first, cased.second))
        longest = max(len(first), len(second))
        if longest > self.max_tokens and self.too_long == "truncate":
            self.problems.left_out("too long, left out")  # a cut text is another, and loses words that links name
            return None
        return Item(number, record.where, first, compared=cased) if self._fits(record, longest) else None

    # ---- questions about sentences -------------------------------------------------------------------------------------

    def _asked(self, record: Record, asked: AskedSentences, number: int) -> Item | None:
        cased = replace(
            asked,
            sentences=tuple(map(self._cased, asked.sentences)),
            question=self._cased(asked.question),
            answer=self._cased(asked.answer),
        )
        sequence = self._read(" ".join([*cased.sentences, cased.question, cased.answer]), None)
        if len(sequence) > self.max_tokens and self.too_long == "truncate":
            self.problems.left_out(f"{TOO_LONG}, left out")  # a cut text may have lost its evidence
            return None
        return Item(number, record.where, sequence, asked=cased) if self._fits(record, len(sequence)) else None

    # ---- sentence pairs --------------------------------------------------------------------------------------------------

    def _pair(self, record: Record, number: int) -> Item | None:
        source, source_words = self._pairs.read([self._cased(word) for word in record.words or ()])
        target, target_words = self._pairs.read([self._cased(word) for word in record.target or ()], target=True)
        for side in (source, target):
            if all(side.special):
                raise InputError(f"The sentence {side.text!r:.60} is empty: it has only special tokens.")
        if not self._pair_fits(record, source, target):
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

    @cached_property
    def _pairs(self) -> PairTokenizer:
        return PairTokenizer(with_languages(self.tokenizer, *self.languages))

    def _pair_fits(self, record: Record, source: TokenSequence, target: TokenSequence) -> bool:
        """Whether a pair is used. A target without an end token is read after the start token, and has one more row."""
        ends = target.special[-1] or target.features["input_ids"][-1] in self.special_ids
        longest = max(len(source), len(target) + (not ends))
        if longest > self.max_tokens and self.too_long == "truncate":
            self.problems.left_out("too long, left out")  # a cut pair would have lost words that its gold links name
            return False
        return self._fits(record, longest)

    # ---- token ids -------------------------------------------------------------------------------------------------------

    def _ids(self, record: Record, number: int) -> Item | None:
        try:
            ids = TokenIds.of_row(record.ids or {})
            item = ids.item(number, record.where, self._tokenizer, self.special_ids)
            cut = ids.cut(self.max_tokens).item(number, record.where, self._tokenizer, self.special_ids)
        except ValueError as error:
            self.problems.bad_row(record.where, "malformed row", str(error))
            return None
        if item.target is not None:
            return item if self._pair_fits(record, item.sequence, item.target) else None
        return cut if self._fits(record, item.length) else None

    # ---- packed ----------------------------------------------------------------------------------------------------------

    def packed(self, records: Iterable[Record]) -> Iterator[Item]:
        """All texts as one stream, cut into sequences of exactly `max_tokens` tokens; a shorter remainder is skipped."""
        before, after = self._frame()
        room = self.max_tokens - len(before) - len(after)
        if room < 1:
            raise CorpusError(f"{self.max_tokens} tokens leave no room next to the special ones: pack to more tokens.")
        stream = _Stream()
        number = 0
        for record in records:
            if not isinstance(record.text, str):
                raise CorpusError(
                    f"{record.where}: only plain texts can be packed, and this is a pair, or words, tokens or ids already."
                )
            sequence = self._usable(record, partial(self._read, self._cased(record.text), None))
            if sequence is None:
                continue
            stream.add(sequence, record.where)
            while len(stream.ids) >= room:
                yield Item(number, stream.where, self._framed(stream.take(room), before, after))
                number += 1
        if stream.ids:
            self.problems.left_out("rest after packing")

    def _frame(self) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text."""
        sequence = self._read("a", None)
        content = [index for index, flag in enumerate(sequence.special) if not flag]
        ids = sequence.features["input_ids"]
        return ids[: content[0]], ids[content[-1] + 1 :]

    def _framed(self, content: tuple[list[int], list[int]], before: list[int], after: list[int]) -> TokenSequence:
        ids, words = content
        whole = [*before, *ids, *after]
        tokens = [str(token) for token in cast(list[object], self.tokenizer.convert_ids_to_tokens(whole))]
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
    """Token ids of texts one after another, with their words numbered consecutively."""

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
