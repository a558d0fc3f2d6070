"""Zarr folders whose every file is known by its checksum: what is missing, damaged or not ours is refused, never filled in.

A folder may come from anyone: no link in it is followed, and no codec runs that normscope does not write with.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Collection, Iterator
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from xarray.backends import BackendArray
from xarray.core import indexing
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from normscope.errors import FileError

RECORD = ".checksums.json"
"""The file with the size and checksum of every other. It lies in the folder of an array, where Zarr expects anything."""

_CODECS = ("blosc", "zstd", "lz4", "zlib", "gzip", "vlen-utf8")
_DTYPE = re.compile(r"[<>|][fiu][1248]|\|b1|\|O|[<>]U\d{1,4}")
_EXPANSION = 1000
_ROOM = 65536
"""How many times its own size an array may take in memory, and as if how much larger it were: blank ones take no space."""

_MOST_FILES = 5_000_000

Record = dict[str, tuple[int, int]]
"""Size and checksum (CRC-32) of every file, by its name below the folder."""


class ZarrStore(WrapperStore[LocalStore]):
    """A Zarr folder. It notes what is written, and gives out nothing that is not as it was written.

    `needed` are files that have to be there although no record says so, as in folders of earlier versions.
    """

    def __init__(self, store: LocalStore, record: Record | None = None, needed: Collection[str] = ()) -> None:
        super().__init__(store)
        self.record = {} if record is None else record
        self.needed = needed

    @classmethod
    def at(cls, folder: Path, record: Record | None = None, needed: Collection[str] = (), **options: Any) -> ZarrStore:
        return cls(LocalStore(folder, **options), record, needed)

    def _with_store(self, store: LocalStore) -> ZarrStore:
        return type(self)(store, self.record, self.needed)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        found = await super().get(key, prototype, byte_range)
        expected = self.record.get(key)
        if found is None:
            if expected is not None or key in self.needed:
                raise FileError(f"{str(self._store.root)!r} is damaged: {key!r} is missing.")
        elif expected is not None and byte_range is None and _checksum(found.to_bytes()) != expected:
            raise FileError(f"{str(self._store.root)!r} is damaged: {key!r} is not what was written.")
        return found

    async def set(self, key: str, value: Buffer) -> None:
        await super().set(key, value)
        self.record[key] = _checksum(value.to_bytes())

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self.exists(key):
            await self.set(key, value)

    def write_record(self, array: str) -> None:
        """Put the record into the folder of an array."""
        path = self._store.root / array / RECORD
        path.write_text(json.dumps(self.record, indent=None, separators=(",", ":")), encoding="utf-8")


def open_checked(folder: Path, array: str) -> ZarrStore:
    """The store of a folder in which everything is that should be, and nothing that does harm; `array` is read lazily.

    Raises:
        FileError: something is missing, damaged, or no part of a result.
    """
    files = dict(_files(folder))
    record = _record(folder / array / RECORD)
    for name, (size, checksum) in record.items():
        if files.get(name) != size:
            raise FileError(
                f"{str(folder)!r} is damaged: {name!r} is {'missing' if name not in files else 'cut short'}."
            )
        if name.endswith((".zarray", ".zattrs", ".zgroup")) and _checksum((folder / name).read_bytes())[1] != checksum:
            raise FileError(f"{str(folder)!r} is damaged: {name!r} is not what was written.")
    arrays = {
        member: _counts(folder, member, files)
        for member, _, file in (name.rpartition("/") for name in files)
        if file == ".zarray"
    }
    needed = {
        chunk
        for name, counts in arrays.items()
        if name == array or record  # in folders of earlier versions, blank chunks are left out
        for chunk in _chunks(folder, name, counts, files)
    }
    return ZarrStore.at(folder, record, needed, read_only=True)


def lazy(store: ZarrStore, array: str, path: Path) -> xr.Variable:
    """An array that is read when it is looked at, as far as it is."""
    values: Any = zarr.open_array(store, path=array, mode="r", zarr_format=2)
    attributes = dict(values.attrs)
    dimensions = attributes.pop("_ARRAY_DIMENSIONS")
    return xr.Variable(dimensions, indexing.LazilyIndexedArray(_Lazy(values, path)), attributes)


class _Lazy(BackendArray):
    """An array on disk, whose errors say which folder cannot be read."""

    def __init__(self, values: Any, path: Path) -> None:
        self.values, self.path = values, path
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[int | slice, ...]) -> np.ndarray:
        try:
            return np.asarray(self.values[key])
        except FileError:
            raise
        except Exception as error:  # whatever Zarr and its codecs say of a chunk that is damaged
            raise FileError(f"{str(self.path)!r} cannot be read (any more): {error}") from error


# ---- what is in a folder -------------------------------------------------------------------------------------------------


def _files(folder: Path, below: str = "", depth: int = 1) -> Iterator[tuple[str, int]]:
    """The files of a group and of its arrays, and their sizes. Links, pipes and the like are refused."""
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number > _MOST_FILES:
                raise FileError(f"{str(folder)!r} has more files than a result has.")
            if entry.is_file(follow_symlinks=False):
                yield below + entry.name, entry.stat(follow_symlinks=False).st_size
            elif not entry.is_dir(follow_symlinks=False):
                raise FileError(
                    f"{str(folder)!r} is not read: {entry.name!r} in it is no file, but a link or the like."
                )
            elif depth:
                yield from _files(Path(entry.path), f"{below}{entry.name}/", depth - 1)


def _record(path: Path) -> Record:
    """The record of a folder; one of an earlier version has none."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): (int(size), int(checksum)) for name, (size, checksum) in content.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"{str(path)!r} is damaged: {error}.") from error


def _counts(folder: Path, array: str, files: dict[str, int]) -> list[int]:
    """How many chunks an array has along each axis. Refuses one that runs other codecs, or takes more than it can hold."""
    facts = json.loads((folder / array / ".zarray").read_text(encoding="utf-8"))
    shape, chunks, dtype = facts["shape"], facts["chunks"], str(facts["dtype"])
    codecs = {each["id"] for each in (*(facts["filters"] or ()), *filter(None, [facts["compressor"]]))}
    sized = len(shape) == len(chunks) and all(isinstance(size, int) and size > 0 for size in (*shape, *chunks))
    ours = facts["zarr_format"] == 2 and facts.get("dimension_separator", ".") == "." and _DTYPE.fullmatch(dtype)
    if not (sized and ours and codecs <= set(_CODECS)):
        raise FileError(f"{str(folder)!r} is not read: its {array!r} is not stored as results are.")
    counts = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
    stored = sum(size for name, size in files.items() if name.startswith(f"{array}/"))
    item = 8 if dtype == "|O" else np.dtype(dtype).itemsize
    if prod(counts) * prod(chunks) * item > _EXPANSION * (stored + _ROOM):
        raise FileError(f"{str(folder)!r} is not read: its {array!r} would take far more memory than it holds.")
    return counts


def _chunks(folder: Path, array: str, counts: list[int], files: dict[str, int]) -> Iterator[str]:
    """The names of all chunks of an array, which have to be there."""
    places = product(*map(range, counts)) if counts else [(0,)]
    for place in places:
        name = f"{array}/{'.'.join(map(str, place))}"
        if name not in files:
            raise FileError(f"{str(folder)!r} is damaged: {name!r} is missing.")
        yield name


def _checksum(content: bytes) -> tuple[int, int]:
    return len(content), zlib.crc32(content)
