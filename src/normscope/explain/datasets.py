"""From the flows of a pull-back to labelled arrays: the written schema of an explanation.

One dataset for each stack: `relevance` of the states (`depth` 0 is what enters the first layer), and for every layer its
`edges`, shares of heads and feed-forwards, and biases. The documentation's schema page says the same in prose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from normscope import schema
from normscope.explain.pulling import Pulled, StackFlow
from normscope.inputs import TokenSequence
from normscope.pullback import LayerFlow

RELEVANCE, EDGES, HEADS, HEAD_EDGES = "relevance", "edges", "heads", "head_edges"
FEED_FORWARD, BIAS, END_BIAS, VALUE, ERROR = "feed_forward", "bias", "end_bias", "value", "conservation_error"
PULL_BACK = "pull-back"
LOGIT = "logit"


def explanation_tree(pulled: Pulled, sequence: TokenSequence, attributes: schema.Attributes) -> xr.DataTree:
    """The datasets of an explanation: that of the only stack, or those of decoder and encoder."""
    facts = {"schema_version": schema.VERSION, "kind": "explanation", "method": PULL_BACK, **attributes}
    read = sequence if sequence.target is None else sequence.target
    keys = {"self": sequence} if sequence.target is None else {"target": sequence.target, "source": sequence}
    main = _stack_dataset(pulled, pulled.main, read, keys, {**facts, "text": read.text})
    main[VALUE] = "target", _numpy(pulled.values), {"quantity": LOGIT}
    main[END_BIAS] = "target", _numpy(pulled.end_bias)
    if pulled.encoder is None:
        return schema.tree(main, None)
    encoder = _stack_dataset(pulled, pulled.encoder, sequence, {"self": sequence}, {**facts, "text": sequence.text})
    return schema.tree(main, encoder)


def _stack_dataset(
    pulled: Pulled, flow: StackFlow, queries: TokenSequence, keys: Mapping[str, TokenSequence], facts: schema.Attributes
) -> xr.Dataset:
    layers = flow.layers[::-1]
    coordinates: dict[str, Any] = {
        "target": np.arange(len(pulled.answers)),
        "target_name": ("target", np.array([answer.name for answer in pulled.answers], dtype=object)),
        "target_position": ("target", [answer.position for answer in pulled.answers]),
        "depth": np.arange(len(layers) + 1),
        "layer": np.arange(1, len(layers) + 1),
        "head": np.arange(1, 1 + layers[0].heads.shape[1]),
        **schema.token_coordinates("query", {"": queries}),
        **schema.token_coordinates("key", keys),
    }
    relevance = [layer.relevance for layer in layers] + [flow.after_last]
    variables: dict[str, Any] = {
        RELEVANCE: (("target", "depth", "query"), _stacked(relevance), {"quantity": LOGIT}),
        EDGES: (("target", "layer", "query", "key"), _each(layers, "edges"), {"quantity": LOGIT}),
        HEADS: (("target", "layer", "head", "key"), _each(layers, "heads"), {"quantity": LOGIT}),
        FEED_FORWARD: (("target", "layer", "query"), _each(layers, "feed_forward"), {"quantity": LOGIT}),
        BIAS: (("target", "layer", "query"), _each(layers, "bias"), {"quantity": LOGIT}),
        ERROR: (("target", "depth"), _stacked(flow.errors[::-1])),
    }
    if layers[0].head_edges is not None:
        dimensions = ("target", "layer", "head", "query", "key")
        variables[HEAD_EDGES] = dimensions, _each(layers, "head_edges"), {"quantity": LOGIT}
    if queries.image is not None:
        variables[schema.IMAGE] = ("y", "x", "channel"), queries.image
    return xr.Dataset(variables, coordinates, dict(facts))


def _each(layers: Sequence[LayerFlow], name: str) -> np.ndarray:
    return _stacked([getattr(layer, name) for layer in layers])


def _stacked(tensors: Sequence[Tensor]) -> np.ndarray:
    """`[target, layer, ...]` from one tensor `[target, ...]` for each layer."""
    return _numpy(torch.stack(list(tensors), dim=1))


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
