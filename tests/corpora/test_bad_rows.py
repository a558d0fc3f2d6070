"""One bad row among good ones, in every format: it is left out and counted, or refused with its file and line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from normscope.corpora import Corpus, CorpusError, Item, Problems
from normscope.corpora.text import read_ranks

INVISIBLE = {"zero-width": "\u200b", "control": "\x01", "nul": "\x00", "private": "\ue000"}
"""Texts of which a tokenizer leaves nothing."""

SURROGATE = "\ud800"


def _items(path: Path, analyzer: Any, policy: Any = "skip", **options: Any) -> tuple[list[Item], Problems]:
    problems = Problems(policy)
    return list(Corpus(str(path), **options).items(analyzer.tokenizer, problems)), problems


def _parquet(path: Path, texts: Any) -> None:
    pq.write_table(pa.table({"text": texts}), path)


WRITERS: dict[str, Callable[[Path, str], object]] = {
    "txt": lambda path, bad: path.write_text(f"It rained.\n{bad}\nIt snowed.\n"),
    "jsonl": lambda path, bad: path.write_text("".join(json.dumps({"text": t}) + "\n" for t in ("a", bad, "b"))),
    "csv": lambda path, bad: path.write_text(f"text,n\n{bad},1\nIt rained.,2\nIt snowed.,3\n"),
    "tsv": lambda path, bad: path.write_text(f"text\tn\n{bad}\t1\nIt rained.\t2\nIt snowed.\t3\n"),
    "parquet": lambda path, bad: _parquet(path, ["It rained.", bad, "It snowed."]),
    "conll": lambda path, bad: path.write_text(f"\n{bad} O\n\nIt O\nrained O\n\nIt O\nsnowed O\n"),
    "pairs": lambda path, bad: path.write_text(f"a b ||| c d\n{bad} ||| x\na b ||| c d\n"),
}
"""Two good rows, and a bad one on the second line."""


@pytest.mark.parametrize("bad", INVISIBLE.values(), ids=INVISIBLE)
@pytest.mark.parametrize("kind", WRITERS)
def test_a_row_without_a_token_is_left_out_or_refused_with_its_place(
    kind: str, bad: str, analyzer: Any, tmp_path: Path
) -> None:
    WRITERS[kind](tmp_path / f"a.{kind}", bad)
    items, problems = _items(tmp_path / f"a.{kind}", analyzer)
    assert (len(items), problems.counts) == (2, {"unreadable text": 1})
    with pytest.raises(CorpusError, match=rf"a\.{kind}:2: .*only special tokens.*--bad-rows skip"):
        _items(tmp_path / f"a.{kind}", analyzer, "refuse")


@pytest.mark.parametrize("unit", ["paragraph", "packed"])
def test_invisible_lines_end_no_run_over_paragraphs_or_packed_text(unit: Any, analyzer: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("It rained and rained.\n\n\u200b\n\nIt snowed and snowed.\n")
    items, problems = _items(tmp_path / "a.txt", analyzer, unit=unit, max_tokens=6)
    assert len(items) >= 2 and problems.counts["unreadable text"] == 1
    with pytest.raises(CorpusError, match=r"a\.txt:3"):
        _items(tmp_path / "a.txt", analyzer, "refuse", unit=unit, max_tokens=6)


def test_half_of_a_surrogate_pair_is_a_bad_row(analyzer: Any, tmp_path: Path) -> None:
    rows = [{"text": "a", "other": "b"}, {"text": f"a {SURROGATE}", "other": "b"}, {"text": "a", "other": SURROGATE}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.json").write_text(json.dumps([["hello"], [SURROGATE]]))
    (tmp_path / "ids.jsonl").write_text('{"input_ids": [5], "tokens": ["\\ud800"]}\n')
    for name, good, bad, options in (("a.jsonl", 1, 2, {"pair_field": "other"}), ("a.json", 1, 1, {})):
        items, problems = _items(tmp_path / name, analyzer, **options)
        assert (len(items), problems.counts) == (good, {"unreadable text": bad})
    with pytest.raises(CorpusError, match=r"a\.jsonl:2: half of a surrogate pair"):
        _items(tmp_path / "a.jsonl", analyzer, "refuse")
    with pytest.raises(CorpusError, match=r"ids\.jsonl:1: 'tokens' has a token that cannot be encoded as UTF-8"):
        _items(tmp_path / "ids.jsonl", analyzer, "refuse")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"text": ' + "1" * 5000 + "}", "not JSON"),
        ('{"text": "a", "n": ' + "1" * 5000 + "}", "not JSON"),
        ('{"text": "a", "text": "b"}', "two fields 'text'"),
        ('{"input_ids": null}', "'input_ids' is null"),
        ('{"input_ids": [5, ' + "9" * 30 + "]}", "above 2147483647"),
        ('{"input_ids": [true, false]}', "not a whole number"),
        ('{"input_ids": [5, 6], "entities": [' + "9" * 30 + ", 1]}", "above 2147483647"),
        ('{"input_ids": [5, 6], "attention_mask": [1, 2]}', "mask is 1 for a token and 0 for padding"),
        ('{"input_ids": [5, 6], "special_tokens_mask": [0, 7]}', "other than 0 and 1"),
        ('{"input_ids": [5, 6], "special_tokens_mask": [1, 1]}', "only special tokens"),
        ('{"input_ids": [5, 6], "sure": 5}', "'sure' is not a list of links"),
        ('{"text": NaN}', "not a text"),
    ],
)
def test_a_row_of_json_that_is_wrong_is_left_out_or_refused_with_its_place(
    row: str, says: str, analyzer: Any, tmp_path: Path
) -> None:
    good = '{"input_ids": [5, 6]}' if "input_ids" in row else '{"text": "It rained."}'
    (tmp_path / "a.jsonl").write_text(f"{good}\n{row}\n{good}\n")
    items, problems = _items(tmp_path / "a.jsonl", analyzer)
    assert (len(items), problems.counts) == (2, {"malformed row": 1})
    with pytest.raises(CorpusError, match=rf"a\.jsonl:2: .*{says}"):
        _items(tmp_path / "a.jsonl", analyzer, "refuse")


def test_long_rows_of_ids_are_refused_when_that_is_asked_for(analyzer: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"input_ids": [5] * 9}) + "\n")
    with pytest.raises(CorpusError, match=r"a\.jsonl:1: 9 tokens, but at most 4"):
        _items(tmp_path / "a.jsonl", analyzer, max_tokens=4, too_long="refuse")


# ---- Parquet -----------------------------------------------------------------------------------------------------------


def _not_utf8() -> Any:
    offsets = pa.array([0, 2, 4, 6], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"ab\xff\xfecd")])


def test_a_text_in_parquet_that_is_not_utf8_is_a_bad_row(analyzer: Any, tmp_path: Path) -> None:
    for texts in (_not_utf8(), _not_utf8().dictionary_encode()):
        _parquet(tmp_path / "a.parquet", texts)
        items, problems = _items(tmp_path / "a.parquet", analyzer)
        assert (len(items), problems.counts) == (2, {"not UTF-8": 1})
        with pytest.raises(CorpusError, match=r"a\.parquet:2: a text is not UTF-8"):
            _items(tmp_path / "a.parquet", analyzer, "refuse")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_of_parquet_come_in_many_types(kind: pa.DataType, analyzer: Any, tmp_path: Path) -> None:
    _parquet(tmp_path / "a.parquet", pa.array(["It rained.", None], pa.string()).cast(kind))
    items, problems = _items(tmp_path / "a.parquet", analyzer)
    assert (len(items), problems.counts) == (1, {"malformed row": 1})


# ---- columns -----------------------------------------------------------------------------------------------------------


def test_two_columns_of_one_name_are_refused_where_that_column_is_read(analyzer: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,text\na,b\n")
    (tmp_path / "a.tsv").write_text("prefix\tgood\tbad\tevidence\tgood\na\tb\tc\td\te\n")
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"]), tmp_path / "a.parquet")
    for name, column, options in (
        ("a.csv", "text", {}),
        ("a.parquet", "text", {}),
        ("a.tsv", "good", {"format": "evidence"}),
    ):
        with pytest.raises(CorpusError, match=rf"{name}' has 2 columns '{column}'\. Rename all but one"):
            _items(tmp_path / name, analyzer, **options)
    (tmp_path / "b.csv").write_text("text,n,n\nIt rained.,1,2\n")
    assert len(_items(tmp_path / "b.csv", analyzer)[0]) == 1


def test_a_row_of_csv_that_cannot_be_read_does_not_end_the_file(analyzer: Any, tmp_path: Path) -> None:
    rows = [b"text,n", b'"a"b,1', b"x" * 140_000 + b",2", b"\xff,3", b"short", b'"two', b'lines",5', b"It rained.,6"]
    (tmp_path / "a.csv").write_bytes(b"\n".join(rows) + b"\n")
    records = list(Corpus(str(tmp_path / "a.csv")).records(problems := Problems()))
    assert [(r.where.rsplit(":", 1)[1], r.text) for r in records] == [("6", "two\nlines"), ("8", "It rained.")]
    assert problems.counts == {"malformed row": 3, "not UTF-8": 1}
    assert [example.split(": ")[0].rsplit(":", 1)[1] for example in problems.examples] == ["2", "3", "4", "5"]


@pytest.mark.parametrize("header", [b"\xfftext", b'"text"x'])
def test_a_header_that_cannot_be_read_is_no_row_to_be_left_out(header: bytes, analyzer: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(header + b"\ntext\nIt rained.\n")
    with pytest.raises(CorpusError, match=r"a\.csv:1: the header"):
        _items(tmp_path / "a.csv", analyzer)


# ---- lines and words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["\u00a0", "\u2028", "\u0085", "\u3000", "\x1c"])
def test_words_are_parted_by_spaces_and_lines_by_line_feeds_alone(space: str, tmp_path: Path) -> None:
    """Otherwise gold links would be those of other words, and lines have other numbers than in an editor."""
    (tmp_path / "a.pairs").write_text(f"10{space}000 dogs ||| ten thousand dogs\nx ||| y\n")
    (tmp_path / "a.gold").write_text("0-0 0-1 1-2\n0-0\n")
    pairs = list(Corpus(str(tmp_path / "a.pairs"), gold=str(tmp_path / "a.gold")).records(Problems("refuse")))
    assert pairs[0].words == (f"10{space}000", "dogs") and pairs[1].where.endswith(":2")
    (tmp_path / "a.conll").write_text(f"10{space}000 CD O\n")
    (sentence,) = Corpus(str(tmp_path / "a.conll")).records(Problems("refuse"))
    assert sentence.words == (f"10{space}000",)


def test_a_sentence_or_paragraph_that_lost_a_line_is_left_out_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_bytes(b"It O\n\xff O\nrained O\n\nIt O\nsnowed O\n")
    (tmp_path / "a.txt").write_bytes(b"It\n\xff\nrained\n\nIt\nsnowed\n")
    (sentence,) = Corpus(str(tmp_path / "a.conll")).records(Problems())
    (paragraph,) = Corpus(str(tmp_path / "a.txt"), unit="paragraph").records(problems := Problems())
    assert sentence.words == ("It", "snowed") and paragraph.text == "It snowed"
    assert paragraph.where.endswith(":5") and problems.counts == {"not UTF-8": 1}


@pytest.mark.parametrize(
    ("line", "says"), [("1 1 " + "9" * 5000, "three whole numbers"), ("2 4 7", "the id 7 has a rank already, 1")]
)
def test_ranks_that_are_no_numbers_or_come_twice_are_refused(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "ranks").write_text(f"1 5 7\n{line}\n")
    with pytest.raises(CorpusError, match=rf"ranks:2: .*{says}"):
        read_ranks(tmp_path / "ranks")


def test_a_link_with_a_huge_number_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "a.pairs").write_text("a ||| b\n")
    (tmp_path / "a.gold").write_text("0-" + "9" * 5000 + "\n")
    with pytest.raises(CorpusError, match=r"a\.gold:1: '0-9+ is not a link"):
        list(Corpus(str(tmp_path / "a.pairs"), gold=str(tmp_path / "a.gold"), gold_base="0").records(Problems()))


# ---- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["text", "jsonl", "csv", "parquet", "conll", "clark", "pairs", "evidence", "text-pairs", "answers"]
)
def test_a_name_that_no_file_can_have_is_refused(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read: File name too long"):
        list(Corpus(str(tmp_path / ("x" * 300)), format=kind).records(Problems()))
    with pytest.raises(CorpusError):
        _ = Corpus(str(tmp_path / ("x" * 300))).actual_format


def test_a_dataset_that_breaks_off_names_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> Any:
        yield {"text": "It rained."}
        raise OSError("the disk is gone")

    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows())
    with pytest.raises(CorpusError, match=r"somewhere \[validation\] breaks off after row 1: the disk is gone"):
        list(Corpus("somewhere", format="dataset").records(Problems()))
