"""Corpora of token ids: rows as JSONL and Parquet, what is wrong with them, and runs of models without a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tiny_architectures import BART
from support.tiny_models import tiny, token_ids

import normscope as ns
from normscope.corpora import Corpus, CorpusError, Problems
from normscope.errors import InputError
from normscope.runs import run

ROW = {
    "input_ids": [5, 9, 9, 7, 6],
    "special_tokens_mask": [1, 0, 0, 0, 1],
    "word_ids": [None, 0, 0, 1, None],
    "entities": [-1, 0, 0, -1, -1],
    "labels": [8, 6, -100],
    "label_word_ids": [0, None, None],
    "sure": [[1, 0]],
    "possible": [[0, 0]],
}


def _jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def _items(path: str, policy: Any = "refuse", **options: Any) -> list[Any]:
    return list(Corpus(path, **options).items(None, Problems(policy), special_ids={6}))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_row_says_what_its_tokens_are(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"ids.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([ROW]), path)
    else:
        _jsonl(path, [ROW])
    (item,) = _items(str(path))
    assert item.sequence.features == {"input_ids": [5, 9, 9, 7, 6]} and item.sequence.tokens == list("59976")
    assert item.sequence.special == [True, False, False, False, True]
    assert item.source_words.tolist() == item.sequence.word_ids == [-1, 0, 0, 1, -1]
    assert item.entities.tolist() == [-1, 0, 0, -1, -1]
    assert item.target.features["input_ids"] == [8, 6] and item.target_words.tolist() == [0, -1]
    assert item.gold.sure == {(1, 0)} and item.gold.possible == {(1, 0), (0, 0)}


def test_padding_goes_long_rows_are_cut_and_special_ids_are_those_of_the_model(tmp_path: Path) -> None:
    rows = [{"input_ids": [0, 5, 6, 0], "attention_mask": [0, 1, 1, 0]}, {"input_ids": [5] * 9 + [6]}]
    first, second = _items(_jsonl(tmp_path / "ids.jsonl", rows), max_tokens=4)
    assert (first.sequence.tokens, first.sequence.special) == (["5", "6"], [False, True])
    assert second.length == 4


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"input_ids": []}, "'input_ids' is empty"),
        ({"input_ids": "5 6"}, "'input_ids' is not a list"),
        ({"input_ids": [5, -1]}, "negative"),
        ({"input_ids": [5, 6.5]}, "not a whole number"),
        ({"input_ids": [5, 6], "word_ids": [0]}, "'word_ids' has 1 values for 2 tokens"),
        ({"input_ids": [5, 6, 7], "attention_mask": [1, 0, 1]}, "holes"),
        ({"input_ids": [5, 6, 7], "attention_mask": [1, 1, 2]}, "1 for a token and 0 for padding"),
        ({"input_ids": [5], "labels": [7], "label_word_ids": [0, 1]}, "2 values for 1 labels"),
        ({"input_ids": [5], "labels": [7], "sure": [[0]]}, "is not a link"),
    ],
)
def test_a_row_that_is_wrong_is_named_with_its_place(row: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = _jsonl(tmp_path / "ids.jsonl", [{"input_ids": [5, 7]}, row])
    with pytest.raises(CorpusError, match=rf"ids.jsonl:2: .*{says}"):
        _items(path)
    assert len(_items(path, policy="skip")) == 1


def test_texts_go_before_ids_unless_ids_are_asked_for(tmp_path: Path) -> None:
    path = _jsonl(tmp_path / "both.jsonl", [{"text": "a cat", "input_ids": [5, 6]}])
    with pytest.raises(CorpusError, match="--field input_ids"):
        _items(path)
    (item,) = _items(path, field="input_ids")
    assert item.sequence.tokens == ["5", "6"]


def test_a_causal_model_without_a_tokenizer_runs_on_ids(tmp_path: Path) -> None:
    """The means with and without the first token, against the analyses of the sequences."""
    model = tiny("gpt2", bos_token_id=3, eos_token_id=3)
    rows = [{"input_ids": [3, *ids]} for ids in token_ids(6, 4)]
    result = run(["mixing-ratio", "categories"], model=model, corpus=_jsonl(tmp_path / "ids.jsonl", rows))
    ratios = [ns.load(model).analyze({"input_ids": row["input_ids"]}).mixing_ratio("Attn").values for row in rows]
    table = {(row["scope"], row["tokens"]): row for row in result.tables["mixing-ratio"].to_pylist()}
    assert table["Attn", "overall"]["mean"] == pytest.approx(np.concatenate(ratios, 1).mean(), rel=1e-5)
    without = np.concatenate([each[:, 1:] for each in ratios], 1).mean()
    assert table["Attn", "without first"]["mean"] == pytest.approx(without, rel=1e-5)
    kinds = {row["kind"]: row for row in result.tables["mixing-ratio-layers"].to_pylist() if row["layer"] == 1}
    assert kinds["first"]["mean"] == pytest.approx(0, abs=1e-6) and kinds["first"]["count"] == 2
    assert "no mask token" in result.manifest["experiments"]["mixing-ratio"]["notes"][0]


def test_an_id_that_the_model_does_not_know_is_refused_with_its_place(tmp_path: Path) -> None:
    path = _jsonl(tmp_path / "ids.jsonl", [{"input_ids": [5, 6]}, {"input_ids": [5, 10**6]}])
    with pytest.raises(InputError, match=r"ids.jsonl:2: .*1000000"):
        run(["mixing-ratio"], model=tiny("gpt2"), corpus=path)


def test_either_stack_of_an_encoder_decoder_is_looked_at(tmp_path: Path) -> None:
    model = tiny("bart", **BART)
    pairs = zip(token_ids(6, 4), token_ids(5, 3, seed=1), strict=True)
    rows = [{"input_ids": source, "labels": target} for source, target in pairs]
    corpus = _jsonl(tmp_path / "pairs.jsonl", rows)
    whole = [
        ns.load(model).analyze({"input_ids": r["input_ids"]}, decoder_text={"input_ids": r["labels"]}) for r in rows
    ]
    for stack, analyses in (("decoder", whole), ("encoder", [each.encoder for each in whole])):
        result = run(["mixing-ratio", "expansion-rate", "scope-similarity"], model=model, corpus=corpus, stack=stack)
        expected = np.concatenate([each.mixing_ratio("AttnRes").values for each in analyses], 1).mean()
        table = {(row["scope"], row["tokens"]): row for row in result.tables["mixing-ratio"].to_pylist()}
        assert table["AttnRes", "overall"]["mean"] == pytest.approx(expected, rel=1e-5)
        assert (("AttnRes", "without first") in table) == (stack == "decoder")
        assert result.manifest["settings"]["stack"] == stack
    alone = run(["mixing-ratio"], model=model, corpus=corpus, stack="encoder")
    texts = _jsonl(tmp_path / "sources.jsonl", [{"input_ids": row["input_ids"]} for row in rows])
    sources = run(["mixing-ratio"], model=model, corpus=texts, stack="encoder")
    assert sources.tables["mixing-ratio"].equals(alone.tables["mixing-ratio"])
    with pytest.raises(InputError, match="--stack encoder"):
        run(["mixing-ratio"], model=model, corpus=texts)
    with pytest.raises(InputError, match="one stack"):
        run(["mixing-ratio"], model=tiny("gpt2"), corpus=texts, stack="encoder")


def test_alignment_runs_on_ids_with_links(tmp_path: Path) -> None:
    rows = [
        {
            "input_ids": [*source, 2],
            "word_ids": [0, 0, 1, None],
            "labels": [*target, 2],
            "label_word_ids": [0, 1, None],
            "sure": [[0, 0], [1, 1]],
        }
        for source, target in zip(token_ids(3, 3), token_ids(2, 2, seed=1), strict=True)
    ]
    result = run(["alignment"], model=tiny("bart", **BART), corpus=_jsonl(tmp_path / "pairs.jsonl", rows))
    assert result.tables["alignment-gold"].num_rows == 4
    links = [row for row in result.tables["alignment-links"].to_pylist() if row["eos"] == "exclude"]
    assert {row["source_word"] for row in links} <= {"1", "2"} and {row["target_word"] for row in links} == {"1", "2"}
