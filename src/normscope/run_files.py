"""The files by which the folder of a corpus run is known, and whether its run is finished."""

from __future__ import annotations

from pathlib import Path

from normscope.errors import InputError

SETTINGS, MANIFEST = "run.json", "manifest.json"


def refuse_unfinished(folder: Path) -> None:
    """Refuse a folder without a finished run."""
    if not (folder / MANIFEST).is_file():
        unfinished = " Its run is not finished: run the same command again." if (folder / SETTINGS).exists() else ""
        raise InputError(f"{str(folder)!r} holds no finished run (no {MANIFEST}).{unfinished}")
