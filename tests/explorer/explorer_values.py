"""The cells of a map as a page exports them, and as Python has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr


def expected(values: xr.DataArray) -> dict[tuple[str, str, str], float]:
    """The cells of a map `[query, key]`, as `Shown.values` gives them."""
    cells: dict[tuple[str, str, str], float] = {}
    for row, query in enumerate(values["query"].values):
        for column, key in enumerate(values["key"].values):
            value = float(values.values[row, column])
            if not np.isnan(value):
                names = values["query_token"].values[row], values["key_token"].values[column]
                cells[f"{query} {names[0]}", str(values["key_group"].values[column]), f"{key} {names[1]}"] = value
    return cells


def assert_same(shown: dict[Any, float], wanted: dict[Any, float], tolerance: float = 1e-4) -> None:
    assert list(shown) == list(wanted)
    scale = max(abs(value) for value in wanted.values())
    assert max(abs(shown[name] - wanted[name]) for name in wanted) <= 2 * tolerance * scale
