"""Rollouts: maps of single layers multiplied into maps from the inputs to every layer.

Arithmetic on labelled arrays, and its defaults: whether a map needs an identity for the residual, and
whether its rows are normalised. The explorer rolls out by the same rules, which its payload tells it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import xarray as xr

from normscope.errors import InputError, SelectionError, listing
from normscope.options import is_share, normalise_axis
from normscope.scopes import Scope


def residual_share(scope: Scope) -> float:
    """The share of the identity in a layer's map: half where the scope has no residual of its own."""
    return 0.0 if "Res" in scope.components else 0.5


def normalised_by_method(attributes: Mapping[str, object]) -> bool:
    """Whether the method of a result divides rows by their sums first."""
    return bool(json.loads(str(attributes.get("method_options", "{}"))).get("normalise", True))


def from_inputs(attributes: Mapping[str, object]) -> bool:
    """Whether the maps of a result are from the inputs already, so that layers are not multiplied."""
    return "from_layer" in attributes


def rollout(maps: xr.DataArray, *, identity: float, normalise: bool) -> xr.DataArray:
    """`[layer, query, key]`: how the inputs of the first layer reach the states after each layer.

    `R_l = M_l R_(l-1)`, with `M_l` the map of layer `l`: rows divided by the sum of their absolute values if `normalise`,
    then `identity` times the identity mixed in. Keys that do not exist count nothing. A decoder's map has the encoder's
    states as keys too: they enter every layer as they are, `R_l = T_l R_(l-1) + [0, S_l]`, with `T_l` and `S_l` the columns
    of the decoder's tokens and of the encoder's.
    """
    _refuse_layers([int(layer) for layer in maps["layer"].values])
    own = _own_keys(maps)
    values = maps.transpose("layer", "query", "key").values
    missing = np.isnan(values)
    if missing[..., own].all():
        raise SelectionError(
            f"{maps.name} has no keys among the queries' own tokens, so that layers cannot be chained."
        )
    layers = [_layer(each, own, identity, normalise) for each in np.nan_to_num(values.astype(np.float64))]
    reached, rolled = _placed(np.eye(len(own)), own, values.shape[-1]), list[np.ndarray]()
    for layer in layers:
        passing = layer[:, own] @ reached
        layer[:, own] = 0
        reached = passing + layer
        rolled.append(reached)
    product = np.stack(rolled)
    if not np.isfinite(product).all():
        raise InputError(f"The maps at {maps.name} multiply to numbers that are too large: normalise their rows.")
    # Products of norms outgrow float32.
    result = np.where(
        np.logical_and.accumulate(missing), np.nan, product.astype(values.dtype if normalise else np.float64)
    )
    ordered = maps.transpose("layer", "query", "key")
    return ordered.copy(data=result).assign_attrs(rollout="true", identity=identity, normalised=str(normalise).lower())


def normalised_rows(maps: xr.DataArray) -> xr.DataArray:
    """Every row divided by the sum of its absolute values; a row of zeros stays as it is."""
    sums = abs(maps).sum("key")
    return maps / sums.where(sums != 0, 1)


def _layer(values: np.ndarray, own: np.ndarray, identity: float, normalise: bool) -> np.ndarray:
    if normalise:
        sums = np.abs(values).sum(-1, keepdims=True)
        values = values / np.where(sums == 0, 1, sums)
    return (1 - identity) * values + identity * _placed(np.eye(len(own)), own, values.shape[-1])


def _placed(square: np.ndarray, own: np.ndarray, keys: int) -> np.ndarray:
    """A map of the own keys among all keys."""
    every = np.zeros((len(square), keys))
    every[:, own] = square
    return every


def _own_keys(maps: xr.DataArray) -> np.ndarray:
    """The indices of the keys that are the queries themselves."""
    own = np.flatnonzero(maps["key_group"].values != "source")
    queries, keys = maps["query"].values, maps["key"].values[own]
    if len(queries) != len(keys) or not np.array_equal(queries, keys):
        raise SelectionError(
            f"A rollout needs the rows of all tokens, but there are {len(queries)} queries for {len(keys)} keys: analyse "
            f"without `queries`."
        )
    return own


def _refuse_layers(layers: list[int]) -> None:
    if layers != list(range(layers[0], layers[0] + len(layers))):
        raise SelectionError(
            f"A rollout needs layers that follow each other, not {listing(layers)}: analyse those between."
        )


def checked_identity(identity: float) -> float:
    """The share of the identity, if it is one."""
    if not is_share(identity):
        raise InputError(f"add_identity is a share from 0 to 1, not {identity!r:.60}.")
    return float(identity)


def normalise(values: xr.DataArray, axis: str) -> xr.DataArray:
    """Scale rows or columns to sum to 1; keys that do not exist stay missing."""
    match normalise_axis(axis):
        case "none":
            return values
        case "row":
            return values / values.sum("key")
        case "column":
            return values / values.sum("query")
