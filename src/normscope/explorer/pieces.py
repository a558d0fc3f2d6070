"""The pieces that a payload is made of: facts, token tables, images, and numbers as compressed blocks.

Owns how numbers are packed (the other half is `front-end/src/model/decode.ts`). Maps are quantised for display, row by row,
so that every row keeps its own resolution; `precision="full"` keeps float32.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

Precision = Literal["display", "full"]
"""`display`: 16 bits (8 for large maps), each row scaled by its maximum. `full`: float32."""

_MOST_16_BIT_VALUES = 200_000
"""Arrays up to this size are quantised to 16 bits, larger ones to 8, so that pages of usual texts stay under 1 MB."""


def facts(dataset: xr.Dataset) -> dict[str, str | int | float]:
    """What is known of how a result came about."""
    known = {str(name): _plain(value) for name, value in dataset.attrs.items()}
    return known | ({"model": model_name(str(known["model"]))} if "model" in known else {})


def model_name(name: str) -> str:
    """A model as a reader knows it: of a folder of somebody's machine only the last part."""
    path = Path(name)
    return path.name if path.is_absolute() or name.startswith((".", "~")) else name


def _plain(value: Any) -> str | int | float:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float) else str(value)


def tokens(dataset: xr.Dataset, dimension: str) -> dict[str, list[Any]]:
    """What is known of the tokens along `query` or `key`, one list for each column."""
    columns = {
        "position": (dimension, int),
        "token": (f"{dimension}_token", str),
        "special": (f"{dimension}_special", int),
        "word": (f"{dimension}_word", int),
        "wordText": (f"{dimension}_word_text", str),
        "group": (f"{dimension}_group", str),
        "row": (f"{dimension}_row", int),
        "column": (f"{dimension}_column", int),
    }
    return {
        field: [kind(value) for value in dataset[name].values]
        for field, (name, kind) in columns.items()
        if name in dataset.coords
    }


def image(values: np.ndarray) -> dict[str, Any]:
    """Height, width and RGB bytes of an image `[y, x, channel]`."""
    pixels = np.asarray(values, dtype=np.uint8)
    if pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    return {"height": pixels.shape[0], "width": pixels.shape[1], "data": packed(pixels[..., :3])}


def block(values: np.ndarray, precision: Precision) -> dict[str, Any]:
    """An array as a block: codes of 8 or 16 bits with one scale per row (the last axis is a row), or plain float32.

    The highest code means "does not exist" and 0 is the lowest value, so that what has negative values stays float32.
    """
    shape = list(values.shape)
    if precision == "full" or (values < 0).any():
        return {"bits": 32, "shape": shape, "data": packed(values.astype("<f4"))}
    bits, dtype = (16, "<u2") if values.size <= _MOST_16_BIT_VALUES else (8, "<u1")
    missing = 2**bits - 1
    exists = np.isfinite(values)
    scale = np.where(exists, values, 0.0).max(axis=-1, initial=0.0).astype("<f4")
    divisor = np.where(scale > 0, scale, 1.0)[..., None]
    codes = np.rint(np.where(exists, values, 0.0) / divisor * (missing - 1))
    quantised = np.where(exists, np.clip(codes, 0, missing - 1), missing).astype(dtype)
    return {"bits": bits, "shape": shape, "data": packed(quantised), "scale": packed(scale)}


def packed(values: Sequence[int] | np.ndarray) -> str:
    """An array's bytes, compressed, as base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 6)).decode("ascii")
