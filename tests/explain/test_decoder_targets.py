"""What token ids and texts mean to the decoder of an encoder-decoder: what is given out, what is read, and at which row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import BART, T5, tiny
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

import normscope as ns

WORDS = ("<pad>", "</s>", "<unk>", "one", "two", "three", "four", "five", "six", "<en>")
END, START = 1, 0
SOURCE = {"input_ids": [[5, 6, 7, END]]}
SIZES: dict[str, dict[str, Any]] = {"marian": BART, "t5": T5, "bart": BART}

every_kind = pytest.mark.parametrize("kind", list(SIZES))


def tokenizer(after: str = "$A") -> PreTrainedTokenizerFast:
    """A word, a token; `after` says what is put around a text."""
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    made.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single=after, special_tokens=[("</s>", END), ("<en>", 9)]
    )
    special = dict(pad_token="<pad>", eos_token="</s>", unk_token="<unk>", additional_special_tokens=["<en>"])
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


WITH_END, WITHOUT_END = tokenizer("$A </s>"), tokenizer()


def translator(kind: str, words: PreTrainedTokenizerFast | None = None, **changes: Any) -> ns.Analyzer:
    special = dict(vocab_size=10, eos_token_id=END, pad_token_id=0, decoder_start_token_id=START)
    return ns.load(tiny(kind, AutoModelForSeq2SeqLM, **{**SIZES[kind], **special, **changes}).eval(), words)


def logits(analyzer: ns.Analyzer, *read: int) -> np.ndarray:
    """The model's own, for a decoder that reads these tokens after its start."""
    source = torch.tensor(SOURCE["input_ids"])
    with torch.no_grad():
        return analyzer.model(input_ids=source, decoder_input_ids=torch.tensor([[START, *read]])).logits[0].numpy()


# ---- what is explained -------------------------------------------------------------------------------------------------


@every_kind
def test_every_id_of_a_target_is_explained_at_the_row_that_gives_it_out(kind: str) -> None:
    analyzer = translator(kind)
    for ids in ([3], [4, 3], [4, 3, END], [END]):
        explanation = analyzer.explain(SOURCE, target=ids, objective="logit")
        own = logits(analyzer, *ids)
        assert explanation.targets == [str(number) for number in ids]
        np.testing.assert_allclose(explanation.values, [own[row, number] for row, number in enumerate(ids)], atol=1e-4)


@every_kind
@pytest.mark.parametrize(("words", "said"), [(WITH_END, ["four", "three", "</s>"]), (WITHOUT_END, ["four", "three"])])
def test_a_text_is_explained_to_its_last_token_with_and_without_an_end_token(
    kind: str, words: PreTrainedTokenizerFast, said: list[str]
) -> None:
    analyzer = translator(kind, words)
    explanation = analyzer.explain(SOURCE, target="four three", objective="logit")
    assert explanation.targets == said
    own = logits(analyzer, 6, 5)
    expected = [own[row, WORDS.index(word)] for row, word in enumerate(said)]
    np.testing.assert_allclose(explanation.values, expected, atol=1e-4)


@every_kind
def test_a_decoder_text_of_ids_is_read_to_its_last_one(kind: str) -> None:
    analyzer = translator(kind)
    explanation = analyzer.explain(SOURCE, decoder_text=[4, 3], target=7, objective="logit")
    assert explanation.tokens[:3] == ["0", "4", "3"]
    assert explanation.value == pytest.approx(logits(analyzer, 4, 3)[2, 7], abs=1e-4)
    first = analyzer.explain(SOURCE, decoder_text=[], target=7, objective="logit")
    assert first.value == pytest.approx(logits(analyzer)[0, 7], abs=1e-4)


@every_kind
@pytest.mark.parametrize("words", [WITH_END, WITHOUT_END])
def test_a_decoder_text_of_words_is_read_to_its_last_word_and_no_end_with_it(
    kind: str, words: PreTrainedTokenizerFast
) -> None:
    analyzer = translator(kind, words)
    explanation = analyzer.explain(SOURCE, decoder_text="four three", target="five", against="six")
    assert explanation.tokens[:3] == ["<pad>", "four", "three"]
    own = logits(analyzer, 6, 5)[2]
    assert explanation.value == pytest.approx(own[7] - own[8], abs=1e-4)
    longer = analyzer.explain(SOURCE, decoder_text="four", target="three five", objective="logit")
    np.testing.assert_allclose(longer.values, [logits(analyzer, 6)[1, 5], own[7]], atol=1e-4)


def test_a_contrast_after_words_that_begin_alike_is_read_at_the_row_where_they_differ() -> None:
    analyzer = translator("bart", WITHOUT_END)
    explanation = analyzer.explain(SOURCE, decoder_text="six", target="four five", against="four three")
    own = logits(analyzer, 8, 6)[2]
    assert explanation.value == pytest.approx(own[7] - own[5], abs=1e-4)


# ---- what is analysed --------------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(
    ("ids", "read", "given_out"),
    [
        ([4, 3], ["0", "4", "3"], ["4", "3", "1"]),
        ([4, 3, END], ["0", "4", "3"], ["4", "3", "1"]),
        ([4], ["0", "4"], ["4", "1"]),
    ],
)
def test_ids_are_read_to_the_last_one_but_for_the_end_token(
    kind: str, ids: list[int], read: list[str], given_out: list[str]
) -> None:
    analyzer = translator(kind)
    for target in ({"input_ids": [ids]}, torch.tensor([ids]), ids):
        analysis: Any = analyzer.analyze(SOURCE, decoder_text=target, scopes="AttnW")
        assert analysis.tokens[: len(read)] == read
        assert analysis.dataset["query_output_token"].values.tolist() == given_out


@every_kind
@pytest.mark.parametrize("words", [WITH_END, WITHOUT_END])
def test_a_text_has_the_same_map_whether_or_not_its_tokenizer_adds_an_end_token(
    kind: str, words: PreTrainedTokenizerFast
) -> None:
    analysis = translator(kind, words).analyze("one two", decoder_text="four three", scopes="AttnW")
    assert analysis.tokens[:3] == ["<pad>", "four", "three"]
    assert analysis.dataset["query_output_token"].values.tolist() == ["four", "three", "</s>"]


def test_the_language_after_the_end_comes_first_and_is_not_read_twice() -> None:
    """As mBART writes its targets: the end, then the language, which is what the decoder begins with."""
    analyzer = translator("bart", tokenizer("$A </s> <en>"), decoder_start_token_id=None)
    analysis = analyzer.analyze("one two", decoder_text="four three", scopes="AttnW")
    assert analysis.tokens[:4] == ["<en>", "four", "three", "</s>"]
    with pytest.raises(ns.InputError, match="names no token that its decoder begins with"):
        analyzer.explain(SOURCE, target=[4, 3])


def test_a_target_that_leaves_no_room_for_the_start_is_refused_or_cut() -> None:
    analyzer = translator("bart", max_position_embeddings=8)
    with pytest.raises(ns.InputError, match="text has 8 tokens, but the model takes at most 7 after the start"):
        analyzer.analyze(SOURCE, decoder_text=[4] * 8)
    assert len(analyzer.analyze(SOURCE, decoder_text=[4] * 7 + [END], scopes="AttnW").tokens) == 8 + 4
    cut: Any = analyzer.analyze(SOURCE, decoder_text=[4] * 20, truncate=True, scopes="AttnW")
    assert len(cut.tokens) == 8 + 4


def test_a_pair_of_a_corpus_without_an_end_token_is_aligned_row_by_row(tmp_path: Any) -> None:
    """The row of the end belongs to no word, and every other to the word that it reads or outputs."""
    from normscope.corpora.token_ids import TokenIds  # noqa: PLC0415
    from normscope.experiments.observer import _pair  # noqa: PLC0415  # pyright: ignore[reportPrivateUsage]

    row = {
        "input_ids": [5, 6, 1],
        "word_ids": [0, 1, None],
        "labels": [4, 3],
        "label_word_ids": [0, 1],
        "sure": [[0, 0]],
    }
    item = TokenIds.of_row(row).item(0, "row 1", None, ())
    analyzer = translator("bart")
    (measured,) = [
        analyzer.analyze({"input_ids": [row["input_ids"]]}, decoder_text={"input_ids": [row["labels"]]}, scopes="AttnW")
    ]
    from normscope.inputs import with_targets  # noqa: PLC0415

    (read,) = with_targets([item.sequence], {"input_ids": [row["labels"]]}, analyzer.model, None, analyzer.longest)
    pair = _pair(item, read)
    assert pair is not None and len(pair.rows("AWO")) == measured.dataset.sizes["query"] == 3
    assert (pair.rows("AWO").tolist(), pair.rows("AWI").tolist()) == ([0, 1, -1], [-1, 0, 1])
