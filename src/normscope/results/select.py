"""Which maps of an analysis a picture, table or file is about: one scope, one or more layers, perhaps one head.

Owns the checks of what was requested against what was analysed. What becomes of the selection is not decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from normscope.errors import SelectionError, listing
from normscope.options import NormaliseAxis, normalise_axis, whole_number, whole_numbers
from normscope.results.rollout import normalise
from normscope.scopes import Scope, resolve, resolve_all

if TYPE_CHECKING:
    from normscope.results.analysis import Analysis

_SHARES = {"row": "share of the row", "column": "share of the column"}
_QUANTITIES = {"weight": "attention weight", "norm": "norm of the part"}
"""Quantities in the words that a legend needs; any other is its own word."""


@dataclass(frozen=True)
class MapSelection:
    """Maps `[layer, query, key]` at one scope, of all heads together or of one."""

    scope: Scope
    head: int | None
    normalise: NormaliseAxis
    values: xr.DataArray
    quantity: str

    @property
    def layers(self) -> list[int]:
        return [int(layer) for layer in self.values["layer"].values]

    @property
    def meaning(self) -> str:
        """What a cell measures, in words."""
        return _SHARES.get(self.normalise, _QUANTITIES.get(self.quantity, self.quantity))

    @property
    def name(self) -> str:
        """The scope, and the head if it is one head's map."""
        return self.scope if self.head is None else f"{self.scope}, head {self.head}"

    def without_missing_keys(self) -> MapSelection:
        """The same without keys that exist for no query, as the source's do before a cross-attention."""
        existing = np.isfinite(self.values.transpose("key", ...).values).any(axis=(1, 2))
        return replace(self, values=self.values.isel(key=np.flatnonzero(existing)))

    def of_layer(self, layer: int) -> xr.DataArray:
        """`[query, key]`: the map of one layer."""
        return self.values.sel(layer=layer)


def select_map(
    analysis: Analysis,
    scope: str | None = None,
    layers: int | Sequence[int] | None = None,
    *,
    head: int | None = None,
    normalised: str = "none",
) -> MapSelection:
    """The maps at a scope (default: the whole layer), of some layers (default all); an error lists what was analysed."""
    axis = normalise_axis(normalised)
    values = analysis.map(scope, heads=head is not None)
    values = values.sel(layer=check_layers(analysis, layers))
    if head is not None:
        values = values.sel(head=_check_head(values, head))
    quantity = str(values.attrs.get("quantity", "norm"))
    return MapSelection(resolve(str(values.name), analysis.scopes), head, axis, normalise(values, axis), quantity)


def check_layers(analysis: Analysis, layers: int | Sequence[int] | None) -> list[int]:
    """The layers requested (default all), if they were analysed."""
    if layers is None:
        return analysis.layers
    asked = whole_numbers(layers, "A layer")
    for layer in asked:
        if layer not in analysis.layers:
            raise SelectionError(f"There is no layer {layer} here. Analysed layers: {listing(analysis.layers)}.")
    if not asked:
        raise SelectionError(f"No layer was requested. Analysed layers: {listing(analysis.layers)}.")
    return asked


def check_scopes(analysis: Analysis, scopes: str | Sequence[str] | None) -> list[Scope]:
    """The scopes requested (default: those analysed, without those derived from them), in order."""
    if scopes is None:
        return [Scope(str(scope)) for scope in analysis.dataset["scope"].values]
    return resolve_all(scopes, analysis.scopes)


def _check_head(values: xr.DataArray, head: int) -> int:
    heads, asked = [int(number) for number in values["head"].values], whole_number(head, "A head")
    if asked not in heads:
        raise SelectionError(f"There is no head {asked} here. Heads: {heads[0]} to {heads[-1]}.")
    return asked
