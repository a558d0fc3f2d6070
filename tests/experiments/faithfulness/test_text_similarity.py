"""The similarity experiment: every number by its definition, written out; its reader, and every bad row."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy import stats

import normscope as ns
from normscope.cli import main
from normscope.corpora import Corpus, CorpusError, Problems
from normscope.corpora.record import TextPair
from normscope.errors import InputError
from normscope.experiments import experiment
from normscope.experiments.faithfulness.cosine_gradients import integrated_gradients
from normscope.experiments.faithfulness.text_similarity import agreement, links_found, losses_of
from normscope.experiments.faithfulness.word_table import (
    CLASSES,
    WordTable,
    class_of,
    classes_of,
    kinds_of,
    parts_of,
    sizes_of,
    word_table,
)
from normscope.runs import run
from normscope.runs.spool import from_json, to_json

FIRST, SECOND = "A man plays a guitar.", "Someone strums the guitar unbelievably"
PAIRS = [
    (FIRST, SECOND, "4.2", "0,1-0 2-1 3-2 4-3 -4"),
    ("Dogs run in the park", "A dog is running outside", "3.5", "0-0,1"),
    ("It rains", "The stock market fell on Monday", "0", ""),
    ("Birds sing", "A bird is singing now", "", "0-0,1 1-2,3"),
]


def written(path: Path, pairs: list[tuple[str, ...]] = PAIRS) -> Path:
    path.write_text("first\tsecond\tscore\tlinks\n" + "".join("\t".join(pair) + "\n" for pair in pairs))
    return path


def records(path: Path, policy: Any = "refuse") -> list[TextPair]:
    found = Corpus(str(path), format="text-pairs").records(Problems(policy))
    return [record.compared for record in found if record.compared is not None]


@pytest.fixture(scope="module")
def table(analyzer: ns.Analyzer) -> WordTable:
    return word_table(analyzer, TextPair(FIRST, SECOND), None)


def test_the_table_of_words_is_that_of_their_tokens(analyzer: ns.Analyzer, table: WordTable) -> None:
    similarity = analyzer.similarity(FIRST, SECOND)
    tokens = similarity.first_tokens, similarity.second_tokens
    assert tokens[0] == ["[CLS]", "a", "man", "plays", "a", "guitar", ".", "[SEP]"]
    assert tokens[1][:2] == ["[CLS]", "someone"] and len(tokens[1]) > 7  # some words have several tokens
    words = [(1,), (2,), (3,), (4,), (5, 6), (0, 7)]  # the last are special
    pieces = similarity.second_tokens[1:-1]
    starts = [place for place, piece in enumerate(pieces, 1) if not piece.startswith("##")]
    others = [tuple(range(a, b)) for a, b in zip(starts, [*starts[1:], len(tokens[1]) - 1], strict=True)]
    others.append((0, len(tokens[1]) - 1))
    assert len(others) == len(SECOND.split()) + 1
    cells = similarity.table.values.astype(np.float64)
    for row, word in enumerate(words):
        for column, other in enumerate(others):
            assert table.cells[row, column] == pytest.approx(
                sum(cells[token, mate] for token in word for mate in other), abs=1e-9
            )
    margin = similarity.second_margin.values
    assert table.margins[1] == pytest.approx(
        [sum(float(margin[token]) for token in other) for other in others], abs=1e-6
    )


def test_parts_add_up_to_the_similarity_and_sizes_to_all(table: WordTable) -> None:
    parts, sizes = parts_of(table), sizes_of(table)
    whole = parts.pop("similarity")
    largest, five = parts.pop("largest"), parts.pop("five largest")
    assert sum(parts.values()) == pytest.approx(whole, abs=1e-5)
    ordered = sorted(table.cells.ravel(), key=abs, reverse=True)
    assert largest == pytest.approx(ordered[0]) and five == pytest.approx(sum(ordered[:5]))
    total = np.abs(table.cells).sum()
    assert sizes["five largest"] == pytest.approx(np.abs(ordered[:5]).sum() / total)
    kinds = ("special tokens", "same words", "function words", "other words")
    assert sum(sizes[kind] for kind in kinds) == pytest.approx(1)
    assert parts["same words"] == pytest.approx(table.cells[4, 3])  # guitar. and guitar
    names = [[kinds[kind] for kind in row] for row in kinds_of(table)]
    assert names[0][:5] == ["function words"] * 5 and names[1][2] == "function words" and names[1][0] == "other words"
    assert {*names[5], *(row[5] for row in names)} == {"special tokens"}


def test_a_loss_is_what_the_similarity_loses_without_the_word(analyzer: ns.Analyzer, table: WordTable) -> None:
    losses = losses_of(analyzer, FIRST.split(), SECOND, "cosine", None)
    shorter = ("man plays a guitar.", "A plays a guitar.", "A man a guitar.", "A man plays guitar.", "A man plays a")
    values = [analyzer.similarity(text, SECOND, table=False).value for text in shorter]
    assert losses == pytest.approx([analyzer.similarity(FIRST, SECOND).value - value for value in values], abs=1e-5)
    dots = losses_of(analyzer, FIRST.split(), SECOND, "dot", None)
    assert dots == pytest.approx(losses, abs=1e-5)  # the embedded model's embeddings have unit length
    others = losses_of(analyzer, SECOND.split(), FIRST, "cosine", None)
    found = agreement(table, (losses, others))
    similarity = analyzer.similarity(FIRST, SECOND)
    first = [float(similarity.first.values[list(word)].sum()) for word in ((1,), (2,), (3,), (4,), (5, 6))]
    second = (table.cells.sum(0) + table.margins[1])[:-1]
    expected = [stats.spearmanr(*pair).statistic for pair in ((first, losses), (second, others))]
    assert found["table and margin"] == pytest.approx(np.mean(expected))
    assert losses_of(analyzer, ["It", "rains"], SECOND, "cosine", None).size == 0
    assert agreement(table, (np.zeros(0), np.zeros(0))) == {}


def test_integrated_gradients_add_up_to_what_the_cosine_gains_from_zero(analyzer: ns.Analyzer) -> None:
    found = integrated_gradients(analyzer, (FIRST, SECOND), "cosine", None)
    words = analyzer.model.get_input_embeddings()
    for own, text, other in ((found[0], FIRST, SECOND), (found[1], SECOND, FIRST)):
        encoded = analyzer.tokenizer(text, return_tensors="pt")
        zeros = torch.zeros_like(words(encoded["input_ids"]))
        with torch.no_grad():
            states = analyzer.model(inputs_embeds=zeros, attention_mask=encoded["attention_mask"]).last_hidden_state
        start = states[0].mean(0)
        fixed = torch.from_numpy(analyzer.embed(other))
        gained = analyzer.similarity(text, other, table=False).value - float(
            torch.nn.functional.cosine_similarity(start, fixed, dim=0)
        )
        assert own.shape == (encoded["input_ids"].shape[1],)
        assert own.sum() == pytest.approx(gained, abs=0.02)  # the error of 50 steps
    whole = word_table(analyzer, TextPair(FIRST, SECOND), None, gradients=True)
    assert whole.gradients is not None
    assert whole.gradients[0][4] == pytest.approx(found[0][5:7].sum())  # guitar and its full stop
    assert "integrated gradients" in agreement(whole, (np.arange(5.0), np.zeros(0)))


def test_cells_are_summed_by_classes_of_words(table: WordTable) -> None:
    assert [class_of(word) for word in ("The", "with", "3.", "--", "Guitar,", "not")] == [
        *("determiners", "prepositions", "numbers", "punctuation", "content words", "conjunctions"),
    ]
    rows = {(first, second): (value, count) for first, second, value, count in classes_of(table)}
    assert {name for pair in rows for name in pair} <= set(CLASSES)
    assert sum(value for value, _ in rows.values()) == pytest.approx(table.cells.sum())
    assert sum(count for _, count in rows.values()) == table.cells.size
    # "A man plays a guitar." and "Someone strums the guitar unbelievably"
    value, count = rows["determiners", "determiners"]
    assert count == 2 and value == pytest.approx(table.cells[0, 2] + table.cells[3, 2])


def made_table() -> WordTable:
    cells = np.array([[5.0, 1, 0, 0], [4, 2, 0, 0], [0, 9, 1, 0], [0, 0, 0, 0]])
    vectors = np.eye(3), np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]])
    words = ["a", "b", "c"], ["d", "e", "f"]
    return WordTable(words, cells, (np.zeros(4), np.zeros(4)), 0.0, 22.0, "cosine", vectors)


def test_links_are_right_where_the_largest_cell_is() -> None:
    pair = TextPair("a b c", "d e f", links=(((0, 1), (0,)), ((2,), (2,))))
    found = {row["method"]: (row["right"], row["links"]) for row in links_found(made_table(), pair)}
    # Groups: {a, b}, {c}; {d}, {f}, and e, in no group. Sums: {a, b}: 9, 0, 3 for d, f, e: right. c: 0, 1, 9: e, wrong.
    # From the other side: d: 9, 0: right; f: 0, 1: right. e has no link.
    assert found["table"] == (3, 4)
    # States: {a, b} with d, f, e: 1/sqrt(2), 0, 1/sqrt(2): the first of equals, right; c with f: right; and back: right.
    assert found["last states"] == (4, 4)
    assert found["chance"] == (pytest.approx(1 / 3 + 1 / 3 + 1 / 2 + 1 / 2), 4)
    assert links_found(made_table(), TextPair("a b c", "d e f")) == []
    everything = TextPair("a b c", "d e f", links=(((0, 1, 2), (0, 1, 2)),))
    assert links_found(made_table(), everything) == []


def test_a_run_has_its_tables_and_resumes_to_the_same(analyzer: ns.Analyzer, tmp_path: Path) -> None:
    asked: Any = {"model": analyzer, "corpus": written(tmp_path / "a.tsv"), "format": "text-pairs", "shard_size": 2}
    whole = run(["similarity"], **asked, out=tmp_path / "run")
    rows = {(row["measure"], row["part"]): row for row in whole.tables["similarity"].to_pylist()}
    values = [analyzer.similarity(pair[0], pair[1]).value for pair in PAIRS]
    assert rows["sum", "similarity"]["mean"] == pytest.approx(np.mean(values), abs=1e-6)
    assert rows["sum", "similarity"]["sequences"] == len(PAIRS)
    (scores,) = whole.tables["similarity-scores"].to_pylist()
    assert scores["pearson"] == pytest.approx(np.corrcoef(values[:3], [4.2, 3.5, 0])[0, 1]) and scores["sequences"] == 3
    links = {row["method"]: row for row in whole.tables["similarity-links"].to_pylist()}
    assert links["table"]["links"] == 8 + 2 + 4 and links["table"]["sequences"] == 3
    counted = {name: 0.0 for name in links}
    for pair in records(asked["corpus"]):
        for row in links_found(word_table(analyzer, pair, None), pair):
            counted[row["method"]] += row["right"]
    assert {name: row["right"] * 14 for name, row in links.items()} == pytest.approx(counted)
    assert "five largest" in str(experiment("similarity").finding([whole.tables["similarity"]]))
    shutil.rmtree(sorted((tmp_path / "run" / "shards").iterdir())[-1])
    again = run(["similarity"], **asked, out=tmp_path / "run")
    assert all(again.tables[name].equals(made) for name, made in whole.tables.items())


def test_models_without_an_embedding_and_corpora_without_pairs_are_refused(
    analyzer: ns.Analyzer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = written(tmp_path / "a.tsv")
    with pytest.raises(InputError, match="one for each token"):
        run(
            ["similarity"],
            model=analyzer,
            corpus=pairs,
            format="text-pairs",
            options={"similarity": {"pooling": "late-interaction"}},
        )
    with pytest.raises(InputError, match=r"needs pairs of texts to compare.*--format text-pairs"):
        run(["similarity"], model=analyzer, corpus=["A text."])
    (tmp_path / "b.tsv").write_text("text\tother\na\tb\n")
    command = ["run", "similarity", "--corpus", str(tmp_path / "b.tsv"), "--format", "text-pairs"]
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--out", str(tmp_path / "out")])
    assert "has no column first, second. Its columns: text, other." in " ".join(capsys.readouterr().err.split())


def test_the_reader_takes_tsv_csv_and_parquet(tmp_path: Path) -> None:
    found = records(written(tmp_path / "a.tsv"))
    links = ((0, 1), (0,)), ((2,), (1,)), ((3,), (2,)), ((4,), (3,)), ((), (4,))
    assert found[0] == TextPair(FIRST, SECOND, 4.2, links)
    assert found[2] == TextPair(PAIRS[2][0], PAIRS[2][1], 0.0) and found[3].score is None
    (tmp_path / "a.csv").write_text('first,second\n"One, two",Three  four\n')
    assert records(tmp_path / "a.csv") == [TextPair("One, two", "Three four")]
    columns = {"first": ["a b", None], "second": ["c", "d"], "score": [1.5, 2.0], "more": [1, 2]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert records(tmp_path / "a.parquet", "skip") == [TextPair("a b", "c", 1.5)]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("\tb\t\t", "the column 'first' has no text"),
        ("a\tb\tmuch\t", "the score 'much' is not a number"),
        ("a\tb\tnan\t", "the score 'nan' is not a number"),
        ("a\tb\t\t0:0", "'0:0' is not a link such as"),
        ("a\tb\t\t-", "'-' is not a link such as"),
        ("a\tb\t\t0-1", "the link '0-1' is outside the texts of 1 and 1 words"),
        ("a\tb", "2 columns, but the header has 4"),
    ],
)
def test_a_bad_row_is_named_with_its_line(row: str, says: str, tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", [("a", "b", "1", "0-0"), tuple(row.split("\t"))])
    with pytest.raises(CorpusError, match=rf"a\.tsv:3: .*{says}"):
        records(path)
    assert records(path, "skip") == [TextPair("a", "b", 1.0, (((0,), (0,)),))]


def test_items_keep_both_texts_and_long_ones_are_left_out(analyzer: ns.Analyzer, tmp_path: Path) -> None:
    corpus, problems = Corpus(str(written(tmp_path / "a.tsv")), format="text-pairs", max_tokens=7), Problems()
    items = list(corpus.items(analyzer.tokenizer, problems))
    assert [item.compared and item.compared.first for item in items] == ["Dogs run in the park", "Birds sing"]
    assert problems.counts == {"too long, left out": 2}
    kept = [from_json(json.loads(json.dumps(to_json(item)))) for item in items]
    assert [item.compared for item in kept] == [item.compared for item in items]
