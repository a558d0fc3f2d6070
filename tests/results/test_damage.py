"""Files from anywhere: each is read as it was written or refused, whatever happened to it and whoever made it."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from support.tiny_models import tiny

import normscope as ns
from normscope.errors import FileError
from normscope.methods import available_methods
from normscope.results import files, schema
from normscope.results.explanation_schema import VARIABLES
from normscope.results.zarr import RECORD

IDS = {"input_ids": torch.arange(5, 25)[None]}
ROUNDS = 40


@pytest.fixture(scope="module")
def analyzer() -> ns.Analyzer:
    return ns.load(tiny("bert"))


@pytest.fixture(scope="module")
def analysis(analyzer: ns.Analyzer) -> ns.Analysis:
    return analyzer.analyze(IDS)


@pytest.fixture(scope="module")
def streamed(analyzer: ns.Analyzer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("streamed") / "result.zarr"
    analyzer.analyze(IDS, out=path)
    return path


@pytest.fixture
def written(analysis: ns.Analysis, tmp_path: Path) -> Path:
    return analysis.save(tmp_path / "result.nc")


@pytest.fixture
def folder(streamed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(streamed, tmp_path / "result.zarr")


def without_checksum(content: bytes) -> bytes:
    """A file as earlier versions wrote it."""
    return content[: -files._SEAL_LENGTH]


def without_record(folder: Path) -> Path:
    """A folder as earlier versions wrote it."""
    (folder / "map" / RECORD).unlink()
    return folder


def look_at(result: ns.Analysis) -> None:
    """Everything that a user would look at first."""
    repr(result), result.tokens, result.completeness.values
    for scope in result.scopes:
        _ = result.map(scope).values


# ---- damage --------------------------------------------------------------------------------------------------------------


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Some bits the other way round, some bytes lost, blank or of something else."""
    changed = bytearray(content)
    place = chance.randrange(len(changed))
    match chance.randrange(4):
        case 0:
            for _ in range(chance.choice((1, 1, 3, 20))):
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        case 1:
            del changed[place:]
        case 2:
            part = slice(place, place + chance.choice((1, 16, 512)))
            changed[part] = bytes(len(changed[part]))
        case _:
            part = slice(place, place + chance.choice((4, 64, 4096)))
            changed[part] = chance.randbytes(len(changed[part]))
    return bytes(changed)


def test_a_damaged_file_is_refused_or_read_as_it_was_written(analysis: ns.Analysis, written: Path) -> None:
    content, refused = written.read_bytes(), 0
    for seed in range(ROUNDS):
        written.write_bytes(damaged(content, random.Random(seed)))
        try:
            assert ns.open(written).dataset.identical(analysis.dataset), seed
        except FileError:
            refused += 1
    assert refused > 0.8 * ROUNDS, "what is left is blank where it was blank before, or the checksum itself"


def test_a_damaged_file_without_a_checksum_is_refused_or_read(written: Path) -> None:
    """Damage to the numbers themselves cannot be seen here, but nothing else than a refusal ends the reading."""
    content, refused = without_checksum(written.read_bytes()), 0
    for seed in range(ROUNDS):
        written.write_bytes(damaged(content, random.Random(seed)))
        try:
            look_at(ns.open(written))
        except FileError:
            refused += 1
    assert 0 < refused < ROUNDS


@pytest.mark.parametrize("recorded", [True, False], ids=["with checksums", "of an earlier version"])
def test_a_damaged_folder_is_refused_or_read(
    streamed: Path, analysis: ns.Analysis, tmp_path: Path, recorded: bool
) -> None:
    refused = 0
    for seed in range(ROUNDS):
        chance = random.Random(seed)
        copy = shutil.copytree(streamed, tmp_path / str(seed))
        if not recorded:
            without_record(copy)
        victim = chance.choice(sorted(path for path in copy.rglob("*") if path.is_file()))
        if chance.random() < 0.3:
            victim.unlink()
        else:
            victim.write_bytes(damaged(victim.read_bytes(), chance))
        try:
            result = ns.open(copy)
            look_at(result)
            if recorded:
                assert result.tokens == analysis.tokens
                np.testing.assert_array_equal(result.dataset["map"], ns.open(streamed).dataset["map"])
                assert result.attrs == ns.open(streamed).attrs
        except FileError:
            refused += 1
        shutil.rmtree(copy)
    assert refused > (0.8 if recorded else 0.3) * ROUNDS


def test_a_file_that_another_program_changed_is_read(analysis: ns.Analysis, written: Path) -> None:
    with h5py.File(written, "r+") as file:
        file.attrs["note"] = "mine"
    assert ns.open(written).attrs == {**analysis.attrs, "note": "mine"}


def test_a_file_without_a_checksum_is_read(analysis: ns.Analysis, written: Path) -> None:
    written.write_bytes(without_checksum(written.read_bytes()))
    assert ns.open(written).dataset.identical(analysis.dataset)


# ---- files that are made to do harm --------------------------------------------------------------------------------------


def _inside_itself(file: h5py.File, _: Path) -> None:
    for name in list(file):
        file.move(name, f"decoder/{name}")
    file["encoder"] = file["/"]


def _groups_in_a_circle(file: h5py.File, _: Path) -> None:
    one = file.create_group("one")
    one.create_group("two")["one"] = one


def _soft_link(file: h5py.File, _: Path) -> None:
    file["image"] = h5py.SoftLink("/map")


def _external_link(file: h5py.File, secret: Path) -> None:
    with h5py.File(secret.with_suffix(".h5"), "w") as other:
        other["secret"] = [1.0]
    file["image"] = h5py.ExternalLink(secret.with_suffix(".h5"), "/secret")


def _external_storage(file: h5py.File, secret: Path) -> None:
    del file["completeness"]
    layers = file["layer"].shape
    made = file.create_dataset("completeness", layers, "u1", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    made.dims[0].attach_scale(file["layer"])


def _elsewhere(file: h5py.File, secret: Path) -> None:
    layout = h5py.VirtualLayout((4,), "u1")
    layout[:] = h5py.VirtualSource(secret, "secret", (4,))
    file.create_virtual_dataset("image", layout)


def _sixteen_gigabytes(file: h5py.File, _: Path) -> None:
    file.create_dataset("bias_norm", (2**31,), "f8", chunks=(2**20,))


def _sixteen_gigabytes_never_written(file: h5py.File, _: Path) -> None:
    file.create_dataset("bias_norm", (2**31,), "f8")


def _next_to_nothing_compressed(file: h5py.File, _: Path) -> None:
    file.create_dataset("bias_norm", data=np.zeros(2**26, "u1"), chunks=(2**22,), compression="gzip")


def _a_huge_chunk(file: h5py.File, _: Path) -> None:
    made = file.create_dataset("bias_norm", (2**10,), "u1", maxshape=(2**30,), chunks=(2**26,), compression="gzip")
    made[:] = 0


def _a_filter(file: h5py.File, _: Path) -> None:
    file.create_dataset("bias_norm", (4,), "f4", scaleoffset=2)


def _references(file: h5py.File, _: Path) -> None:
    file.create_dataset("image", (2,), h5py.ref_dtype)


def _a_type(file: h5py.File, _: Path) -> None:
    file["image"] = np.dtype("f8")


def _no_fixed_size(file: h5py.File, _: Path) -> None:
    file.create_dataset("bias_norm", data=np.zeros(4), maxshape=(None,))


def _other_sizes(file: h5py.File, _: Path) -> None:
    file.create_dataset("bias_norm", data=np.zeros(4)).dims[0].attach_scale(file["key"])


def _an_attribute(file: h5py.File, _: Path) -> None:
    file["map"].attrs.create("many", ["text"] * 100, dtype=h5py.string_dtype())


ATTACKS: dict[Callable[[h5py.File, Path], None], str] = {
    _inside_itself: "is a group",
    _groups_in_a_circle: "'one' is a group",
    _soft_link: "'image' is a link",
    _external_link: "'image' is a link",
    _external_storage: "'/completeness' is stored outside",
    _elsewhere: "'/image' is stored outside",
    _sixteen_gigabytes: "'/bias_norm' is not all there",
    _sixteen_gigabytes_never_written: "'/bias_norm' is not all there",
    _next_to_nothing_compressed: "far more memory",
    _a_huge_chunk: "has no fixed size",
    _a_filter: "through a filter",
    _references: "neither numbers nor texts",
    _a_type: "'image' is a group or type",
    _no_fixed_size: "no fixed size",
    _other_sizes: "other sizes than its dimensions",
    _an_attribute: "'many' of '/map' has 100 values",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_file_that_is_made_to_do_harm_is_refused(
    attack: Callable[[h5py.File, Path], None], written: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"root:x:0:0:root:/root:/bin/bash\n" * 10)
    with h5py.File(written, "r+") as file:
        attack(file, secret)
    with pytest.raises(FileError, match=rf"is not a netCDF file that can be read: .*({ATTACKS[attack]})"):
        ns.open(written)


def _patched(path: Path, change: Callable[[bytearray, h5py.File], None]) -> None:
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        change(content, file)
    path.write_bytes(content)


def test_texts_that_are_all_the_same_long_one_are_refused(written: Path) -> None:
    """A text in a variable is a reference, so that a file of a megabyte can hold as many gigabytes as it likes."""
    with h5py.File(written, "r+") as file:
        made = file.create_dataset("key_group2", (2000,), h5py.string_dtype())
        made[0] = "x" * 2**20
        file.move("key_group2", "image")

    def repeat(content: bytearray, file: h5py.File) -> None:
        start = file["image"].id.get_offset()
        content[start : start + 16 * 2000] = bytes(content[start : start + 16]) * 2000

    _patched(written, repeat)
    with pytest.raises(FileError, match="far more memory than the file"):
        ns.open(written)


def test_a_size_that_is_only_said_is_refused(written: Path) -> None:
    """The same damage as a declared variable that was never written, but without a trace of that in its storage."""
    with h5py.File(written, "r+") as file:
        file.create_dataset("bias_norm", data=np.arange(7777, dtype="f4"))

    def enlarge(content: bytearray, _: h5py.File) -> None:
        for before, after in ((7777, 7777 * 2**17), (4 * 7777, 4 * 7777 * 2**17)):
            content[:] = content.replace(before.to_bytes(8, "little"), after.to_bytes(8, "little"))

    _patched(written, enlarge)
    with pytest.raises(FileError, match=r"larger than the file|invalid dataset size"):  # HDF5 itself refuses some
        ns.open(written)


def test_texts_among_which_hdf5_would_search_for_ever_are_refused(written: Path) -> None:
    def endless(content: bytearray, _: h5py.File) -> None:
        start = content.index(b"GCOL") + 16
        content[start : start + 16] = bytes(16)

    written.write_bytes(without_checksum(written.read_bytes()))
    _patched(written, endless)
    with pytest.raises(FileError, match="its texts are damaged"):
        ns.open(written)


def test_variables_of_others_are_left_alone(analysis: ns.Analysis, written: Path) -> None:
    with h5py.File(written, "r+") as file:
        file.create_dataset("notes", data=np.zeros(file["layer"].shape)).dims[0].attach_scale(file["layer"])
    assert ns.open(written).dataset.identical(analysis.dataset)


@pytest.mark.parametrize("compression", ["gzip", "lzf"])
def test_a_file_that_was_compressed_is_read(analysis: ns.Analysis, written: Path, compression: str) -> None:
    with h5py.File(written, "r+") as file:
        values, attributes = file["map"][:], dict(file["map"].attrs)
        del file["map"]
        made = file.create_dataset("map", data=values, compression=compression, shuffle=True, fletcher32=True)
        for dimension, name in zip(made.dims, ("scope", "layer", "query", "key"), strict=True):
            dimension.attach_scale(file[name])
        made.attrs.update({name: attributes[name] for name in ("quantity", "_FillValue", "coordinates")})
    assert ns.open(written).dataset["map"].equals(analysis.dataset["map"])


def test_every_method_has_its_variables_in_the_schema(analyzer: ns.Analyzer) -> None:
    """What is not in the schema is not read back."""
    for method in available_methods("layer maps"):
        found = analyzer.analyze(IDS, method=method.name)
        assert set(found.dataset.variables) <= set(schema.VARIABLES), method.name
        assert schema.problem(found.dataset, schema.VARIABLES) is None, method.name
    everything = analyzer.analyze(IDS, heads=True, projections=True, approximate="both")
    assert schema.problem(everything.dataset, schema.VARIABLES) is None
    explanation = analyzer.explain(IDS, direction="state", heads=True)
    assert schema.problem(explanation.tree.to_dataset(), VARIABLES) is None


def test_a_variable_with_other_dimensions_or_values_is_refused(analysis: ns.Analysis, tmp_path: Path) -> None:
    wrong: dict[str, Any] = {
        "has the dimensions query": {"completeness": ("query", np.zeros(analysis.dataset.sizes["query"]))},
        "holds <U1": {"completeness": ("layer", np.array(["a"] * len(analysis.layers), dtype=object))},
    }
    for said, variable in wrong.items():
        path = ns.Analysis(analysis.dataset.assign(variable)).save(tmp_path / "result.nc")
        with pytest.raises(FileError, match=rf"or is damaged: 'completeness' {said}"):
            ns.open(path)
    path = ns.Analysis(analysis.dataset.drop_vars("key_token")).save(tmp_path / "result.nc")
    with pytest.raises(FileError, match="it has no key_token"):
        ns.open(path)


# ---- folders that are made to do harm ------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", [True, False])
def test_a_folder_that_lost_a_chunk_of_its_maps_is_refused(folder: Path, recorded: bool) -> None:
    opened = ns.open(folder)
    if not recorded:
        without_record(folder)
    (folder / "map" / "0.1.0.0").unlink()
    with pytest.raises(FileError, match=r"is damaged: 'map/0\.1\.0\.0' is missing"):
        ns.open(folder)
    with pytest.raises(FileError, match=r"is damaged: 'map/0\.1\.0\.0' is missing"):
        opened.map("AttnW").values  # noqa: B018  (reading is what fails)


def test_a_chunk_in_the_place_of_another_is_refused_when_it_is_looked_at(folder: Path) -> None:
    opened = ns.open(folder)
    shutil.copy(folder / "map" / "1.0.0.0", folder / "map" / "0.0.0.0")
    with pytest.raises(FileError, match=r"'map/0\.0\.0\.0' is not what was written"):
        opened.map("AttnW").values  # noqa: B018
    opened.map("AttnRes").values  # noqa: B018  (the others are as they were)


class _Trap:
    """Something that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path("sprung").touch, ()


def test_a_folder_runs_no_code(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from numcodecs import Pickle  # noqa: PLC0415  (which nothing else here may use)

    monkeypatch.chdir(tmp_path)
    facts = json.loads((folder / "key_token" / ".zarray").read_text())
    facts |= {"filters": [{"id": "pickle", "protocol": 5}], "compressor": None}
    (without_record(folder) / "key_token" / ".zarray").write_text(json.dumps(facts))
    (folder / "key_token" / "0").write_bytes(Pickle().encode(np.array([_Trap()] * 20, dtype=object)))
    with pytest.raises(FileError, match="'key_token' is not stored as results are"):
        ns.open(folder)
    assert not Path("sprung").exists()


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.skipif(os.name != "posix", reason="links and pipes are those of POSIX")
@pytest.mark.parametrize("change", [_link, _pipe])
def test_links_and_pipes_in_a_folder_are_refused(folder: Path, change: Callable[[Path], None]) -> None:
    change(folder / "map" / "0.0.0.0")
    with pytest.raises(FileError, match=r"'0\.0\.0\.0' in it is no file"):
        ns.open(folder)


@pytest.mark.parametrize(
    "facts",
    [
        {"shape": [2**40], "chunks": [2**40]},
        {"shape": [2**40], "chunks": [1]},
        {"shape": "many"},
        {"chunks": [0]},
        {"dtype": "|V8"},
        {"zarr_format": 3},
        {"dimension_separator": "/"},
    ],
)
def test_an_array_that_is_not_what_it_says_is_refused(folder: Path, facts: dict[str, Any]) -> None:
    path = without_record(folder) / "layer" / ".zarray"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))
    with pytest.raises(FileError):
        ns.open(folder)


def test_what_is_no_result_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder.nc").mkdir()
    os.mkfifo(tmp_path / "pipe.nc")
    for name, said in {
        "folder.nc": "is not a Zarr folder that can be read",
        "pipe.nc": "is a pipe",
        "nothing.nc": "There is no file",
        "a" * 300 + ".nc": "cannot be read: File name too long",
        "a\0b.nc": "no file can have such a name",
        "a\ud800b.nc": "no file can have such a name",
    }.items():
        with pytest.raises(FileError, match=said):
            ns.open(tmp_path / name)
