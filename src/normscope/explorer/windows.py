"""A stack too long for a page, window by window: some rows at full detail, everything around them in blocks that keep sums.

Keys outside a window are added up and queries averaged, block by block, so that a row's shares are those of the whole row.
Maps are read from disk a few rows at a time, and nothing larger than those is in memory.
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
from normscope.explorer.payload import Shown, analysis_payload, build_payload
from normscope.inputs import NO_WORD
from normscope.results import schema
from normscope.results.analysis import Analysis
from normscope.results.tokens import pieces, readable

WINDOW = 128
"""Rows and columns of a window."""

_BLOCKS = 128
"""Blocks that a whole axis is put into, or about as many."""

_ROWS = 256
"""Rows that are read from disk together."""

_TOGETHER = 4
"""Maps that are read at the same time."""

_WORDS_SHOWN = 3
_SPACE = "\N{NO-BREAK SPACE}"
"""In the name of a block: a token's own space would be drawn as a sign."""

Tell = Callable[[int, int], None]
"""Told how many maps are read, of how many."""


class Size(TypedDict):
    """What a page needs to know to ask for windows: tokens along both axes, where the source begins among the keys."""

    queries: int
    keys: int
    source: int | None
    block: int
    window: int


@dataclass(frozen=True)
class Groups:
    """Neighbouring tokens along one axis, put together: the first token of every group, and how many tokens there are."""

    starts: np.ndarray
    tokens: int

    @property
    def ends(self) -> np.ndarray:
        return np.append(self.starts[1:], self.tokens)


@dataclass(frozen=True)
class Window:
    """A part of a stack: where it begins, its maps, and how many blocks of keys come before its own keys.

    `own` are the values `[scope, layer, query]` of the queries' own tokens. Where these are not among the window's own keys,
    they are left out of the blocks that they are in: most of such a block they are, and the rest must be right, too.
    """

    row: int
    column: int
    analysis: Analysis
    before: int
    own: np.ndarray


class Windows:
    """The parts of one long stack, each an analysis like any other."""

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
        """How many maps are read for any part of it."""
        return self.dataset.sizes["scope"] * self.dataset.sizes["layer"]

    def whole(self, tell: Tell | None = None) -> Analysis:
        """All of it, in blocks of as many tokens each."""
        rows, columns = Groups(self._blocks("query"), self.queries), Groups(self._blocks("key"), self.keys)
        blocks = _analysis(self.dataset, _maps(self.dataset, rows, columns, tell), rows, columns)
        if schema.IMAGE not in self.dataset:
            return blocks
        return Analysis(blocks.dataset.assign({schema.IMAGE: self.dataset[schema.IMAGE]}))

    def window(self, row: int, column: int) -> Window:
        """The window that begins at a query and a key, or near: other queries left out, other keys in blocks."""
        row, column = _fitted(row, self.queries), _fitted(column, self.keys)
        last, right = min(self.queries, row + WINDOW), min(self.keys, column + WINDOW)
        blocks = self._blocks("key")
        before = blocks[blocks < column]
        singles = np.arange(column, min(self.keys, right + 1))  # the last begins what is left of the block after it
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
        """Where the blocks along an axis begin. None is of tokens of two groups, or of patches of two rows of an image."""
        tokens = self.dataset.sizes[axis]
        labels = [self.dataset[name].values for name in (f"{axis}_group", f"{axis}_row") if name in self.dataset.coords]
        changes = [np.flatnonzero(each[1:] != each[:-1]) + 1 for each in labels]
        edges = np.unique(np.concatenate([[0], *changes, [tokens]])).tolist()
        return np.concatenate([np.arange(*edge, self.block) for edge in pairwise(edges)])


def _maps(dataset: xr.Dataset, queries: Groups, keys: Groups, tell: Tell | None) -> np.ndarray:
    """`[scope, layer, query, key]`: the maps of groups of tokens."""
    maps = dataset[schema.MAP]
    reduced = np.empty((*maps.shape[:2], len(queries.starts), len(keys.starts)), dtype=np.float32)
    places = list(product(range(maps.shape[1]), range(maps.shape[0])))

    def reduced_at(place: tuple[int, int]) -> np.ndarray:
        layer, scope = place
        return _reduced(maps[scope, layer], queries, keys)

    with ThreadPoolExecutor(_TOGETHER) as threads:
        for done, ((layer, scope), values) in enumerate(zip(places, threads.map(reduced_at, places), strict=True)):
            reduced[scope, layer] = values
            if tell is not None:
                tell(done + 1, len(places))
    return reduced


def _analysis(dataset: xr.Dataset, maps: np.ndarray, queries: Groups, keys: Groups) -> Analysis:
    """The maps and mixing ratios of groups of tokens, as an analysis."""
    variables: dict[str, Any] = {
        schema.MAP: (dataset[schema.MAP].dims, maps, dataset[schema.MAP].attrs),
        schema.COMPLETENESS: dataset[schema.COMPLETENESS],
    }
    for name in (schema.MIXING_RATIO, schema.SOURCE_MIXING_RATIO):
        if name in dataset:
            variables[name] = dataset[name].dims, _means(dataset[name].values, queries), dataset[name].attrs
    coordinates: dict[str, Any] = {name: dataset[name] for name in ("scope", "layer")}
    coordinates |= _coordinates(dataset, "query", queries) | _coordinates(dataset, "key", keys)
    return Analysis(xr.Dataset(variables, coordinates, dataset.attrs))


def _own_keys(dataset: xr.Dataset) -> np.ndarray:
    """For every query the index of the same token among the keys, -1 where it is not there."""
    groups = dataset["key_group"].values if "key_group" in dataset.coords else np.full(dataset.sizes["key"], "self")
    places = {
        position: place
        for place, (position, group) in enumerate(zip(dataset["key"].values.tolist(), groups, strict=True))
        if group != "source"
    }
    return np.array([places.get(position, -1) for position in dataset["query"].values.tolist()])


def _fitted(start: int, tokens: int) -> int:
    return max(0, min(start, tokens - WINDOW))


def _reduced(values: xr.DataArray, queries: Groups, keys: Groups) -> np.ndarray:
    """`[query, key]`: sums over the keys of a group, means over the queries of one; what does not exist does not count."""
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
    """The sums of what exists along the last axis, group by group; NaN where nothing does."""
    exists = ~np.isnan(values)
    sums = np.add.reduceat(np.where(exists, values, values.dtype.type(0)), starts, axis=-1)
    return np.where(np.logical_or.reduceat(exists, starts, axis=-1), sums, np.nan)


def _means(values: np.ndarray, queries: Groups) -> np.ndarray:
    return np.add.reduceat(values, queries.starts, axis=-1) / (queries.ends - queries.starts)


def _coordinates(dataset: xr.Dataset, axis: str, groups: Groups) -> dict[str, Any]:
    """Those of the first token of each group; a group of several is named by where it begins and how."""
    names = [str(name) for name, coordinate in dataset.coords.items() if coordinate.dims == (axis,)]
    made = {name: dataset[name].values[groups.starts] for name in names}
    several = np.flatnonzero(groups.ends - groups.starts > 1)
    tokens, special = dataset[f"{axis}_token"].values, dataset[f"{axis}_special"].values
    for place in several:
        inside = slice(int(groups.starts[place]), int(groups.ends[place]))
        beginning = _beginning(tokens[inside].tolist(), special[inside].tolist())
        name = f"{dataset[axis].values[inside.start]}{_SPACE}{beginning}"
        made[f"{axis}_token"][place] = made[f"{axis}_word_text"][place] = name
    made[f"{axis}_special"][several] = False
    made[f"{axis}_word"][several] = NO_WORD
    made[f"{axis}_count"] = groups.ends - groups.starts
    return {name: (axis, values) for name, values in made.items()}


def _beginning(tokens: Sequence[object], special: Sequence[bool]) -> str:
    """The first words of some tokens, as text."""
    shown = pieces(tokens, special)[:_WORDS_SHOWN]
    return "".join(_SPACE * piece.spaced + piece.text for piece in shown) + "\u2026"


# ---- Results for a page, those of their stacks that are too long for one in blocks, and windows of these when asked
# for.
#
# Owns when a stack is too long, and how payloads say so. A page begins with `opening`; a window takes the place of a
# stack.

MOST_CELLS = 64_000_000
"""Cells of all maps up to which a page takes results whole: about 100 MB of it."""

MOST_SERVED_CELLS = 32_000_000
"""The same where someone is there to read windows, so that nobody has to wait for all of it."""

Part = Literal["decoder", "encoder"]
"""A stack of an analysis. The only one of a model without an encoder apart is its decoder."""


class LongResults:
    """Results to look at together, and the windows of those stacks that a page cannot take whole.

    `served` where windows can be asked for.
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

    def opening(self, precision: Precision = "display", tell: Tell | None = None) -> dict[str, Any]:
        """The payload that a page begins with: the results themselves, long stacks in blocks, with their sizes."""
        told = _counted(tell, sum(windows.maps for windows in self.windows.values()))
        shown = [self._shown(place, analysis, told) for place, analysis in enumerate(self.analyses)]
        others = [result for result in self.results if not isinstance(result, Analysis)]
        payload = build_payload(*shown, *others, precision=precision)
        for (place, part), windows in self.windows.items():
            content = payload["analyses"][place]
            tokens = readable(windows.dataset["key_token"].values)
            (content if part == "decoder" else content["encoder"])["windows"] = {**windows.size, "tokens": tokens}
        return payload

    def window(self, part: str, row: int, column: int) -> dict[str, Any]:
        """The window at a place of every analysis that is long there: what takes the place of its stack, or nothing.

        Raises:
            InputError: there is no such part, or none of it is long.
        """
        if part not in get_args(Part) or not any(name == part for _, name in self.windows):
            raise InputError(f"Nothing is shown by windows here that is called {part!r}.")
        parts = [part if analysis.has_encoder else "decoder" for analysis in self.analyses]
        windows = [self.windows.get(name) for name in enumerate(parts)]
        return {"analyses": [None if one is None else _window_payload(one, row, column) for one in windows]}

    def _stacks(self) -> Iterator[tuple[tuple[int, str], Analysis]]:
        for place, analysis in enumerate(self.analyses):
            yield (place, "decoder"), analysis
            if analysis.has_encoder:
                yield (place, "encoder"), analysis.encoder

    def _shown(self, place: int, analysis: Analysis, tell: Tell | None) -> Analysis:
        main, encoder = (self.windows.get((place, part)) for part in get_args(Part))
        dataset = analysis.dataset if main is None else main.whole(tell).dataset
        if not analysis.has_encoder:
            return Analysis(dataset)
        return Analysis(dataset, analysis.encoder if encoder is None else encoder.whole(tell))


def _window_payload(windows: Windows, row: int, column: int) -> dict[str, Any]:
    """The payload of a window, which says where it is, and what the own tokens of its queries have wherever they are."""
    window = windows.window(row, column)
    place = {"row": window.row, "column": window.column, "before": window.before}
    facts = {"windows": {**windows.size, "place": place}, "own": block(window.own, "full")}
    return analysis_payload(window.analysis, "display") | facts


def _counted(tell: Tell | None, total: int) -> Tell | None:
    """What is told of each of several stacks, counted over all of them."""
    if tell is None:
        return None
    done = 0

    def told(_: int, __: int) -> None:
        nonlocal done
        done += 1
        tell(done, total)

    return told
