"""Finished shards on disk: each is a folder that appears under its name only when it is whole, sealed by its checksums.

A shard holds the partial results of a fixed range of the corpus. As soon as two neighbours are done, they are merged into
one that is twice as long, and so on: a tree whose shape depends only on the indices of the shards. However long the corpus
is, a handful of folders is left, and the end of a run only has to read them in their order.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from normscope.errors import FileError
from normscope.experiments.partial import Partial
from normscope.runs import shard_files
from normscope.runs import shard_files as seal
from normscope.runs.mirror import Mirror

_COMPACT_EVERY = 4
"""Number of doublings after which rows are rewritten as one file; in between, files are reused as they are."""

_MOST_LEVELS = 40
"""No run has more than `2 ** 40` shards."""

_NAME = re.compile(r"(\d{6,})(?:-(\d{6,}))?")


@dataclass(frozen=True, order=True)
class Span:
    """`2 ** level` shards from `start` on, a multiple of that number."""

    start: int
    level: int = 0

    @classmethod
    def named(cls, name: str) -> Span | None:
        """The span that a folder's name stands for, if it stands for one."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        start = int(match[1])
        size = int(match[2] or start) - start + 1
        level = size.bit_length() - 1
        return cls(start, level) if size == 1 << level and start % size == 0 else None

    @property
    def name(self) -> str:
        return f"{self.start:06d}" if self.level == 0 else f"{self.start:06d}-{self.start + (1 << self.level) - 1:06d}"

    @property
    def parent(self) -> Span:
        return Span(self.start >> (self.level + 1) << (self.level + 1), self.level + 1)

    @property
    def sibling(self) -> Span:
        return Span(self.start ^ (1 << self.level), self.level)


class Shards:
    """The shards of one run, below a folder, and in a mirror if it has one. `prepare` finds out which are done."""

    def __init__(self, folder: Path, mirror: Mirror | None = None) -> None:
        self.folder, self._mirror = folder, mirror
        self._run = ""
        self._spans: set[Span] = set()
        self.unsealed: list[str] = []
        """The shards of an earlier version, without checksums, that `prepare` removed: they are computed again."""

    def done(self, index: int) -> bool:
        return self._holder(Span(index)) is not None

    def prepare(self, run: str) -> None:
        """Make the folder, remove what an interrupted run left half-written, and merge what it left unmerged.

        `run` is the identity of the run, which all shards have to share. Every one of them is checked before any work.
        """
        self._run = run
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for leftover in self.folder.glob(".*"):
                shutil.rmtree(leftover, ignore_errors=True)
            self._spans = {span for path in self.folder.iterdir() if (span := Span.named(path.name)) is not None}
        except OSError as error:
            raise FileError(f"The folder {str(self.folder)!r} cannot be used: {error.strerror or error}.") from error
        for span in sorted(self._spans):
            if not seal.is_sealed(self._path(span)):
                self.unsealed.append(span.name)
                self._remove(span)
        merged = {span for span in self._spans if self._holder(span.parent) is not None}
        for span in sorted(self._spans - merged):
            self._check(span)
        for span in merged:  # and not yet removed
            self._remove(span)
        for span in sorted(self._spans):
            self._merge(span)
        self._reflect()

    def write(self, index: int, partials: Mapping[str, Partial]) -> None:
        """Write a shard, and merge it with its neighbours as far as they are there."""
        self._write(Span(index), partials)
        self._merge(Span(index))
        self._reflect()

    def read(self) -> Iterator[dict[str, Partial]]:
        """The partial results, in the order of the corpus, one folder at a time; rows stay on disk."""
        for span in sorted(self._spans):
            yield self._read(span)

    def _path(self, span: Span) -> Path:
        return self.folder / span.name

    def _holder(self, span: Span) -> Span | None:
        """The folder that holds a span: its own, or that of a longer one."""
        while span.level <= _MOST_LEVELS:
            if span in self._spans:
                return span
            span = span.parent
        return None

    def _read(self, span: Span) -> dict[str, Partial]:
        self._check(span)
        return shard_files.read(self._path(span))

    def _check(self, span: Span) -> None:
        """Raises for a shard that is not as it was written, or does not match its name."""
        how = seal.broken_seal(self._path(span), self._run, span.name)
        if how is not None:
            where = str(self._path(span)) if self._mirror is None else self._mirror.shard(span.name)
            raise FileError(f"The shard {where!r} is damaged ({how}). Delete it and run the same command again.")

    def _merge(self, span: Span) -> None:
        while span in self._spans and span.sibling in self._spans:
            halves = sorted((span, span.sibling))
            first, second = map(self._read, halves)
            names = [*first, *(name for name in second if name not in first)]
            both = {name: first.get(name, Partial()).merge(second.get(name, Partial())) for name in names}
            self._write(span.parent, both)
            for half in halves:
                self._remove(half)
            span = span.parent

    def _write(self, span: Span, partials: Mapping[str, Partial]) -> None:
        """Writes a temporary folder next to the target, then moves it there in one step."""
        temporary = self.folder / f".{span.name}-{os.getpid()}"
        try:
            temporary.mkdir()
            shard_files.write(temporary, partials, compact=span.level % _COMPACT_EVERY == 0)
            seal.write_seal(temporary, self._run, span.name)
            if span.level:
                shard_files.keep(temporary)
            temporary.rename(self._path(span))
        except (OSError, pa.ArrowInvalid) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise FileError(f"The shard {str(self._path(span))!r} cannot be written: {reason}.") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._spans.add(span)

    def _reflect(self) -> None:
        if self._mirror is not None:
            self._mirror.keep_shards(self.folder, [span.name for span in self._spans])

    def _remove(self, span: Span) -> None:
        self._spans.discard(span)
        shutil.rmtree(self._path(span), ignore_errors=True)
