"""The files of a shard: partial results, and the seal that proves that they are complete.

Sums and counts are in one `.npz` file, rows in Parquet files that stay on disk. The seal records which shard of which run it
is, with the size and checksum of each file. It is written before the shard gets its name, and checked whenever the shard is
read: a flipped bit, a lost file, or the folder of another shard would otherwise become a wrong table.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from normscope.errors import FileError
from normscope.experiments.partial import Moments, Partial, Rows
from normscope.experiments.tables import Schema, Table
from normscope.paths import checksum, difference

SEAL = "shard.json"


def write_seal(folder: Path, run: str, name: str) -> None:
    """Seals a folder as the shard of that name, of the run with that identity."""
    files = {path.name: checksum(path) for path in sorted(folder.iterdir())}
    seal = {"run": run, "shard": name, "files": files}
    (folder / SEAL).write_text(json.dumps(seal, indent=1) + "\n", encoding="utf-8")


def is_sealed(folder: Path) -> bool:
    """Whether a shard has a seal; those of the first version 0.2 have none."""
    return (folder / SEAL).exists()


def broken_seal(folder: Path, run: str, name: str) -> str | None:
    """Why a folder is not the shard that it should be, as it was published; `None` if it is."""
    try:
        seal: object = json.loads((folder / SEAL).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return f"its {SEAL} cannot be read: {error}"
    if not isinstance(seal, dict) or not isinstance(seal.get("files"), dict):
        return f"its {SEAL} is not that of a shard"
    if seal.get("run") != run:
        return "it is a shard of another run"
    if seal.get("shard") != name:
        return f"it is the shard {seal.get('shard')}"
    files = cast("dict[str, object]", seal["files"])
    for file, noted in files.items():
        how = difference(folder / file, noted) if Path(file).name == file else "is no file of a shard"
        if how is not None:
            return f"{file} {how}"
    strange = sorted(path.name for path in folder.glob("[!.]*") if path.name not in (SEAL, *files))
    return f"{strange[0]} is not one of its files" if strange else None


# ---- Partial results -------------------------------------------------------------------------------------------------
#
# Rows that are already in files are reused as they are, or rewritten as one file, in constant memory.

_SUMS = "sums.npz"
_BETWEEN = "|"
_KEYS = "keys"


def write(folder: Path, partials: Mapping[str, Partial], *, compact: bool = True) -> None:
    """Write partial results into an empty folder; with `compact`, every bag of rows as one file."""
    arrays: dict[str, np.ndarray] = {}
    for name, partial in partials.items():
        arrays |= _arrays(name, partial)
        for bag, rows in partial.rows.items():
            _write_rows(folder, f"{name}{_BETWEEN}{bag}", rows, compact=compact)
    np.savez(folder / _SUMS, **arrays)  # pyright: ignore[reportArgumentType]


def read(folder: Path) -> dict[str, Partial]:
    """The partial results in a folder; rows stay on disk."""
    try:
        with np.load(BytesIO((folder / _SUMS).read_bytes()), allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        bags = {path: pq.read_schema(path) for path in sorted(folder.glob("[!.]*.parquet"))}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, pa.ArrowInvalid) as error:
        raise FileError(
            f"The shard {str(folder)!r} is damaged ({error}). Delete it and run the same command again."
        ) from error
    return _partials(arrays, bags)


def keep(folder: Path) -> None:
    """Flushes the files of a folder to disk, before the files that they replace are removed."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


# ---- sums --------------------------------------------------------------------------------------------------------------


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
        name, bag, *_ = path.stem.split(_BETWEEN)
        keys = (schema.metadata or {}).get(_KEYS.encode(), b"").decode()
        rows = Rows((path,), tuple(keys.split(_BETWEEN)) if keys else ())
        rows_by_name = partials.setdefault(name, Partial()).rows
        rows_by_name[bag] = rows_by_name[bag] + rows if bag in rows_by_name else rows
    return partials


# ---- rows --------------------------------------------------------------------------------------------------------------


def _write_rows(folder: Path, name: str, rows: Rows, *, compact: bool) -> None:
    paths = [chunk for chunk in rows.chunks if isinstance(chunk, Path)]
    if not paths:
        table: Table = rows.compacted()
        labelled = table.replace_schema_metadata({_KEYS: _BETWEEN.join(rows.keys)})
        pq.write_table(labelled, folder / f"{name}.parquet", compression="zstd")
    elif not (compact and _joined(folder / f"{name}.parquet", rows, paths)):
        for number, path in enumerate(paths):
            _take_over(path, folder / f"{name}{_BETWEEN}{number:04d}.parquet")


def _take_over(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError:  # a file system without links
        shutil.copyfile(path, target)


def _joined(target: Path, rows: Rows, paths: list[Path]) -> bool:
    """Writes the rows of all files as one; returns whether that was possible."""
    schemas = [pq.read_schema(path) for path in paths]
    if any(not schema.equals(schemas[0]) for schema in schemas):
        return False
    if rows.keys:
        return _summed(target, rows, schemas[0])
    with pq.ParquetWriter(target, schemas[0], compression="zstd") as writer:
        for path in paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    writer.write_batch(batch)
    return True


def _summed(target: Path, rows: Rows, schema: Schema) -> bool:
    """Writes one row for rows of equal keys, unless a sum would leave the range of its column."""
    keys = ", ".join(f'"{key}"' for key in rows.keys)
    try:
        with rows.database() as connection:
            connection.execute("SET preserve_insertion_order = false")
            types = {name: kind for name, kind, *_ in connection.execute("DESCRIBE rows").fetchall()}
            columns = ", ".join(
                f'"{name}"' if name in rows.keys else f'CAST(sum("{name}") AS {types[name]}) AS "{name}"'
                for name in schema.names
            )
            connection.execute(
                f"COPY (SELECT {columns} FROM rows GROUP BY {keys}) TO '{str(target).replace(chr(39), 2 * chr(39))}' "
                f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{_KEYS}: '{_BETWEEN.join(rows.keys)}'}})"
            )
    except (duckdb.ConversionException, duckdb.OutOfRangeException):
        target.unlink(missing_ok=True)
        return False
    return True
