"""The lists of top pairs of ff-amplification: of which kind their pairs are, and the lists as a text table.

The papers sort their top pairs by hand. Here a pair of types is of the first kind of `CATEGORIES` that most of its
occurrences are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table as TextTable
from rich.text import Text

from normscope.experiments.arrow import Table
from normscope.experiments.base import Observation

SAME_TYPE, OTHER = "same type", "other"
COUNTED = {"same word": "in_word", "same entity": "in_entity", "adjacent": "adjacent"}
"""The kinds that occurrences decide on, and the columns that count those."""
CATEGORIES = ("same word", SAME_TYPE, "same entity", "adjacent", OTHER)


def counted(observation: Observation, query: np.ndarray, key: np.ndarray) -> dict[str, np.ndarray]:
    """For every pair of positions, 1 or 0: in one word, in one entity (where the corpus has labels), side by side."""
    nothing = np.full(len(observation.tokens), -1)
    words = np.where(observation.special, -1, observation.words)
    entities = nothing if observation.entities is None else observation.entities
    found = [(owner[query] == owner[key]) & (owner[query] >= 0) for owner in (words, entities)]
    return {
        name: values.astype(np.int64)
        for name, values in zip(COUNTED.values(), (*found, np.abs(query - key) == 1), strict=True)
    }


def category(occurrences: int, counts: Mapping[str, int], *, same_type: bool) -> str:
    """Of which kind a pair of types is, from how many of its occurrences are of each."""
    for name in CATEGORIES[:-1]:
        if same_type if name == SAME_TYPE else 2 * counts[COUNTED[name]] > occurrences:
            return name
    return OTHER


def totals(records: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    """How many pairs of each list are of each kind."""
    found = Counter((record["kind"], record["layer"], record["category"]) for record in records)
    lists = dict.fromkeys((record["kind"], record["layer"]) for record in records)
    return [
        {"kind": kind, "layer": layer, "category": name, "pairs": found[kind, layer, name]}
        for kind, layer in lists
        for name in CATEGORIES
    ]


def text_table(table: Table, names: Mapping[str, str]) -> TextTable:
    """The lists as the papers print them: a row for each layer and component, pairs that another list has, too, in bold."""
    shown = TextTable(box=box.SIMPLE, pad_edge=False, title="Top pairs (key, query); bold: also in another list")
    for heading in ("layer", "component", "pairs, the most amplified first", "of them"):
        shown.add_column(heading, overflow="fold")
    lists: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for record in table.to_pylist():
        lists.setdefault((record["layer"], record["kind"]), []).append(record)
    for (layer, kind), records in sorted(lists.items(), key=lambda item: item[0][0]):
        pairs = [
            Text(f"({record['key_type']}, {record['query_type']})", style="bold" if record["also_in"] else "")
            for record in records
        ]
        found = Counter(record["category"] for record in records)
        kinds = ", ".join(f"{found[name]} {name}" for name in CATEGORIES if found[name])
        shown.add_row(str(layer), names[kind], Text(" ").join(pairs), kinds)
    return shown
