"""Reading and writing result files, so that nothing is ever half-written: to a temporary name first, then renamed."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from normscope.errors import FileError
from normscope.paths import file_to_write, kind, reason, refusing, temporary_affixes, umask
from normscope.results import schema
from normscope.results.netcdf import refuse_unsafe

_TEMPORARY = re.compile(r"\.(?P<stem>.+)-[a-z0-9_]{8}(?P<suffix>\.[^.]+)?")
"""The names that `replacing` gives to files in the making."""


@contextmanager
def replacing(path: str | Path) -> Generator[Path]:
    """A temporary path next to the file that a path leads to, whose name and permissions it takes when the block ends well.

    It is removed when the block does not end well. Other names of a file that has several (hard links) keep the older one.
    """
    target = file_to_write(path)
    prefix, suffix = temporary_affixes(target)
    with refusing(path):
        permissions = stat.S_IMODE(target.stat().st_mode) & 0o777 if target.exists() else 0o666 & ~umask()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=suffix)
        os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(permissions)
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"{str(path)!r} cannot be written: {reason(error)}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def sweep(folder: Path, *names: str) -> None:
    """Remove what `replacing` left in a folder when its process was killed: of files of these names, or of any name.

    Only for a folder in which no other process is writing.
    """
    for path in folder.glob(".*") if folder.is_dir() else ():
        match = _TEMPORARY.fullmatch(path.name)
        if match is not None and (not names or f"{match['stem']}{match['suffix'] or ''}" in names):
            path.unlink(missing_ok=True)


def write_netcdf(tree: xr.DataTree, path: str | Path) -> Path:
    """Write a tree of datasets, each as a group of the file."""
    # HDF5 does not survive a full disk, so that the file is made in memory and written as bytes.
    content = BytesIO()
    try:
        for group, dataset in tree.to_dict().items():
            mode = "w" if group == "/" else "a"
            escaped(dataset).to_netcdf(content, engine="h5netcdf", mode=mode, group=group)
    except (ValueError, TypeError) as error:
        raise FileError(f"The analysis cannot be written as netCDF: {error}") from error
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content.getbuffer())
        file.write(_SEAL + hashlib.sha256(content.getbuffer()).hexdigest().encode())
    return Path(path)


def read_netcdf(path: str | Path, variables: schema.Variables) -> xr.DataTree:
    """The tree of datasets that a file holds, in the names of the present version: of its variables those of these names."""
    source = Path(path)
    found = kind(source, "read")
    if found != "a file":
        raise FileError(f"There is no file {str(source)!r}." if found is None else f"{str(source)!r} is {found}.")
    with refusing(source, "read"):
        _refuse_damaged(source)
    try:
        loaded = _loaded(source, variables)
    except Exception as error:  # whatever HDF5 and its readers say of a file that is damaged, or made to do harm
        raise FileError(f"{str(source)!r} is not a netCDF file that can be read: {error}") from error
    version = loaded["/"].attrs.get("schema_version")
    if version is None:
        raise FileError(f"{str(source)!r} was not written by normscope: it has no schema version.")
    main, encoder = loaded.get(f"/{schema.DECODER}", loaded["/"]), loaded.get(f"/{schema.ENCODER}")
    for dataset in (main, *([] if encoder is None else [encoder])):
        refuse_foreign(source, dataset, version, variables)
    return schema.tree(schema.upgraded(main), None if encoder is None else schema.upgraded(encoder))


def refuse_foreign(path: str | Path, dataset: xr.Dataset, version: Any, variables: schema.Variables) -> None:
    """Refuse what does not have a result's variables, or those of a later version."""
    known = schema.COMPLETENESS in dataset or dataset.attrs.get("kind") in schema.KINDS
    if not str(version).isdigit() or not known:
        raise FileError(f"{str(path)!r} was not written by normscope, or is damaged.")
    if int(version) > schema.VERSION:
        raise FileError(
            f"{str(path)!r} has schema version {version}, this normscope reads up to {schema.VERSION}. Upgrade normscope."
        )
    problem = schema.problem(dataset, variables)
    if problem is not None:
        raise FileError(f"{str(path)!r} was not written by normscope, or is damaged: {problem}.")


def _loaded(source: Path, variables: Collection[str]) -> dict[str, xr.Dataset]:
    """The datasets by group, and nothing of the file that is not one of these variables."""
    others = refuse_unsafe(source, (schema.DECODER, schema.ENCODER), variables)
    groups = xr.open_groups(source, engine="h5netcdf", drop_variables=others)
    try:
        return {name: unescaped(group.load()) for name, group in groups.items()}
    finally:
        for group in groups.values():
            group.close()


# ---- damage --------------------------------------------------------------------------------------------------------------

_SEAL = b"\nnormscope sha256 "
"""What begins the last line of a file, behind all that HDF5 reads: the checksum of everything before it.

Files of earlier versions have none, and programs that change a file cut it off.
"""

_SEAL_LENGTH = len(_SEAL) + 2 * hashlib.sha256().digest_size


def _refuse_damaged(path: Path) -> None:
    """Refuse a file that is not as it was written."""
    with path.open("rb") as file:
        length = file.seek(0, os.SEEK_END) - _SEAL_LENGTH
        if length < 0:
            return
        file.seek(length)
        seal = file.read()
        if not seal.startswith(_SEAL):
            return
        file.seek(0)
        checksum = hashlib.sha256()
        while length > 0 and (block := file.read(min(length, 2**20))):
            checksum.update(block)
            length -= len(block)
    if seal != _SEAL + checksum.hexdigest().encode():
        raise FileError(f"{str(path)!r} is damaged: it is not what was written (its checksum is another).")


# ---- characters that a file cannot hold ----------------------------------------------------------------------------------

_ESCAPED = "escaped"
"""The attribute that names what is escaped in a dataset, where anything is."""

_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_TO_ESCAPE = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


def escaped(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with NUL and lone surrogates, which HDF5 strings cannot hold, written as `\\u0000`, and marked so."""
    attributes = [
        str(name) for name, value in dataset.attrs.items() if isinstance(value, str) and _UNWRITABLE.search(value)
    ]
    columns = [
        str(name)
        for name, values in dataset.coords.items()
        if values.dtype == object and any(_UNWRITABLE.search(str(value)) for value in values.values.flat)
    ]
    if not attributes and not columns:
        return dataset
    return _changed(dataset, attributes, columns, _escape).assign_attrs({_ESCAPED: " ".join([*attributes, *columns])})


def unescaped(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset as it was before `escaped`."""
    names = str(dataset.attrs.get(_ESCAPED, "")).split()
    attributes = [name for name in names if name in dataset.attrs]
    columns = [name for name in names if name in dataset.coords]
    changed = _changed(dataset, attributes, columns, _unescape)
    changed.attrs.pop(_ESCAPED, None)
    return changed


def _changed(
    dataset: xr.Dataset, attributes: Iterable[str], columns: Iterable[str], change: Callable[[str], str]
) -> xr.Dataset:
    coordinates = {
        name: (dataset[name].dims, np.array([change(str(text)) for text in dataset[name].values], dtype=object))
        for name in columns
    }
    return dataset.assign_coords(coordinates).assign_attrs({name: change(dataset.attrs[name]) for name in attributes})


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda code: chr(int(code[1], 16)), text)
