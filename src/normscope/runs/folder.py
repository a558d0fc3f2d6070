"""The folder of a run: it belongs to one run, and one process at a time works in it. It may have a mirror at a URL.

Nothing in a folder is changed unless the folder is empty or a file of a run shows that it belongs to one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from normscope.errors import FileError, InputError, listing
from normscope.paths import MANIFEST, SETTINGS, followed, kind, refusing
from normscope.results.files import replacing, sweep
from normscope.runs.mirror import Mirror
from normscope.runs.settings import LAYOUT, differences, identity
from normscope.runs.shards import Shards

_LOCK = ".run.lock"
_FOLDERS = ("shards", "tables", "figures")


class AnotherRunError(InputError):
    """The output folder holds a run with other settings, or files that do not belong to a run."""


class RunInProgressError(InputError):
    """Another process is running in the output folder."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, locked. Made by `locked_folder`."""

    path: Path
    mirror: Mirror | None = None

    @property
    def name(self) -> str:
        """The path or URL of the run."""
        return str(self.path) if self.mirror is None else self.mirror.url

    @cached_property
    def shards(self) -> Shards:
        return Shards(self.path / "shards", self.mirror)

    def claim(self, record: dict[str, object], *, overwrite: bool) -> None:
        """Claims the folder for the run with these settings, or checks that it is its own; removes unfinished files."""
        existing = _record(self.path)
        if existing != record:
            if existing is not None and not overwrite:
                raise AnotherRunError(_refusal(self.name, existing, record))
            self._clear()
            with replacing(self.path / SETTINGS) as temporary:
                temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            if self.mirror is not None:
                self.mirror.put(self.path / SETTINGS, SETTINGS)
        elif self.mirror is not None:
            self.mirror.fetch_shards(self.path / "shards")
        sweep(self.path, SETTINGS, MANIFEST, "report.html")
        sweep(self.path / "tables")
        sweep(self.path / "figures")
        self.shards.prepare(identity(record))

    def _clear(self) -> None:
        try:
            for name in _FOLDERS:
                if (self.path / name).exists():
                    shutil.rmtree(self.path / name)
            (self.path / MANIFEST).unlink(missing_ok=True)
            if self.mirror is not None:
                self.mirror.clear(sorted(self.mirror.names() & {*_FOLDERS, MANIFEST}))
        except OSError as error:
            raise FileError(
                f"The older run in {str(self.path)!r} cannot be removed: {error.strerror or error}."
            ) from error

    def discard(self) -> None:
        """Remove all that a run of no more use has in the folder, but not what is of nobody's run."""
        self._clear()
        (self.path / SETTINGS).unlink(missing_ok=True)

    def publish(self) -> None:
        """Copy what a finished run has written to the mirror, its manifest last."""
        if self.mirror is None:
            return
        for name in ("tables", "figures"):
            for path in sorted((self.path / name).iterdir()):
                self.mirror.put(path, f"{name}/{path.name}")
        self.mirror.put(self.path / MANIFEST, MANIFEST)


@contextmanager
def mirrored_folder(url: str) -> Generator[RunFolder]:
    """A temporary folder on this machine, with the run at a URL as its mirror."""
    mirror = Mirror(url)
    names = {name for name in mirror.names() if not name.startswith(".")}
    if names and SETTINGS not in names:
        raise AnotherRunError(_not_empty(mirror.url))
    with TemporaryDirectory(prefix="normscope-run-") as folder:
        if names:
            mirror.fetch(SETTINGS, Path(folder) / SETTINGS)
            _record(Path(folder))
        yield RunFolder(Path(folder), mirror)


@contextmanager
def locked_folder(path: Path) -> Generator[RunFolder]:
    """The folder, created if needed and locked. Without a claim it is left unchanged."""
    created = _make(path)
    lock = FileLock(str(path / _LOCK), timeout=0)
    try:
        _record(path)  # raises for a folder that is not a run's before anything is written
        _acquire(lock, path)
        try:
            yield RunFolder(path)
        finally:
            if not (path / SETTINGS).exists():
                with suppress(OSError):  # some systems keep an open file
                    Path(lock.lock_file).unlink()
            lock.release()
    finally:
        if not (path / SETTINGS).exists():
            _unmake(created)


def _acquire(lock: FileLock, path: Path) -> None:
    try:
        lock.acquire()
    except Timeout as error:
        raise RunInProgressError(
            f"Another process is running in {str(path)!r}. Wait until it ends, or choose another folder (--out)."
        ) from error
    except OSError as error:
        raise FileError(f"The folder {str(path)!r} cannot be written: {error.strerror or error}.") from error


def _make(path: Path) -> list[Path]:
    """Create a folder, or the target of a link; returns the folders that were created, innermost first."""
    folder = followed(path)
    if kind(folder, "made") not in (None, "a folder"):
        raise FileError(f"{str(path)!r} is {kind(folder)}, and a run needs a folder. Choose another name (--out).")
    missing = [parent for parent in (folder, *folder.parents) if kind(parent, "made") is None]
    with refusing(path, "made"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            _unmake([parent for parent in missing[1:] if os.path.exists(parent)])
            raise
    return missing


def _unmake(folders: list[Path]) -> None:
    with suppress(OSError):  # another run has moved in
        for folder in folders:
            folder.rmdir()


def _record(path: Path) -> dict[str, object] | None:
    """The settings of the run in a folder, or `None` if the folder is empty. Raises for any other folder."""
    file = path / SETTINGS
    if kind(file, "read") is None:
        with refusing(path, "used"):
            contents = [content.name for content in path.iterdir()]
        if any(name != _LOCK and not name.startswith(".run-") for name in contents):
            raise AnotherRunError(_not_empty(str(path)))
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{str(file)!r} cannot be read: {error}.") from error
    if not isinstance(record, dict) or not {"normscope", "experiments", "shard_size"} <= set(record):
        raise AnotherRunError(
            f"{str(file)!r} is not that of a normscope run: nothing in its folder is replaced. "
            f"Choose another folder (--out)."
        )
    return record


def _not_empty(name: str) -> str:
    return f"{name!r} is not empty and holds no run: nothing in it is replaced. Choose another folder (--out)."


def _refusal(name: str, existing: dict[str, object], record: dict[str, object]) -> str:
    if existing.get("layout") != LAYOUT:
        how = f"was created by another version of normscope ({existing['normscope']}), and cannot be resumed"
    else:
        how = f"differs in {listing(differences(existing, record))}"
    return f"{name!r} holds another run: it {how}. Choose another folder (--out), or replace that run (--overwrite)."
