"""From what a method found to labelled arrays: the written schema of an explanation.

One dataset for each stack. A pull-back has the `relevance` of the states (`depth` 0 is what enters the first layer), and for
every layer its `edges`, shares of heads and feed-forwards, and biases; other methods have the `attribution` of the tokens
alone. The documentation's schema page says the same in prose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from normscope.explain.probabilities import EACH
from normscope.explain.pulling import Pulled, StackFlow
from normscope.explain.question import Answer
from normscope.explain.sinks import sinks
from normscope.explain.task import Attributed, Predictions
from normscope.inputs import NOWHERE, TokenSequence
from normscope.pullback import LayerFlow
from normscope.results import schema

RELEVANCE, EDGES, HEADS, HEAD_EDGES = "relevance", "edges", "heads", "head_edges"
FEED_FORWARD, BIAS, END_BIAS, VALUE, ERROR = "feed_forward", "bias", "end_bias", "value", "conservation_error"
ATTRIBUTION, PREDICTION, PROBABILITY = "attribution", "prediction", "prediction_probability"
TARGET_PROBABILITY = "target_probability"
RECEIVED, STATE_NORM, SINK = "attention_received", "state_norm", "query_sink"
ROUTING, HEAD_ROUTING, LOOKED_AT = "routing", "head_routing", "looked_at"
LOGIT = "logit"
KIND = "explanation"

VARIABLES: schema.Variables = {
    **schema.TOKENS,
    **{name: name for name in ("target", "layer", "depth", "head", "rank")},
    "target_name": "target",
    "target_position": "target",
    RELEVANCE: "target depth query",
    EDGES: "target layer query key",
    HEADS: "target layer head key",
    HEAD_EDGES: "target layer head query key",
    ROUTING: "target layer query key",
    HEAD_ROUTING: "target layer head query key",
    LOOKED_AT: "target layer key",
    FEED_FORWARD: "target layer query",
    BIAS: "target layer query",
    END_BIAS: "target",
    RECEIVED: "layer query",
    STATE_NORM: "layer query",
    SINK: "query",
    ERROR: "target depth, target",
    VALUE: "target",
    ATTRIBUTION: "target query",
    PREDICTION: "target rank",
    PROBABILITY: "target rank",
    TARGET_PROBABILITY: "target",
    schema.IMAGE: "y x channel",
}
"""Everything that the dataset of an explanation may have."""


def explanation_tree(
    pulled: Pulled, sequence: TokenSequence, attributes: schema.Attributes, predictions: Predictions | None
) -> xr.DataTree:
    """The datasets of a pull-back: that of the only stack, or those of decoder and encoder."""
    described = _Described(sequence, pulled.answers, attributes)
    main = _flow_dataset(described, pulled.main, described.main)
    main[END_BIAS] = "target", _numpy(pulled.end_bias)
    _add_values(main, pulled.values, predictions)
    if pulled.encoder is None:
        return schema.tree(main, None)
    return schema.tree(main, _flow_dataset(described, pulled.encoder, described.encoder))


def attribution_tree(
    attributed: Attributed,
    sequence: TokenSequence,
    quantity: str,
    attributes: schema.Attributes,
    predictions: Predictions | None,
) -> xr.DataTree:
    """The datasets of a method that attributes values to tokens and follows nothing through the layers."""
    described = _Described(sequence, attributed.answers, attributes)
    dimensions, about = ("target", "query"), {"quantity": quantity}
    main = described.dataset({ATTRIBUTION: (dimensions, _numpy(attributed.shares), about)}, described.main)
    _add_values(main, attributed.values, predictions)
    if attributed.bias is not None:
        main[END_BIAS] = "target", _numpy(attributed.bias)
    if attributed.errors is not None:
        main[ERROR] = "target", _numpy(attributed.errors)
    if attributed.encoder is None:
        return schema.tree(main, None)
    shares = {ATTRIBUTION: (dimensions, _numpy(attributed.encoder), about)}
    return schema.tree(main, described.dataset(shares, described.encoder))


@dataclass(frozen=True)
class _Side:
    """The tokens of one stack: its queries, and its keys by group."""

    queries: TokenSequence
    keys: Mapping[str, TokenSequence]


class _Described:
    """What all datasets of an explanation say of the input and of what is explained."""

    def __init__(self, sequence: TokenSequence, answers: Sequence[Answer], attributes: schema.Attributes) -> None:
        self.facts = {"schema_version": schema.VERSION, "kind": KIND, **attributes}
        self.targets: dict[str, object] = {
            "target": np.arange(len(answers)),
            "target_name": ("target", np.array([answer.name for answer in answers], dtype=object)),
            "target_position": ("target", [answer.position for answer in answers]),
        }
        self.encoder = _Side(sequence, {"self": sequence})
        self.main = self.encoder
        if sequence.target is not None:
            target = sequence.target
            if sequence.times is not None:  # the tokens of both stacks stand in one table
                target = replace(target, times=[math.nan] * len(target))
            if sequence.offsets is not None and target.offsets is None:
                target = replace(target, offsets=[NOWHERE] * len(target))
            self.main = _Side(target, {"target": target, "source": sequence})

    def dataset(
        self, variables: Mapping[str, object], side: _Side, coordinates: Mapping[str, object] | None = None
    ) -> xr.Dataset:
        contents = dict(variables)
        if side.queries.image is not None:
            contents[schema.IMAGE] = ("y", "x", "channel"), side.queries.image
        along = {
            **self.targets,
            **(coordinates or {}),
            **schema.token_coordinates("query", {"": side.queries}),
            **schema.token_coordinates("key", side.keys),
        }
        return xr.Dataset(contents, along, {**self.facts, "text": side.queries.text})


def _add_values(main: xr.Dataset, values: Tensor, predictions: Predictions | None) -> None:
    """The values explained, and what the model predicts where they are read off."""
    main[VALUE] = "target", _numpy(values), {"quantity": LOGIT}
    if predictions is not None:
        names = np.array(predictions.names, dtype=object)
        main.coords["rank"] = np.arange(1, 1 + names.shape[1])
        main.coords[PREDICTION] = ("target", "rank"), names
        about = {"of": EACH} if predictions.each_by_itself else {}
        main[PROBABILITY] = ("target", "rank"), _numpy(predictions.probabilities), about
        main[TARGET_PROBABILITY] = "target", _numpy(predictions.of_targets), about
        if predictions.note:
            main.attrs["note"] = predictions.note


def _flow_dataset(described: _Described, flow: StackFlow, side: _Side) -> xr.Dataset:
    layers, about = flow.layers[::-1], {"quantity": LOGIT}
    coordinates: dict[str, object] = {
        "depth": np.arange(len(layers) + 1),
        "layer": np.arange(1, len(layers) + 1),
        "head": np.arange(1, 1 + max(layer.heads.shape[1] for layer in layers)),
    }
    relevance = [layer.relevance for layer in layers] + [flow.after_last]
    variables: dict[str, Any] = {
        RELEVANCE: (("target", "depth", "query"), _stacked(relevance), about),
        HEADS: (("target", "layer", "head", "key"), _by_head(layers, "heads"), about),
        FEED_FORWARD: (("target", "layer", "query"), _each(layers, "feed_forward"), about),
        BIAS: (("target", "layer", "query"), _each(layers, "bias"), about),
        ERROR: (("target", "depth"), _stacked(flow.errors[::-1])),
        RECEIVED: (("layer", "query"), np.stack([_numpy(each) for each in flow.received[::-1]])),
        STATE_NORM: (("layer", "query"), np.stack([_numpy(each) for each in flow.state_norms[::-1]])),
    }
    coordinates[SINK] = "query", sinks(variables[RECEIVED][1], causal=flow.causal)
    if layers[0].edges is not None:
        variables[EDGES] = ("target", "layer", "query", "key"), _each(layers, "edges"), about
    if layers[0].head_edges is not None:
        variables[HEAD_EDGES] = ("target", "layer", "head", "query", "key"), _by_head(layers, "head_edges"), about
    if layers[0].routing is not None:
        variables[ROUTING] = ("target", "layer", "query", "key"), _each(layers, "routing"), about
    if layers[0].head_routing is not None:
        variables[HEAD_ROUTING] = ("target", "layer", "head", "query", "key"), _by_head(layers, "head_routing"), about
    if layers[0].looked_at is not None:
        variables[LOOKED_AT] = ("target", "layer", "key"), _each(layers, "looked_at"), about
    dataset = described.dataset(variables, side, coordinates)
    if layers[0].looked_at is not None:
        handed = [layer.handed_on for layer in layers]
        dataset.attrs["handed_on"] = "everywhere" if all(handed) else "somewhere" if any(handed) else "nowhere"
    return dataset


def _each(layers: Sequence[LayerFlow], name: str) -> np.ndarray:
    return _stacked([getattr(layer, name) for layer in layers])


def _by_head(layers: Sequence[LayerFlow], name: str) -> np.ndarray:
    """The same of heads, of which some layers may have fewer than others: nothing comes by those that do not exist."""
    tensors = [_numpy(getattr(layer, name)) for layer in layers]
    heads = max(tensor.shape[1] for tensor in tensors)
    missing = [[(0, 0), (0, heads - tensor.shape[1]), *[(0, 0)] * (tensor.ndim - 2)] for tensor in tensors]
    padded = [np.pad(tensor, pad) for tensor, pad in zip(tensors, missing, strict=True)]
    return np.stack(padded, axis=1)


def _stacked(tensors: Sequence[Tensor]) -> np.ndarray:
    """`[target, layer, ...]` from one tensor `[target, ...]` for each layer."""
    return np.stack([_numpy(tensor) for tensor in tensors], axis=1)


def at_input(dataset: xr.Dataset, group: str) -> xr.DataArray:
    """`[target, token]`: the shares of what enters the first layer, with what is known of the tokens."""
    followed = RELEVANCE in dataset
    values = dataset[RELEVANCE].isel(depth=0, drop=True) if followed else dataset[ATTRIBUTION]
    values = values.drop_vars("query_output_token", errors="ignore")  # what a decoder's rows output, not what they read
    described = [str(name) for name in values.coords if str(name).startswith("query_")]
    values = values.rename({name: name.replace("query_", "token_", 1) for name in described} | {"query": "token"})
    position = "token", values["token"].values
    return values.assign_coords(
        token_group=("token", np.full(values.sizes["token"], group, dtype=object)), token_position=position
    )


def _numpy(tensor: Tensor) -> np.ndarray:
    """As it was computed, in float32 or float64."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32)).cpu().numpy()
