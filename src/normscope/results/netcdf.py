"""What a netCDF file may hold before any of it is read: plain variables, all in the file itself, none larger than it.

A file may come from anyone. HDF5 follows links and names of other files that a file holds, runs the filters that it names,
and allocates what it declares; nothing of that is in a result of normscope.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterator
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5t, h5z  # pyright: ignore[reportAttributeAccessIssue]

_EXPANSION = 100
"""How many times its own size a compressed file may take in memory."""

_MOST_MEMBERS = 1000
"""Variables of a group, and attributes of anything."""

_MOST_VALUES = 1000
"""Values of one attribute."""

_FILTERS = (h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32, h5z.FILTER_LZF)
_NUMBERS = (h5t.INTEGER, h5t.FLOAT)

_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
"""A text as a variable of texts holds it: how long it is, and where in the file."""


class UnsafeFileError(Exception):
    """Why a file is not read, as the end of a sentence about it."""


def refuse_unsafe(path: Path, groups: Collection[str], variables: Collection[str]) -> list[str]:
    """Refuse a file in which anything except such groups and variables is, or one of these variables cannot be what it says.

    Gives the names of other variables, which are harmless, but are not to be read.
    """
    _refuse_endless_heaps(path)
    others: set[str] = set()
    with h5py.File(path, "r") as file:
        room = _Room(path)
        for group, below in _groups(file, groups):
            _refuse_attributes(group, room)
            for name, dataset in _datasets(group, below):
                _refuse_dataset(dataset)
                _refuse_attributes(dataset, room)
                if name in variables:
                    _refuse_dimensions(dataset)
                    room.take(dataset)
                else:
                    others.add(name)
    return sorted(others)


_HEAP = b"GCOL\x01\0\0\0"
"""What the places begin with where HDF5 keeps texts."""

_SIZE = struct.Struct("<Q")
_OBJECT = struct.Struct("<HHIQ")
"""Before each text: its number, how often it is used, nothing, and its size."""


def _refuse_endless_heaps(path: Path) -> None:
    """Refuse texts among which HDF5 would look for the next one for ever: a free place (number 0) smaller than its head."""
    steps = path.stat().st_size // _OBJECT.size  # no file has more texts than that
    if steps == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_HEAP)
        while start >= 0:
            offset = start + len(_HEAP) + _SIZE.size
            size = _SIZE.unpack_from(content, start + len(_HEAP))[0] if offset <= len(content) else 0
            end = min(start + size, len(content))
            while offset + _OBJECT.size <= end:
                number, _, _, size = _OBJECT.unpack_from(content, offset)
                steps -= 1
                if (number == 0 and size < _OBJECT.size) or steps < 0:
                    raise UnsafeFileError("its texts are damaged")
                offset += size if number == 0 else _OBJECT.size + -(-size // 8) * 8
            start = content.find(_HEAP, start + 1)


def _groups(file: h5py.File, names: Collection[str]) -> Iterator[tuple[h5py.Group, Collection[str]]]:
    """The root and the groups below it, each with the groups that it may have: no other has any, so that none is endless."""
    yield file, names
    for name in names:
        if name in file:
            _refuse_link(file, name)
            group = file[name]
            if isinstance(group, h5py.Group):
                yield group, ()


def _datasets(group: h5py.Group, groups: Collection[str]) -> Iterator[tuple[str, h5py.Dataset]]:
    """The variables of a group, next to which are only such groups."""
    if len(group) > _MOST_MEMBERS:
        raise UnsafeFileError(f"it has {len(group)} variables")
    for name in map(str, group):
        _refuse_link(group, name)
        member = group[name]
        if isinstance(member, h5py.Dataset):
            yield name, member
        elif not isinstance(member, h5py.Group) or name not in groups:
            raise UnsafeFileError(f"{name!r} is a group or type of its own")


def _refuse_link(group: h5py.Group, name: str) -> None:
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise UnsafeFileError(f"{name!r} is a link to somewhere else")


def _refuse_dataset(dataset: h5py.Dataset) -> None:
    """Refuse what is not stored in the file as plain numbers or texts."""
    settings = dataset.id.get_create_plist()
    if settings.get_external_count() or settings.get_layout() == h5d.VIRTUAL:
        raise UnsafeFileError(f"{_name(dataset)} is stored outside of it")
    filters = [settings.get_filter(number)[0] for number in range(settings.get_nfilters())]
    if not set(filters) <= set(_FILTERS):
        raise UnsafeFileError(f"{_name(dataset)} is stored through a filter that is not read")
    if not (dataset.id.get_type().get_class() in _NUMBERS or _is_text(dataset.id.get_type())):
        raise UnsafeFileError(f"{_name(dataset)} holds neither numbers nor texts")
    if dataset.shape is None or dataset.maxshape != dataset.shape:
        raise UnsafeFileError(f"{_name(dataset)} has no fixed size")


def _refuse_dimensions(dataset: h5py.Dataset) -> None:
    """Refuse dimensions that are said to be of other sizes elsewhere."""
    for size, dimension in zip(dataset.shape, dataset.dims, strict=True):
        for scale in dimension.values():
            if scale.shape != (size,):
                raise UnsafeFileError(f"{_name(dataset)} has other sizes than its dimensions")


def _refuse_attributes(owner: h5py.Group | h5py.Dataset, room: _Room) -> None:
    if len(owner.attrs) > _MOST_MEMBERS:
        raise UnsafeFileError(f"{_name(owner)} has {len(owner.attrs)} attributes")
    for name in owner.attrs:
        attribute = owner.attrs.get_id(name)
        count = prod(attribute.shape)
        text = _is_text(attribute.get_type())
        if count > (1 if text else _MOST_VALUES):
            raise UnsafeFileError(f"the attribute {name!r} of {_name(owner)} has {count} values")
        if text:
            room.take_bytes(len(str(owner.attrs[name])))


def _is_text(kind: Any) -> bool:
    return kind.get_class() == h5t.STRING


def _name(owner: h5py.Group | h5py.Dataset) -> str:
    return repr(owner.name)


class _Room:
    """What a file of its size can hold: every variable takes of it what it will take in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stored = path.stat().st_size
        self._expanded = _EXPANSION * self._stored

    def take(self, dataset: h5py.Dataset) -> None:
        """Count a variable, of which every value has to be in the file."""
        chunks, stored = dataset.chunks, dataset.id.get_storage_size()
        if chunks is None:
            self._take_contiguous(dataset, stored)
            return
        count = prod(-(-size // chunk) for size, chunk in zip(dataset.shape, chunks, strict=True))
        if count != dataset.id.get_num_chunks():
            raise UnsafeFileError(f"{_name(dataset)} is not all there")
        self._take_stored(dataset, stored)
        self.take_bytes(count * prod(chunks) * _item_size(dataset))
        if _is_varying(dataset):  # texts may all be the same long one, so that they are looked at one by one
            for index in np.ndindex(dataset.shape):
                self.take_bytes(len(dataset[index]))

    def _take_contiguous(self, dataset: h5py.Dataset, stored: int) -> None:
        declared = prod(dataset.shape) * _item_size(dataset)
        if stored != declared:
            raise UnsafeFileError(f"{_name(dataset)} is not all there")
        self._take_stored(dataset, stored)
        if _is_varying(dataset) and declared:
            self.take_bytes(self._texts(dataset))

    def _texts(self, dataset: h5py.Dataset) -> int:
        """How long all texts of a variable are, without reading them."""
        offset = dataset.id.get_offset()
        if offset is None:  # a few, next to the variable's name
            return sum(len(dataset[index]) for index in np.ndindex(dataset.shape))
        count = prod(dataset.shape)
        references = np.fromfile(self._path, _REFERENCE, count, offset=offset)
        if len(references) < count:
            raise UnsafeFileError(f"{_name(dataset)} is not all there")
        return int(references["length"].sum(dtype=np.int64))

    def _take_stored(self, dataset: h5py.Dataset, size: int) -> None:
        self._stored -= size
        if self._stored < 0:
            raise UnsafeFileError(f"{_name(dataset)} is larger than the file")

    def take_bytes(self, size: int) -> None:
        self._expanded -= size
        if self._expanded < 0:
            raise UnsafeFileError("it would take far more memory than the file is large")


def _is_varying(dataset: h5py.Dataset) -> bool:
    kind = dataset.id.get_type()
    return _is_text(kind) and kind.is_variable_str()


def _item_size(dataset: h5py.Dataset) -> int:
    """Bytes that one value takes in the file."""
    return _REFERENCE.itemsize if _is_varying(dataset) else dataset.id.get_type().get_size()
