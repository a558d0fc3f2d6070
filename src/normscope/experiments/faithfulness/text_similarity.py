"""similarity: where does the similarity of two texts lie, and does its table find the words that make them similar?

For every pair of texts the table of `Analyzer.similarity`, with words for tokens, is summed by kinds of cells. What each
word does (its row or column, and its margin) is compared with what the similarity loses without the word, and, where it is
known which words belong together, the largest cell of linked words with their link. Cosines of last states are the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial as bind
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy import stats

from normscope.corpora.item import Item
from normscope.corpora.record import TextPair
from normscope.errors import InputError
from normscope.experiments import declared, statistics, tables
from normscope.experiments.base import ModelFacts, Needs, Outcome, RunFacts
from normscope.experiments.faithfulness.base import CONFIDENCE, RESAMPLES, Trial
from normscope.experiments.faithfulness.cosine_gradients import STEPS
from normscope.experiments.faithfulness.word_table import (
    CLASSES,
    LARGEST,
    PARTS,
    WordTable,
    classes_of,
    parts_of,
    sizes_of,
    word_table,
)
from normscope.experiments.figures import method_bars
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.tables import Row
from normscope.similarity.comparing import checked_measure
from normscope.similarity.encoders import embedding_spec
from normscope.similarity.plain import bare

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_FEWEST = 3
"""Words of a text whose ranks are compared."""

_SHARE, _CELLS, _STATES, _CHANCE = "table and margin", "table", "last states", "chance"
_GRADIENTS = "integrated gradients"


@dataclass(frozen=True)
class TextSimilarity(declared.TextSimilarity, Trial):
    columns: ClassVar[dict[str, str]] = {
        "measure": "sum: what the part adds to the similarity; size: its share of the sizes of all cells",
        "part": "similarity: the whole; cells by kind, the first that fits: with special tokens, of the same word, with an "
        "English function word, other words; margins; constant; the largest cell, and the five largest",
        "method": "table and margin, table: what a word does with and without its margin, or the sum of the cells of linked "
        "words; last states: the largest cosine of the word's last states with those of a word of the other text, or the "
        "cosine of linked words; integrated gradients: what the words of a text do by them, from embeddings of zero; "
        "chance: one of the candidates at random",
        "first": "class of words of the first text",
        "second": "class of words of the second text",
        "share": "what all cells of the two classes add to the similarity, mean over all pairs of texts",
        "cells": "number of cells of the two classes",
        "mean": "mean over pairs of texts (of words: of the rank correlation of what each word of a text does with what the "
        "similarity loses without it, mean of both texts); of classes: mean over their cells",
        "low": "lower end of the 95 % bootstrap interval over pairs",
        "high": "its upper end",
        "sequences": "number of pairs",
        "right": "share of linked groups of words whose largest cell is with a group that they are linked with",
        "links": "number of linked groups of words, of both texts",
        "pearson": "correlation of the model's similarity with the gold score",
        "spearman": "rank correlation of the same",
        "sequence": "index of the pair in the corpus, from 0",
        "name": "the part, or the method",
        "value": "the measure for one pair; of removal, the rank correlation; of score, the gold score",
    }
    captions: ClassVar[dict[str, str]] = {
        "similarity": "What each kind of cell adds to the similarity, and its share of the sizes of all cells, with 95 % "
        "intervals.",
        "similarity-classes": "The mean cell of any two classes of words, with 95 % intervals, and what all of their cells "
        "add to the similarity.",
        "similarity-words": "Rank correlation of what words do with what the similarity loses without them (removal), and "
        "the share of links found, with 95 % intervals.",
    }

    def check(self, analyzer: Analyzer) -> None:
        spec = embedding_spec(bare(analyzer), self.pooling or None)
        if spec.is_late:
            raise InputError(
                f"{self.name} compares one embedding for each text; {analyzer.name} has one for each token."
            )
        checked_measure(spec, None, analyzer.name)
        if analyzer.tokenizer is None or not analyzer.tokenizer.is_fast:
            raise InputError(f"{self.name} needs a fast tokenizer, which reports the characters that a token covers.")

    def needs(self, model: ModelFacts) -> Needs:
        return Needs(asks_model=True, compared=True)

    def calls(self, model: ModelFacts, length: int) -> int:
        # A pass back counts as two forward passes.
        return 2 * length + (2 * length if self.removal else 0) + (2 * 3 * STEPS if self.gradients else 0)

    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        pair, pooling = item.compared, self.pooling or None
        assert pair is not None
        table = word_table(analyzer, pair, pooling, gradients=self.gradients)
        values: list[tuple[str, str, float]] = [("sum", part, value) for part, value in parts_of(table).items()]
        values += [("size", part, value) for part, value in sizes_of(table).items()]
        if pair.score is not None:
            values.append(("score", "gold", pair.score))
        if self.removal:
            losses = tuple(losses_of(analyzer, words, other, table.measure, pooling) for words, other in _sides(pair))
            values += [("removal", method, rho) for method, rho in agreement(table, losses).items()]
        rows = [
            {"sequence": item.number, "measure": measure, "name": name, "value": value}
            for measure, name, value in values
        ]
        links = [{"sequence": item.number, **row} for row in links_found(table, pair)]
        names = ("first", "second", "sum", "cells")
        classes = [{"sequence": item.number, **dict(zip(names, row, strict=True))} for row in classes_of(table)]
        return Partial(
            rows={
                "classes": Rows((pa.Table.from_pylist(classes, schema=_CELLS_OF_CLASSES),)),
                "rows": Rows((pa.Table.from_pylist(rows, schema=_ROWS),)),
                "links": Rows((pa.Table.from_pylist(links, schema=_LINKS_OF_PAIRS),)),
            }
        )

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        table = partial.rows["rows"].select("SELECT * FROM rows ORDER BY sequence, measure, name")
        rows = [{**row, "method": row["name"]} for row in table.to_pylist()]
        interval = bind(statistics.mean_with_interval, resamples=RESAMPLES, confidence=CONFIDENCE, seed=facts.seed)
        means = statistics.means(statistics.grouped(rows, ("measure",)), ("measure",), interval)
        parts = sorted((mean for mean in means if mean["measure"] in ("sum", "size")), key=_order)
        words = [mean for mean in means if mean["measure"] == "removal"]
        counted = partial.rows["links"].select("SELECT * FROM rows ORDER BY sequence, method").to_pylist()
        links = _links(counted, facts.seed)
        results = {
            "similarity": tables.from_records([{**part, "part": part["method"]} for part in parts], _PARTS),
            "similarity-words": tables.from_records(words, _WORDS),
            "similarity-links": tables.from_records(links, _LINKS),
            "similarity-classes": tables.from_records(_classes(partial, facts.seed), _CLASSES),
            "similarity-scores": tables.from_records(_scores(rows), _SCORES),
            "similarity-pairs": table,
        }
        drawn = {"similarity": bind(_figure, parts)}
        if words or links:
            found = [{**row, "measure": "links", "mean": row["right"]} for row in links]
            drawn["similarity-words"] = bind(_figure, [*words, *found])
        return Outcome(results, drawn)

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        sizes = {row["part"]: row["mean"] for row in tables.rows_with(rows, "mean") if row["measure"] == "size"}
        return (
            f"Of the sizes of all cells, {sizes['same words']:.0%} lie between the same words, "
            f"{sizes['special tokens']:.0%} with special tokens, and {sizes['five largest']:.0%} in the five largest cells."
        )


_ROWS = pa.schema({"sequence": pa.int64(), "measure": pa.string(), "name": pa.string(), "value": pa.float64()})
_LINKS_OF_PAIRS = pa.schema({"sequence": pa.int64(), "method": pa.string(), "right": pa.float64(), "links": pa.int64()})
_ENDS = {"low": pa.float64(), "high": pa.float64(), "sequences": pa.int64()}
_PARTS = pa.schema({"measure": pa.string(), "part": pa.string(), "mean": pa.float64(), **_ENDS})
_WORDS = pa.schema({"method": pa.string(), "mean": pa.float64(), **_ENDS})
_CELLS_OF_CLASSES = pa.schema(
    {"sequence": pa.int64(), "first": pa.string(), "second": pa.string(), "sum": pa.float64(), "cells": pa.int64()}
)
_CLASSES = pa.schema(
    {
        "first": pa.string(),
        "second": pa.string(),
        "mean": pa.float64(),
        **_ENDS,
        "share": pa.float64(),
        "cells": pa.int64(),
    }
)
_LINKS = pa.schema({"method": pa.string(), "right": pa.float64(), **_ENDS, "links": pa.int64()})
_SCORES = pa.schema({"pearson": pa.float64(), "spearman": pa.float64(), "sequences": pa.int64()})


# ---- removal of words --------------------------------------------------------------------------------------------------


def _sides(pair: TextPair) -> tuple[tuple[list[str], str], tuple[list[str], str]]:
    """The words of each text, and the other text."""
    return (pair.first.split(" "), pair.second), (pair.second.split(" "), pair.first)


def losses_of(
    analyzer: Analyzer, words: Sequence[str], other: str, measure: str, pooling: str | None
) -> Float[np.ndarray, " word"]:
    """The loss of similarity with another text without each word; empty for a text of too few words."""
    if len(words) < _FEWEST:
        return np.zeros(0)
    texts = [" ".join(words), *(" ".join([*words[:place], *words[place + 1 :]]) for place in range(len(words)))]
    vectors = np.asarray(analyzer.embed([other, *texts], pooling=pooling), np.float64)
    if measure == "cosine":
        vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    values = vectors[1:] @ vectors[0]
    return values[0] - values[1:]


def agreement(table: WordTable, losses: Sequence[np.ndarray]) -> dict[str, float]:
    """The rank correlation of what words do with the losses without them, by method: the mean of both texts."""
    states = table.states
    by_method: dict[str, tuple[np.ndarray, np.ndarray]] = {
        _SHARE: (table.shares[0][:-1], table.shares[1][:-1]),
        _CELLS: (table.cells.sum(1)[:-1], table.cells.sum(0)[:-1]),
        _STATES: (states.max(1), states.max(0)),
    }
    if table.gradients is not None:
        by_method[_GRADIENTS] = table.gradients
    found: dict[str, float] = {}
    for method, sides in by_method.items():
        known = [_spearman(own, lost) for own, lost in zip(sides, losses, strict=True) if len(lost)]
        known = [rho for rho in known if np.isfinite(rho)]
        if known:
            found[method] = float(np.mean(known))
    return found


def _spearman(first: np.ndarray, second: np.ndarray) -> float:
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    result: object = stats.spearmanr(first, second)
    return float(result.statistic)


# ---- links ---------------------------------------------------------------------------------------------------------------


def links_found(table: WordTable, pair: TextPair) -> list[Row]:
    """By method, the number of groups of words with a link whose largest cell is with a group that they are linked with.

    The candidates are all groups of the other text, words in no group being groups of their own. A group that is linked with
    all of them decides nothing.
    """
    links = pair.links or ()
    groups = [_groups([link[side] for link in links], size) for side, size in enumerate(table.states.shape)]
    gold = np.zeros((len(groups[0]), len(groups[1])), bool)
    for left, right in links:
        if left and right:
            gold[groups[0].index(left), groups[1].index(right)] = True
    ones, others = (_indicator(several, size) for several, size in zip(groups, table.states.shape, strict=True))
    scores = {_CELLS: ones @ table.cells[:-1, :-1] @ others.T, _STATES: table.cosines(ones, others)}
    right, count = dict.fromkeys((*scores, _CHANCE), 0.0), 0
    for transposed in (False, True):
        linked = gold.T if transposed else gold
        for place in np.flatnonzero(linked.any(1) & ~linked.all(1)):
            count += 1
            right[_CHANCE] += float(linked[place].mean())
            for method, values in scores.items():
                best = int((values.T if transposed else values)[place].argmax())
                right[method] += float(linked[place, best])
    return [{"method": method, "right": value, "links": count} for method, value in right.items()] if count else []


def _groups(sides: Sequence[tuple[int, ...]], size: int) -> list[tuple[int, ...]]:
    """The groups of one text, each once, and the words that are in none."""
    named = list(dict.fromkeys(side for side in sides if side))
    inside = {word for group in named for word in group}
    return [*named, *((word,) for word in range(size) if word not in inside)]


def _indicator(groups: Sequence[tuple[int, ...]], size: int) -> Float[np.ndarray, "group word"]:
    found = np.zeros((len(groups), size))
    for row, group in enumerate(groups):
        found[row, list(group)] = 1
    return found


# ---- tables and figures ------------------------------------------------------------------------------------------------


def _order(mean: Row) -> tuple[bool, int]:
    parts = (*PARTS, *LARGEST)
    return mean["measure"] != "sum", parts.index(mean["method"])


def _links(rows: Sequence[Row], seed: int) -> list[Row]:
    """The share of links found, over all pairs, with an interval by resampling pairs."""
    records: list[Row] = []
    for method in dict.fromkeys(row["method"] for row in rows):
        right, count = np.array([(row["right"], row["links"]) for row in rows if row["method"] == method]).T
        found, ends = _ratio(right, count, seed)
        records.append({"method": method, "right": found, **ends, "links": int(count.sum())})
    return records


def _classes(partial: Partial, seed: int) -> list[Row]:
    """The mean cell of any two classes of words, over the pairs of texts that have both."""
    rows = partial.rows["classes"].select("SELECT * FROM rows ORDER BY sequence, first, second").to_pylist()
    pairs = len({row["sequence"] for row in rows})
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["first"], row["second"]), []).append(row)
    records: list[Row] = []
    for (first, second), own in groups.items():
        sums, cells = np.array([(row["sum"], row["cells"]) for row in own]).T
        mean, ends = _ratio(sums, cells, seed)
        records.append(
            {"first": first, "second": second, "mean": mean, **ends}
            | {"share": float(sums.sum()) / pairs, "cells": int(cells.sum())}
        )
    return sorted(records, key=lambda row: (CLASSES.index(row["first"]), CLASSES.index(row["second"])))


def _ratio(sums: np.ndarray, counts: np.ndarray, seed: int) -> tuple[float, Row]:
    """The sum of some numbers over that of others, of every pair of texts one, with an interval by resampling pairs."""
    drawn = np.random.default_rng(seed).integers(len(sums), size=(RESAMPLES, len(sums)))
    ratios = sums[drawn].sum(1) / counts[drawn].sum(1)
    ends = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]) if len(sums) > 1 else (np.nan, np.nan)
    return float(sums.sum() / counts.sum()), {"low": float(ends[0]), "high": float(ends[1]), "sequences": len(sums)}


def _scores(rows: Sequence[Row]) -> list[Row]:
    """The correlation of the model's similarity with the gold score, over the pairs that have one."""
    gold = {row["sequence"]: row["value"] for row in rows if row["measure"] == "score"}
    own = {row["sequence"]: row["value"] for row in rows if (row["measure"], row["name"]) == ("sum", "similarity")}
    if len(gold) < _FEWEST:
        return []
    first, second = np.array([own[place] for place in gold]), np.array(list(gold.values()))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return []
    pearson = float(np.corrcoef(first, second)[0, 1])
    return [{"pearson": pearson, "spearman": _spearman(first, second), "sequences": len(gold)}]


def _figure(records: list[Row]) -> Figure:
    return method_bars(records, "measure", label="mean")
