"""The endings of files that results are written to, and the check of a file's name before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from normscope.errors import FileError, listing

FIGURES = ("svg", "png", "pdf")
TABLES = ("csv", "parquet", "json")
NETCDF = "nc"
PAGE = "html"

MAPS = (*FIGURES, *TABLES, NETCDF)
"""What maps and mixing ratios are written to."""

EXPLANATIONS = (*FIGURES, PAGE, *TABLES, NETCDF)


def ending(path: str | Path, known: Sequence[str]) -> str:
    """The ending of a file to write, if it is known and the file can be written; raises before anything is computed."""
    target = Path(path)
    suffix = target.suffix.lower().removeprefix(".")
    if suffix not in known:
        says = f"ends in .{suffix}" if suffix else "has no ending"
        raise FileError(f"{str(target)!r} {says}, which names no format. Known endings: {listing(known)}.")
    if target.is_dir():
        raise FileError(f"{str(target)!r} is a folder. Give the name of a file.")
    if not target.parent.is_dir():
        raise FileError(f"{str(target)!r} cannot be written: there is no folder {str(target.parent)!r}. Make it first.")
    return suffix
