"""Sentence pairs as their models read them: the special tokens are those that each tokenizer puts, and words keep theirs."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import BartTokenizer, MBart50Tokenizer, MBartTokenizer, NllbTokenizer, T5Tokenizer

from normscope.corpora import CorpusError, Encoder, Problems, Record

PIECES = ["\u2581", "\u2581the", "\u2581cat", "s", "\u2581sat", "\u4f60", "\u597d"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = ("the", "cats", "\u4f60", "sat")
OWNERS = [0, 1, 1, 2, 2, 3]
"""The words of the pieces, of which the third word has two: a mark of a space, and itself."""


def _unigram(kind: Any, special: list[str] = SPECIAL, **options: Any) -> Any:
    return kind(vocab=[(piece, -1.0) for piece in (*special, *PIECES)], **options)


def _bart() -> Any:
    letters = sorted({*"the cats sat", "\u0120"} - {" "})
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *letters])}
    return BartTokenizer(vocab=vocabulary, merges=[])


def _item(tokenizer: Any, words: tuple[str, ...] = WORDS, **options: Any) -> Any:
    encoder = Encoder(tokenizer, Problems("refuse"), max_tokens=64, **options)
    (item,) = encoder.items([Record("pairs:1", words=words, target=words)])
    return item


@pytest.mark.parametrize(
    ("tokenizer", "source", "target"),
    [
        (_unigram(T5Tokenizer, SPECIAL[1:], extra_ids=0), ([], ["</s>"]), ([], ["</s>"])),
        (
            _unigram(MBartTokenizer, src_lang="de_DE", tgt_lang="en_XX"),
            ([], ["</s>", "de_DE"]),
            ([], ["</s>", "en_XX"]),
        ),
        (
            _unigram(MBart50Tokenizer, src_lang="de_DE", tgt_lang="en_XX"),
            (["de_DE"], ["</s>"]),
            (["en_XX"], ["</s>"]),
        ),
    ],
    ids=["T5", "mBART", "mBART-50"],
)
def test_each_side_has_the_frame_of_its_tokenizer_and_words_keep_their_tokens(
    tokenizer: Any, source: tuple[list[str], list[str]], target: tuple[list[str], list[str]]
) -> None:
    item = _item(tokenizer)
    for sequence, words, (before, after) in (
        (item.sequence, item.source_words, source),
        (item.target, item.target_words, target),
    ):
        assert sequence.tokens[: len(before)] == before and sequence.tokens[-len(after) :] == after
        assert words.tolist() == [-1] * len(before) + OWNERS + [-1] * len(after)
        assert sequence.special == [word == -1 for word in words]
    assert item.sequence.features["input_ids"] == tokenizer(" ".join(WORDS))["input_ids"]
    assert item.target.features["input_ids"] == tokenizer(text_target=" ".join(WORDS))["input_ids"]


def test_words_of_a_byte_level_tokenizer_are_those_of_the_sentence_with_the_spaces_before_them() -> None:
    item = _item(_bart(), ("the", "cats"))
    assert item.sequence.tokens == ["<s>", "t", "h", "e", "\u0120", "c", "a", "t", "s", "</s>"]
    assert item.source_words.tolist() == [-1, 0, 0, 0, 1, 1, 1, 1, 1, -1]


def test_languages_are_named_and_the_tokenizer_of_the_user_stays_as_it_was() -> None:
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *PIECES])}
    tokenizer = NllbTokenizer(vocab=vocabulary, merges=[])
    with pytest.raises(CorpusError, match="--source-language, --target-language"):
        _item(tokenizer)
    item = _item(tokenizer, languages=("deu_Latn", "zho_Hans"))
    assert (item.sequence.tokens[0], item.target.tokens[0]) == ("deu_Latn", "zho_Hans")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("eng_Latn", None)
    with pytest.raises(CorpusError, match="no language 'german'"):
        _item(tokenizer, languages=("german", "zho_Hans"))
    with pytest.raises(CorpusError, match="does not mark languages"):
        _item(_bart(), languages=("de", None))
