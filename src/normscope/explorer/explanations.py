"""From an explanation to what the front end follows: targets, relevance of all tokens at every depth, and the edges between.

Owns the format of explanations (its other half is `front-end/src/model/explanation.ts`). Edges are float32 and in order of
size, layer by layer; a page of a long text carries only the largest, says what share of the flow they are, and draws the
rest, which follows from the relevance (and for tokens of an encoder from `taken`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from normscope import schema
from normscope.explain import datasets as names
from normscope.explain.explanation import Explanation
from normscope.explorer import pieces
from normscope.explorer.pieces import Precision

_MOST_EDGES = 60_000
"""Edges of all layers and targets that a page carries, so that one of a usual text stays under 1 MB."""

_FEWEST_EDGES = 400
"""Edges of every layer that a page carries in any case."""


def explanation_payload(explanation: Explanation, precision: Precision) -> dict[str, Any]:
    """What the front end needs of an explanation, and of its encoder below it."""
    dataset = explanation.dataset
    biases = np.atleast_1d(np.asarray(explanation.bias, dtype=np.float64))
    targets = [
        {"name": str(name), "position": int(position), "value": float(value), "bias": float(bias)}
        for name, position, value, bias in zip(
            dataset["target_name"].values,
            dataset["target_position"].values,
            dataset[names.VALUE].values,
            biases,
            strict=True,
        )
    ]
    content = {
        "facts": pieces.facts(dataset),
        "method": explanation.method,
        "quantity": str(dataset[names.RELEVANCE].attrs.get("quantity", names.LOGIT)),
        "error": explanation.completeness,
        "targets": targets,
        "predictions": _predictions(explanation),
        "stack": _stack(dataset, precision),
    }
    if explanation.has_encoder:
        content["encoder"] = _stack(explanation.encoder, precision)
    if schema.IMAGE in dataset:
        content["image"] = pieces.image(dataset[schema.IMAGE].values)
    return content


def _predictions(explanation: Explanation) -> list[dict[str, Any]]:
    """What the model predicts at the places of the values: the likeliest labels."""
    dataset = explanation.dataset
    if names.PROBABILITY not in dataset:
        return []
    places: dict[int, list[dict[str, Any]]] = {}
    for target, position in enumerate(dataset["target_position"].values):
        ranked = [{"name": name, "probability": float(chance)} for name, chance in explanation.top_predictions(target)]
        places.setdefault(int(position), ranked)
    of = explanation.probabilities_of
    return [{"position": position, "of": of, "options": options} for position, options in places.items()]


def _stack(dataset: xr.Dataset, precision: Precision) -> dict[str, Any]:
    """One stack of layers: `relevance` of what enters the first and of what leaves each, and what flows between."""
    content: dict[str, Any] = {
        "tokens": pieces.tokens(dataset, "query"),
        "keys": pieces.tokens(dataset, "key") if "key" in dataset.coords else pieces.tokens(dataset, "query"),
        "relevance": pieces.block(dataset[names.RELEVANCE].values, "full"),
    }
    if names.EDGES not in dataset:
        return content
    for field, name in (("heads", names.HEADS), ("feedForward", names.FEED_FORWARD), ("bias", names.BIAS)):
        content[field] = pieces.block(dataset[name].values, "full")
    edges = dataset[names.EDGES].values
    own = len(content["tokens"]["position"])
    if edges.shape[-1] > own:
        content["taken"] = pieces.block(edges[..., own:].sum(axis=2), "full")
    return content | {"edges": _edges(edges, precision)}


def _edges(values: np.ndarray, precision: Precision) -> dict[str, Any]:
    """The largest edges of `[target, layer, query, key]`, those of every layer in order of size, and how many they are.

    `total` is the absolute value of all edges of a layer, also of those that are left out.
    """
    targets, layers, queries, keys = values.shape
    flat = np.abs(values).reshape(targets * layers, queries * keys)
    most = max(_FEWEST_EDGES, _MOST_EDGES // max(1, len(flat))) if precision == "display" else flat.shape[1]
    places = np.argsort(-flat, axis=1, kind="stable")[:, :most]
    kept = np.take_along_axis(flat, places, axis=1) > 0
    sizes = np.take_along_axis(values.reshape(flat.shape), places, axis=1)
    return {
        "count": [int(count) for count in kept.sum(axis=1)],
        "total": [float(total) for total in flat.sum(axis=1, dtype=np.float64)],
        "place": pieces.packed(places[kept].astype("<u4")),
        "value": pieces.packed(sizes[kept].astype("<f4")),
    }
