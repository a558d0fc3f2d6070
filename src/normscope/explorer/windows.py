"""Results too long for a page, window by window: some rows at full detail, everything around them in blocks that keep sums.

Keys outside a window are added up and queries averaged, block by block, so that a row's shares are those of the whole row.
Maps are read from disk a few rows at a time, and nothing larger than those is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from normscope import schema
from normscope.analysis import Analysis
from normscope.errors import InputError
from normscope.explorer.payload import payload_json
from normscope.inputs import NO_WORD
from normscope.labels import pieces

MOST_CELLS = 64_000_000
"""Cells of all maps up to which a page takes a result whole: about 100 MB of it."""

WINDOW = 128
"""Rows and columns of a window."""

_BLOCKS = 128
"""Blocks that a whole axis is put into, at most."""

_ROWS = 256
"""Rows that are read from disk together."""

_WORDS_SHOWN = 3
_SPACE = "\N{NO-BREAK SPACE}"
"""In the name of a block: a token's own space would be drawn as a sign."""

Tell = Callable[[int, int], None]


def is_long(analysis: Analysis) -> bool:
    """Whether a result has more cells than a page takes, and can be shown by windows."""
    dataset = analysis.dataset
    return schema.MAP in dataset and dataset[schema.MAP].size > MOST_CELLS and _of_one_text(analysis)


def _of_one_text(analysis: Analysis) -> bool:
    coordinates = analysis.dataset.coords
    several = "key_group" in coordinates and len(set(coordinates["key_group"].values)) > 1
    return not several and not analysis.has_encoder and "key_row" not in coordinates


def window_json(windows: Windows, row: int, column: int) -> str:
    """The payload of one window."""
    return payload_json(windows.window(row, column), windows=windows.facts)


@dataclass(frozen=True)
class Groups:
    """Neighbouring tokens along one axis, put together: the first token of every group, and how many tokens there are."""

    starts: np.ndarray
    tokens: int

    @property
    def ends(self) -> np.ndarray:
        return np.append(self.starts[1:], self.tokens)


class Windows:
    """The parts of one long result, each an analysis like any other."""

    def __init__(self, analysis: Analysis) -> None:
        dataset = analysis.dataset
        if schema.MAP not in dataset or not _of_one_text(analysis):
            raise InputError("Only the maps of one text are shown by windows: no decoder with its encoder, no image.")
        self.dataset = dataset
        self.queries, self.keys = dataset.sizes["query"], dataset.sizes["key"]
        longest = max(self.queries, self.keys)
        self.block = 1 << max(0, (longest - 1) // _BLOCKS).bit_length()

    @cached_property
    def facts(self) -> dict[str, int]:
        """What a page needs to know to ask for windows."""
        return {"queries": self.queries, "keys": self.keys, "block": self.block, "window": WINDOW}

    def whole(self, tell: Tell | None = None) -> Analysis:
        """All of it, in blocks of as many tokens each."""
        rows, columns = self._blocks(0, self.queries), self._blocks(0, self.keys)
        return _grouped(self.dataset, Groups(rows, self.queries), Groups(columns, self.keys), tell)

    def window(self, row: int, column: int, tell: Tell | None = None) -> Analysis:
        """The window that begins at a query and a key, or near: other queries left out, other keys in blocks."""
        row, column = _fitted(row, self.queries), _fitted(column, self.keys)
        last, right = min(self.queries, row + WINDOW), min(self.keys, column + WINDOW)
        columns = [self._blocks(0, column), np.arange(column, right), self._blocks(right, self.keys)]
        rows = Groups(np.arange(last - row), last - row)
        part = self.dataset.isel(query=slice(row, last))
        return _grouped(part, rows, Groups(np.concatenate(columns), self.keys), tell)

    def _blocks(self, first: int, last: int) -> np.ndarray:
        """Where the blocks of the whole begin between two tokens, the first of them perhaps cut off."""
        if first >= last:
            return np.empty(0, dtype=np.int64)
        return np.maximum(np.arange(first - first % self.block, last, self.block), first)


def _grouped(dataset: xr.Dataset, queries: Groups, keys: Groups, tell: Tell | None) -> Analysis:
    """The maps and mixing ratios of groups of tokens, as an analysis."""
    maps = dataset[schema.MAP]
    reduced = np.empty((*maps.shape[:2], len(queries.starts), len(keys.starts)), dtype=np.float32)
    places = list(product(range(maps.shape[1]), range(maps.shape[0])))
    for done, (layer, scope) in enumerate(places):
        if tell is not None:
            tell(done, len(places))
        reduced[scope, layer] = _reduced(maps[scope, layer], queries, keys)
    variables: dict[str, Any] = {
        schema.MAP: (maps.dims, reduced, maps.attrs),
        schema.COMPLETENESS: dataset[schema.COMPLETENESS],
    }
    if schema.MIXING_RATIO in dataset:
        ratios = dataset[schema.MIXING_RATIO]
        variables[schema.MIXING_RATIO] = ratios.dims, _means(ratios.values, queries), ratios.attrs
    coordinates: dict[str, Any] = {name: dataset[name] for name in ("scope", "layer")}
    coordinates |= _coordinates(dataset, "query", queries) | _coordinates(dataset, "key", keys)
    return Analysis(xr.Dataset(variables, coordinates, dataset.attrs))


def _fitted(start: int, tokens: int) -> int:
    return max(0, min(start, tokens - WINDOW))


def _reduced(values: xr.DataArray, queries: Groups, keys: Groups) -> np.ndarray:
    """`[query, key]`: sums over the keys of a group, means over the queries of one; what does not exist does not count."""
    sums = np.zeros((len(queries.starts), len(keys.starts)))
    counts = np.zeros(sums.shape)
    for first in range(0, queries.tokens, _ROWS):
        rows = np.asarray(values[first : first + _ROWS].values, dtype=np.float64)
        exists = ~np.isnan(rows)
        there = np.add.reduceat(exists, keys.starts, axis=1) > 0
        added = np.add.reduceat(np.where(exists, rows, 0.0), keys.starts, axis=1)
        group = np.searchsorted(queries.starts, np.arange(first, first + len(rows)), side="right") - 1
        np.add.at(sums, group, added)
        np.add.at(counts, group, there)
    return np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


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
