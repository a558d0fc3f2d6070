"""The seal of a shard: which shard of which run it is, with the size and checksum of each of its files.

It is written before the shard has its name, and checked whenever the shard is read: a flipped bit, a lost file, or the
folder of another shard in this one's place would otherwise become a wrong table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from normscope.checksums import checksum, difference

SEAL = "shard.json"


def write(folder: Path, run: str, name: str) -> None:
    """Seal a folder as the shard of that name, of the run with that identity."""
    files = {path.name: checksum(path) for path in sorted(folder.iterdir())}
    seal = {"run": run, "shard": name, "files": files}
    (folder / SEAL).write_text(json.dumps(seal, indent=1) + "\n", encoding="utf-8")


def is_sealed(folder: Path) -> bool:
    """Whether a shard has a seal; those of the first version 0.2 have none."""
    return (folder / SEAL).exists()


def broken(folder: Path, run: str, name: str) -> str | None:
    """What shows that a folder is not the shard it should be, as it was published; `None` where nothing does."""
    try:
        seal: Any = json.loads((folder / SEAL).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return f"its {SEAL} cannot be read: {error}"
    if not isinstance(seal, dict) or not isinstance(seal.get("files"), dict):
        return f"its {SEAL} is not that of a shard"
    if seal.get("run") != run:
        return "it is a shard of another run"
    if seal.get("shard") != name:
        return f"it is the shard {seal.get('shard')}"
    files = cast("dict[str, Any]", seal["files"])
    for file, noted in files.items():
        how = difference(folder / file, noted) if Path(file).name == file else "is no file of a shard"
        if how is not None:
            return f"{file} {how}"
    strange = sorted(path.name for path in folder.glob("[!.]*") if path.name not in (SEAL, *files))
    return f"{strange[0]} is none of its files" if strange else None
