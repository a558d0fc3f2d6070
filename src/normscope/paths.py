"""What paths lead to: where a result may be written and where it may not, said before anything is computed.

A link is followed to the file behind it. Nothing but a regular file is ever written or replaced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from normscope.errors import FileError, NormscopeError

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


def kind(path: str | Path, done: str = "written") -> str | None:
    """What is behind a path, such as "a file", "a folder" or "a device"; `None` where there is nothing."""
    with refusing(path, done):
        try:
            mode = Path(path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _KINDS.get(stat.S_IFMT(mode), "something else")


def file_to_write(path: str | Path) -> Path:
    """The file that a path leads to, and that a result may be written to or replace. Raises where there can be none.

    A link leads to what is behind it, also where that is not there yet.
    """
    given = Path(path)
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
