"""Sentences as units of an explanation: which tokens make up each sentence of what was read.

Found in the text that the tokens spell, so that token ids and slow tokenizers work, too. Special tokens and attention sinks
stay units of their own: a sink gets its share whatever the token is, and would hide the sentence that it begins.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from normscope.inputs import NO_WORD
from normscope.inputs.units import NO_SPAN, span_of_tokens, units_of
from normscope.results.explanation_schema import SINK
from normscope.results.tokens import LINE_BREAK, pieces


def with_sentences(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with the sentence of every token where its word was."""
    sinks = dataset.get(SINK)
    positions = set() if sinks is None else set(np.flatnonzero(np.asarray(sinks.values, bool)).tolist())
    coordinates: dict[str, tuple[str, np.ndarray]] = {}
    for dimension in ("query", "key"):
        if dimension not in dataset.dims:
            continue
        numbers = np.full(dataset.sizes[dimension], NO_WORD)
        texts = np.array([str(token) for token in dataset[f"{dimension}_token"].values], dtype=object)
        for places in _groups(dataset, dimension):
            apart = dataset[f"{dimension}_special"].values[places].astype(bool)
            own = dimension == "query" or str(dataset["key_group"].values[places[0]]) != "source"
            apart |= np.array([own and place in positions for place in range(len(places))])
            special = dataset[f"{dimension}_special"].values[places].tolist()
            found, said = _sentences(texts[places].tolist(), special)
            inside = ~apart & (found != NO_SPAN)
            numbers[places] = np.where(inside, found, NO_WORD)
            names = {number: _joined(said, np.flatnonzero(inside & (found == number))) for number in set(found[inside])}
            texts[places[inside]] = [names[number] for number in found[inside]]
        coordinates |= {f"{dimension}_word": (dimension, numbers), f"{dimension}_word_text": (dimension, texts)}
    return dataset.assign_coords(coordinates)


def _groups(dataset: xr.Dataset, dimension: str) -> list[np.ndarray]:
    """The indices of each text along a dimension: queries are of one text, keys may be of two."""
    if dimension == "query":
        return [np.arange(dataset.sizes[dimension])]
    groups = dataset["key_group"].values
    return [np.flatnonzero(groups == name) for name in dict.fromkeys(groups.tolist())]


def _sentences(tokens: list[str], special: list[bool]) -> tuple[np.ndarray, list[str]]:
    """For every token the number of its sentence, and what it adds to the text, with the space before it."""
    text, offsets, said = "", [], list[str]()
    for piece, is_special in zip(pieces(tokens, special), special, strict=True):
        text += " " if piece.spaced else ""
        shown = "\n" * len(piece.text) if is_special else piece.text.replace(LINE_BREAK, "\n")
        offsets.append((len(text), len(text) + len(shown)))
        text += shown
        said.append(f"{' ' if piece.spaced else ''}{shown}")
    return span_of_tokens(text, offsets, units_of(text, "sentence")), said


def _joined(said: list[str], places: np.ndarray) -> str:
    """The tokens of a sentence as its name: without those that stay separate, which have names of their own."""
    return " ".join("".join(said[place] for place in places.tolist()).split())
