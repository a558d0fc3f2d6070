"""The files by which the folder of a corpus run is known, and whether its run is finished."""

from __future__ import annotations

from pathlib import Path

from normscope.errors import InputError
from normscope.paths import kind

SETTINGS, MANIFEST = "run.json", "manifest.json"


def refuse_unfinished(folder: Path) -> None:
    """Refuse a folder without a finished run."""
    if kind(folder / MANIFEST, "read") != "a file":
        begun = kind(folder / SETTINGS, "read") is not None
        unfinished = " Its run is not finished: run the same command again." if begun else ""
        raise InputError(f"{str(folder)!r} holds no finished run (no {MANIFEST}).{unfinished}")
