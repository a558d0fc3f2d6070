"""Answers in Zarr folders: the same as in netCDF files, written block by block, and never half."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from support.chat_model import chat_analyzer

import normscope as ns
from normscope.explain import spans
from normscope.results import answer_zarr, zarr
from normscope.results.answer import Answer

DOCUMENTS = {"notes.txt": "Marta lives in Lisbon. Tomas works as a surgeon.", "more.md": "The cat sat on the mat."}
ANSWER = "Marta lives in \N{PARTY POPPER} Lisbon."


@pytest.fixture(scope="module")
def chat() -> ns.Analyzer:
    return chat_analyzer()


def explained(chat: ns.Analyzer) -> Answer:
    return chat.explain_answer(context=DOCUMENTS, question="Where does Marta live?", answer=ANSWER)


@pytest.fixture
def by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token of the answer is pulled back in a pass of its own."""
    monkeypatch.setattr(spans, "_BYTES_AT_ONCE", 1)


def test_a_folder_has_what_a_file_has(chat: ns.Analyzer, tmp_path: Path, by_rows: None) -> None:
    answer = explained(chat)
    written = ns.open(answer.save(tmp_path / "answer.zarr"))
    assert "table" not in answer.tree.to_dataset()  # it was written as it was computed
    assert answer.table.shape[0] == len(answer.output_tokens)
    from_file = ns.open(answer.save(tmp_path / "answer.nc"))
    assert isinstance(written, Answer)
    one, other = (each.tree.to_dataset() for each in (from_file, written))
    assert set(one.variables) == set(other.variables) and set(one.coords) == set(other.coords)
    assert {name: one[name].attrs for name in one.variables} == {name: other[name].attrs for name in one.variables}
    assert {name: str(value) for name, value in one.attrs.items()} == {
        name: str(value) for name, value in other.attrs.items()
    }
    for name in one.variables:
        if one[name].dtype.kind == "f":
            size = float(np.nanmax(np.abs(one[name].values), initial=1e-9))
            np.testing.assert_allclose(other[name].values, one[name].values, atol=1e-5 * size, err_msg=str(name))
        else:
            assert one[name].values.tolist() == other[name].values.tolist(), name


def test_a_folder_is_an_answer_like_any_other(chat: ns.Analyzer, tmp_path: Path) -> None:
    answer = explained(chat)
    opened = ns.open(answer.save(tmp_path / "answer.zarr"))
    assert [span.text for span in opened.spans()] == [span.text for span in answer.spans()]
    assert opened.of("Lisbon").value == pytest.approx(answer.of("Lisbon").value, rel=1e-4, abs=1e-5)
    one, other = (each.through_reasoning().attribution.values for each in (opened, answer))
    np.testing.assert_allclose(one, other, atol=1e-5 * np.abs(other).max())
    again = ns.open(opened.save(tmp_path / "again.zarr"))
    np.testing.assert_array_equal(again.table.values, opened.table.values)
    assert opened.save(tmp_path / "page.html").is_file()


def test_rows_of_a_table_add_up_with_their_biases(chat: ns.Analyzer, tmp_path: Path, by_rows: None) -> None:
    table = ns.open(explained(chat).save(tmp_path / "answer.zarr")).table
    sums = np.nansum(table.values, axis=1) + table["bias"].values + table["routed"].values
    np.testing.assert_allclose(sums, table["value"].values, atol=1e-5 * np.nansum(np.abs(table.values), axis=1).max())


def test_the_table_is_never_in_memory_as_a_whole(
    chat: ns.Analyzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, blocks, rows = explained(chat), 64, 32
    tokens = 8 * len(answer.tokens)
    data = answer.dataset
    long = data.isel(token=np.arange(tokens) % len(answer.tokens)).assign_coords(token=np.arange(tokens))
    long = long.isel(output=np.arange(blocks * rows) % data.sizes["output"]).assign_coords(
        output=np.arange(blocks * rows)
    )
    names = ("table_value", "table_bias", "table_routed", "table_error")

    def computed(_: Answer) -> Iterator[xr.Dataset]:
        for number in range(blocks):
            table = np.full((rows, tokens), number, dtype=np.float32)
            known = {name: ("output", np.full(rows, number, dtype=np.float32)) for name in names}
            yield xr.Dataset(
                {"table": (("output", "token"), table, {"quantity": "logit", "objective": "logit"}), **known}
            )

    answer.save(tmp_path / "warm.zarr")  # imports and caches
    monkeypatch.setattr(Answer, "table_blocks", computed)
    monkeypatch.setattr(answer_zarr, "_CHUNK", rows * tokens)
    tracemalloc.start()
    path = Answer(long).save(tmp_path / "long.zarr")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = 4 * blocks * rows * tokens
    assert peak < size / 3, (peak, size)
    table = ns.open(path).table
    assert table.shape == (blocks * rows, tokens)
    np.testing.assert_array_equal(table.values[:, 0], np.repeat(np.arange(blocks), rows))


def test_nothing_is_left_of_a_folder_that_was_not_completed(
    chat: ns.Analyzer, tmp_path: Path, by_rows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, before = explained(chat), Answer.table_blocks

    def interrupted(self: Answer) -> Iterator[xr.Dataset]:
        yield next(before(self))
        raise KeyboardInterrupt

    monkeypatch.setattr(Answer, "table_blocks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        answer.save(tmp_path / "answer.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_already_stays_as_it_is(chat: ns.Analyzer, tmp_path: Path) -> None:
    path = tmp_path / "answer.zarr"
    path.mkdir()
    with pytest.raises(ns.FileError, match="there already"):
        explained(chat).save(path)
    assert list(path.iterdir()) == []


def test_a_file_without_its_table_has_none_to_write(chat: ns.Analyzer, tmp_path: Path) -> None:
    opened = ns.open(explained(chat).save(tmp_path / "answer.nc"))
    with pytest.raises(ns.SelectionError, match="table=True"):
        opened.save(tmp_path / "answer.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["answer.nc"]


def test_a_damaged_chunk_is_refused(chat: ns.Analyzer, tmp_path: Path) -> None:
    path = explained(chat).save(tmp_path / "answer.zarr")
    chunk = path / "table" / "0.0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    with pytest.raises(ns.FileError, match="not what was written"):
        _ = ns.open(path).table.values
    chunk.unlink()
    with pytest.raises(ns.FileError, match="missing"):
        ns.open(path)


def test_folders_of_maps_are_still_analyses(tmp_path: Path) -> None:
    ns.load().analyze("A text.", out=tmp_path / "maps.zarr", scopes="AttnRes")
    assert isinstance(ns.open(tmp_path / "maps.zarr"), ns.Analysis) and zarr.RECORD == ".checksums.json"
