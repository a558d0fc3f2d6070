"""What a user may pass, how it becomes tokens and words, and the error that each bad input gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_models import tiny
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase

import normscope as ns
from normscope.inputs import batches, read_inputs
from normscope.inputs.sequence import NOWHERE

HELLO_WORLD = [101, 7592, 2088, 102]
"""[CLS] hello world [SEP], in the vocabulary of the embedded model."""


def look(analyzer: ns.Analyzer, inputs: Any, **options: Any) -> Any:
    """The cheapest analysis there is."""
    return analyzer.analyze(inputs, **{"scopes": "AttnW", "layers": 1, **options})


def tokenizer_of(analyzer: ns.Analyzer) -> PreTrainedTokenizerBase:
    assert analyzer.tokenizer is not None
    return analyzer.tokenizer


def words_of(analysis: ns.Analysis) -> list[int]:
    return analysis.dataset["key_word"].values.tolist()


# ---- texts -------------------------------------------------------------------------------------------------------------


def test_a_text_becomes_its_tokens_between_special_ones(analyzer: ns.Analyzer) -> None:
    analysis = look(analyzer, "An unaffable cat.")
    assert analysis.tokens == ["[CLS]", "an", "una", "##ffa", "##ble", "cat", ".", "[SEP]"]
    assert words_of(analysis) == [-1, 0, 1, 1, 1, 2, 3, -1]
    assert analysis.dataset["key_special"].values.tolist() == [True, *[False] * 6, True]
    assert analysis.dataset["key_word_text"].values.tolist()[2:5] == ["unaffable"] * 3
    assert analysis.attrs["text"] == "An unaffable cat."


def test_queries_and_keys_are_described_alike(analyzer: ns.Analyzer) -> None:
    dataset = look(analyzer, "An unaffable cat.").dataset
    for name in ("token", "special", "word", "word_text"):
        assert dataset[f"query_{name}"].values.tolist() == dataset[f"key_{name}"].values.tolist()


def test_a_mask_in_a_text_is_content_and_not_special(analyzer: ns.Analyzer) -> None:
    analysis = look(analyzer, "the [MASK] sat")
    assert analysis.tokens[2] == "[MASK]"
    assert not analysis.dataset["key_special"].values[2]
    assert words_of(analysis) == [-1, 0, 1, 2, -1]


def test_a_single_character_that_looks_like_a_separator_is_a_text(analyzer: ns.Analyzer) -> None:
    assert look(analyzer, "|").tokens == ["[CLS]", "|", "[SEP]"]


def test_a_pair_has_two_segments_and_words_counted_through_both(analyzer: ns.Analyzer) -> None:
    analysis = look(analyzer, ("a cat", "cats sat"))
    assert analysis.tokens == ["[CLS]", "a", "cat", "[SEP]", "cats", "sat", "[SEP]"]
    assert words_of(analysis) == [-1, 0, 1, -1, 2, 3, -1]
    assert analysis.attrs["text"] == "a cat | cats sat"
    segments = [-1, 0, 0, -1, 1, 1, -1]
    assert analysis.dataset["query_segment"].values.tolist() == segments
    assert analysis.words().dataset["key_segment"].values.tolist() == segments
    assert "query_segment" not in look(analyzer, "a cat").dataset.coords


def test_a_pair_that_is_cut_keeps_what_its_tokens_are_of(analyzer: ns.Analyzer) -> None:
    analysis = look(analyzer, ("a " * 300, "b " * 300), truncate=True)
    segments = analysis.dataset["query_segment"].values
    assert [analysis.tokens[place] for place in np.flatnonzero(segments == 1)] == ["b"] * int((segments == 1).sum())
    assert {-1, 0, 1} == set(segments.tolist())


def test_the_segments_of_a_pair_reach_the_model(analyzer: ns.Analyzer) -> None:
    """The same tokens as one text with a separator in it, all in the first segment, give other weights."""
    pair, one = look(analyzer, ("a cat", "cats sat")), look(analyzer, "a cat [SEP] cats sat")
    assert pair.tokens == one.tokens
    assert float(np.abs(pair.map("AttnW") - one.map("AttnW")).max()) > 1e-3
    encoded = tokenizer_of(analyzer)("a cat", "cats sat", return_tensors="pt")
    np.testing.assert_array_equal(pair.map("AttnW"), look(analyzer, encoded).map("AttnW"))


def test_a_list_gives_a_list_in_its_order_whatever_the_lengths(analyzer: ns.Analyzer) -> None:
    texts = ["one", "one two three four five", "one two", ("one", "two three")]
    analyses = look(analyzer, texts)
    assert [analysis.attrs["text"] for analysis in analyses] == ["one", texts[1], "one two", "one | two three"]
    assert [len(analysis.tokens) for analysis in analyses] == [3, 7, 4, 6]


def test_a_list_of_one_gives_a_list_of_one(analyzer: ns.Analyzer) -> None:
    (analysis,) = look(analyzer, ["one"])
    assert analysis.tokens == ["[CLS]", "one", "[SEP]"]


def test_every_item_of_a_list_gives_what_it_gives_alone(analyzer: ns.Analyzer) -> None:
    texts = ["one", "one two three four five six seven", ("a cat", "cats sat")]
    for text, together in zip(texts, analyzer.analyze(texts, heads=True), strict=True):
        alone = analyzer.analyze(text, heads=True)
        for name in ("map", "mixing_ratio", "head_map"):
            np.testing.assert_allclose(together.dataset[name], alone.dataset[name], rtol=1e-4, atol=1e-6)
        assert together.tokens == alone.tokens


@pytest.mark.parametrize("lengths", [[1, 500] * 10, [2048, 3000, 7], [100] * 50])
def test_a_batch_holds_about_two_thousand_tokens_padding_included(lengths: list[int]) -> None:
    sequences = [read_inputs(torch.full((1, n), 7), None, None)[0][0] for n in lengths]
    found = list(batches(sequences, 0, torch.device("cpu")))
    assert sorted(place for batch in found for place in batch.indices) == list(range(len(lengths)))
    for batch in found:
        ids = batch.features["input_ids"]
        assert len(batch.indices) == 1 or ids.numel() <= 2048
        assert batch.lengths == [lengths[place] for place in batch.indices]
        assert (ids != 0).sum(1).tolist() == batch.features["attention_mask"].sum(1).tolist() == batch.lengths


# ---- words -------------------------------------------------------------------------------------------------------------


def test_words_keep_the_boundaries_that_the_user_gave(analyzer: ns.Analyzer) -> None:
    analysis = look(analyzer, ["unaffable", "cat's", "mat"], pretokenized=True)
    assert analysis.tokens == ["[CLS]", "una", "##ffa", "##ble", "cat", "'", "s", "mat", "[SEP]"]
    assert words_of(analysis) == [-1, 0, 0, 0, 1, 1, 1, 2, -1]
    assert analysis.words().tokens == ["[CLS]", "unaffable", "cat ' s", "mat", "[SEP]"]
    assert analysis.attrs["text"] == "unaffable cat's mat"


def test_lists_of_words_give_a_list(analyzer: ns.Analyzer) -> None:
    analyses = look(analyzer, [["a", "cat"], ["cats"]], pretokenized=True)
    assert [analysis.tokens for analysis in analyses] == [["[CLS]", "a", "cat", "[SEP]"], ["[CLS]", "cats", "[SEP]"]]


def test_a_pair_of_lists_of_words_is_one_input(analyzer: ns.Analyzer) -> None:
    analysis = look(analyzer, (["a", "cat's"], ["mat"]), pretokenized=True)
    assert words_of(analysis) == [-1, 0, 1, 1, 1, -1, 2, -1]


def test_two_words_in_a_tuple_are_words_and_no_pair(analyzer: ns.Analyzer) -> None:
    assert look(analyzer, ("a", "cat"), pretokenized=True).tokens == ["[CLS]", "a", "cat", "[SEP]"]


# ---- encodings and ids -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inputs",
    [
        torch.tensor(HELLO_WORLD),
        torch.tensor([HELLO_WORLD]),
        {"input_ids": HELLO_WORLD},
        {"input_ids": [HELLO_WORLD]},
        {"input_ids": np.array(HELLO_WORLD), "attention_mask": np.ones(4, dtype=int)},
        {"input_ids": torch.tensor([HELLO_WORLD]), "attention_mask": torch.ones(1, 4, dtype=torch.bool)},
        {"input_ids": HELLO_WORLD, "position_ids": [0, 1, 2, 3], "token_type_ids": [0, 0, 0, 0]},
        {"input_ids": HELLO_WORLD, "special_tokens_mask": [1, 0, 0, 1], "labels": [0, 1, 2, 3]},
    ],
    ids=["tensor", "batch", "list", "lists", "array", "boolean mask", "positions and types", "features for others"],
)
def test_token_ids_in_any_container_give_what_their_text_gives(analyzer: ns.Analyzer, inputs: Any) -> None:
    analysis = look(analyzer, inputs)
    assert analysis.tokens == ["[CLS]", "hello", "world", "[SEP]"]
    assert analysis.attrs["text"] == "hello world"
    assert analysis.dataset["key_special"].values.tolist() == [True, False, False, True]
    np.testing.assert_array_equal(analysis.map("AttnW"), look(analyzer, "hello world").map("AttnW"))


def test_position_ids_reach_the_model(analyzer: ns.Analyzer) -> None:
    shifted = look(analyzer, {"input_ids": HELLO_WORLD, "position_ids": [9, 20, 31, 42]})
    assert float(np.abs(shifted.map("AttnW") - look(analyzer, "hello world").map("AttnW")).max()) > 1e-3


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_is_never_seen(analyzer: ns.Analyzer, side: str) -> None:
    texts = ["hello world", "a cat sat on a mat"]
    encoded = tokenizer_of(analyzer)(texts, padding=True, padding_side=side, return_tensors="pt")
    assert bool((encoded["attention_mask"] == 0).any())
    for text, padded in zip(texts, look(analyzer, encoded), strict=True):
        alone = look(analyzer, text)
        assert padded.tokens == alone.tokens
        assert words_of(padded) == words_of(alone)
        np.testing.assert_allclose(padded.map("AttnW"), alone.map("AttnW"), rtol=1e-5, atol=1e-7)


def test_an_encoding_of_one_sequence_gives_one_analysis_and_of_two_a_list(analyzer: ns.Analyzer) -> None:
    tokenizer = tokenizer_of(analyzer)
    assert isinstance(look(analyzer, tokenizer(["hello"])), ns.Analysis)
    assert [len(each.tokens) for each in look(analyzer, tokenizer(["hello", "a cat"]))] == [3, 4]


def test_ids_without_a_tokenizer_are_called_by_their_numbers() -> None:
    analysis = ns.load(tiny("bert")).analyze(torch.tensor([7, 8, 9]))
    assert analysis.tokens == ["7", "8", "9"]
    assert not analysis.dataset["key_special"].values.any()
    assert analysis.attrs["text"] == ""


# ---- tokenizers without words ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow() -> ns.Analyzer:
    """A tiny model with a tokenizer in Python, which knows no words."""
    return ns.load(tiny("bert", vocab_size=400), ByT5Tokenizer())


def test_a_slow_tokenizer_gives_tokens_but_no_words(slow: ns.Analyzer) -> None:
    analysis = look(slow, "a cat")
    assert analysis.tokens == ["a", " ", "c", "a", "t", "</s>"]
    assert analysis.dataset["key_special"].values.tolist() == [*[False] * 5, True]
    assert words_of(analysis) == [-1] * 6


def test_words_of_a_slow_tokenizer_are_refused(slow: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match=r"no word ids.*fast tokenizer"):
        look(slow, "a cat").words()


def test_words_of_token_ids_are_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="no word ids: the input came as token ids"):
        look(analyzer, torch.tensor(HELLO_WORLD)).words()


def test_words_of_a_special_query_alone_are_no_error(analyzer: ns.Analyzer) -> None:
    words = look(analyzer, "an unaffable cat", queries=0).words()
    assert words.dataset["query_token"].values.tolist() == ["[CLS]"]
    assert words.tokens == ["[CLS]", "an", "unaffable", "cat", "[SEP]"]


# ---- too long ----------------------------------------------------------------------------------------------------------


def test_a_text_longer_than_the_model_takes_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match=r"602 tokens, but the model takes at most 512.*truncate=True"):
        look(analyzer, "a " * 600)


def test_a_part_and_a_filled_sequence_keep_what_is_known_of_every_token(analyzer: ns.Analyzer) -> None:
    (whole,), _ = read_inputs(("one text", "another"), analyzer.tokenizer, None)
    part = whole.part([1, 2])
    assert part.tokens == whole.tokens[1:3]
    assert (part.segments, part.offsets) == ([0, 0], [(0, 3), (4, 8)])
    filled = part.filled("[PAD]", 7, 2)
    assert filled.features["input_ids"][-2:] == [7, 7]
    assert (filled.special[-2:], filled.offsets) == ([True, True], [(0, 3), (4, 8), NOWHERE, NOWHERE])
    with pytest.raises(ValueError, match="2 tokens has another number of offsets"):
        replace(part, offsets=[(0, 3)])


def test_truncation_keeps_the_beginning(analyzer: ns.Analyzer) -> None:
    tokens = look(analyzer, "b " * 10 + "a " * 600, truncate=True, queries=0).tokens
    assert tokens == ["[CLS]", *["b"] * 10, *["a"] * 500, "[SEP]"]


def test_truncation_does_not_change_what_fits(analyzer: ns.Analyzer) -> None:
    assert look(analyzer, "a cat", truncate=True).tokens == look(analyzer, "a cat").tokens


# ---- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "   ", "\n\t", ("", ""), ("  ", " "), "\u200b"])
def test_an_empty_text_is_refused(analyzer: ns.Analyzer, text: Any) -> None:
    with pytest.raises(ns.InputError, match="is empty"):
        look(analyzer, text)


@pytest.mark.parametrize("words", [[], [""], [" ", ""], ([], [])])
def test_empty_words_are_refused(analyzer: ns.Analyzer, words: Any) -> None:
    with pytest.raises(ns.InputError, match="is empty"):
        look(analyzer, words, pretokenized=True)


def test_one_empty_text_among_others_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="is empty"):
        look(analyzer, ["a cat", ""])


def test_an_empty_list_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="list of inputs is empty"):
        look(analyzer, [])


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["a", 3], r"Item 1 of the list is a int \(3\), not a text"),
        (["a", None], r"Item 1 of the list is a NoneType \(None\)"),
        ([["a", "cat"]], r"Item 0 of the list is a list.*pretokenized=True"),
        (("a", 3), r"Item 1 of the list is a int"),
        (3, "Expected a text.*but got int: 3"),
        (None, "Expected a text.*but got NoneType"),
    ],
)
def test_what_is_no_text_is_refused(analyzer: ns.Analyzer, inputs: Any, message: str) -> None:
    with pytest.raises(ns.InputError, match=message):
        look(analyzer, inputs)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("inputs", ["a cat", ["a", 3]])
def test_what_are_no_words_is_refused(analyzer: ns.Analyzer, inputs: Any) -> None:
    with pytest.raises(ns.InputError, match="list of words"):
        look(analyzer, inputs, pretokenized=True)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"ids": HELLO_WORLD}, "no 'input_ids', only: ids"),
        ({"input_ids": HELLO_WORLD, "pixels": [1]}, "not understood: pixels"),
        ({"input_ids": []}, "no sequences"),
        ({"input_ids": [[]]}, "Sequence 0 of the encoding has no tokens"),
        ({"input_ids": torch.tensor(HELLO_WORLD).float()}, "'input_ids' must be whole numbers"),
        ({"input_ids": torch.tensor([[HELLO_WORLD]])}, "'input_ids' must be whole numbers, one or two dimensions"),
        ({"input_ids": HELLO_WORLD, "attention_mask": [1, 0, 1, 1]}, "attention mask has holes"),
        (
            {"input_ids": HELLO_WORLD, "attention_mask": [1, 1, 2, 2]},
            "1 for a token and 0 for padding, but here it has 2",
        ),
        ({"input_ids": HELLO_WORLD, "attention_mask": [2, 2, 2, 2]}, "give each as a sequence of its own"),
        ({"input_ids": HELLO_WORLD, "attention_mask": [[[1, 1, 1, 1]]]}, "must be whole numbers"),
        ({"input_ids": [[101, 7592], 102]}, "must be whole numbers|shape"),
        ({"input_ids": None}, "must be whole numbers, not None"),
        ({"input_ids": "abc"}, "must be whole numbers, not 'abc'"),
        ({"input_ids": HELLO_WORLD, "attention_mask": [0, 0, 0, 0]}, "Sequence 0 of the encoding has no tokens"),
        ({"input_ids": HELLO_WORLD, "attention_mask": [1, 1]}, "'attention_mask' does not have the shape"),
        ({"input_ids": [HELLO_WORLD], "token_type_ids": [[0] * 4] * 2}, "'token_type_ids' does not have the shape"),
        ({"input_ids": [101, 102]}, "only special tokens"),
    ],
)
def test_an_encoding_that_cannot_be_used_is_refused(analyzer: ns.Analyzer, inputs: Any, message: str) -> None:
    with pytest.raises(ns.InputError, match=message):
        look(analyzer, inputs)


def test_a_text_for_a_model_without_tokenizer_is_refused_with_a_way_out() -> None:
    with pytest.raises(ns.InputError, match=r"without a tokenizer.*token ids"):
        ns.load(tiny("bert")).analyze("a cat")


def test_a_decoder_text_for_a_model_without_encoder_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="but all-MiniLM-L6-v2 has no encoder and decoder: leave out decoder_text"):
        look(analyzer, "a cat", decoder_text="eine Katze")


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(torch.tensor([101, 999_999, 102]), id="id beyond the vocabulary"),
        pytest.param(torch.tensor([101, -5, 102]), id="negative id"),
        pytest.param(torch.tensor([True, False]), id="booleans for ids"),
        pytest.param(torch.tensor(101), id="a number for ids"),
        pytest.param({"input_ids": HELLO_WORLD, "token_type_ids": [0, 7, 0, 0]}, id="unknown segment"),
        pytest.param("\ud800", id="half a surrogate pair"),
    ],
)
def test_values_that_the_model_cannot_take_are_refused(analyzer: ns.Analyzer, inputs: Any) -> None:
    with pytest.raises(ns.InputError):
        look(analyzer, inputs)


def test_truncation_applies_to_token_ids_too() -> None:
    analysis = look(ns.load(tiny("bert", max_position_embeddings=8)), torch.arange(5, 17), truncate=True)
    assert analysis.tokens == ["5", "6", "7", "8", "9", "10", "11", "12"]
