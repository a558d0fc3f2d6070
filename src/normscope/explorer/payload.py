"""From analyses to the JSON that the front end reads: labels as they are, numbers as compressed blocks.

Owns the format (its other half is `front-end/src/model/decode.ts`). Maps are quantised for display, row by row, so that
every row keeps its own resolution; `precision="full"` keeps float32.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from normscope import schema
from normscope.analysis import Analysis
from normscope.errors import InputError
from normscope.scopes import Scope

VERSION = 2

Precision = Literal["display", "full"]
"""`display`: 16 bits (8 for large maps), each row scaled by its maximum. `full`: float32."""

_MOST_16_BIT_VALUES = 200_000
"""Arrays up to this size are quantised to 16 bits, larger ones to 8, so that pages of usual texts stay under 1 MB."""

MOST_ANALYSES = 2

_WORDS = {"Attn": "attention", "Cross": "cross-attention", "Res": "residual", "Ln": "norm", "Ff": "feed-forward"}
"""The components as a reader knows them."""


def build_payload(*analyses: Analysis, precision: Precision = "display") -> dict[str, Any]:
    """What the front end needs of one analysis, or of two to compare."""
    if not 1 <= len(analyses) <= MOST_ANALYSES:
        raise InputError(f"The explorer shows one analysis, or two side by side, not {len(analyses)}.")
    if precision not in ("display", "full"):
        raise InputError(f"The precision of a page is 'display' or 'full', not {precision!r}.")
    return {"version": VERSION, "analyses": [_analysis(analysis, precision) for analysis in analyses]}


def payload_json(*analyses: Analysis, precision: Precision = "display") -> str:
    """The payload as JSON that is pure ASCII and free of `<`, `>` and `&`, so that it can stand inside HTML."""
    text = json.dumps(build_payload(*analyses, precision=precision), ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def exact_map(analysis: Analysis, scope: str, layer: int, head: int | None = None) -> np.ndarray:
    """`[query, key]` in float32, as analysed: full precision on demand, for hosts that are still connected."""
    values = analysis.map(scope, heads=head is not None).sel(layer=layer)
    if head is not None:
        values = values.sel(head=head)
    return np.ascontiguousarray(values.values, dtype="<f4")


def _analysis(analysis: Analysis, precision: Precision) -> dict[str, Any]:
    dataset = analysis.dataset
    if schema.MAP not in dataset:
        raise InputError("There are no maps to explore here, only mixing ratios: use `analyze`, not `mixing_ratios`.")
    content: dict[str, Any] = {
        "facts": _facts(dataset),
        "method": str(dataset.attrs.get("method", "norms")),
        "quantity": _quantity(dataset),
        "layers": [int(layer) for layer in dataset["layer"].values],
        "scopes": _scopes(dataset),
        "queries": _tokens(dataset, "query"),
        "keys": _tokens(dataset, "key"),
        "map": _block(dataset[schema.MAP].values, precision),
        "completeness": [float(error) for error in analysis.completeness.values],
    }
    for field, name in (("mixing", schema.MIXING_RATIO), ("sourceMixing", schema.SOURCE_MIXING_RATIO)):
        if name in dataset:
            content[field] = _block(dataset[name].values, "full")
    if schema.HEAD_MAP in dataset:
        content["heads"] = {
            "scopes": [str(scope) for scope in dataset["head_scope"].values],
            "numbers": [int(head) for head in dataset["head"].values],
            "map": _block(dataset[schema.HEAD_MAP].values, precision),
        }
    if "image" in dataset:
        content["image"] = _image(dataset["image"].values)
    if analysis.has_encoder:
        content["encoder"] = _analysis(analysis.encoder, precision)
    return content


def _quantity(dataset: xr.Dataset) -> str:
    """What the map's cells measure, at every scope but those of weights."""
    return str(dataset[schema.MAP].attrs.get("quantity", "norm"))


def _scopes(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Every scope with its parts, so that the front end never has to read a name."""
    heads = [str(scope) for scope in dataset["head_scope"].values] if schema.HEAD_MAP in dataset else []
    scopes: list[dict[str, Any]] = []
    for name, values in zip(map(str, dataset["scope"].values), dataset[schema.MAP].values, strict=True):
        scope = Scope(name)
        scopes.append(
            {
                "name": name,
                "components": list(scope.components),
                "words": [_WORDS.get(component, component) for component in scope.components],
                "quantity": "weight" if scope.quantity == "weight" else _quantity(dataset),
                "heads": name in heads,
                "signed": bool((values < 0).any()),
            }
        )
    return scopes


def _facts(dataset: xr.Dataset) -> dict[str, str | int | float]:
    return {str(name): _plain(value) for name, value in dataset.attrs.items()}


def _plain(value: Any) -> str | int | float:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float) else str(value)


def _tokens(dataset: xr.Dataset, dimension: str) -> dict[str, list[Any]]:
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


def _image(values: np.ndarray) -> dict[str, Any]:
    """Height, width and RGB bytes of an image `[y, x, channel]`."""
    pixels = np.asarray(values, dtype=np.uint8)
    if pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    return {"height": pixels.shape[0], "width": pixels.shape[1], "data": _packed(pixels[..., :3])}


def _block(values: np.ndarray, precision: Precision) -> dict[str, Any]:
    """An array as a block: codes of 8 or 16 bits with one scale per row (the last axis is a row), or plain float32.

    The highest code means "does not exist" and 0 is the lowest value, so that what has negative values stays float32.
    """
    shape = list(values.shape)
    if precision == "full" or (values < 0).any():
        return {"bits": 32, "shape": shape, "data": _packed(values.astype("<f4"))}
    bits, dtype = (16, "<u2") if values.size <= _MOST_16_BIT_VALUES else (8, "<u1")
    missing = 2**bits - 1
    exists = np.isfinite(values)
    scale = np.where(exists, values, 0.0).max(axis=-1, initial=0.0).astype("<f4")
    divisor = np.where(scale > 0, scale, 1.0)[..., None]
    codes = np.rint(np.where(exists, values, 0.0) / divisor * (missing - 1))
    quantised = np.where(exists, np.clip(codes, 0, missing - 1), missing).astype(dtype)
    return {"bits": bits, "shape": shape, "data": _packed(quantised), "scale": _packed(scale)}


def _packed(values: Sequence[int] | np.ndarray) -> str:
    """An array's bytes, compressed, as base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 6)).decode("ascii")
