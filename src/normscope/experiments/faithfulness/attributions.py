"""What every method says of a prediction, and which prediction of a text that is.

A classifier's own label, the token that a masked model puts at a random place, or what a causal model says after the text up
to a random place; the last state itself where a model has no head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from normscope.corpora.item import Item
from normscope.errors import InputError, UnsupportedArchitectureError
from normscope.experiments.faithfulness.base import named_method, task_of
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.tables import Table
from normscope.explain.pulling import PullRequest
from normscope.explain.question import DirectionQuestion, LogitQuestion, Question, Wanted
from normscope.explain.task import Asked
from normscope.inputs import TokenSequence
from normscope.results.explanation import Explanation

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

UNAVAILABLE = pa.schema({"method": pa.string(), "why": pa.string()})


@dataclass(frozen=True)
class Case:
    """One prediction: what the model reads, what is asked of it, and the places of the tokens that may be taken away."""

    sequence: TokenSequence
    question: Question
    candidates: tuple[int, ...]


def case_of(analyzer: Analyzer, item: Item, seed: int) -> Case:
    """The prediction that is tried for a text. Which place is asked about depends on the seed and the text's number."""
    sequence, chance = item.sequence, np.random.default_rng([seed, item.number])
    content = [place for place, special in enumerate(sequence.special) if not special]
    match task_of(analyzer):
        case "causal-lm":
            end = int(chance.choice(content[len(content) // 2 :]))
            sequence, row = cut(sequence, end + 1), end
            content = [place for place in content if place <= end]
        case "masked-lm":
            row = int(chance.choice(content))
            mask = getattr(analyzer.tokenizer, "mask_token_id", None)
            if mask is None:
                raise InputError(f"{analyzer.name} fills in masks, but its tokenizer has no mask token.")
            sequence = _masked(sequence, row, int(mask), str(getattr(analyzer.tokenizer, "mask_token", "")))
            content = [place for place in content if place != row]
        case "none":
            place = len(sequence) - 1 if analyzer.family.stack.causal else 0
            return Case(sequence, DirectionQuestion(place, None), tuple(content))
        case _:
            row = 0
    return Case(sequence, LogitQuestion(analyzer, [(row, Wanted())]), tuple(content))


def cut(sequence: TokenSequence, length: int) -> TokenSequence:
    """The beginning of a sequence."""
    return replace(
        sequence,
        features={name: values[:length] for name, values in sequence.features.items()},
        tokens=sequence.tokens[:length],
        special=sequence.special[:length],
        word_ids=None if sequence.word_ids is None else sequence.word_ids[:length],
        words=sequence.words[:length],
    )


def _masked(sequence: TokenSequence, place: int, mask: int, token: str) -> TokenSequence:
    ids = [mask if index == place else number for index, number in enumerate(sequence.features["input_ids"])]
    tokens = [token if index == place else each for index, each in enumerate(sequence.tokens)]
    return replace(sequence, features={**sequence.features, "input_ids": ids}, tokens=tokens)


def shares_by(
    analyzer: Analyzer, sequence: TokenSequence, question: Question, names: Sequence[str], *, strict: bool
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """`[target, token]` by method, missing where it has nothing to say; and why methods cannot be had, unless `strict`."""
    from normscope.methods import attribution  # noqa: PLC0415  (methods know the analyzer, which experiments do not)

    shares: dict[str, np.ndarray] = {}
    refused: dict[str, str] = {}
    for name in names:
        way = attribution(named_method(name))
        try:
            tree = way.explain(Asked(analyzer, sequence, question, PullRequest()))
        except (UnsupportedArchitectureError, InputError) as error:
            if strict:
                raise
            refused[name] = str(error)
        else:
            shares[name] = Explanation.from_tree(tree).shares.values.astype(np.float64)
    return shares, refused


def unavailable(refused: dict[str, str]) -> Partial:
    """The methods that cannot be had, as a partial result."""
    rows = [{"method": method, "why": why} for method, why in refused.items()]
    return Partial(rows={"unavailable": Rows((pa.Table.from_pylist(rows, schema=UNAVAILABLE),))})


def notes_of(partial: Partial) -> list[str]:
    """A sentence for each method that could not be had."""
    if "unavailable" not in partial.rows:
        return []
    table: Table = partial.rows["unavailable"].select("SELECT DISTINCT method, why FROM rows ORDER BY method, why")
    return [f"Without {row['method']}: {row['why']}" for row in table.to_pylist()]
