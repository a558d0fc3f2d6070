"""Readers on good, bad and hostile files: every bad row has its file and line."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from normscope.corpora import Corpus, CorpusError, Problems, Record, bundled
from normscope.corpora.text import read_ranks


def _read(path: Path, content: str | bytes, **options: Any) -> tuple[list[Record], Problems]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    problems = Problems(options.pop("policy", "skip"))
    return list(Corpus(str(path), **options).records(problems)), problems


def test_lines_and_paragraphs(tmp_path: Path) -> None:
    text = "\ufeffone two\n\n three \nfour\r\n\n\nfive"
    lines, problems = _read(tmp_path / "a.txt", text)
    assert [record.text for record in lines] == ["one two", "three", "four", "five"]
    assert lines[1].where.endswith("a.txt:3") and problems.counts == {"empty line": 3}
    paragraphs, _ = _read(tmp_path / "a.txt", text, unit="paragraph")
    assert [(r.text, r.where.rsplit(":", 1)[1]) for r in paragraphs] == [
        ("one two", "1"),
        ("three four", "3"),
        ("five", "7"),
    ]


def test_a_line_that_is_not_utf8_is_noted_with_its_number_or_refused(tmp_path: Path) -> None:
    content = b"good\nb\xffad\nfine\n"
    lines, problems = _read(tmp_path / "a.txt", content)
    assert [record.text for record in lines] == ["good", "fine"]
    assert problems.counts == {"not UTF-8": 1} and "a.txt:2: byte 2" in problems.examples[0]
    with pytest.raises(CorpusError, match=r"a\.txt:2.*--bad-rows skip"):
        _read(tmp_path / "a.txt", content, policy="refuse")


def test_jsonl_rows(tmp_path: Path) -> None:
    content = '{"text": "a"}\n[1]\n{"text": 3}\n{oops\n\n{"other": "x"}\n{"text": " "}\n' + "[" * 100_000 + "\n"
    records, problems = _read(tmp_path / "a.jsonl", content)
    assert [record.text for record in records] == ["a"]
    assert problems.counts == {"malformed row": 5, "empty line": 1, "empty text": 1}
    assert any("a.jsonl:4: not JSON" in example for example in problems.examples)
    pairs, _ = _read(tmp_path / "b.jsonl", '{"premise": "a", "h": "b"}\n', pair_field="h")
    assert pairs[0].text == ("a", "b")


def test_csv_and_tsv_rows(tmp_path: Path) -> None:
    records, problems = _read(tmp_path / "a.csv", 'id,text\n1,"a, ""b"""\n2\n3,c\n')
    assert [record.text for record in records] == ['a, "b"', "c"]
    assert problems.counts == {"malformed row": 1} and ":3: 1 columns" in problems.examples[0]
    records, _ = _read(tmp_path / "a.tsv", 'sentence\tlabel\nit "was\t1\n', field="sentence")
    assert [record.text for record in records] == ['it "was']
    with pytest.raises(CorpusError, match="empty"):
        _read(tmp_path / "b.csv", "")


def test_parquet_rows_and_a_damaged_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"sentence": ["a ", None, "b"], "label": [0, 1, 1]}), tmp_path / "a.parquet")
    problems = Problems()
    records = list(Corpus(str(tmp_path / "a.parquet")).records(problems))
    assert [record.text for record in records] == ["a", "b"] and problems.counts == {"malformed row": 1}
    with pytest.raises(CorpusError, match=r"no column 'body'.*sentence, label"):
        list(Corpus(str(tmp_path / "a.parquet"), field="body").records(problems))
    with pytest.raises(CorpusError, match="not a Parquet file"):
        _read(tmp_path / "b.parquet", b"PAR1 no PAR1")


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("I-PER I-PER O I-LOC", (0, 0, -1, 1)),  # IOB1: I- starts after O
        ("B-PER I-PER O B-LOC", (0, 0, -1, 1)),  # IOB2
        ("I-PER B-PER I-PER I-LOC", (0, 1, 1, 2)),  # IOB1: B- between neighbours; another type is another entity
    ],
)
def test_entities_of_iob1_and_iob2(tmp_path: Path, tags: str, entities: tuple[int, ...]) -> None:
    rows = "\n".join(f"w{place} NN I-NP {tag}" for place, tag in enumerate(tags.split()))
    records, _ = _read(tmp_path / "a.conll", f"-DOCSTART- -X- O O\n\n{rows}\n\nx NN I-NP O\n")
    assert records[0].words == ("w0", "w1", "w2", "w3") and records[0].entities == entities
    assert records[0].where.endswith(":3") and records[1].words == ("x",)


def test_a_sentence_with_a_bad_row_is_left_out_as_a_whole(tmp_path: Path) -> None:
    records, problems = _read(tmp_path / "a.conll", "a O\nb PERSON\n\nc O\n\nlonely\n")
    assert [record.words for record in records] == [("c",)]
    assert problems.counts == {"malformed row": 2} and "a.conll:2: 'PERSON' is no IOB tag" in problems.examples[0]


def test_token_lists_and_pickles_only_by_consent(tmp_path: Path) -> None:
    rows = [["[CLS]", "a", "[SEP]"], {"tokens": ["[CLS]", "b", "[SEP]"]}, [1], []]
    records, problems = _read(tmp_path / "a.json", json.dumps(rows))
    assert [record.tokens for record in records] == [("[CLS]", "a", "[SEP]"), ("[CLS]", "b", "[SEP]")]
    assert problems.counts == {"malformed row": 1, "empty text": 1}
    with pytest.raises(CorpusError, match="not JSON"):
        _read(tmp_path / "b.json", "[")
    with pytest.raises(CorpusError, match="expected a list"):
        _read(tmp_path / "c.json", "{}")
    good = pickle.dumps(rows[:1])
    with pytest.raises(CorpusError, match="--allow-pickle-corpus"):
        _read(tmp_path / "a.pkl", good)
    assert _read(tmp_path / "a.pkl", good, allow_pickle=True)[0][0].tokens == ("[CLS]", "a", "[SEP]")


def test_a_hostile_pickle_does_not_run_without_consent(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "pwned"),)

    with pytest.raises(CorpusError, match="any code"):
        _read(tmp_path / "a.pkl", pickle.dumps([Evil()]))
    assert not (tmp_path / "pwned").exists()


PAIRS = "das haus ||| the house\nein hund bellt ||| a dog barks\n"


@pytest.mark.parametrize(
    ("gold", "base"),
    [("1-1 2-2\n1-1 2p2 3?3\n", "detect"), ("0-0 1-1\n0-0 1p1 2?2\n", "detect"), ("0-0 1-1\n0-0 1p1 2?2\n", "0")],
)
def test_gold_links_count_from_zero_or_one(tmp_path: Path, gold: str, base: Any) -> None:
    (tmp_path / "g").write_text(gold)
    records, _ = _read(tmp_path / "a.pairs", PAIRS, gold=str(tmp_path / "g"), gold_base=base)
    second = records[1].gold
    assert records[0].words == ("das", "haus") and records[0].target == ("the", "house")
    assert second is not None
    assert (second.sure, second.possible) == ({(0, 0)}, {(0, 0), (1, 1), (2, 2)})


@pytest.mark.parametrize(
    ("gold", "says"),
    [
        ("1-1\n", "1 lines, but"),
        ("1-1 2-2\n1-x\n", ":2: '1-x' is no link"),
        ("1-1\n1-1\n", "neither an index 0"),
        ("0-0 2-1\n1-1\n", "both an index 0"),
    ],
)
def test_gold_that_does_not_fit_is_refused(tmp_path: Path, gold: str, says: str) -> None:
    (tmp_path / "g").write_text(gold)
    with pytest.raises(CorpusError, match=says):
        _read(tmp_path / "a.pairs", PAIRS, gold=str(tmp_path / "g"))


def test_links_outside_their_sentences_and_malformed_pairs_are_bad_rows(tmp_path: Path) -> None:
    (tmp_path / "g").write_text("1-1\n9-9\n1-1\n")
    records, problems = _read(tmp_path / "a.pairs", PAIRS + "no target\n", gold=str(tmp_path / "g"), gold_base="1")
    assert len(records) == 1 and problems.counts == {"malformed row": 2}


def test_formats_are_known_by_name_or_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_text("x")
    with pytest.raises(CorpusError, match="--format"):
        _ = Corpus(str(tmp_path / "a.xyz")).actual_format
    with pytest.raises(CorpusError, match="There is no corpus file"):
        _ = Corpus(str(tmp_path / "nothing.xyz")).actual_format
    with pytest.raises(CorpusError, match="no corpus file"):
        list(Corpus(str(tmp_path / "nothing.txt")).records(Problems()))
    assert bundled().read_text().startswith("Alice was beginning")


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    "wrong", [{"unit": "page"}, {"too_long": "x"}, {"format": "pdf"}, {"limit": 0}, {"max_tokens": 1}]
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CorpusError):
        Corpus("a.txt", **wrong)


def test_ranks(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("1 99 5\n2 70 8\n")
    assert read_ranks(tmp_path / "r") == {5: 1, 8: 2}
    (tmp_path / "r").write_text("1 99 5\n2 70\n")
    with pytest.raises(CorpusError, match=r":2: '2 70' is not"):
        read_ranks(tmp_path / "r")


def test_datasets_need_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(CorpusError, match=r"normscope\[datasets\]"):
        list(Corpus(str(tmp_path)).records(Problems()))


def test_a_dataset_saved_to_a_folder_is_read_by_its_split(tmp_path: Path) -> None:
    texts = {"train": ["A cat sat."], "validation": ["A dog ran.", ""]}
    splits = {name: datasets.Dataset.from_dict({"sentence": rows}) for name, rows in texts.items()}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "both"))
    problems = Problems()
    records = list(Corpus(str(tmp_path / "both"), split="validation").records(problems))
    assert [record.text for record in records] == ["A dog ran."]
    with pytest.raises(CorpusError, match="could not be loaded"):
        list(Corpus(str(tmp_path / "both"), split="nowhere").records(Problems()))
