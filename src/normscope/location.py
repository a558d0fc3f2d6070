"""Where a model is kept, a folder or a name on the hub, and what it is called.

Nothing large is imported here, so that a mistyped path is refused at once.
"""

from __future__ import annotations

import re
from pathlib import Path

from normscope.errors import ModelError, listing

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_CACHED = re.compile(r"models--(?P<name>[^/]+)/snapshots/[^/]+$")
"""A model's folder in the cache of the hub."""

_MOST_NAMED = 5


def is_hub_name(location: str) -> bool:
    """Whether this is the name of a model on the hub: no folder here, and a name that the hub allows."""
    return _HUB_NAME.fullmatch(location) is not None and not Path(location).exists()


def model_name(location: str) -> str:
    """What a model is called in titles, files and messages: never by a path of someone's machine."""
    if is_hub_name(location):
        return location
    path = Path(location).resolve().as_posix()
    cached = _CACHED.search(path)
    return cached["name"].replace("--", "/", 1) if cached else path.rsplit("/", 1)[-1]


def refuse_no_model(location: str) -> None:
    """Refuse a path at which there is no saved model, with what is there."""
    folder = Path(location)
    if is_hub_name(location) or (folder / "config.json").is_file():
        return
    if folder.is_file():
        raise ModelError(
            f"No model was found under {location!r}: it is a file. Name the folder with config.json and the weights."
        )
    if not folder.is_dir():
        raise ModelError(
            f"No model was found under {location!r}: there is no such folder (a saved model is a folder with a "
            f"config.json), and it is not a name that the hub allows."
        )
    names = sorted(path.name for path in folder.iterdir())
    found = (
        f"it holds {listing(names[:_MOST_NAMED])}{' and more' if len(names) > _MOST_NAMED else ''}"
        if names
        else "it is empty"
    )
    raise ModelError(f"No model was found under {location!r}: the folder has no config.json; {found}.")
