"""Reading and writing result files, so that nothing is ever half-written: to a temporary name first, then renamed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import xarray as xr

from normscope import schema
from normscope.errors import FileError

_ENCODER = "encoder"
_TEMPORARY = re.compile(r"\.(?P<stem>.+)-[a-z0-9_]{8}(?P<suffix>\.[^.]+)?")
"""The names that `replacing` gives to files in the making."""


@contextmanager
def replacing(path: str | Path) -> Generator[Path]:
    """A temporary path beside `path` that takes its name when the block ends well, and is removed when it does not."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}-", suffix=target.suffix)
        os.close(handle)
    except OSError as error:
        raise FileError(f"{str(target)!r} cannot be written: {error.strerror or error}.") from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"{str(target)!r} cannot be written: {error.strerror or error}.") from error
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_netcdf(dataset: xr.Dataset, path: str | Path, encoder: xr.Dataset | None = None) -> Path:
    """Write a dataset, and its encoder's (if any) as a group of the same file."""
    # HDF5 does not survive a full disk, so that the file is made in memory and written as bytes.
    content = BytesIO()
    try:
        dataset.to_netcdf(content, engine="h5netcdf")
        if encoder is not None:
            encoder.to_netcdf(content, engine="h5netcdf", mode="a", group=_ENCODER)
    except (ValueError, TypeError) as error:
        raise FileError(f"The analysis cannot be written as netCDF: {error}") from error
    with replacing(path) as temporary:
        temporary.write_bytes(content.getvalue())
    return Path(path)


def read_netcdf(path: str | Path) -> tuple[xr.Dataset, xr.Dataset | None]:
    """The dataset of a file, and that of its encoder, if any."""
    source = Path(path)
    if not source.is_file():
        raise FileError(f"There is no file {str(source)!r}.")
    try:
        groups = xr.open_groups(source, engine="h5netcdf")
        loaded = {name: group.load() for name, group in groups.items()}
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise FileError(f"{str(source)!r} is not a netCDF file that can be read: {error}") from error
    for group in groups.values():
        group.close()
    number = loaded["/"].attrs.get("schema_version")
    if number is None:
        raise FileError(f"{str(source)!r} was not written by normscope: it has no schema version.")
    if not str(number).isdigit() or schema.COMPLETENESS not in loaded["/"]:
        raise FileError(f"{str(source)!r} was not written by normscope, or is damaged.")
    if int(number) > schema.VERSION:
        raise FileError(
            f"{str(source)!r} has schema version {number}, this normscope reads up to {schema.VERSION}. Upgrade normscope."
        )
    return loaded["/"], loaded.get(f"/{_ENCODER}")
