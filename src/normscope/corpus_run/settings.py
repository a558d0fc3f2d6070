"""What a run was asked for, to be compared: a folder belongs to one run, and only the same run may go on in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normscope.errors import FileError, InputError, listing
from normscope.files import replacing

_FILE = "run.json"


class AnotherRunError(InputError):
    """The output folder holds a run with other settings."""


def claim(folder: Path, settings: Mapping[str, Any], *, overwrite: bool) -> None:
    """Make the folder that of this run, or find that it already is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"The folder {str(folder)!r} cannot be made: {error.strerror or error}.") from error
    wanted = json.loads(json.dumps(settings, default=str))
    path = folder / _FILE
    if path.exists():
        found = _read(path)
        if found == wanted:
            return
        if not overwrite:
            raise AnotherRunError(
                f"{str(folder)!r} holds another run: it differs in {listing(differences(found, wanted))}. "
                f"Choose another folder (--out), or replace that run (--overwrite)."
            )
    elif not overwrite and any(folder.iterdir()):
        raise AnotherRunError(f"{str(folder)!r} is not empty and holds no run. Choose another folder (--out).")
    for name in ("shards", "tables", "figures"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "manifest.json").unlink(missing_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(wanted, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{str(path)!r} cannot be read: {error}.") from error


def differences(found: Any, wanted: Any, prefix: str = "") -> list[str]:
    """The settings in which two runs differ, by their dotted names."""
    if not isinstance(found, dict) or not isinstance(wanted, dict):
        return [] if found == wanted else [prefix or "its settings"]
    names: list[str] = sorted({*found, *wanted})
    return [
        difference
        for name in names
        for difference in differences(found.get(name), wanted.get(name), f"{prefix}.{name}".lstrip("."))
    ]
