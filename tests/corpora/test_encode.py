"""From rows to tokens: packing, cutting, entities on subwords, ready-made tokens, masking."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from normscope.corpora import Corpus, CorpusError, Encoder, Problems, Record, bundled, masked


@pytest.fixture(scope="module")
def tokenizer(analyzer: Any) -> Any:
    return analyzer.tokenizer


def _items(tokenizer: Any, *records: Record, **options: Any) -> tuple[list[Any], Problems]:
    problems = Problems()
    return list(Encoder(tokenizer, problems, **{"max_tokens": 32, **options}).items(records)), problems


def test_packed_text_has_exactly_so_many_tokens_and_loses_none_between(tokenizer: Any) -> None:
    corpus = Corpus(str(bundled()), unit="packed", max_tokens=50)
    problems = Problems()
    items = list(corpus.items(tokenizer, problems))
    assert {item.length for item in items} == {50} and [item.number for item in items] == list(range(len(items)))
    packed = [number for item in items for number in item.sequence.features["input_ids"][1:-1]]
    whole = [
        n
        for line in bundled().read_text().splitlines()
        for n in tokenizer(line.strip(), add_special_tokens=False)["input_ids"]
    ]
    assert packed == whole[: len(packed)] and len(whole) - len(packed) < 48
    assert problems.counts["rest after packing"] == 1
    words = items[0].sequence.word_ids
    assert words[0] == words[-1] == -1 and words[1] == 0 and max(np.diff(words[1:-1])) == 1


def test_long_texts_are_cut_left_out_or_refused(tokenizer: Any) -> None:
    record = Record("f:7", text="word " * 50)
    cut, problems = _items(tokenizer, record)
    assert cut[0].length == 32 and cut[0].sequence.tokens[-1] == "[SEP]" and problems.counts == {"too long, cut": 1}
    assert _items(tokenizer, record, too_long="skip")[0] == []
    with pytest.raises(CorpusError, match="f:7: 52 tokens"):
        _items(tokenizer, record, too_long="refuse")


def test_entities_fall_onto_subwords(tokenizer: Any) -> None:
    words = ("EU", "Kuala", "Lumpur", "\u200b", "talks", "Antananarivo")
    (item,), _ = _items(tokenizer, Record("f:1", words=words, entities=(-1, 0, 0, -1, -1, 1)))
    found: dict[int, list[str]] = {}
    for token, entity in zip(item.sequence.tokens, item.entities.tolist(), strict=True):
        found.setdefault(entity, []).append(token)
    assert "".join(found[0]).replace("##", "") == "kualalumpur"
    assert "".join(found[1]).replace("##", "") == "antananarivo" and len(found[1]) > 1
    assert {"[CLS]", "[SEP]", "eu", "talks"} <= set(found[-1])


def test_ready_made_tokens_keep_their_segments_and_words(tokenizer: Any) -> None:
    tokens = ("[CLS]", "a", "##b", "[SEP]", "c", "[SEP]")
    (item,), _ = _items(tokenizer, Record("f: sequence 1", tokens=tokens))
    assert item.sequence.features["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    assert item.sequence.special == [True, False, False, True, False, True]
    assert item.sequence.word_ids == [-1, 0, 0, -1, 1, -1]
    assert tokenizer.convert_ids_to_tokens(item.sequence.features["input_ids"]) == list(tokens)
    left, problems = _items(tokenizer, Record("f: sequence 2", tokens=("[CLS]", "no-such-token", "[SEP]")))
    assert left == [] and problems.counts == {"unknown token": 1}


@pytest.mark.parametrize(("words", "count"), [(1, 1), (8, 1), (17, 2), (28, 3)])
def test_exactly_twelve_percent_are_masked_and_never_special_tokens(tokenizer: Any, words: int, count: int) -> None:
    (item,), _ = _items(tokenizer, Record("f:1", text="word " * words))
    hidden = masked(item, tokenizer.mask_token_id, "[MASK]", seed=3)
    changed = [place for place, token in enumerate(hidden.sequence.tokens) if token == "[MASK]"]
    assert len(changed) == count == max(1, int(0.12 * words))
    assert not any(item.sequence.special[place] for place in changed)
    ids = hidden.sequence.features["input_ids"]
    assert all((ids[p] == tokenizer.mask_token_id) == (p in changed) for p in range(len(ids)))
    assert masked(item, 103, "[MASK]", seed=3).sequence.features == hidden.sequence.features
    others = [masked(replace(item, number=n), 103, "[MASK]", seed=3).sequence.tokens for n in range(20)]
    assert words == 1 or any(tokens != hidden.sequence.tokens for tokens in others)


def test_limits_take_the_first_or_a_reproducible_sample(tokenizer: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"line {number}" for number in range(50)))

    def numbers(**options: Any) -> list[int]:
        return [item.number for item in Corpus(str(path), limit=6, **options).items(tokenizer, Problems())]

    assert numbers() == list(range(6))
    sample = numbers(shuffle=True, seed=1)
    assert sample == sorted(sample) == numbers(shuffle=True, seed=1) != numbers(shuffle=True, seed=2)


def test_a_model_without_tokenizer_says_so() -> None:
    with pytest.raises(CorpusError, match="no tokenizer"):
        Corpus(str(bundled())).items(None, Problems())
