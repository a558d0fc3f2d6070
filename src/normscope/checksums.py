"""Size and checksum of files: noted when a file is published, and compared before it is used again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any


def checksum(path: Path) -> dict[str, Any]:
    """What is noted of a file, as JSON values."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def difference(path: Path, noted: Any) -> str | None:
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
