"""What a similarity can do: select, sum, save, open, show itself; and what the page is given."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import normscope as ns
from normscope.explorer.similarity_payload import similarities_payload
from normscope.output.similarity_export import export_similarities

FIRST, SECOND = "Unmistakably, a man is playing guitar.", "Someone performs unbelievable music."


@pytest.fixture(scope="module")
def similarity(analyzer: ns.Analyzer) -> ns.Similarity:
    return analyzer.similarity(FIRST, SECOND)


def total(similarity: ns.Similarity) -> float:
    margins = similarity.first_margin.sum() + similarity.second_margin.sum()
    return float(similarity.table.sum() + margins) + similarity.constant


def test_everything_adds_up_for_tokens_and_for_words(similarity: ns.Similarity) -> None:
    words = similarity.words()
    assert len(words.first_tokens) < len(similarity.first_tokens)
    assert "unmistakably" in words.first_tokens
    for each in (similarity, words):
        assert total(each) == pytest.approx(each.value, abs=1e-5)
        assert float(each.first.sum()) + each.first_bias == pytest.approx(each.value, abs=1e-5)
        assert float(each.second.sum()) + each.second_bias == pytest.approx(each.value, abs=1e-5)
    assert words.completeness == similarity.completeness


def test_the_strongest_cells_come_first(similarity: ns.Similarity) -> None:
    cells = similarity.top(7)
    sizes = np.sort(np.abs(similarity.table.values), axis=None)[::-1][:7]
    np.testing.assert_allclose([abs(cell.value) for cell in cells], sizes)
    for cell in cells:
        assert cell.value == similarity.table.values[cell.first_position, cell.second_position]
    with pytest.raises(ns.SelectionError, match="At least one cell"):
        similarity.top(0)


def test_a_list_is_what_each_is_alone(analyzer: ns.Analyzer, similarity: ns.Similarity) -> None:
    told: list[tuple[int, int]] = []
    found = analyzer.similarity(FIRST, [SECOND, "A man."], on_progress=lambda done, of: told.append((done, of)))
    assert [each.texts[1] for each in found] == [SECOND, "A man."]
    np.testing.assert_allclose(found[0].table.values, similarity.table.values, atol=1e-6)
    assert told == [(0, 2), (1, 2)]


def test_search_ranks_by_the_model_and_keeps_the_best(analyzer: ns.Analyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normscope.similarity.searching._AT_ONCE", 2)
    passages = ["It rains.", "A guitarist plays.", "Stocks fell.", "The band makes music.", "Bergen is wet."]
    hits = analyzer.search("music on stage", iter(passages), top=2)
    values = [analyzer.similarity("music on stage", text).value for text in passages]
    best = np.argsort(values)[::-1][:2].tolist()
    assert [hit.attrs["passage"] for hit in hits] == best
    assert [hit.attrs["rank"] for hit in hits] == [1, 2]
    assert [hit.value for hit in hits] == pytest.approx([values[place] for place in best], abs=1e-6)
    with pytest.raises(ns.InputError, match="corpus is empty"):
        analyzer.search("music", [])


def test_a_file_opens_again(similarity: ns.Similarity, tmp_path: Path) -> None:
    opened = ns.open(similarity.save(tmp_path / "similarity.nc"))
    assert isinstance(opened, ns.Similarity)
    assert opened.dataset.identical(similarity.dataset)
    words = ns.open(similarity.words().save(tmp_path / "words"))
    assert words.first_tokens == similarity.words().first_tokens


def test_tables_and_json_hold_every_number(similarity: ns.Similarity, tmp_path: Path) -> None:
    rows = pd.read_csv(similarity.save(tmp_path / "similarity.csv"))
    assert rows["share"].sum() == pytest.approx(similarity.value, abs=1e-5)
    cells = rows[rows["part"] == "cell"]
    assert len(cells) == similarity.table.size
    assert len(pd.read_parquet(similarity.save(tmp_path / "similarity.parquet"))) == len(rows)
    (document,) = json.loads(similarity.save(tmp_path / "similarity.json").read_text())["similarities"]
    np.testing.assert_allclose(document["table"], similarity.table.values)
    assert document["second"]["token"] == similarity.second_tokens
    assert similarity.to_pandas().to_numpy().sum() == pytest.approx(similarity.value, abs=1e-5)


def test_pictures_and_pages_are_written(similarity: ns.Similarity, analyzer: ns.Analyzer, tmp_path: Path) -> None:
    text = similarity.save(tmp_path / "similarity.svg").read_text()
    assert "guitar" in text and "(bias)" in text
    dangerous = analyzer.similarity("<script>alert(1)</script> a guitar", SECOND)
    page = export_similarities([similarity, dangerous], tmp_path / "both.html").read_text()
    assert "<script>alert" not in page
    with pytest.raises(ns.FileError, match="holds one similarity, and there are 2"):
        export_similarities([similarity, dangerous], tmp_path / "both.nc")


def test_without_a_table_what_is_known_is_written(analyzer: ns.Analyzer, tmp_path: Path) -> None:
    similarity = analyzer.similarity(FIRST, SECOND, table=False)
    rows = pd.read_csv(similarity.save(tmp_path / "shares.csv"))
    assert rows["share"].sum() == pytest.approx(similarity.value, abs=1e-5)
    (payload,) = similarities_payload([similarity])["similarities"]
    assert payload["table"] is None and payload["first"]["margin"] is None
    assert ns.open(similarity.save(tmp_path / "shares.nc")).first_bias == similarity.first_bias


def test_the_payload_adds_up(similarity: ns.Similarity) -> None:
    (payload,) = similarities_payload([similarity])["similarities"]
    assert payload["value"] == similarity.value
    for side in ("first", "second"):
        assert sum(payload[side]["share"]) + payload[side]["bias"] == pytest.approx(similarity.value, abs=1e-5)
        assert len(payload[side]["tokens"]["prompt"]) == len(payload[side]["share"])
    assert payload["table"]["shape"] == list(similarity.table.shape)
    json.dumps(payload, allow_nan=False)


def test_similarities_of_different_models_are_not_shown_together(similarity: ns.Similarity) -> None:
    other = ns.Similarity(similarity.dataset.assign_attrs(fingerprint="another", model="another"))
    with pytest.raises(ns.InputError, match="of different models"):
        similarities_payload([similarity, other])


def test_it_says_what_it_is(similarity: ns.Similarity, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cosine" in repr(similarity) and "all-MiniLM-L6-v2" in repr(similarity)
    similarity.show()
    shown = capsys.readouterr().out
    assert "guitar" in shown and "completeness error" in shown
