"""The files by which the folder of a corpus run is known, and whether its run is finished."""

from __future__ import annotations

from pathlib import Path

from normscope.errors import FileError, InputError

SETTINGS, MANIFEST = "run.json", "manifest.json"


def refuse_unfinished(folder: Path) -> None:
    """Refuse a folder without a finished run."""
    try:
        finished, begun = (folder / MANIFEST).is_file(), (folder / SETTINGS).exists()
    except OSError as error:  # such as a name that is too long
        raise FileError(f"{str(folder)!r} cannot be read: {error.strerror or error}.") from error
    if not finished:
        unfinished = " Its run is not finished: run the same command again." if begun else ""
        raise InputError(f"{str(folder)!r} holds no finished run (no {MANIFEST}).{unfinished}")
