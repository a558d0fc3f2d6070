"""The folder of a run at a URL that fsspec reaches, such as a bucket of an object store.

The run itself works in a folder on this machine. Its settings, every finished shard (one file, which has its name only when
it is whole) and in the end its tables are copied to the URL, from where any machine can resume it.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from normscope.errors import FileError, InputError

_ARCHIVE = ".tar"
_SHARDS = "shards"


def is_url(out: str | Path | None) -> bool:
    """Whether an output folder is a URL and not a path."""
    return isinstance(out, str) and "://" in out


class Mirror:
    """Copies of a run's files at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = _file_system(self.url)

    def names(self, folder: str = "") -> set[str]:
        """The names below a folder; those that begin with a dot are unfinished files."""
        with self._reached():
            self._files.invalidate_cache()
            try:
                paths: list[str] = self._files.ls(self._path(folder), detail=False)
            except FileNotFoundError:
                return set()
            return {path.rstrip("/").rpartition("/")[2] for path in paths}

    def fetch(self, name: str, target: Path) -> None:
        """Copy a file from the URL."""
        with self._reached():
            target.write_bytes(self._files.cat_file(self._path(name)))

    def put(self, source: Path, name: str) -> None:
        """Copy a file to the URL."""
        with self._reached(), self._making(name) as target:
            target.write(source.read_bytes())

    def clear(self, names: Iterable[str]) -> None:
        """Remove files and folders."""
        with self._reached():
            for name in names:
                self._files.rm(self._path(name), recursive=True)

    # ---- shards --------------------------------------------------------------------------------------------------------

    def shard(self, name: str) -> str:
        """The URL of a shard."""
        return f"{self.url}/{_SHARDS}/{name}{_ARCHIVE}"

    def fetch_shards(self, folder: Path) -> None:
        """Copy all shards from the URL, each into its folder."""
        folder.mkdir(exist_ok=True)
        for name in sorted(self._shards()):
            with self._reached(), self._files.open(self._path(_SHARDS, name), "rb") as file:
                try:
                    with tarfile.open(fileobj=file, mode="r|") as archive:
                        _unpack(archive, folder / name.removesuffix(_ARCHIVE))
                except tarfile.TarError as error:
                    where = self.shard(name.removesuffix(_ARCHIVE))
                    raise FileError(
                        f"The shard {where!r} is damaged ({error}). Delete it and run the same command again."
                    ) from error

    def keep_shards(self, folder: Path, names: Iterable[str]) -> None:
        """Makes the shards at the URL exactly these: new ones are copied before old ones are removed."""
        wanted, present = {f"{name}{_ARCHIVE}" for name in names}, self._shards()
        for name in sorted(wanted - present):
            with self._reached(), self._making(_SHARDS, name) as file, tarfile.open(fileobj=file, mode="w|") as archive:
                for path in sorted((folder / name.removesuffix(_ARCHIVE)).iterdir()):
                    archive.add(path, path.name)
        self.clear(f"{_SHARDS}/{name}" for name in sorted(present - wanted))

    def _shards(self) -> set[str]:
        return {name for name in self.names(_SHARDS) if name.endswith(_ARCHIVE) and not name.startswith(".")}

    # ---- paths and errors ----------------------------------------------------------------------------------------------

    def _path(self, *names: str) -> str:
        return "/".join((self._root, *filter(None, names)))

    @contextmanager
    def _making(self, *names: str) -> Generator[Any]:
        """A file that gets its name when the block ends without an error."""
        *folders, name = "/".join(names).split("/")
        self._files.makedirs(self._path(*folders), exist_ok=True)
        temporary = self._path(*folders, f".{name}-{os.getpid()}")
        try:
            with self._files.open(temporary, "wb") as file:
                yield file
            self._files.mv(temporary, self._path(*folders, name))
        except BaseException:
            if self._files.exists(temporary):
                self._files.rm(temporary)
            raise

    @contextmanager
    def _reached(self) -> Generator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            raise FileError(f"{self.url!r} cannot be used: {error}.") from error


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write plain files with plain names, and nothing else: the filters of tarfile came with Python 3.11.4 only."""
    folder.mkdir()
    for member in archive:
        content = archive.extractfile(member) if member.isfile() else None
        if content is None or Path(member.name).name != member.name:
            raise tarfile.TarError(f"{member.name!r} is not a file of a shard")
        with content, (folder / member.name).open("wb") as target:
            shutil.copyfileobj(content, target)


def _file_system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # noqa: PLC0415  (only runs that need it)

    try:
        files, root = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InputError(
            f"The URL {url!r} cannot be used: {error}. Name a folder, or install what it needs."
        ) from error
    return files, str(root).rstrip("/")
