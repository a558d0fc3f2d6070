"""Word alignments from maps of tokens, and their error rate against gold ones: no experiment, no files, only arrays.

Subwords become words by summing over the source and averaging over the target. Each target word is linked to its best source
word. The end-of-sentence token may take part, and then a word for which it is best has no link (as the authors of the 2020
paper have it), or is left out, and then every word has one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from normscope.corpora.record import Gold, Link
from normscope.experiments.tables import Table

NONE = -1
"""The word of a token that belongs to none, such as the end of the sentence."""


@dataclass(frozen=True)
class AlignedPair:
    """The word of every source token and of every output token of the decoder (-1: none), the gold alignment, and the
    words themselves."""

    source_words: np.ndarray
    target_words: np.ndarray
    gold: Gold
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()

    def rows(self, setting: str) -> np.ndarray:
        """The target word of every row of the decoder: that of its output token (AWO) or of its input token (AWI)."""
        return self.target_words if setting == "AWO" else np.concatenate([[NONE], self.target_words[:-1]])


@dataclass(frozen=True)
class WordMaps:
    """Maps of words, `[map, target, source]`: the end of the sentence is the last source column (word -1)."""

    values: np.ndarray
    targets: np.ndarray
    sources: np.ndarray

    @classmethod
    def of(cls, tokens: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> WordMaps:
        """From maps of tokens `[map, row, column]`: columns are summed and rows averaged. Rows that belong to no word are
        left out, while columns that belong to none stay, as one column."""
        targets, sources = np.unique(rows[rows >= 0]), np.unique(columns[columns >= 0])
        summed = np.stack([tokens[..., columns == word].sum(-1) for word in (*sources, NONE)], -1)
        averaged = np.stack([summed[..., rows == word, :].mean(-2) for word in targets], -2)
        return cls(averaged, targets, np.array([*sources, NONE]))

    def best(self, *, end: bool) -> np.ndarray:
        """`[map, target]`: the best source word of each target word; -1 where the end takes part and is best."""
        return self.sources[self.values[..., : None if end else -1].argmax(-1)]

    def links(self, *, end: bool) -> list[set[Link]]:
        """The links of each map."""
        return [
            {(int(source), int(target)) for source, target in zip(row, self.targets, strict=True) if source != NONE}
            for row in self.best(end=end)
        ]


def error_counts(links: set[Link], gold: Gold) -> tuple[int, int, int, int]:
    """`|A & S|, |A & P|, |A|, |S|`."""
    return len(links & gold.sure), len(links & gold.possible), len(links), len(gold.sure)


def alignment_error_rate(counts: np.ndarray) -> np.ndarray:
    """`[..., 4]` counts to AER: 1 - (|A & S| + |A & P|) / (|A| + |S|)."""
    total = counts[..., 2] + counts[..., 3]
    hits = (counts[..., 0] + counts[..., 1]).astype(np.float64)
    return 1 - np.divide(hits, total, out=np.full(total.shape, np.nan), where=total > 0)


def gold_kind(link: Link, gold: Gold) -> str:
    """Whether the gold alignment has a link as sure, as possible, or not at all."""
    return "sure" if link in gold.sure else "possible" if link in gold.possible else "wrong"


END = "</s>"
"""How the end of a sentence is written."""


def link_rows(labels: dict[str, object], words: WordMaps, pair: AlignedPair, layers: tuple[int, ...]) -> Table:
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


def soft_rows(labels: dict[str, object], words: WordMaps, pair: AlignedPair, layers: tuple[int, ...]) -> Table:
    """One row for every cell of the maps of these layers."""
    values = words.values[: len(layers)]
    layer, target, source = (indices.reshape(-1) for indices in np.indices(values.shape))
    return pa.table(
        {
            **{name: [value] * values.size for name, value in labels.items()},
            "layer": np.array(layers, np.int64)[layer],
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


def _text(words: tuple[str, ...], word: int) -> str:
    if word == NONE:
        return END
    return words[word] if words else str(word + 1)
