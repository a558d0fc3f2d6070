"""Results that are too long for a page, window by window: some rows in full detail, everything else in blocks of sums.

Keys outside a window are added up and queries averaged, block by block, so that a row's shares are those of the whole row.
Maps are read from disk a few rows at a time, and nothing larger is held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Literal, TypedDict, get_args

import numpy as np
import xarray as xr

from normscope.errors import InputError
from normscope.explorer.packing import Precision, block
from normscope.explorer.payload import Shown, Start, analysis_payload, build_payload
from normscope.inputs import NO_WORD
from normscope.results import schema
from normscope.results.analysis import Analysis
from normscope.results.tokens import pieces, readable

WINDOW = 128
"""Rows and columns of a window."""

_BLOCKS = 128
"""The approximate number of blocks of a whole axis."""

_ROWS = 256
"""The number of rows that are read from disk together."""

_TOGETHER = 4
"""The number of maps that are read at the same time."""

_WORDS_SHOWN = 3
_SPACE = "\N{NO-BREAK SPACE}"
"""The space in the name of a block: a token's own space would be drawn as a symbol."""

Tell = Callable[[int, int], None]
"""A callback with the number of maps that are read, and their total."""


class Size(TypedDict):
    """What a page needs to request windows: the tokens along both axes, and where the source begins among the keys."""

    queries: int
    keys: int
    source: int | None
    block: int
    window: int


@dataclass(frozen=True)
class Groups:
    """Groups of neighbouring tokens along one axis: the first token of every group, and the number of all tokens."""

    starts: np.ndarray
    tokens: int

    @property
    def ends(self) -> np.ndarray:
        return np.append(self.starts[1:], self.tokens)


@dataclass(frozen=True)
class Window:
    """A part of a stack: where it begins, its maps, and the number of key blocks before its own keys.

    `own` are the values `[scope, layer, query]` of the queries' own tokens. If these are not among the window's own keys,
    they are excluded from their blocks, most of which they would be, so that the rest of the block is accurate, too.
    """

    row: int
    column: int
    analysis: Analysis
    before: int
    own: np.ndarray


class Windows:
    """The parts of one long stack, each as an ordinary analysis."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.queries, self.keys = dataset.sizes["query"], dataset.sizes["key"]
        longest = max(self.queries, self.keys)
        self.block = 1 << max(0, (longest - 1) // _BLOCKS).bit_length()

    @property
    def size(self) -> Size:
        source = np.flatnonzero(self.dataset["key_group"].values == "source") if "key_group" in self.dataset else []
        return {
            "queries": self.queries,
            "keys": self.keys,
            "source": int(source[0]) if len(source) else None,
            "block": self.block,
            "window": WINDOW,
        }

    @property
    def maps(self) -> int:
        """The number of maps that are read for any part."""
        return self.dataset.sizes["scope"] * self.dataset.sizes["layer"]

    def whole(self, tell: Tell | None = None) -> Analysis:
        """The whole stack, in blocks of equally many tokens."""
        rows, columns = Groups(self._blocks("query"), self.queries), Groups(self._blocks("key"), self.keys)
        blocks = _analysis(self.dataset, _maps(self.dataset, rows, columns, tell), rows, columns)
        if schema.IMAGE not in self.dataset:
            return blocks
        return Analysis(blocks.dataset.assign({schema.IMAGE: self.dataset[schema.IMAGE]}))

    def window(self, row: int, column: int) -> Window:
        """The window that begins at (or near) a query and a key: other queries are left out, other keys are in blocks."""
        row, column = _fitted(row, self.queries), _fitted(column, self.keys)
        last, right = min(self.queries, row + WINDOW), min(self.keys, column + WINDOW)
        blocks = self._blocks("key")
        before = blocks[blocks < column]
        singles = np.arange(column, min(self.keys, right + 1))  # the last starts the rest of the block after it
        rows, columns = (
            Groups(np.arange(last - row), last - row),
            np.concatenate([before, singles, blocks[blocks > right]]),
        )
        part = self.dataset.isel(query=slice(row, last))
        own = _own_keys(part)
        alone = own[own >= 0]
        finer = np.union1d(columns, np.union1d(alone, np.minimum(alone + 1, self.keys - 1)))
        maps = _maps(part, rows, Groups(finer, self.keys), None)
        places = np.searchsorted(finer, np.maximum(own, 0))
        queries = np.arange(len(own))
        values = np.where(own >= 0, maps[:, :, queries, places], np.nan)
        hidden = (own >= 0) & ((own < column) | (own >= right))
        maps[:, :, queries[hidden], places[hidden]] = np.nan
        groups = Groups(columns, self.keys)
        analysis = _analysis(part, _sums(maps, np.searchsorted(finer, columns)), rows, groups)
        return Window(row, column, analysis, len(before), values)

    def _blocks(self, axis: str) -> np.ndarray:
        """Where the blocks along an axis begin. No block spans two groups of tokens, or two rows of an image."""
        tokens = self.dataset.sizes[axis]
        labels = [self.dataset[name].values for name in (f"{axis}_group", f"{axis}_row") if name in self.dataset.coords]
        changes = [np.flatnonzero(values[1:] != values[:-1]) + 1 for values in labels]
        edges = np.unique(np.concatenate([[0], *changes, [tokens]])).tolist()
        return np.concatenate([np.arange(*edge, self.block) for edge in pairwise(edges)])


def _maps(dataset: xr.Dataset, queries: Groups, keys: Groups, tell: Tell | None) -> np.ndarray:
    """`[scope, layer, query, key]`: the maps of groups of tokens."""
    maps = dataset[schema.MAP]
    reduced = np.empty((*maps.shape[:2], len(queries.starts), len(keys.starts)), dtype=np.float32)
    indices = list(product(range(maps.shape[1]), range(maps.shape[0])))

    def reduced_at(index: tuple[int, int]) -> np.ndarray:
        layer, scope = index
        return _reduced(maps[scope, layer], queries, keys)

    with ThreadPoolExecutor(_TOGETHER) as threads:
        for done, ((layer, scope), values) in enumerate(zip(indices, threads.map(reduced_at, indices), strict=True)):
            reduced[scope, layer] = values
            if tell is not None:
                tell(done + 1, len(indices))
    return reduced


def _analysis(dataset: xr.Dataset, maps: np.ndarray, queries: Groups, keys: Groups) -> Analysis:
    """The maps and mixing ratios of groups of tokens, as an analysis."""
    variables: dict[str, object] = {
        schema.MAP: (dataset[schema.MAP].dims, maps, dataset[schema.MAP].attrs),
        schema.COMPLETENESS: dataset[schema.COMPLETENESS],
    }
    for name in (schema.MIXING_RATIO, schema.SOURCE_MIXING_RATIO):
        if name in dataset:
            variables[name] = dataset[name].dims, _means(dataset[name].values, queries), dataset[name].attrs
    coordinates: dict[str, object] = {name: dataset[name] for name in ("scope", "layer")}
    coordinates |= _coordinates(dataset, "query", queries) | _coordinates(dataset, "key", keys)
    return Analysis(xr.Dataset(variables, coordinates, dataset.attrs))


def _own_keys(dataset: xr.Dataset) -> np.ndarray:
    """For every query the index of the same token among the keys, or -1."""
    groups = dataset["key_group"].values if "key_group" in dataset.coords else np.full(dataset.sizes["key"], "self")
    indices = {
        position: index
        for index, (position, group) in enumerate(zip(dataset["key"].values.tolist(), groups, strict=True))
        if group != "source"
    }
    return np.array([indices.get(position, -1) for position in dataset["query"].values.tolist()])


def _fitted(start: int, tokens: int) -> int:
    return max(0, min(start, tokens - WINDOW))


def _reduced(values: xr.DataArray, queries: Groups, keys: Groups) -> np.ndarray:
    """`[query, key]`: sums over the keys of a group, means over the queries of one; missing cells are ignored."""
    sums = np.zeros((len(queries.starts), len(keys.starts)))
    counts = np.zeros(sums.shape)
    for first in range(0, queries.tokens, _ROWS):
        added = _sums(values[first : first + _ROWS].values, keys.starts)
        group = np.searchsorted(queries.starts, np.arange(first, first + len(added)), side="right") - 1
        exists = ~np.isnan(added)
        np.add.at(sums, group, np.where(exists, added, 0.0))
        np.add.at(counts, group, exists)
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def _sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The sums over existing cells along the last axis, group by group; NaN if there are none."""
    exists = ~np.isnan(values)
    sums = np.add.reduceat(np.where(exists, values, values.dtype.type(0)), starts, axis=-1)
    return np.where(np.logical_or.reduceat(exists, starts, axis=-1), sums, np.nan)


def _means(values: np.ndarray, queries: Groups) -> np.ndarray:
    return np.add.reduceat(values, queries.starts, axis=-1) / (queries.ends - queries.starts)


def _coordinates(dataset: xr.Dataset, axis: str, groups: Groups) -> dict[str, object]:
    """The coordinates of the first token of each group; a group of several is named by its position and first words."""
    names = [str(name) for name, coordinate in dataset.coords.items() if coordinate.dims == (axis,)]
    coordinates = {name: dataset[name].values[groups.starts] for name in names}
    several = np.flatnonzero(groups.ends - groups.starts > 1)
    tokens, special = dataset[f"{axis}_token"].values, dataset[f"{axis}_special"].values
    for index in several:
        inside = slice(int(groups.starts[index]), int(groups.ends[index]))
        beginning = _beginning(tokens[inside].tolist(), special[inside].tolist())
        name = f"{dataset[axis].values[inside.start]}{_SPACE}{beginning}"
        coordinates[f"{axis}_token"][index] = coordinates[f"{axis}_word_text"][index] = name
    coordinates[f"{axis}_special"][several] = False
    coordinates[f"{axis}_word"][several] = NO_WORD
    coordinates[f"{axis}_count"] = groups.ends - groups.starts
    return {name: (axis, values) for name, values in coordinates.items()}


def _beginning(tokens: Sequence[object], special: Sequence[bool]) -> str:
    """The first words of some tokens, as text."""
    first = pieces(tokens, special)[:_WORDS_SHOWN]
    return "".join(_SPACE * piece.spaced + piece.text for piece in first) + "\u2026"


# ---- Results for a page: stacks that are too long are shown in blocks, with windows on request.
#
# Owns when a stack is too long, and how payloads say so. A page begins with `opening`; a window replaces a stack.

MOST_CELLS = 64_000_000
"""A page has results with up to this many cells in full: about 100 MB."""

MOST_SERVED_CELLS = 32_000_000
"""The same if a server reads windows, so that nobody has to wait for everything."""

Part = Literal["decoder", "encoder"]
"""A stack of an analysis. The only stack of a model without a separate encoder is its decoder."""


class LongResults:
    """Results to show together, and the windows of those stacks that are too long for a page.

    `served` is whether windows can be requested.
    """

    def __init__(self, *results: Shown, served: bool = False) -> None:
        self.results = results
        self.analyses = [result for result in results if isinstance(result, Analysis)]
        stacks = {name: stack for name, stack in self._stacks() if schema.MAP in stack.dataset}
        cells = {name: int(stack.dataset[schema.MAP].size) for name, stack in stacks.items()}
        most = MOST_SERVED_CELLS if served else MOST_CELLS
        short = most if sum(cells.values()) <= most else most // len(cells)
        self.windows = {name: Windows(stacks[name].dataset) for name in stacks if cells[name] > short}

    @property
    def any(self) -> bool:
        """Whether anything is too long."""
        return bool(self.windows)

    def opening(
        self,
        precision: Precision = "display",
        tell: Tell | None = None,
        *,
        predictions: Sequence[dict[str, object]] = (),
        start: Start | None = None,
    ) -> dict[str, Any]:
        """The payload that a page begins with: the results themselves, long stacks in blocks, with their sizes."""
        told = _counted(tell, sum(windows.maps for windows in self.windows.values()))
        shown = [self._shown(place, analysis, told) for place, analysis in enumerate(self.analyses)]
        others = [result for result in self.results if not isinstance(result, Analysis)]
        payload = build_payload(*shown, *others, precision=precision, predictions=predictions, start=start)
        for (place, part), windows in self.windows.items():
            content = payload["analyses"][place]
            tokens = readable(windows.dataset["key_token"].values)
            (content if part == "decoder" else content["encoder"])["windows"] = {**windows.size, "tokens": tokens}
        return payload

    def window(self, part: str, row: int, column: int) -> dict[str, object]:
        """The window at a row and a column, for every analysis with a long stack of this name: it replaces the stack.

        Raises:
            InputError: there is no such part, or none of it is long.
        """
        if part not in get_args(Part) or not any(name == part for _, name in self.windows):
            raise InputError(f"Nothing is shown by windows here that is called {part!r}.")
        parts = [part if analysis.has_encoder else "decoder" for analysis in self.analyses]
        windows = [self.windows.get(name) for name in enumerate(parts)]
        return {"analyses": [None if stack is None else _window_payload(stack, row, column) for stack in windows]}

    def _stacks(self) -> Iterator[tuple[tuple[int, str], Analysis]]:
        for index, analysis in enumerate(self.analyses):
            yield (index, "decoder"), analysis
            if analysis.has_encoder:
                yield (index, "encoder"), analysis.encoder

    def _shown(self, index: int, analysis: Analysis, tell: Tell | None) -> Analysis:
        main, encoder = (self.windows.get((index, part)) for part in get_args(Part))
        dataset = analysis.dataset if main is None else main.whole(tell).dataset
        if not analysis.has_encoder:
            return Analysis(dataset)
        return Analysis(dataset, analysis.encoder if encoder is None else encoder.whole(tell))


def _window_payload(windows: Windows, row: int, column: int) -> dict[str, object]:
    """The payload of a window, with its position, and the values of its queries' own tokens, wherever these are."""
    window = windows.window(row, column)
    place = {"row": window.row, "column": window.column, "before": window.before}
    facts = {"windows": {**windows.size, "place": place}, "own": block(window.own, "full")}
    return analysis_payload(window.analysis, "display") | facts


def _counted(tell: Tell | None, total: int) -> Tell | None:
    """A callback that counts the maps of several stacks together."""
    if tell is None:
        return None
    done = 0

    def told(_: int, __: int) -> None:
        nonlocal done
        done += 1
        tell(done, total)

    return told
