"""The endings of files that results are written to, and the check of a file's name before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from normscope.errors import FileError, listing
from normscope.paths import file_to_write

FIGURES = ("svg", "png", "pdf")
TABLES = ("csv", "parquet", "json")
NETCDF = "nc"
PAGE = "html"
PAGES = (PAGE, "htm")

MAPS = (*FIGURES, *TABLES, NETCDF)
"""What maps and mixing ratios are written to."""

RESULTS = (*FIGURES, PAGE, *TABLES, NETCDF)
"""What analyses and explanations are saved to."""


def ending(path: str | Path, known: Sequence[str], *, without: str = "") -> str:
    """The ending of a file to write, if it is known and the file can be written; raises before anything is computed.

    `without` is that of a name without an ending, where such names are taken.
    """
    target = Path(path)
    suffix = target.suffix.lower().removeprefix(".") or without
    if suffix not in known:
        says = f"ends in .{suffix}" if suffix else "has no ending"
        raise FileError(f"{str(target)!r} {says}, which names no format. Known endings: {listing(known)}.")
    file_to_write(target)
    return suffix
