"""Paths: where a result may be written and where it may not, checked before anything is computed.

A link is followed to the file behind it. Only a regular file is ever written or replaced.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from normscope.errors import FileError, InputError, NormscopeError, listing, require_extra

_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def refusing(path: str | Path, done: str = "written") -> Generator[None]:
    """What the system, or Python itself, refuses to do with a path becomes a `FileError`."""
    try:
        yield
    except NormscopeError:
        raise
    except OSError as error:
        raise FileError(f"{str(path)!r} cannot be {done}: {reason(error)}.") from error
    except ValueError as error:  # a NUL character, or one that no name on this system can have
        raise FileError(f"{str(path)!r} cannot be {done}: no file can have such a name ({error}).") from error


def reason(error: OSError) -> str:
    """Why the system refused, without its numbers and paths."""
    return error.strerror or str(error)


def named(path: str | Path) -> Path:
    """A path from a text or a path; anything else is refused."""
    try:
        return Path(path)
    except TypeError as error:
        raise FileError(f"A file is named by a text or a path, not by {path!r}.") from error


def kind(path: str | Path, done: str = "written") -> str | None:
    """What is behind a path, such as "a file", "a folder" or "a device"; `None` where there is nothing."""
    with refusing(path, done):
        try:
            mode = named(path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _KINDS.get(stat.S_IFMT(mode), "something else")


def file_to_write(path: str | Path) -> Path:
    """The file that a path leads to, and that a result may be written to or replace. Raises where there can be none.

    A link leads to what is behind it, also where that is not there yet.
    """
    given = named(path)
    found = kind(given)
    if found == "a folder":
        raise FileError(f"{str(given)!r} is a folder. Give the name of a file.")
    if found not in (None, "a file"):
        raise FileError(f"{str(given)!r} is {found}. Results are written to files alone: give the name of one.")
    target = followed(given)
    _refuse_folder(given, target.parent)
    if found == "a file" and not target.exists():  # such as /dev/stdout, where that is a file without a name
        raise FileError(f"{str(given)!r} leads to a file that has no name. Give the name of one.")
    if found == "a file" and not os.access(target, os.W_OK):
        raise FileError(f"{str(given)!r} is read-only, and stays as it is. Give another name.")
    return target


def followed(path: Path) -> Path:
    """The path itself, or where it is a link, the one that it leads to."""
    with refusing(path):
        return Path(os.path.realpath(path)) if path.is_symlink() else path


def _refuse_folder(given: Path, parent: Path) -> None:
    """Refuse a folder in which no file can be made."""
    found = kind(parent)
    if found is None:
        raise FileError(f"{str(given)!r} cannot be written: there is no folder {str(parent)!r}. Make it first.")
    if found != "a folder":
        raise FileError(f"{str(given)!r} cannot be written: {str(parent)!r} is {found}, and no folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise FileError(f"{str(given)!r} cannot be written: the folder {str(parent)!r} is read-only for you.")


# ---- names in the making -------------------------------------------------------------------------------------------------

_STEM, _SUFFIX = 24, 8
"""Characters of a name that its temporary name has too, so that this fits wherever the name does."""


def temporary_affixes(target: Path) -> tuple[str, str]:
    """How the temporary name of a file or folder begins and ends; between the two is something random."""
    return f".{target.stem[:_STEM]}-", target.suffix[:_SUFFIX]


def umask() -> int:
    """The permissions that new files are not given."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ---- The endings of files that results are written to, and the check of a file's name before anything is computed.

FIGURES = ("svg", "png", "pdf")
PARQUET = "parquet"
TABLES = ("csv", PARQUET, "json")
NETCDF = "nc"
ZARR = "zarr"
PAGE = "html"
PAGES = (PAGE, "htm")
IMAGES = ("png", "jpg", "jpeg", "gif", "bmp", "webp", "tif", "tiff")
"""The endings of files that are read as images."""
SOUNDS = ("wav", "wave", "flac", "ogg", "mp3", "aiff", "aif")
"""The endings of files that are read as sounds."""

MAPS = (*FIGURES, *TABLES, NETCDF)
"""What maps and mixing ratios are written to."""

RESULTS = (*FIGURES, PAGE, *TABLES, NETCDF)
"""What analyses and explanations are saved to."""

ANSWERS = (*RESULTS, ZARR)
"""What explained answers are saved to."""


def ending(path: str | Path, known: Sequence[str], *, without: str = "") -> str:
    """The ending of a file to write, if it is known and the file can be written; raises before anything is computed.

    `without` is that of a name without an ending, where such names are taken.
    """
    target = named(path)
    suffix = target.suffix.lower().removeprefix(".") or without
    if suffix not in known:
        says = f"ends in .{suffix}" if suffix else "has no ending"
        raise FileError(f"{str(target)!r} {says}, which names no format. Known endings: {listing(known)}.")
    if suffix == ZARR and kind(target) is not None:
        raise FileError(f"{str(target)!r} is there already. Remove it, or give another name.")
    file_to_write(target)
    if suffix == PARQUET:
        require_extra("corpus", "Writing a Parquet file", "pyarrow")
    if suffix == ZARR:
        require_extra("zarr", "Writing a Zarr folder", "zarr")
    return suffix


# ---- Size and checksum of files: noted when a file is published, and compared before it is used again.


def checksum(path: Path) -> dict[str, object]:
    """What is noted of a file, as JSON values."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def difference(path: Path, noted: object) -> str | None:
    """How a file differs from what was noted of it, after its name; `None` where it does not."""
    try:
        found = checksum(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not isinstance(noted, dict) or not noted.keys() >= found.keys():
        return "was published without a checksum"
    if found["bytes"] != noted["bytes"]:
        return f"has {found['bytes']} bytes instead of {noted['bytes']}"
    return None if found["sha256"] == noted["sha256"] else "has another checksum than when it was published"


# ---- The files by which the folder of a corpus run is known, and whether its run is finished.

SETTINGS, MANIFEST = "run.json", "manifest.json"


def refuse_unfinished(folder: Path) -> None:
    """Refuse a folder without a finished run."""
    if kind(folder / MANIFEST, "read") != "a file":
        begun = kind(folder / SETTINGS, "read") is not None
        unfinished = " Its run is not finished: run the same command again." if begun else ""
        raise InputError(f"{str(folder)!r} holds no finished run (no {MANIFEST}).{unfinished}")
