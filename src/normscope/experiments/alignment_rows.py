"""Rows that a sentence pair adds to the tables of the alignment experiment: links, gold links, and maps of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from normscope.experiments.arrow import Table
from normscope.experiments.links import NONE, AlignedPair, WordMaps, gold_kind

END = "</s>"
"""How the end of a sentence is written."""


def link_rows(labels: dict[str, Any], words: WordMaps, pair: AlignedPair, layers: tuple[int, ...]) -> Table:
    """One row for every layer, target word and source word that is best with or without the end of the sentence."""
    with_end, without_end = words.best(end=True), words.best(end=False)
    records = [
        {
            **labels,
            "layer": layers[k],
            "target": int(target) + 1,
            "target_word": _text(pair.target, int(target)),
            "source": int(without_end[k, t]) + 1,
            "source_word": _text(pair.source, int(without_end[k, t])),
            "gold": gold_kind((int(without_end[k, t]), int(target)), pair.gold),
            "chosen_by_argmax": bool(with_end[k, t] != NONE),
            "chosen_by_exclude": True,
        }
        for k in range(len(layers))
        for t, target in enumerate(words.targets)
    ]
    return pa.Table.from_pylist(records)


def gold_rows(number: int, pair: AlignedPair) -> Table:
    return pa.Table.from_pylist(
        [
            {
                "sequence": number,
                "target": target + 1,
                "target_word": _text(pair.target, target),
                "source": source + 1,
                "source_word": _text(pair.source, source),
                "gold": gold_kind((source, target), pair.gold),
            }
            for source, target in sorted(pair.gold.possible)
        ],
        schema=_GOLD,
    )


_GOLD = pa.schema(
    {
        "sequence": pa.int64(),
        "target": pa.int64(),
        "target_word": pa.string(),
        "source": pa.int64(),
        "source_word": pa.string(),
        "gold": pa.string(),
    }
)


def soft_rows(labels: dict[str, Any], words: WordMaps, pair: AlignedPair, layers: tuple[int, ...]) -> Table:
    """One row for every cell of the maps of these layers."""
    values = words.values[: len(layers)]
    place, target, source = (index.reshape(-1) for index in np.indices(values.shape))
    return pa.table(
        {
            **{name: [value] * values.size for name, value in labels.items()},
            "layer": np.array(layers, np.int64)[place],
            "target": words.targets[target],
            "target_word": [_text(pair.target, int(word)) for word in words.targets[target]],
            "source": words.sources[source],
            "source_word": [_text(pair.source, int(word)) for word in words.sources[source]],
            "value": values.reshape(-1),
        },
        schema=_SOFT,
    )


_SOFT = pa.schema(
    {
        "sequence": pa.int64(),
        "setting": pa.string(),
        "method": pa.string(),
        "layer": pa.int64(),
        "target": pa.int64(),
        "target_word": pa.string(),
        "source": pa.int64(),
        "source_word": pa.string(),
        "value": pa.float64(),
    }
)


def _text(words: tuple[str, ...], place: int) -> str:
    if place == NONE:
        return END
    return words[place] if words else str(place + 1)
