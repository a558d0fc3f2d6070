"""Results on disk: the same when read again, readable without normscope, and never half-written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import xarray as xr
from support.tiny_models import tiny

import normscope as ns
from normscope.results import schema
from normscope.results.files import replacing, sweep


@pytest.fixture(scope="module")
def analysis(analyzer: ns.Analyzer) -> ns.Analysis:
    return analyzer.analyze("An unaffable café ☕ sat.", heads=True, layers=[1, 3])


@pytest.fixture
def written(analysis: ns.Analysis, tmp_path: Path) -> Path:
    return analysis.save(tmp_path / "result.nc")


def only(folder: Path) -> list[str]:
    """Everything in a folder, hidden files too."""
    return sorted(os.listdir(folder))


# ---- there and back ----------------------------------------------------------------------------------------------------


def test_what_is_read_is_identical_to_what_was_written(analysis: ns.Analysis, written: Path) -> None:
    again = ns.open(written)
    assert again.dataset.identical(analysis.dataset)
    assert again.tokens == analysis.tokens
    assert again.attrs == analysis.attrs
    assert repr(again) == repr(analysis)


def test_a_file_opens_with_xarray_alone(analysis: ns.Analysis, written: Path) -> None:
    with xr.open_dataset(written) as dataset:
        assert dataset.load().identical(analysis.dataset)
    assert dataset.attrs["schema_version"] == schema.VERSION
    assert dataset["map"].dims == ("scope", "layer", "query", "key")
    assert dataset["key_token"].values.tolist() == analysis.tokens


def test_a_file_is_hdf5_with_the_names_of_the_schema(analysis: ns.Analysis, written: Path) -> None:
    with h5py.File(written) as file:
        assert {"map", "mixing_ratio", "head_map", "completeness", "component_error"} <= set(file)
        assert file["map"].shape == (7, 2, len(analysis.tokens), len(analysis.tokens))


@pytest.mark.parametrize("change", [ns.Analysis.words, ns.Analysis.without_special_tokens])
def test_combined_and_selected_results_are_written_alike(analysis: ns.Analysis, change: Any, tmp_path: Path) -> None:
    changed = change(analysis)
    assert ns.open(changed.save(tmp_path / "result.nc")).dataset.identical(changed.dataset)


def test_results_without_a_text_are_written_alike(tmp_path: Path) -> None:
    found = ns.load(tiny("bert").double()).analyze(torch.tensor([[7, 8, 9]]))
    again = ns.open(found.save(tmp_path / "result.nc"))
    assert again.dataset.identical(found.dataset)
    assert again.map("Attn").dtype == np.float64


def test_paths_may_be_strings_and_names_without_suffix(analysis: ns.Analysis, tmp_path: Path) -> None:
    path = str(tmp_path / "result")
    assert analysis.save(path) == Path(path)
    assert ns.open(path).dataset.identical(analysis.dataset)


# ---- never half-written ------------------------------------------------------------------------------------------------


def test_saving_replaces_an_older_file_and_leaves_nothing_else(analysis: ns.Analysis, written: Path) -> None:
    analysis.without_special_tokens().save(written)
    assert len(ns.open(written).tokens) == len(analysis.tokens) - 2
    assert only(written.parent) == ["result.nc"]


def test_a_failure_while_writing_leaves_the_older_file_and_nothing_else(analysis: ns.Analysis, written: Path) -> None:
    before = written.read_bytes()
    unwritable = ns.Analysis(analysis.dataset.assign_attrs(text=object()))
    with pytest.raises(ns.FileError, match="cannot be written as netCDF"):
        unwritable.save(written)
    assert written.read_bytes() == before
    assert only(written.parent) == ["result.nc"]


@pytest.mark.parametrize("text", ["a\0b", "a \\u0000 is not \0"])
def test_characters_that_a_file_cannot_hold_come_back_as_they_were(
    analysis: ns.Analysis, tmp_path: Path, text: str
) -> None:
    tokens = analysis.dataset["key_token"].values.copy()
    tokens[1] = text
    odd = ns.Analysis(analysis.dataset.assign_attrs(text=text).assign_coords(key_token=("key", tokens)))
    path = odd.save(tmp_path / "result.nc")
    assert xr.open_dataset(path, engine="h5netcdf").attrs["escaped"] == "text key_token"
    assert ns.open(path).dataset.identical(odd.dataset)


def test_a_text_with_a_nul_in_it_is_analysed_and_saved(analyzer: ns.Analyzer, tmp_path: Path) -> None:
    analysis = analyzer.analyze("a\0b", scopes="AttnW", layers=1)
    assert ns.open(analysis.save(tmp_path / "result.nc")).attrs["text"] == "a\0b"


def test_an_ordinary_file_has_nothing_escaped(written: Path) -> None:
    assert "escaped" not in xr.open_dataset(written, engine="h5netcdf").attrs


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_any_exception_in_the_middle_leaves_the_older_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "result.txt"
    target.write_text("older")
    expected = ns.FileError if error is OSError else error
    with pytest.raises(expected), replacing(target) as temporary:
        temporary.write_text("half of the newer")
        raise error
    assert target.read_text() == "older"
    assert only(tmp_path) == ["result.txt"]


def test_a_file_takes_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    with replacing(target) as temporary:
        temporary.write_text("newer")
        assert temporary.parent == target.parent
        assert not target.exists()
    assert target.read_text() == "newer"
    assert only(tmp_path) == ["result.txt"]


def test_a_sweep_removes_what_a_kill_left_half_written_and_nothing_else(tmp_path: Path) -> None:
    def temporary(name: str) -> str:
        """The name under which a file is written, as a process leaves it that is killed."""
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        with replacing(tmp_path / "elsewhere" / name) as path:
            return path.name

    kept = [".gitignore", ".keep", ".hidden-notes.txt", "figure.svg", "a-12345678.svg"]
    for name in (*kept, temporary("figure.svg"), temporary("table.csv"), temporary("noending")):
        (tmp_path / name).touch()
    sweep(tmp_path, "table.csv")
    assert len(list(tmp_path.glob(".figure-*.svg"))) == 1 and not list(tmp_path.glob(".table-*.csv"))
    sweep(tmp_path)
    assert only(tmp_path) == sorted([*kept, "elsewhere"])
    sweep(tmp_path / "nowhere")


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_file_has_the_permissions_that_the_user_gives_to_new_files(analysis: ns.Analysis, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = analysis.save(tmp_path / "result.nc")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


# ---- refused -----------------------------------------------------------------------------------------------------------


def test_a_path_that_cannot_be_written_is_refused(analysis: ns.Analysis, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    for name, reason in (
        ("nowhere/a.nc", "cannot be written: there is no folder"),
        ("file/a.nc", "cannot be written: .*file' is a file"),
        ("folder", "is a folder"),
    ):
        with pytest.raises(ns.FileError, match=rf"{name}' {reason}"):
            analysis.save(tmp_path / name)
    assert only(tmp_path) == ["file", "folder"]
    assert only(tmp_path / "folder") == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is read-only for the superuser")
def test_a_read_only_folder_is_refused(analysis: ns.Analysis, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ns.FileError, match="is read-only for you"):
        analysis.save(tmp_path / "result.nc")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ns.FileError, match="There is no file"):
        ns.open(tmp_path / "nothing.nc")
    with pytest.raises(ns.FileError, match="is not a Zarr folder that can be read"):
        ns.open(tmp_path)


@pytest.mark.parametrize("content", [b"", b"just a text", b"CDF\x01 but not really"])
def test_what_is_no_netcdf_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "result.nc"
    path.write_bytes(content)
    with pytest.raises(ns.FileError, match="is not a netCDF file that can be read"):
        ns.open(path)


def test_a_file_cut_short_is_refused(written: Path) -> None:
    written.write_bytes(written.read_bytes()[:3000])
    with pytest.raises(ns.FileError, match="is not a netCDF file that can be read"):
        ns.open(written)


def test_a_netcdf_file_of_someone_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    xr.Dataset({"rain": ("day", [1.0, 2.0])}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(ns.FileError, match="not written by normscope: it has no schema version"):
        ns.open(path)


def test_a_newer_schema_is_refused_with_the_advice_to_upgrade(analysis: ns.Analysis, tmp_path: Path) -> None:
    newer = ns.Analysis(analysis.dataset.assign_attrs(schema_version=schema.VERSION + 1))
    path = newer.save(tmp_path / "result.nc")
    with pytest.raises(
        ns.FileError, match=rf"schema version {schema.VERSION + 1}, .* up to {schema.VERSION}\. Upgrade"
    ):
        ns.open(path)


def test_a_schema_version_that_is_no_number_is_refused(analysis: ns.Analysis, tmp_path: Path) -> None:
    path = ns.Analysis(analysis.dataset.assign_attrs(schema_version="first")).save(tmp_path / "result.nc")
    with pytest.raises(ns.FileError):
        ns.open(path)
