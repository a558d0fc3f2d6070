"""The map at a scope, out of the dataset of an analysis: of all heads together or of each, in one quantity or another."""

from __future__ import annotations

import xarray as xr

from normscope.errors import SelectionError, listing
from normscope.results import schema
from normscope.scopes import HALF_ATTENTION_WEIGHTS, Scope, basis, resolve


def map_at(dataset: xr.Dataset, scope: Scope, *, heads: bool, quantity: str | None) -> xr.DataArray:
    """`[layer, query, key]`, with `heads` `[layer, head, query, key]`."""
    if quantity is not None and quantity != _quantity(dataset[schema.MAP], scope):
        return _other_map(dataset, scope, quantity, heads=heads)
    if heads:
        return _head_map(dataset, scope)
    values = dataset[schema.MAP].sel(scope=basis(scope)).rename(scope)
    if scope == HALF_ATTENTION_WEIGHTS:
        same = dataset["query"] == dataset["key"]
        values = values.copy(data=(0.5 * values + 0.5 * same).transpose(*values.dims))
    return values.assign_attrs(quantity=_quantity(values, scope))


def last_scope_of_heads(dataset: xr.Dataset) -> str | None:
    """The last scope at which heads are separate, if there are maps of heads."""
    return str(dataset["head_scope"].values[-1]) if schema.HEAD_MAP in dataset else None


def _head_map(dataset: xr.Dataset, scope: Scope) -> xr.DataArray:
    if schema.HEAD_MAP not in dataset:
        raise SelectionError("There are no maps of single heads here: analyse with heads=True.")
    available = [str(name) for name in dataset["head_scope"].values]
    if scope not in available:
        raise SelectionError(f"Heads are separate only at {listing(available)}; at {scope} they are already mixed.")
    values = dataset[schema.HEAD_MAP].sel(head_scope=scope).rename(scope)
    return values.assign_attrs(quantity=_quantity(values, scope))


def _other_map(dataset: xr.Dataset, scope: Scope, quantity: str, *, heads: bool) -> xr.DataArray:
    variable = schema.HEAD_PROJECTION if heads else schema.PROJECTION
    if quantity == "projection" and variable in dataset:
        values = dataset[variable]
        available = [str(name) for name in values["projection_scope"].values]
        return values.sel(projection_scope=resolve(scope, available)).rename(scope)
    missing = f"quantity {quantity!r}" + (" of single heads" if heads else "")
    advice = "analyse with projections=True" + (", heads=True" if heads else "")
    hint = f": {advice}." if quantity == "projection" else "."
    own = _quantity(dataset[schema.MAP], scope)
    raise SelectionError(f"There is no {missing} here; maps at {scope} are of the {own}{hint}")


def _quantity(values: xr.DataArray, scope: Scope) -> str:
    """What a map measures: attention weights at the scopes of weights, elsewhere what its method does."""
    return "weight" if scope.quantity == "weight" else str(values.attrs.get("quantity", scope.quantity))
