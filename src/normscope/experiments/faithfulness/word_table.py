"""The table of a similarity with words for tokens, words being what spaces separate: its cells by kind, and last states."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from normscope.corpora.record import TextPair
from normscope.corpora.tokenize_pairs import words_of_tokens
from normscope.errors import InputError
from normscope.experiments.faithfulness.cosine_gradients import integrated_gradients
from normscope.inputs import NO_WORD
from normscope.options import LATE_INTERACTION
from normscope.results.similarity import Similarity

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_CLOSED = {
    "determiners": "a an the this that these those some any each every no all both either neither such",
    "pronouns": "i me my mine you your yours he him his she her hers it its we us our ours they them their theirs",
    "question words": "who whom whose which what where when why how there here",
    "auxiliaries": "am is are was were be been being do does did have has had will would shall should can could may might "
    "must",
    "prepositions": "about above across after against along among around at before behind below beneath beside between "
    "beyond by down during for from in inside into near of off on onto out outside over past through throughout to toward "
    "towards under until up upon with within without",
    "conjunctions": "and but or nor so yet if because as than while although though since unless not",
}
_CLASS_OF = {word: name for name, words in _CLOSED.items() for word in words.split()}
FUNCTION_WORDS = frozenset(_CLASS_OF)
"""The closed classes of English: determiners, pronouns, auxiliaries, prepositions, conjunctions, negation."""

CLASSES = (*_CLOSED, "numbers", "punctuation", "content words", "special tokens")
"""The classes of words: closed ones by lists of English words, numbers by their digits, and all others."""

KINDS = ("special tokens", "same words", "function words", "other words")
PARTS = ("similarity", *KINDS, "first margin", "second margin", "constant")
LARGEST = {"largest": 1, "five largest": 5}


@dataclass(frozen=True)
class WordTable:
    """A similarity by words. The last row and column of `cells`, and the last of the margins, are those of special tokens
    and of prompts. `vectors` are the summed last states of the words of each text, each token's of unit length."""

    words: tuple[list[str], list[str]]
    cells: Float[np.ndarray, "row column"]
    margins: tuple[np.ndarray, np.ndarray]
    constant: float
    value: float
    measure: str
    vectors: tuple[Float[np.ndarray, "first d"], Float[np.ndarray, "second d"]]
    gradients: tuple[np.ndarray, np.ndarray] | None = None
    """The share of every word by integrated gradients, if they were computed."""

    @property
    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """The share of every word of either text: its row or column, and its margin."""
        return self.cells.sum(1) + self.margins[0], self.cells.sum(0) + self.margins[1]

    @property
    def states(self) -> Float[np.ndarray, "first second"]:
        """The cosine of the last states of any two words."""
        return self.cosines(np.eye(len(self.words[0])), np.eye(len(self.words[1])))

    def cosines(
        self, first: Float[np.ndarray, "group first"], second: Float[np.ndarray, "other second"]
    ) -> Float[np.ndarray, "group other"]:
        """The cosine of the summed last states of groups of words."""
        sides = [group @ vectors for group, vectors in zip((first, second), self.vectors, strict=True)]
        lengths = [np.linalg.norm(side, axis=-1, keepdims=True) for side in sides]
        return (sides[0] / np.maximum(lengths[0], 1e-30)) @ (sides[1] / np.maximum(lengths[1], 1e-30)).T


def word_table(analyzer: Analyzer, pair: TextPair, pooling: str | None, *, gradients: bool = False) -> WordTable:
    """The table of two texts, summed by words, perhaps with integrated gradients."""
    similarity = analyzer.similarity(pair.first, pair.second, pooling=pooling)
    texts = (pair.first, pair.second)
    groups = [_by_word(analyzer, similarity, side, text) for side, text in zip(("first", "second"), texts, strict=True)]
    states = [
        group[:-1] @ np.asarray(analyzer.embed(text, pooling=LATE_INTERACTION), np.float64)
        for group, text in zip(groups, texts, strict=True)
    ]
    margins = similarity.first_margin.values, similarity.second_margin.values
    slopes: tuple[np.ndarray, np.ndarray] | None = None
    if gradients:
        first, second = integrated_gradients(analyzer, texts, similarity.measure, pooling)
        slopes = (groups[0] @ first)[:-1], (groups[1] @ second)[:-1]
    return WordTable(
        words=(texts[0].split(" "), texts[1].split(" ")),
        cells=groups[0] @ similarity.table.values.astype(np.float64) @ groups[1].T,
        margins=(groups[0] @ margins[0].astype(np.float64), groups[1] @ margins[1].astype(np.float64)),
        constant=similarity.constant,
        value=similarity.value,
        measure=similarity.measure,
        vectors=(states[0], states[1]),
        gradients=slopes,
    )


def _by_word(analyzer: Analyzer, similarity: Similarity, side: str, text: str) -> Float[np.ndarray, "word token"]:
    """Which tokens belong to which word; the last row has those that belong to none: special ones, and those of prompts."""
    dataset, words = similarity.dataset, text.split(" ")
    own = ~np.asarray(dataset[f"{side}_special"].values, bool) & ~np.asarray(dataset[f"{side}_prompt"].values, bool)
    owners = np.full(len(own), NO_WORD)
    owners[own] = _owners(analyzer, text, words, int(own.sum()))
    return (np.array([*range(len(words)), NO_WORD])[:, None] == owners).astype(np.float64)


def _owners(analyzer: Analyzer, text: str, words: Sequence[str], count: int) -> list[int]:
    """The word of every token that is not special. Some models read texts in lower case, which has as many characters."""
    assert analyzer.tokenizer is not None
    for cased in (text, text.lower()):
        encoding = analyzer.tokenizer(
            cased, return_offsets_mapping=True, return_special_tokens_mask=True, truncation=False, verbose=False
        )
        owners = [owner for owner in words_of_tokens(words, encoding) if owner != NO_WORD]
        if len(owners) == count:
            return owners
    raise InputError(f"The tokens of the text {text!r:.60} behind its prompt are others than without it.")


# ---- where the similarity lies -------------------------------------------------------------------------------------------


def kinds_of(table: WordTable) -> Int[np.ndarray, "row column"]:
    """The kind of every cell, as a place in `KINDS`: the first that fits."""
    first, second = ([_plain(word) for word in words] for words in table.words)
    kinds = np.full(table.cells.shape, KINDS.index("other words"))
    for row, one in enumerate(first):
        for column, other in enumerate(second):
            if one and one == other:
                kinds[row, column] = KINDS.index("same words")
            elif one in FUNCTION_WORDS or other in FUNCTION_WORDS:
                kinds[row, column] = KINDS.index("function words")
    kinds[-1, :] = kinds[:, -1] = KINDS.index("special tokens")
    return kinds


def parts_of(table: WordTable) -> dict[str, float]:
    """What each part adds to the similarity, in the order of `PARTS`: all but the first add up to the first."""
    kinds = kinds_of(table)
    sums = [float(table.cells[kinds == place].sum()) for place in range(len(KINDS))]
    margins = [float(margin.sum()) for margin in table.margins]
    parts = dict(zip(PARTS, (table.value, *sums, *margins, table.constant), strict=True))
    order = np.argsort(-np.abs(table.cells), axis=None, kind="stable")
    return parts | {name: float(table.cells.ravel()[order[:count]].sum()) for name, count in LARGEST.items()}


def sizes_of(table: WordTable) -> dict[str, float]:
    """The share of each kind, and of the largest cells, in the sum of all absolute values."""
    kinds, sizes = kinds_of(table), np.abs(table.cells) / max(float(np.abs(table.cells).sum()), 1e-30)
    found = {name: float(sizes[kinds == place].sum()) for place, name in enumerate(KINDS)}
    ordered = np.sort(sizes, axis=None)[::-1]
    return found | {name: float(ordered[:count].sum()) for name, count in LARGEST.items()}


def class_of(word: str) -> str:
    """The class of a word, one of `CLASSES`."""
    plain = _plain(word)
    if not plain:
        return "punctuation"
    return _CLASS_OF.get(plain) or ("numbers" if plain[0].isdigit() else "content words")


def classes_of(table: WordTable) -> Iterator[tuple[str, str, float, int]]:
    """For every two classes of words that meet: both names, the sum of their cells, and how many there are."""
    sides = [[class_of(word) for word in words] + ["special tokens"] for words in table.words]
    first, second = (np.array([[name == one for one in side] for name in CLASSES], float) for side in sides)
    sums, counts = first @ table.cells @ second.T, first.sum(1)[:, None] * second.sum(1)
    for row, column in np.argwhere(counts > 0).tolist():
        yield CLASSES[row], CLASSES[column], float(sums[row, column]), int(counts[row, column])


def _plain(word: str) -> str:
    """A word without its case and the punctuation around it."""
    return word.strip(string.punctuation).casefold()
