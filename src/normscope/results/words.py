"""From tokens to words: reduces every array of a dataset over the tokens of each word.

Special tokens, which belong to no word, stay units of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from normscope.errors import InputError
from normscope.inputs import NO_WORD

Reduction = Literal["sum", "mean", "max"]


def _sum(values: np.ndarray, axis: int) -> np.ndarray:
    """The sum of what exists; missing where nothing does."""
    return np.where(np.isnan(values).all(axis), np.nan, np.nansum(values, axis))


_REDUCTIONS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {"sum": _sum, "mean": np.nanmean, "max": np.nanmax}


def by_word(
    dataset: xr.Dataset, *, keys: Reduction, queries: Reduction, alone: Reduction = "mean", unit: str = "word"
) -> xr.Dataset:
    """The dataset with words as keys and queries; what has queries alone, such as mixing ratios, is reduced by `alone`."""
    for reduction in (keys, queries, alone):
        if not isinstance(reduction, str) or reduction not in _REDUCTIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"Words are combined by 'sum', 'mean' or 'max', not by {reduction!r}.")
    key_units, query_units = _units(dataset, "key"), _units(dataset, "query")
    variables: dict[str, tuple[tuple[str, ...], np.ndarray, dict[object, object]]] = {}
    for name, variable in dataset.data_vars.items():
        dims, values = tuple(str(dim) for dim in variable.dims), variable.values
        if "key" in dims:
            values = _reduce(values, dims.index("key"), key_units, keys)
        if "query" in dims:
            values = _reduce(values, dims.index("query"), query_units, queries if "key" in dims else alone)
        variables[str(name)] = dims, values, variable.attrs
    coordinates = {str(n): c for n, c in dataset.coords.items() if not {"query", "key"} & {str(dim) for dim in c.dims}}
    coordinates |= _unit_coordinates(dataset, "key", key_units) | _unit_coordinates(dataset, "query", query_units)
    return xr.Dataset(variables, coordinates, {**dataset.attrs, "unit": unit})


def summed_by_word(dataset: xr.Dataset, dimensions: Sequence[str]) -> xr.Dataset:
    """The dataset with words along some dimensions, each array summed over the tokens of every word."""
    units = {dimension: _units(dataset, dimension) for dimension in dimensions}
    variables: dict[str, tuple[tuple[str, ...], np.ndarray, dict[Any, Any]]] = {}
    for name, variable in dataset.data_vars.items():
        dims, values = tuple(str(dim) for dim in variable.dims), variable.values
        for axis, dimension in enumerate(dims):
            values = _reduce(values, axis, units[dimension], "sum") if dimension in units else values
        variables[str(name)] = dims, values, variable.attrs
    coordinates: dict[str, object] = {}
    for dimension, places in units.items():
        coordinates |= _unit_coordinates(dataset, dimension, places)
    return xr.Dataset(variables, coordinates, {**dataset.attrs, "unit": "word"})


def without_special(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset without the rows and columns of special tokens."""
    kept = {name: np.flatnonzero(~dataset[f"{name}_special"].values) for name in ("query", "key")}
    return dataset.isel(kept)


def _units(dataset: xr.Dataset, dimension: str) -> list[np.ndarray]:
    """For each unit along a dimension, the indices of its tokens."""
    words = dataset[f"{dimension}_word"].values
    special = dataset[f"{dimension}_special"].values
    if not special.all() and bool((words[~special] == NO_WORD).all()):
        raise InputError(
            "There are no word ids: the input came as token ids, or from a slow tokenizer. "
            "Analyse a text with a fast tokenizer to get maps of words."
        )
    groups = dataset["key_group"].values if dimension == "key" else [""] * len(words)
    members: dict[tuple[str, int, int], list[int]] = {}
    for index, (group, word) in enumerate(zip(groups, words, strict=True)):
        alone = index if word == NO_WORD else NO_WORD
        members.setdefault((str(group), int(word), alone), []).append(index)
    return [np.array(places) for places in members.values()]


def _reduce(values: np.ndarray, axis: int, units: list[np.ndarray], reduction: str) -> np.ndarray:
    with warnings.catch_warnings():
        # Where no key of a word exists for a query (causal models), the result is missing too: no warning needed.
        warnings.simplefilter("ignore", RuntimeWarning)
        pieces = [_REDUCTIONS[reduction](np.take(values, places, axis), axis) for places in units]
    return np.stack(pieces, axis)


def _unit_coordinates(
    dataset: xr.Dataset, dimension: str, units: list[np.ndarray]
) -> dict[str, tuple[str, np.ndarray]]:
    first, last = (np.array([places[end] for places in units]) for end in (0, -1))
    names = [str(name) for name, c in dataset.coords.items() if c.dims == (dimension,)]
    coordinates = {name: (dimension, dataset[name].values[first]) for name in names}
    if f"{dimension}_end" in coordinates:
        coordinates[f"{dimension}_end"] = dimension, dataset[f"{dimension}_end"].values[last]
    coordinates[f"{dimension}_token"] = dimension, dataset[f"{dimension}_word_text"].values[first]
    return coordinates
