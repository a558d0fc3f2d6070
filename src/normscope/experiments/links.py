"""Word alignments from maps of tokens, and their error rate against gold ones: no experiment, no files, only arrays.

Subwords become words by summing over the source and averaging over the target. Each target word is linked to its best source
word. The end-of-sentence token may take part, and then a word for which it is best has no link (as the authors of the 2020
paper have it), or is left out, and then every word has one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from normscope.corpora.record import Gold, Link

NONE = -1
"""The word of a token that belongs to none, such as the end of the sentence."""


@dataclass(frozen=True)
class AlignedPair:
    """The word of every source token and of every token that the decoder gives out (-1: none), the gold alignment, and the
    words themselves."""

    source_words: np.ndarray
    target_words: np.ndarray
    gold: Gold
    source: tuple[str, ...] = ()
    target: tuple[str, ...] = ()

    def rows(self, setting: str) -> np.ndarray:
        """The target word that every row of the decoder belongs to: of the token given out (AWO) or read (AWI)."""
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
    """What the gold alignment says of a link."""
    return "sure" if link in gold.sure else "possible" if link in gold.possible else "wrong"
