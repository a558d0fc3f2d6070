"""Results that do not fit into memory: maps go to a Zarr folder layer by layer, and open like any other result.

Owns the folder while it is made: it has another name until it is complete.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from normscope import results, schema
from normscope.analysis import Analysis
from normscope.decompose import LayerResult
from normscope.errors import FileError, InputError, NormscopeError
from normscope.files import escaped, refuse_foreign, umask, unescaped
from normscope.inputs import TokenSequence
from normscope.measures import Decomposition
from normscope.passes import Pass, Tell
from normscope.paths import file_to_write, kind, reason, refusing, temporary_affixes
from normscope.request import StackRequest, query_positions
from normscope.scopes import Scope
from normscope.trace import LayerTrace

if TYPE_CHECKING:
    from normscope.zarr_store import ZarrStore

_ROWS = 256
"""Query rows of a chunk: what is read together when a part of a map is looked at."""


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
        group = _zarr().open_group(self.store, mode="a", zarr_format=2)
        blank = {"write_empty_chunks": True}  # so that what is missing is known to be lost
        array = group.create_array(schema.MAP, shape=shape, chunks=chunks, dtype=dtype, fill_value=np.nan, config=blank)
        array.attrs.update({"_ARRAY_DIMENSIONS": ["scope", "layer", "query", "key"], "quantity": "norm"})
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
        (measured,) = Pass(work.analyzer, asked).over(sequences, progress=False, tell=tell)
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
    """Where the stacks of a result are: the only one in the folder itself, two beside each other below it."""
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
    """A folder beside `path` that takes its name when the block ends well, and is removed when it does not."""
    _zarr()
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


def write_rest(dataset: xr.Dataset, store: ZarrStore) -> None:
    """Everything but the maps, beside them, and the record of all files."""
    escaped(dataset).to_zarr(store, mode="a", zarr_format=2, consolidated=False, write_empty_chunks=True)
    store.write_record(schema.MAP)


def read_zarr(path: str | Path) -> xr.Dataset:
    """The dataset of a folder. Its maps are read when they are looked at, as far as they are."""
    _zarr()
    try:
        dataset = unescaped(_read(Path(path)))
    except FileError:
        raise
    except Exception as error:  # whatever Zarr and its codecs say of a folder that is damaged, or of someone else
        raise FileError(f"{str(path)!r} is not a Zarr folder that can be read: {error}") from error
    if schema.MAP not in dataset:
        raise FileError(f"{str(path)!r} was not written by normscope, or is damaged.")
    refuse_foreign(path, dataset, dataset.attrs.get("schema_version", ""), schema.VARIABLES)
    return schema.upgraded(dataset)


def _read(folder: Path) -> xr.Dataset:
    from normscope import zarr_store  # noqa: PLC0415  (an extra)

    store = zarr_store.open_checked(folder, schema.MAP)
    others = [path.name for path in folder.iterdir() if path.name not in schema.VARIABLES]
    # What is missing is NaN on disk, too: looking for it again would take longer than reading.
    dataset = xr.open_zarr(
        store,
        consolidated=False,
        chunks=None,
        mask_and_scale=False,
        zarr_format=2,
        drop_variables=[schema.MAP, *others],
    ).load()
    # Some may have been written as coordinates of the maps alone.
    dataset = dataset.set_coords([name for name in schema.TOKENS if name in dataset])
    dataset[schema.MAP] = zarr_store.lazy(store, schema.MAP, folder)
    for variable in dataset.variables.values():
        variable.attrs.pop("_FillValue", None)
    return dataset


def _store(folder: Path) -> ZarrStore:
    from normscope import zarr_store  # noqa: PLC0415  (an extra)

    return zarr_store.ZarrStore.at(folder)


def _zarr() -> Any:
    try:
        import zarr  # noqa: PLC0415  (an extra)
    except ModuleNotFoundError as error:
        raise NormscopeError(f"Streaming results needs {error.name}: pip install 'normscope[zarr]'.") from error
    return zarr
