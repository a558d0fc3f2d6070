"""The written schema of a result: names, dimensions and coordinates of the xarray dataset behind every analysis.

One place for the names, so that files stay readable by anything that reads netCDF. The documentation's schema page says the
same in prose; `VERSION` changes whenever a reader would have to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from normscope.chain.measure import Variable
from normscope.inputs import NO_WORD, NOWHERE, TokenSequence

VERSION = 2

MAP = "map"
MIXING_RATIO = "mixing_ratio"
SOURCE_MIXING_RATIO = "source_mixing_ratio"
HEAD_MAP = "head_map"
COMPLETENESS = "completeness"
COMPONENT_ERROR = "component_error"
PROJECTION = "projection"
PROJECTION_BIAS = "projection_bias"
PROJECTION_ERROR = "projection_error"
HEAD_PROJECTION = "head_projection"
BIAS_NORM = "bias_norm"
IMAGE = "image"
APPROXIMATION_ERROR = "approximation_error"
APPROXIMATION_SPEARMAN = "approximation_spearman"
APPROXIMATION_NEURONS = "approximation_neurons"
APPROXIMATION_DIRECTIONS = "approximation_directions"
APPROXIMATION_PRODUCTS = "approximation_products"
APPROXIMATION_PATTERNS = "approximation_patterns"

NORMS = "norms"
"""The method whose maps are norms of parts, layer by layer."""

DECODER, ENCODER = "decoder", "encoder"
"""The groups of an encoder-decoder's result."""

KINDS = ("explanation", "answer", "similarity")
"""What a result says that it is, if it is no analysis."""

Attributes = Mapping[str, str | int | float]

Variables = Mapping[str, str]
"""Variables and coordinates by name, and the dimensions of each; `scope` stands for any dimension of scopes."""

_SCOPES = ("scope", "head_scope", "projection_scope", "checked_scope", "component")

TOKENS: Variables = {
    f"{dimension}{name}": dimension
    for dimension in ("query", "key")
    for name in (
        *("", "_token", "_special", "_word", "_word_text", "_segment", "_start", "_end", "_turn"),
        *("_row", "_column", "_time", "_group", "_output_token"),
    )
}
"""What is known of the tokens along both axes."""

VARIABLES: Variables = {
    **TOKENS,
    **dict.fromkeys(_SCOPES, "scope"),
    "layer": "layer",
    "head": "head",
    MAP: "scope layer query key",
    MIXING_RATIO: "scope layer query",
    SOURCE_MIXING_RATIO: "scope layer query",
    HEAD_MAP: "scope layer head query key",
    COMPLETENESS: "layer",
    COMPONENT_ERROR: "scope layer",
    PROJECTION: "scope layer query key",
    PROJECTION_BIAS: "scope layer query",
    PROJECTION_ERROR: "scope layer",
    HEAD_PROJECTION: "scope layer head query key",
    BIAS_NORM: "scope layer query",
    IMAGE: "y x channel",
    APPROXIMATION_ERROR: "scope layer",
    APPROXIMATION_SPEARMAN: "scope layer",
    APPROXIMATION_NEURONS: "layer",
    APPROXIMATION_DIRECTIONS: "layer",
    APPROXIMATION_PATTERNS: "layer",
    APPROXIMATION_PRODUCTS: "layer",
}
"""Everything that the dataset of an analysis may have."""

_TEXTS = ("_token", "_turn", "_word_text", "_group", "_name", "_products", "prediction", *_SCOPES)
"""How the names of variables end that hold texts; all others hold numbers."""


def build(
    variables: Mapping[str, Variable],
    layers: Sequence[int],
    queries: TokenSequence,
    positions: Sequence[int],
    keys: Mapping[str, TokenSequence],
    attributes: Attributes,
) -> xr.Dataset:
    """The dataset of one sequence: what its measures found, the query tokens at `positions`, the key tokens by group."""
    coordinates: dict[str, object] = {
        "layer": list(layers),
        **token_coordinates("query", {"": queries}, positions),
        **token_coordinates("key", keys),
    }
    contents = dict(variables)
    if queries.image is not None:
        contents[IMAGE] = ("y", "x", "channel"), queries.image
    return xr.Dataset(contents, coordinates, {"schema_version": VERSION, "method": NORMS, **attributes})


def tree(main: xr.Dataset, encoder: xr.Dataset | None) -> xr.DataTree:
    """The datasets of one input: the only one at the root, or those of decoder and encoder next to each other below it."""
    if encoder is None:
        return xr.DataTree(main)
    root = xr.Dataset(attrs={name: main.attrs[name] for name in ("schema_version", "method") if name in main.attrs})
    return xr.DataTree.from_dict({"/": root, DECODER: main, ENCODER: encoder})


def problem(dataset: xr.Dataset, variables: Variables) -> str | None:
    """What keeps a dataset that was read from being a result, as the end of a sentence; `None` if nothing does."""
    for name, variable in dataset.variables.items():
        dimensions = ["scope" if dimension in _SCOPES else str(dimension) for dimension in variable.dims]
        if " ".join(dimensions) not in variables[str(name)].split(", "):
            return f"{name!r} has the dimensions {', '.join(map(str, variable.dims)) or 'of a single number'}"
        if (variable.dtype.kind in "OUST") != str(name).endswith(_TEXTS):
            return f"{name!r} holds {variable.dtype}"
    along = ("query", "key", "first", "second")
    needed = [f"{dimension}{name}" for dimension in along for name in ("", "_token", "_special", "_word")]
    missing = [name for name in (*needed, "layer") if name.split("_")[0] in dataset.dims and name not in dataset.coords]
    return f"it has no {', '.join(missing)}" if missing else None


def upgraded(dataset: xr.Dataset) -> xr.Dataset:
    """A dataset of an older version in the names of this one."""
    if dataset.attrs.get("kind") in KINDS:
        return dataset
    if "component" in dataset.dims:
        dataset = dataset.rename(component="checked_scope")
        dataset[COMPLETENESS] = dataset[COMPONENT_ERROR].max("checked_scope")
    return dataset.assign_attrs(method=dataset.attrs.get("method", NORMS), schema_version=VERSION)


def token_coordinates(
    dimension: str, groups: Mapping[str, TokenSequence], positions: Sequence[int] | None = None
) -> dict[str, Variable]:
    """What is known of the tokens along `query` or `key`: their positions, strings, words and special flags."""
    sequences = list(groups.values())
    names = [group for group, sequence in groups.items() for _ in sequence.tokens]
    word_ids = [word for sequence in sequences for word in sequence.word_ids or [NO_WORD] * len(sequence)]
    chosen = np.arange(len(names)) if positions is None else np.asarray(positions)

    def along(values: ArrayLike, dtype: type | None = None) -> tuple[str, np.ndarray]:
        return dimension, np.asarray(values, dtype=dtype)[chosen]

    coordinates: dict[str, Variable] = {
        dimension: chosen,
        f"{dimension}_token": along([token for s in sequences for token in s.tokens], object),
        f"{dimension}_special": along([flag for s in sequences for flag in s.special], bool),
        f"{dimension}_word": along(word_ids, np.int64),
        f"{dimension}_word_text": along([word for s in sequences for word in s.words], object),
    }
    if all(s.segments is not None for s in sequences):
        coordinates[f"{dimension}_segment"] = along([text for s in sequences for text in s.segments or []], np.int64)
    if all(s.turns is not None for s in sequences):
        coordinates[f"{dimension}_turn"] = along([turn for s in sequences for turn in s.turns or []], object)
    if any(s.offsets is not None for s in sequences):
        offsets = np.array([span for s in sequences for span in s.offsets or [NOWHERE] * len(s)], dtype=np.int64)
        coordinates |= {f"{dimension}_start": along(offsets[:, 0]), f"{dimension}_end": along(offsets[:, 1])}
    if all(s.grid is not None for s in sequences):
        grid = np.array([place for s in sequences for place in s.grid or []])
        coordinates |= {f"{dimension}_row": along(grid[:, 0]), f"{dimension}_column": along(grid[:, 1])}
    if any(s.times is not None for s in sequences):  # a decoder's tokens have none
        times = [time for s in sequences for time in s.times or [math.nan] * len(s)]
        coordinates[f"{dimension}_time"] = along(times, np.float64)
    if dimension == "key":
        coordinates["key_group"] = along(names, object)
    elif sequences[0].output_tokens is not None:
        coordinates["query_output_token"] = along(sequences[0].output_tokens, object)
    return coordinates
