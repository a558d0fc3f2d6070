"""Explanations of the texts of a corpus as rows of a table: one for every token, word or sentence and every value explained.

To a run this is one more experiment that asks the model itself, so that shards, engines and what resumes them are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch

from normscope.corpora.item import Item
from normscope.errors import InputError
from normscope.experiments.base import ModelFacts, Outcome, RunFacts
from normscope.experiments.faithfulness.base import Trial
from normscope.experiments.partial import Partial, Rows, merged
from normscope.experiments.tables import Table
from normscope.explain.parse import read_question
from normscope.explain.pulling import PullRequest
from normscope.explain.question import LogitQuestion, Wanted
from normscope.explain.task import Asked
from normscope.explain.wanted import checked, label_or_number
from normscope.families.heads import head_of
from normscope.methods import attribution
from normscope.methods.base import Method
from normscope.methods.resolve import refuse_unknown_ids
from normscope.options import Arithmetic, FeedForwardBaseline, Objective, Weights, weights_of
from normscope.results.explanation import Explanation
from normscope.results.frames import attribution_columns

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

ROWS, REFUSED = "rows", "refused"

ExplainedUnit = Literal["token", "word", "sentence", "turn"]
"""What has one row each."""

COLUMNS = {
    "text": "number of the text, from 0, in the order of the corpus, without rows that were left out",
    "where": "file and line of the text, or its number in a list",
    "target": "number of the value explained, from 0: several for a continuation",
    "target_name": "what is explained: a word, a label, or a difference of two",
    "target_position": "position of the token at which the value is read off",
    "target_probability": "the model's probability of what is explained; empty where labels have none",
    "predicted": "what the model itself predicts there",
    "predicted_probability": "its probability",
    "token_group": "self, or for an encoder-decoder target (what the decoder read) or source",
    "position": "position of the token, or of the first of the word or sentence",
    "token": "the token, word or sentence",
    "start": "its first character in the text, without the spaces around that; empty where it stands for none of the text",
    "end": "the character behind its last",
    "segment": "of a pair of texts: 0 for the first, 1 for the second",
    "sink": "whether it is an attention sink",
    "attribution": "its share of the value",
    "value": "the value explained: the model's own logit, compared as the objective says",
    "bias": "what belongs to no token; shares, bias and routed add up to the value, where the method's do",
    "routed": "what stays with attention weights, where they are counted",
    "error": "how far the sum is from the value, relative to its terms, worst layer",
}
"""What every column of the table means."""

_TYPES = {"text": pa.int64(), "sink": pa.bool_()}
_WHOLE = ("target", "target_position", "position", "start", "end", "segment")
_TEXTS = ("where", "target_name", "predicted", "token_group", "token")

SCHEMA = pa.schema(
    [
        (name, _TYPES.get(name, pa.int32() if name in _WHOLE else pa.string() if name in _TEXTS else pa.float64()))
        for name in COLUMNS
    ]
)

_REFUSED = pa.schema({"where": pa.string(), "why": pa.string()})


@dataclass(frozen=True)
class Explanations(Trial):
    """Options: what is explained of every text that does not say so itself, how, and in which units; `strict`: a text that
    cannot be explained ends the run."""

    target: str | int | tuple[int, ...] | None = None
    against: str | int | None = None
    at: str | int | None = None
    continue_for: int | None = None
    direction: Literal["state"] | None = None
    objective: Objective | None = None
    method: str | Method = "pull-back"
    ff_baseline: FeedForwardBaseline = "zero"
    weights: Weights = "constant"
    dtype: Arithmetic | None = None
    units: ExplainedUnit = "token"
    strict: bool = False

    name: ClassVar[str] = "explanations"
    module: ClassVar[str] = "normscope.runs.explained_rows"
    paper: ClassVar[str] = ""
    shows: ClassVar[str] = "explanations of predictions"
    summary: ClassVar[str] = "what each token puts into the prediction for every text"
    unit: ClassVar[str] = "tokens"
    timed: ClassVar[int] = 8
    pairs_itself: ClassVar[bool] = True
    columns: ClassVar[dict[str, str]] = COLUMNS

    def check(self, analyzer: Analyzer) -> None:
        if self.direction is None:
            head_of(analyzer.module)
        attribution(self.method)

    def calls(self, model: ModelFacts, length: int) -> int:
        return length

    def problem_of(self, analyzer: Analyzer, item: Item) -> str | None:
        wanted = self._wanted(analyzer, item)
        generates = wanted.continue_for is not None
        if analyzer.family.encoder is not None:
            generates |= wanted.target is None and wanted.direction is None
        if generates:  # which takes longer than to look for what is wrong
            return None
        try:
            _, question = read_question(analyzer, item.sequence, wanted)
            if isinstance(question, LogitQuestion):
                question.check_labels()
        except InputError as error:
            return str(error)
        return None

    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        return self.examine_all(analyzer, [item], seed)

    def examine_all(self, analyzer: Analyzer, items: Sequence[Item], seed: int) -> Partial:
        try:
            explanations = self.explained(analyzer, items)
        except InputError as error:
            if len(items) == 1 and self.strict:
                raise InputError(
                    f"{items[0].where}: {error} To skip such rows, use bad_rows='skip' (--bad-rows skip)."
                ) from error
            if len(items) == 1:
                refused = pa.Table.from_pylist([{"where": items[0].where, "why": str(error)}], schema=_REFUSED)
                return Partial(rows={REFUSED: Rows((refused,)), ROWS: Rows((SCHEMA.empty_table(),))})
            return merged(self.examine(analyzer, item, seed) for item in items)
        tables = [self._table(*each) for each in zip(items, explanations, strict=True)]
        return Partial(rows={ROWS: Rows((pa.concat_tables(tables),))})

    def explained(self, analyzer: Analyzer, items: Sequence[Item]) -> list[Explanation]:
        """The explanations of some texts, computed together as far as they can be."""
        dtype = None if self.dtype is None else getattr(torch, self.dtype)
        request = PullRequest(dtype=dtype, ff_baseline=self.ff_baseline, edges=False, weights=weights_of(self.weights))
        asked: list[Asked] = []
        for item in items:
            sequence, question = read_question(analyzer, item.sequence, self._wanted(analyzer, item))
            refuse_unknown_ids(analyzer, sequence)
            asked.append(Asked(analyzer, sequence, question, request))
        return [Explanation.from_tree(tree) for tree in attribution(self.method).explain_all(asked)]

    def _wanted(self, analyzer: Analyzer, item: Item) -> Wanted:
        """What is asked of a text: what its row says, the translation of a pair, or what is asked of all."""
        target: Any = self.target
        if item.label is not None:
            target = label_or_number(analyzer, item.label) if isinstance(item.label, str) else item.label
        elif item.target is not None and analyzer.family.encoder is not None:
            target = item.target.features["input_ids"]
        against = label_or_number(analyzer, self.against) if isinstance(self.against, str) else self.against
        if isinstance(target, str):
            target = label_or_number(analyzer, target)
        return checked(
            list(target) if isinstance(target, tuple) else target,
            against,
            self.at,
            self.continue_for,
            self.direction,
            None,
            self.objective,
        )

    def _table(self, item: Item, explanation: Explanation) -> Table:
        """The rows of one text."""
        match self.units:
            case "word":
                explanation = explanation.words()
            case "sentence":
                explanation = explanation.sentences()
            case "turn":
                explanation = explanation.turns()
            case "token":
                pass
        return table_of(item, explanation)

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        return Outcome({})


def table_of(item: Item, explanation: Explanation) -> Table:
    """The rows of one text in the schema of all."""
    shares = explanation.shares
    target, token = np.nonzero(np.isfinite(shares.values))
    columns: dict[str, Any] = {**attribution_columns(explanation)}
    likeliest = [
        next(iter(explanation.top_predictions(place)), (None, np.nan)) for place in range(len(explanation.targets))
    ]
    sinks = np.isin(np.arange(shares.sizes["token"]), explanation.sinks)
    columns |= {
        "text": np.full(len(token), item.number),
        "where": [item.where] * len(token),
        "target_probability": np.array(explanation.target_probabilities)[target],
        "predicted": [likeliest[place][0] for place in target],
        "predicted_probability": np.array([chance for _, chance in likeliest])[target],
        "segment": shares["token_segment"].values[token] if "token_segment" in shares.coords else None,
        "sink": sinks[token],
        "error": np.full(len(token), explanation.completeness),
    }
    return pa.table([_column(columns.get(field.name), field, len(token)) for field in SCHEMA], schema=SCHEMA)


def _column(values: Any, field: Any, count: int) -> Any:
    """An Arrow column; numbers that are missing, and places that are none, are null."""
    if values is None:
        return pa.nulls(count, field.type)
    if field.name in ("start", "end", "segment"):
        return pa.array(values, field.type, mask=np.asarray(values) < 0)
    if field.type == pa.float64():
        return pa.array(np.asarray(values, np.float64), from_pandas=True)
    return pa.array(list(values) if field.type == pa.string() else values, field.type)
