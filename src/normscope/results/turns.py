"""Turns of a chat as units of a result: which tokens make up each message, and what the chat template adds as one more.

Attention sinks stay units of their own, as among sentences.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from normscope.errors import InputError

TEMPLATE = "template"
"""The unit of what the chat template adds to the messages."""


def with_turns(dataset: xr.Dataset, sink: str) -> xr.Dataset:
    """The dataset with the turn of every token where its word was; `sink` names what says which queries are sinks."""
    if "key_turn" not in dataset.coords:
        raise InputError("There are no turns here: the input was no chat. Give the messages of one, each with a role.")
    sinks = set(np.flatnonzero(np.asarray(dataset[sink].values, bool)).tolist()) if sink in dataset.variables else set()
    names = list(dict.fromkeys(str(turn) for turn in dataset["key_turn"].values))
    coordinates: dict[str, tuple[str, np.ndarray]] = {}
    for dimension in ("query", "key"):
        if dimension not in dataset.dims:
            continue
        turns = [str(turn) for turn in dataset[f"{dimension}_turn"].values]
        apart = np.array([int(place) in sinks for place in dataset[dimension].values])
        numbers = np.where(apart, -1, [names.index(turn) for turn in turns])
        tokens = dataset[f"{dimension}_token"].values
        texts = [
            str(token) if alone else turn or TEMPLATE for token, alone, turn in zip(tokens, apart, turns, strict=True)
        ]
        coordinates |= {
            f"{dimension}_word": (dimension, numbers),
            f"{dimension}_word_text": (dimension, np.array(texts, dtype=object)),
            f"{dimension}_special": (dimension, np.zeros(len(turns), bool)),
        }
    return dataset.assign_coords(coordinates)
