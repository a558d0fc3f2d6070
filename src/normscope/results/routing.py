"""The routing account of an explanation: the share of attention weights, which belongs to no token's state. Half (or
another part) of `weight x value` is credited to the weight instead of the value. The account is conserved: shares, biases
and account add up to the value at every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from normscope.errors import SelectionError
from normscope.results import explanation_schema as names


def has_account(datasets: Sequence[xr.Dataset]) -> bool:
    """Whether weights were counted."""
    return any(names.LOOKED_AT in dataset for dataset in datasets)


def account_of(dataset: xr.Dataset, *, heads: bool = False) -> xr.DataArray:
    """`[target, layer, query, key]`, or with heads `[target, layer, head, query, key]`; raises where there is none."""
    name = names.HEAD_ROUTING if heads else names.ROUTING
    if name in dataset:
        return dataset[name]
    if not heads and names.LOOKED_AT in dataset:
        raise SelectionError(
            "The account of every query and key was not kept, as the edges were not: explain with edges=True. looked_at has "
            "it by key."
        )
    if heads and names.LOOKED_AT in dataset:
        raise SelectionError("The account of single heads was not requested: explain with heads=True.")
    raise SelectionError(
        "There is no routing account: all credit went to the values. Explain by the pull-back with weights='half'."
    )


def routed(datasets: Sequence[xr.Dataset]) -> Any:
    """`[target]`: all that stays with weights, of decoder and encoder together."""
    accounts = [data[names.LOOKED_AT].sum(("layer", "key")) for data in datasets if names.LOOKED_AT in data]
    return sum(accounts[1:], accounts[0]).rename(names.ROUTING)


def looked_at(dataset: xr.Dataset, group: str) -> xr.DataArray:
    """`[target, token]`: what stays with the weights on each token as a key, of all layers and queries of one stack."""
    if names.LOOKED_AT not in dataset:
        account_of(dataset)
    account = dataset[names.LOOKED_AT].sum("layer")
    own = account.isel(key=np.flatnonzero(account["key_group"].values == group))
    described = [str(name) for name in own.coords if str(name).startswith("key_")]
    renamed = own.rename({name: name.replace("key_", "token_", 1) for name in described} | {"key": "token"})
    return renamed.assign_coords(token=np.arange(renamed.sizes["token"])).rename("looked_at")
