"""The elements of a payload: facts, token tables, images, and numbers as compressed blocks.

Owns how numbers are packed (the counterpart is `front-end/src/model/decode.ts`). Maps are quantised for display, on a
logarithmic scale, so that small values are as accurate as large ones; `precision="full"` keeps float32.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import xarray as xr

from normscope.models.source import model_name
from normscope.results.tokens import readable

Precision = Literal["display", "full"]
"""`display`: codes of 16 bits, logarithmic, so that every share has a relative error below 0.5 %. `full`: float32."""

_SMALLEST = 1e-6
"""At display precision, values below this fraction of the largest in their row are 0."""

_FINE, _COARSE, _MOST_FINE_VALUES = 1e-4, 2e-3, 200_000
"""The largest relative error of a cell, in arrays up to a size, and in larger ones, which compress better with it."""

_MISSING = 2**16 - 1
_HIGHEST = _MISSING - 1


def facts(dataset: xr.Dataset) -> dict[str, str | int | float]:
    """The attributes of a result."""
    known = {str(name): _plain(value) for name, value in dataset.attrs.items()}
    return known | ({"model": model_name(str(known["model"]))} if "model" in known else {})


def _plain(value: object) -> str | int | float:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float) else str(value)


def tokens(dataset: xr.Dataset, dimension: str) -> Mapping[str, Sequence[int | str]]:
    """What is known of the tokens along a dimension such as `query`, one list for each column."""
    columns = {
        "position": (dimension, int),
        "token": (f"{dimension}_token", str),
        "special": (f"{dimension}_special", int),
        "sink": (f"{dimension}_sink", int),
        "word": (f"{dimension}_word", int),
        "wordText": (f"{dimension}_word_text", str),
        "group": (f"{dimension}_group", str),
        "row": (f"{dimension}_row", int),
        "column": (f"{dimension}_column", int),
        "count": (f"{dimension}_count", int),
        "prompt": (f"{dimension}_prompt", int),
        "segment": (f"{dimension}_segment", int),
    }
    table = {
        field: [kind(value) for value in dataset[name].values]
        for field, (name, kind) in columns.items()
        if name in dataset.coords
    }
    texts = readable(table["token"])
    return table if texts == table["token"] else table | {"text": texts}


def image(values: np.ndarray) -> dict[str, object]:
    """Height, width and RGB bytes of an image `[y, x, channel]`."""
    pixels = np.asarray(values, dtype=np.uint8)
    if pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    return {"height": pixels.shape[0], "width": pixels.shape[1], "data": packed(pixels[..., :3])}


def block(values: np.ndarray, precision: Precision) -> dict[str, object]:
    """An array as a block: codes of 16 bits on a logarithmic scale below the largest of each row, or plain float32.

    The last axis is a row. Code 0 is zero and the highest "does not exist"; code `top` is the row's scale, and one code less
    is a factor of `exp(-step)`, down to `_SMALLEST`. The codes above `top` are the negative values. Low bytes come first,
    then high bytes, which compresses better than pairs.
    """
    shape = list(values.shape)
    if precision == "full":
        return {"bits": 32, "shape": shape, "data": packed(values.astype("<f4"))}
    exists = np.isfinite(values)
    known = np.where(exists, values, 0.0)
    scale = np.abs(known).max(axis=-1, initial=0.0).astype("<f4")
    signed = bool((known < 0).any())
    error = _FINE if values.size <= _MOST_FINE_VALUES else _COARSE
    top = min(_HIGHEST // (2 if signed else 1), 1 + math.ceil(-math.log(_SMALLEST) / (2 * error)))
    step = -math.log(_SMALLEST) / (top - 1)
    sizes = np.abs(known) / np.where(scale > 0, scale, 1.0)[..., None]
    codes = np.zeros(values.shape, dtype=np.int64)
    shown = sizes >= _SMALLEST
    codes[shown] = np.clip(np.rint(top + np.log(sizes[shown]) / step), 1, top)
    codes[shown & (known < 0)] += top
    codes[~exists] = _MISSING
    planes = codes.astype("<u2").reshape(-1, 1).view(np.uint8).T
    # Twice the error of a cell: a share is a cell divided by a sum of cells.
    return {
        "bits": 16,
        "shape": shape,
        "data": packed(planes),
        "scale": packed(scale),
        "step": step,
        "top": top,
        "error": 2 * math.expm1(step / 2),
    }


def packed(values: Sequence[int] | np.ndarray) -> str:
    """An array's bytes, compressed, as base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 6)).decode("ascii")
