"""Finished shards on disk: each is a folder that appears under its name only when it is whole.

A shard holds the partial results of a fixed stretch of the corpus: sums and counts in one `.npz`, rows in Parquet files
that are read out of core.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from normscope.errors import FileError
from normscope.experiments.arrow import Schema, Table
from normscope.experiments.exact import Moments
from normscope.experiments.partial import Partial, Rows

_SUMS = "sums.npz"
_BETWEEN = "|"


class Shards:
    """The shards of one run, below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, index: int) -> Path:
        return self.folder / f"{index:06d}"

    def done(self, index: int) -> bool:
        return self.path(index).is_dir()

    def prepare(self) -> None:
        """Make the folder, and remove what an interrupted run left half-written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(".*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def write(self, index: int, partials: Mapping[str, Partial]) -> None:
        """Write a shard beside its place, then move it there in one step."""
        temporary = self.folder / f".{index:06d}-{os.getpid()}"
        try:
            temporary.mkdir()
            arrays: dict[str, np.ndarray] = {}
            for name, partial in partials.items():
                compact = partial.compacted()
                arrays |= _arrays(name, compact)
                for bag, rows in compact.rows.items():
                    table: Table = rows.chunks[0]
                    labelled = table.replace_schema_metadata({"keys": _BETWEEN.join(rows.keys)})
                    pq.write_table(labelled, temporary / f"{name}{_BETWEEN}{bag}.parquet", compression="zstd")
            np.savez(temporary / _SUMS, **arrays)  # pyright: ignore[reportArgumentType]
            temporary.rename(self.path(index))
        except OSError as error:
            raise FileError(
                f"The shard {str(self.path(index))!r} cannot be written: {error.strerror or error}."
            ) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def read(self, index: int) -> dict[str, Partial]:
        """The partial results of a shard; rows stay on disk."""
        folder = self.path(index)
        try:
            with np.load(BytesIO((folder / _SUMS).read_bytes()), allow_pickle=False) as file:
                arrays = {key: file[key] for key in file.files}
            bags = {path: pq.read_schema(path) for path in sorted(folder.glob("*.parquet"))}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, pa.ArrowInvalid) as error:
            raise FileError(
                f"The shard {str(folder)!r} is damaged ({error}). Delete that folder and run the same command again."
            ) from error
        return _partials(arrays, bags)


def _arrays(name: str, partial: Partial) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for key, moments in partial.moments.items():
        arrays |= {_BETWEEN.join((name, "moments", key, part)): array for part, array in moments.arrays().items()}
    return arrays | {_BETWEEN.join((name, "counts", key)): array for key, array in partial.counts.items()}


def _partials(arrays: Mapping[str, np.ndarray], bags: Mapping[Path, Schema]) -> dict[str, Partial]:
    partials: dict[str, Partial] = {}
    parts: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for key, array in arrays.items():
        name, kind, *rest = key.split(_BETWEEN)
        partial = partials.setdefault(name, Partial())
        if kind == "counts":
            partial.counts[rest[0]] = array
        else:
            parts.setdefault((name, rest[0]), {})[rest[1]] = array
    for (name, key), moments in parts.items():
        partials[name].moments[key] = Moments.from_arrays(moments)
    for path, schema in bags.items():
        name, bag = path.stem.split(_BETWEEN)
        keys = (schema.metadata or {}).get(b"keys", b"").decode()
        partials.setdefault(name, Partial()).rows[bag] = Rows((path,), tuple(keys.split(_BETWEEN)) if keys else ())
    return partials
