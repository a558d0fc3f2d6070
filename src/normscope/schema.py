"""The written schema of a result: names, dimensions and coordinates of the xarray dataset behind every analysis.

One place for the names, so that files stay readable by anything that reads netCDF. The documentation's schema page says the
same in prose; `VERSION` changes whenever a reader would have to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from normscope.decompose import LayerResult
from normscope.inputs import NO_WORD, TokenSequence

VERSION = 1

MAP = "map"
MIXING_RATIO = "mixing_ratio"
SOURCE_MIXING_RATIO = "source_mixing_ratio"
HEAD_MAP = "head_map"
COMPLETENESS = "completeness"
COMPONENT_ERROR = "component_error"
IMAGE = "image"

Attributes = Mapping[str, str | int | float]


def build(
    results: Mapping[int, LayerResult],
    queries: TokenSequence,
    positions: Sequence[int],
    keys: Mapping[str, TokenSequence],
    attributes: Attributes,
) -> xr.Dataset:
    """The dataset of one sequence: results by layer, the query tokens at `positions`, and the key tokens by group."""
    layers = sorted(results)
    ordered = [results[layer] for layer in layers]
    first = ordered[0]
    coordinates: dict[str, Any] = {
        "layer": layers,
        **token_coordinates("query", {"": queries}, positions),
        **token_coordinates("key", keys),
    }
    variables: dict[str, Any] = {}
    if first.maps:
        coordinates["scope"] = list(first.maps)
        maps = [[result.maps[scope] for result in ordered] for scope in first.maps]
        variables[MAP] = ("scope", "layer", "query", "key"), _stack(maps)
    variables |= mixing_variables(ordered, coordinates)
    if first.heads:
        coordinates["head_scope"] = list(first.heads)
        coordinates["head"] = np.arange(1, 1 + len(next(iter(first.heads.values()))))
        heads = [[result.heads[scope] for result in ordered] for scope in first.heads]
        variables[HEAD_MAP] = ("head_scope", "layer", "head", "query", "key"), _stack(heads)
    variables |= completeness_variables(ordered, coordinates)
    if queries.image is not None:
        variables[IMAGE] = ("y", "x", "channel"), queries.image
    return xr.Dataset(variables, coordinates, {"schema_version": VERSION, **attributes})


def mixing_variables(ordered: Sequence[LayerResult], coordinates: dict[str, Any]) -> dict[str, Any]:
    """Mixing ratios by scope, in the order of the scopes that are there; NaN where a scope has none."""
    scopes = coordinates.setdefault("scope", list(ordered[0].mixing))
    variables: dict[str, Any] = {}
    for name in (MIXING_RATIO, SOURCE_MIXING_RATIO):
        tables = [result.mixing if name == MIXING_RATIO else result.source_mixing for result in ordered]
        if tables[0]:
            missing = torch.full_like(next(iter(tables[0].values())), torch.nan)
            values = [[table.get(scope, missing) for table in tables] for scope in scopes]
            variables[name] = ("scope", "layer", "query"), _stack(values)
    return variables


def completeness_variables(ordered: Sequence[LayerResult], coordinates: dict[str, Any]) -> dict[str, Any]:
    """The completeness error after every component, and after the last one that was followed."""
    components = list(ordered[0].errors)
    coordinates["component"] = components
    errors = _stack([[result.errors[component].amax() for result in ordered] for component in components])
    return {COMPONENT_ERROR: (("component", "layer"), errors), COMPLETENESS: ("layer", errors[-1])}


def token_coordinates(
    dimension: str, groups: Mapping[str, TokenSequence], positions: Sequence[int] | None = None
) -> dict[str, Any]:
    """What is known of the tokens along `query` or `key`: their positions, strings, words and special flags."""
    sequences = list(groups.values())
    names = [group for group, sequence in groups.items() for _ in sequence.tokens]
    word_ids = [word for sequence in sequences for word in sequence.word_ids or [NO_WORD] * len(sequence)]
    chosen = np.arange(len(names)) if positions is None else np.asarray(positions)

    def along(values: Any, dtype: type | None = None) -> tuple[str, np.ndarray]:
        return dimension, np.asarray(values, dtype=dtype)[chosen]

    coordinates = {
        dimension: chosen,
        f"{dimension}_token": along([token for s in sequences for token in s.tokens], object),
        f"{dimension}_special": along([flag for s in sequences for flag in s.special], bool),
        f"{dimension}_word": along(word_ids, np.int64),
        f"{dimension}_word_text": along([word for s in sequences for word in s.words], object),
    }
    if all(s.grid is not None for s in sequences):
        grid = np.array([place for s in sequences for place in s.grid or []])
        coordinates |= {f"{dimension}_row": along(grid[:, 0]), f"{dimension}_column": along(grid[:, 1])}
    if dimension == "key":
        coordinates["key_group"] = along(names, object)
    elif sequences[0].output_tokens is not None:
        coordinates["query_output_token"] = along(sequences[0].output_tokens, object)
    return coordinates


def _stack(rows: Sequence[Sequence[Tensor]]) -> np.ndarray:
    return np.stack([np.stack([tensor.cpu().numpy() for tensor in row]) for row in rows])
