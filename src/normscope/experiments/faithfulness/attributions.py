"""The attributions of a prediction by every method, and which prediction of a text is explained.

It is a classifier's own label, the token that a masked model predicts at a random position, or the token that a causal model
predicts after a random position; the last state itself where a model has no head.
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
    """One prediction: the input, what is explained, and the indices of the tokens that may be removed."""

    sequence: TokenSequence
    question: Question
    candidates: tuple[int, ...]


def case_of(analyzer: Analyzer, item: Item, seed: int) -> Case:
    """The prediction that is explained for a text. Its position depends on the seed and the text's number."""
    sequence, chance = item.sequence, np.random.default_rng([seed, item.number])
    content = [index for index, special in enumerate(sequence.special) if not special]
    match task_of(analyzer):
        case "causal-lm":
            end = int(chance.choice(content[len(content) // 2 :]))
            sequence, row = cut(sequence, end + 1), end
            content = [index for index in content if index <= end]
        case "masked-lm":
            row = int(chance.choice(content))
            mask = getattr(analyzer.tokenizer, "mask_token_id", None)
            if mask is None:
                raise InputError(f"{analyzer.name} fills in masks, but its tokenizer has no mask token.")
            sequence = _masked(sequence, row, int(mask), str(getattr(analyzer.tokenizer, "mask_token", "")))
            content = [index for index in content if index != row]
        case "none":
            index = len(sequence) - 1 if analyzer.family.stack.causal else 0
            return Case(sequence, DirectionQuestion(index, None), tuple(content))
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


def _masked(sequence: TokenSequence, position: int, mask: int, token: str) -> TokenSequence:
    ids = [mask if index == position else number for index, number in enumerate(sequence.features["input_ids"])]
    tokens = [token if index == position else own for index, own in enumerate(sequence.tokens)]
    return replace(sequence, features={**sequence.features, "input_ids": ids}, tokens=tokens)


def shares_by(
    analyzer: Analyzer, sequence: TokenSequence, question: Question, names: Sequence[str], *, strict: bool
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """`[target, token]` by method, NaN where it has no value; and why methods are unavailable, unless `strict`."""
    from normscope.methods import attribution  # noqa: PLC0415  (methods know the analyzer, which experiments do not)

    shares: dict[str, np.ndarray] = {}
    refused: dict[str, str] = {}
    for name in names:
        method = attribution(named_method(name))
        try:
            tree = method.explain(Asked(analyzer, sequence, question, PullRequest()))
        except (UnsupportedArchitectureError, InputError) as error:
            if strict:
                raise
            refused[name] = str(error)
        else:
            shares[name] = Explanation.from_tree(tree).shares.values.astype(np.float64)
    return shares, refused


def unavailable(refused: dict[str, str]) -> Partial:
    """The methods that are unavailable, as a partial result."""
    rows = [{"method": method, "why": why} for method, why in refused.items()]
    return Partial(rows={"unavailable": Rows((pa.Table.from_pylist(rows, schema=UNAVAILABLE),))})


def notes_of(partial: Partial) -> list[str]:
    """A sentence for each method that was unavailable."""
    if "unavailable" not in partial.rows:
        return []
    table: Table = partial.rows["unavailable"].select("SELECT DISTINCT method, why FROM rows ORDER BY method, why")
    return [f"Without {row['method']}: {row['why']}" for row in table.to_pylist()]
