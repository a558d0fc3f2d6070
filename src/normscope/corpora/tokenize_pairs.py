"""Sentence pairs as an encoder-decoder model reads them: framed by its own tokenizer, with the word of every token.

A tokenizer that marks languages (mBART, NLLB, M2M-100) needs their codes as options; nothing is guessed.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase

from normscope.corpora.record import CorpusError
from normscope.inputs import NO_WORD, TokenSequence


def with_languages(
    tokenizer: PreTrainedTokenizerBase, source: str | None, target: str | None
) -> PreTrainedTokenizerBase:
    """A copy of the tokenizer that marks these languages; itself, where none are given."""
    if source is None and target is None:
        return tokenizer
    if not hasattr(tokenizer, "src_lang"):
        raise CorpusError(
            f"Languages were given, but {type(tokenizer).__name__} does not mark languages: leave out --source-language "
            f"and --target-language."
        )
    marked: Any = copy.deepcopy(tokenizer)
    for name, attribute, language in (("source", "src_lang", source), ("target", "tgt_lang", target)):
        if language is None:
            continue
        number = marked.convert_tokens_to_ids(language)
        known = number is not None and number != marked.unk_token_id
        if not known and language not in getattr(marked, "lang_code_to_token", {}):
            raise CorpusError(
                f"The tokenizer has no language {language!r} (--{name}-language). Its codes look like {marked.src_lang!r}."
            )
        setattr(marked, attribute, language)
    return marked


class PairTokenizer:
    """Tokenizes one side of a pair after another."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        codes: object = tokenizer
        if hasattr(codes, "src_lang") and None in (codes.src_lang, codes.tgt_lang):
            raise CorpusError(
                f"{type(tokenizer).__name__} marks the languages of a pair, and they are not known: name both "
                f"(--source-language, --target-language)."
            )

    def read(self, words: Sequence[str], *, target: bool = False) -> tuple[TokenSequence, np.ndarray]:
        """Words with the special tokens that the tokenizer puts around them, and the word of every token."""
        ids, owners = self._whole(words, target) if self.tokenizer.is_fast else self._by_word(words, target)
        tokens = [str(token) for token in cast(list[Any], self.tokenizer.convert_ids_to_tokens(ids))]
        special = [owner == NO_WORD for owner in owners]
        return TokenSequence({"input_ids": ids}, tokens, special, owners, tokens, " ".join(words)), np.array(owners)

    def _whole(self, words: Sequence[str], target: bool) -> tuple[list[int], list[int]]:
        """The sentence as a whole; words by the characters that tokens cover."""
        encoding = self._encoded(
            " ".join(words), target, return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False
        )
        return cast(list[int], encoding["input_ids"]), words_of_tokens(words, encoding)

    def _by_word(self, words: Sequence[str], target: bool) -> tuple[list[int], list[int]]:
        """Words one by one, so that every token has its word, inside the frame that the tokenizer gives the sentence."""
        pieces = [cast(list[int], self._encoded(word, target, add_special_tokens=False)["input_ids"]) for word in words]
        before, after = self._frame(" ".join(words), target)
        ids = [*before, *(number for subwords in pieces for number in subwords), *after]
        inside = [index for index, subwords in enumerate(pieces) for _ in subwords]
        return ids, [NO_WORD] * len(before) + inside + [NO_WORD] * len(after)

    def _frame(self, text: str, target: bool) -> tuple[list[int], list[int]]:
        """The special tokens before and after a text."""
        whole = cast(list[int], self._encoded(text, target)["input_ids"])
        bare = cast(list[int], self._encoded(text, target, add_special_tokens=False)["input_ids"])
        for start in range(len(whole) - len(bare) + 1):
            if whole[start : start + len(bare)] == bare:
                return whole[:start], whole[start + len(bare) :]
        raise CorpusError(
            f"{type(self.tokenizer).__name__} does not put its special tokens around a text, but changes it: its "
            f"pairs cannot be framed. Give token ids instead (a corpus with input_ids and labels)."
        )

    def _encoded(self, text: str, target: bool, **options: Any) -> BatchEncoding:
        return self.tokenizer(**{"text_target" if target else "text": text}, **options)


def words_of_tokens(words: Sequence[str], encoding: BatchEncoding) -> list[int]:
    """For every token the word it comes from, by the characters it covers; -1 for special tokens.

    `encoding` is that of the words with spaces between them. A space goes with the word after it, as in SentencePiece.
    """
    at = [index for index, word in enumerate(words) for _ in range(len(word) + (index > 0))]
    spans = cast(list[tuple[int, int]], encoding["offset_mapping"])
    special = cast(list[int], encoding["special_tokens_mask"])
    return [
        NO_WORD if flag else at[min(max(end - 1, start), len(at) - 1)]  # a mark of a space may cover no character
        for (start, end), flag in zip(spans, special, strict=True)
    ]
