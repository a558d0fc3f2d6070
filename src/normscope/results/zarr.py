"""Zarr folders whose every file is known by its checksum: what is missing, damaged or not ours is refused, never filled in.

A folder may come from anyone: no link in it is followed, and no codec runs that normscope does not write with. The package
zarr is an extra, so this module is imported only where a folder is written or read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from xarray.backends import BackendArray
from xarray.core import indexing
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from normscope.chain.measure import StackRequest, query_positions
from normscope.chain.trace import LayerTrace
from normscope.decompose import LayerResult
from normscope.errors import FileError, InputError
from normscope.inputs import TokenSequence
from normscope.methods.norms import Decomposition
from normscope.passes import Pass, Tell
from normscope.paths import file_to_write, kind, reason, refusing, temporary_affixes, umask
from normscope.results import from_pass as results
from normscope.results import schema
from normscope.results.analysis import Analysis
from normscope.results.files import escaped, refuse_foreign, unescaped
from normscope.scopes import Scope

RECORD = ".checksums.json"
"""The file with the size and checksum of every other. It lies in the folder of an array, where Zarr expects anything."""

_CODECS = ("blosc", "zstd", "lz4", "zlib", "gzip", "vlen-utf8")
_DTYPE = re.compile(r"[<>|][fiu][1248]|\|b1|\|O|[<>]U\d{1,4}")
_EXPANSION = 1000
_ROOM = 65536
"""How many times its own size an array may take in memory, and as if how much larger it were: blank ones take no space."""

_MOST_FILES = 5_000_000

Record = dict[str, tuple[int, int]]
"""Size and checksum (CRC-32) of every file, by its name below the folder."""


class ZarrStore(WrapperStore[LocalStore]):
    """A Zarr folder. It records what is written, and returns nothing that differs from it.

    `needed` are files that have to be there although no record says so, as in folders of earlier versions.
    """

    def __init__(self, store: LocalStore, record: Record | None = None, needed: Collection[str] = ()) -> None:
        super().__init__(store)
        self.record = {} if record is None else record
        self.needed = needed

    @classmethod
    def at(cls, folder: Path, record: Record | None = None, needed: Collection[str] = (), **options: Any) -> ZarrStore:
        return cls(LocalStore(folder, **options), record, needed)

    def _with_store(self, store: LocalStore) -> ZarrStore:
        return type(self)(store, self.record, self.needed)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        found = await super().get(key, prototype, byte_range)
        expected = self.record.get(key)
        if found is None:
            if expected is not None or key in self.needed:
                raise FileError(f"{str(self._store.root)!r} is damaged: {key!r} is missing.")
        elif expected is not None and byte_range is None and _checksum(found.to_bytes()) != expected:
            raise FileError(f"{str(self._store.root)!r} is damaged: {key!r} is not what was written.")
        return found

    async def set(self, key: str, value: Buffer) -> None:
        await super().set(key, value)
        self.record[key] = _checksum(value.to_bytes())

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self.exists(key):
            await self.set(key, value)

    def write_record(self, array: str) -> None:
        """Put the record into the folder of an array."""
        path = self._store.root / array / RECORD
        path.write_text(json.dumps(self.record, indent=None, separators=(",", ":")), encoding="utf-8")


def open_checked(folder: Path, array: str) -> ZarrStore:
    """The store of a folder in which everything is that should be, and nothing that does harm; `array` is read lazily.

    Raises:
        FileError: something is missing, damaged, or no part of a result.
    """
    files = dict(_files(folder))
    record = _record(folder / array / RECORD)
    for name, (size, checksum) in record.items():
        if files.get(name) != size:
            raise FileError(
                f"{str(folder)!r} is damaged: {name!r} is {'missing' if name not in files else 'cut short'}."
            )
        if name.endswith((".zarray", ".zattrs", ".zgroup")) and _checksum((folder / name).read_bytes())[1] != checksum:
            raise FileError(f"{str(folder)!r} is damaged: {name!r} is not what was written.")
    arrays = {
        member: _counts(folder, member, files)
        for member, _, file in (name.rpartition("/") for name in files)
        if file == ".zarray"
    }
    needed = {
        chunk
        for name, counts in arrays.items()
        if name == array or record  # in folders of earlier versions, blank chunks are left out
        for chunk in _chunks(folder, name, counts, files)
    }
    return ZarrStore.at(folder, record, needed, read_only=True)


def lazy(store: ZarrStore, array: str, path: Path) -> xr.Variable:
    """An array that is loaded lazily, chunk by chunk."""
    values: object = zarr.open_array(store, path=array, mode="r", zarr_format=2)
    attributes = dict(values.attrs)
    dimensions = attributes.pop("_ARRAY_DIMENSIONS")
    return xr.Variable(dimensions, indexing.LazilyIndexedArray(_Lazy(values, path)), attributes)


class _Lazy(BackendArray):
    """An array on disk, whose errors say which folder cannot be read."""

    def __init__(self, values: Any, path: Path) -> None:
        self.values, self.path = values, path
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[int | slice, ...]) -> np.ndarray:
        try:
            return np.asarray(self.values[key])
        except FileError:
            raise
        except Exception as error:  # whatever Zarr and its codecs say of a chunk that is damaged
            raise FileError(f"{str(self.path)!r} cannot be read (any more): {error}") from error


# ---- what is in a folder -------------------------------------------------------------------------------------------------


def _files(folder: Path, below: str = "", depth: int = 1) -> Iterator[tuple[str, int]]:
    """The files of a group and of its arrays, and their sizes. Links, pipes and the like are refused."""
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number > _MOST_FILES:
                raise FileError(f"{str(folder)!r} has more files than a result has.")
            if entry.is_file(follow_symlinks=False):
                yield below + entry.name, entry.stat(follow_symlinks=False).st_size
            elif not entry.is_dir(follow_symlinks=False):
                raise FileError(
                    f"{str(folder)!r} is not read: {entry.name!r} in it is no file, but a link or the like."
                )
            elif depth:
                yield from _files(Path(entry.path), f"{below}{entry.name}/", depth - 1)


def _record(path: Path) -> Record:
    """The record of a folder; one of an earlier version has none."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): (int(size), int(checksum)) for name, (size, checksum) in content.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"{str(path)!r} is damaged: {error}.") from error


def _counts(folder: Path, array: str, files: dict[str, int]) -> list[int]:
    """How many chunks an array has along each axis. Refuses one that runs other codecs, or takes more than it can hold."""
    facts = json.loads((folder / array / ".zarray").read_text(encoding="utf-8"))
    shape, chunks, dtype = facts["shape"], facts["chunks"], str(facts["dtype"])
    codecs = {each["id"] for each in (*(facts["filters"] or ()), *filter(None, [facts["compressor"]]))}
    sized = len(shape) == len(chunks) and all(isinstance(size, int) and size > 0 for size in (*shape, *chunks))
    ours = facts["zarr_format"] == 2 and facts.get("dimension_separator", ".") == "." and _DTYPE.fullmatch(dtype)
    if not (sized and ours and codecs <= set(_CODECS)):
        raise FileError(f"{str(folder)!r} is not read: its {array!r} is not stored as results are.")
    counts = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
    stored = sum(size for name, size in files.items() if name.startswith(f"{array}/"))
    item = 8 if dtype == "|O" else np.dtype(dtype).itemsize
    if prod(counts) * prod(chunks) * item > _EXPANSION * (stored + _ROOM):
        raise FileError(f"{str(folder)!r} is not read: its {array!r} would take far more memory than it holds.")
    return counts


def _chunks(folder: Path, array: str, counts: list[int], files: dict[str, int]) -> Iterator[str]:
    """The names of all chunks of an array, which have to be there."""
    places = product(*map(range, counts)) if counts else [(0,)]
    for place in places:
        name = f"{array}/{'.'.join(map(str, place))}"
        if name not in files:
            raise FileError(f"{str(folder)!r} is damaged: {name!r} is missing.")
        yield name


def _checksum(content: bytes) -> tuple[int, int]:
    return len(content), zlib.crc32(content)


# ---- Results that do not fit into memory: maps go to a Zarr folder layer by layer, and open like any other result.
#
# Owns the folder while it is made: it has another name until it is complete.


def created(
    store: ZarrStore, name: str, dimensions: Sequence[str], shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any
) -> Any:
    """An array of a folder in the making, to be written block by block."""
    array: Any = zarr.open_group(store, mode="a", zarr_format=2).create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill_value=np.nan,
        config={"write_empty_chunks": True},  # so that what is missing is known to be lost
    )
    array.attrs["_ARRAY_DIMENSIONS"] = list(dimensions)
    return array


_ROWS = 256
"""Query rows of a chunk: they are read together when a part of a map is accessed."""


class MapStore:
    """The maps of one input in a folder in the making: `[scope, layer, query, key]`, written block by block."""

    def __init__(self, store: ZarrStore, layers: Sequence[int], queries: int) -> None:
        self.store, self.layers, self.queries = store, list(layers), queries
        self._array: Any = None
        self._written = dict.fromkeys(layers, 0)

    def write(self, layer: int, result: LayerResult) -> None:
        """The next query rows of a layer."""
        maps = [result.maps[scope].cpu().numpy() for scope in result.scopes]
        rows, keys = maps[0].shape
        if self._array is None:
            self._array = self._made((len(maps), len(self.layers), self.queries, keys), maps[0].dtype)
        start = self._written[layer]
        self._array[:, self.layers.index(layer), start : start + rows] = np.stack(maps)
        self._written[layer] = start + rows

    def _made(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        chunks = (1, 1, min(_ROWS, shape[2]), shape[3])
        array = created(self.store, schema.MAP, ("scope", "layer", "query", "key"), shape, chunks, dtype)
        array.attrs["quantity"] = "norm"
        return array


@dataclass(frozen=True)
class StreamedDecomposition(Decomposition):
    """A decomposition whose maps are written away as soon as they are there."""

    store: MapStore = field(kw_only=True)

    def add(self, state: dict[int, LayerResult], layer: int, trace: LayerTrace) -> dict[int, LayerResult]:
        result = self._result(state, layer, trace)
        self.store.write(layer, result)
        kept = replace(result, maps={})
        return {**state, layer: state[layer].followed_by(kept) if layer in state else kept}


def analysis(
    work: Pass, sequences: Sequence[TokenSequence], facts: Mapping[str, Any], out: str | Path, tell: Tell | None
) -> Analysis:
    """The analysis of one input with its maps on disk."""
    request = work.request
    sequence, *more = sequences
    stacks = [request.main, *([] if request.encoder is None else [request.encoder])]
    if more or not all(isinstance(each.measures[0], Decomposition) and len(each.measures) == 1 for each in stacks):
        raise InputError("out= streams the norm maps of one input: leave out other inputs and methods.")
    with folder_in_the_making(out) as folder:
        stores = [_store(each) for each in _folders(folder, len(stacks))]
        main = query_positions(request.queries, len(sequence.target or sequence))
        heights = [len(main), len(sequence)][: len(stacks)]
        streams = [_streamed_stack(*each) for each in zip(stacks, stores, heights, strict=True)]
        asked = replace(request, main=streams[0], encoder=streams[1] if len(stacks) > 1 else None)
        (measured,) = Pass(work.model, asked).over(sequences, progress=False, tell=tell)
        made = results.analysis(measured, facts)
        write_rest(made.dataset, stores[0])
        if made.has_encoder:
            write_rest(made.encoder.dataset, stores[1])
    return read(out)


def read(path: str | Path) -> Analysis:
    """The analysis of a folder: its only stack, or decoder and encoder."""
    decoder, encoder = _folders(Path(path), 2)
    if not decoder.is_dir():
        return Analysis(read_zarr(path))
    return Analysis(read_zarr(decoder), Analysis(read_zarr(encoder)))


def _folders(folder: Path, stacks: int) -> list[Path]:
    """Where the stacks of a result are: the only one in the folder itself, two next to each other below it."""
    return [folder] if stacks == 1 else [folder / schema.DECODER, folder / schema.ENCODER]


def _streamed_stack(stack: StackRequest, store: ZarrStore, queries: int) -> StackRequest:
    (measure,) = stack.measures
    assert isinstance(measure, Decomposition)
    return replace(stack, measures=[streamed(measure, MapStore(store, stack.layers, queries))])


def streamed(measure: Decomposition, store: MapStore) -> StreamedDecomposition:
    """The same decomposition with its maps in a store, of those scopes alone that have one."""
    scopes = tuple(Scope(scope) for scope in measure.maps)
    return StreamedDecomposition(
        maps=scopes, heads=measure.heads, value_bias=measure.value_bias, approximate=measure.approximate, store=store
    )


@contextmanager
def folder_in_the_making(path: str | Path) -> Generator[Path]:
    """A folder next to `path` that takes its name when the block ends well, and is removed when it does not."""
    if Path(path).suffix != ".zarr":
        raise FileError(f"{str(path)!r} does not end in .zarr, which is what results are streamed to.")
    if kind(path) is not None:
        raise FileError(f"{str(path)!r} is there already. Remove it, or give another name.")
    target = file_to_write(path)  # or folder: what it needs is the same
    prefix, suffix = temporary_affixes(target)
    with refusing(path):
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=prefix, suffix=suffix))
    try:
        yield temporary
        temporary.chmod(0o777 & ~umask())
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"{str(path)!r} cannot be written: {reason(error)}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_rest(dataset: xr.Dataset, store: ZarrStore, array: str = schema.MAP) -> None:
    """Everything except the array that was streamed, next to it, and the record of all files."""
    # A result that was read remembers how it was stored.
    escaped(dataset).drop_encoding().to_zarr(
        store, mode="a", zarr_format=2, consolidated=False, write_empty_chunks=True
    )
    store.write_record(array)


def read_zarr(path: str | Path, array: str = schema.MAP, variables: schema.Variables = schema.VARIABLES) -> xr.Dataset:
    """The dataset of a folder, of its variables those of these names. Its `array` is loaded lazily, chunk by chunk."""
    try:
        dataset = unescaped(_read(Path(path), array, variables))
    except FileError:
        raise
    except Exception as error:  # whatever Zarr and its codecs say of a folder that is damaged, or of someone else
        raise FileError(f"{str(path)!r} is not a Zarr folder that can be read: {error}") from error
    if array not in dataset:
        raise FileError(f"{str(path)!r} was not written by normscope, or is damaged.")
    refuse_foreign(path, dataset, dataset.attrs.get("schema_version", ""), variables)
    return schema.upgraded(dataset)


def _read(folder: Path, array: str, variables: schema.Variables) -> xr.Dataset:
    store = open_checked(folder, array)
    others = [path.name for path in folder.iterdir() if path.name not in variables]
    # What is missing is NaN on disk, too: looking for it again would take longer than reading.
    dataset = xr.open_zarr(
        store,
        consolidated=False,
        chunks=None,
        mask_and_scale=False,
        zarr_format=2,
        drop_variables=[array, *others],
    ).load()
    # Some may have been written as coordinates of the array alone.
    coordinates = (
        name for name, dimension in variables.items() if name.partition("_")[0] == dimension or name in schema.TOKENS
    )
    dataset = dataset.set_coords([name for name in coordinates if name in dataset])
    dataset[array] = lazy(store, array, folder)
    for variable in dataset.variables.values():
        variable.attrs.pop("_FillValue", None)
    return dataset


def _store(folder: Path) -> ZarrStore:
    return ZarrStore.at(folder)
