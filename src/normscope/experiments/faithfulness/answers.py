"""answers: does a method find the sentence that contains the answer, and does the answer depend on it?

A row has sentences, a question, its answer, and the sentences that hold it. A method ranks the sentences by the sum, the
mean, or the positive part, of what their tokens put into the answer. The sentences that it ranks first are taken out of the
context, and the fall of the answer's log-probability is what they were worth; what each sentence is worth by itself is
leave-one-sentence-out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial as bind
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from normscope.corpora.item import Item
from normscope.errors import InputError
from normscope.experiments import declared, statistics, tables
from normscope.experiments.base import ModelFacts, Needs, Outcome, RunFacts, check_choice
from normscope.experiments.faithfulness.asked import AskedModel
from normscope.experiments.faithfulness.base import (
    CONFIDENCE,
    RESAMPLES,
    MethodTrial,
    named_method,
    notes_of,
    pull_back_rules,
    shares_by,
    unavailable,
)
from normscope.experiments.figures import method_bars
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.tables import Row
from normscope.explain.pulling import PullRequest
from normscope.explain.question import LogitQuestion, Wanted
from normscope.explain.spans import pull_back_spans
from normscope.explain.weightings import can_share, shares_by_weights
from normscope.options import Objective, Weights
from normscope.results.spans import Rank

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

OBJECTIVES: tuple[Objective, ...] = ("alternatives", "contrast", "centred", "logit")
RANKINGS: tuple[Rank, ...] = ("sum", "mean", "positive")
PULL_BACK, REMOVAL = "pull-back", "leave-one-sentence-out"
TOPS = (1, 3)
"""How many of the sentences that are ranked first are taken out together."""

_FEWEST = 3
"""With fewer sentences two rankings cannot be compared."""

Shares = dict[str, Float[np.ndarray, " token"]]


@dataclass(frozen=True)
class Answers(declared.Answers, MethodTrial):
    tasks: ClassVar[tuple[str, ...]] = ("causal-lm",)
    columns: ClassVar[dict[str, str]] = {
        "set": "the set of rows: the field `set`, or the file",
        "measure": "first: 1 if the sentence ranked first is evidence; found: share of the evidence that is ranked before "
        "all else; reciprocal_rank: one by the rank of the first evidence; drop_1, drop_3: fall of the answer's "
        "log-probability when the top sentences are taken out together; removal: rank correlation of the shares of "
        "sentences with the falls when each is taken out; context: share of the sentences in the sizes of all shares, those "
        "of question, template and answer included; calls: model calls of one answer; right: 1 if the model's own answer "
        "says the known one",
        "ranking": "whether sentences are ranked by the sum of their tokens' shares, by the mean, or by the sum of the "
        "positive ones",
        "method": "name of the method (normscope methods); of the pull-back with its objective; leave-one-sentence-out",
        "mean": "mean over rows",
        "low": "lower end of the 95 % bootstrap interval over rows",
        "high": "its upper end",
        "sequences": "number of rows",
        "reference": "the method that is subtracted",
        "difference": "mean difference, method minus reference, on the same rows, both by the same ranking",
        "sequence": "place of the row in the corpus, from 0",
        "value": "the measure of one row",
    }
    captions: ClassVar[dict[str, str]] = {
        "answers-evidence": "How often the sentence that holds the answer is ranked first, with 95 % intervals (by sums).",
        "answers-drop": "How far the answer's log-probability falls without the sentence ranked first (by sums).",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.objectives:
            raise InputError(f"{self.name}: name at least one objective of {', '.join(OBJECTIVES)}.")
        for objective in self.objectives:
            check_choice(self.name, "objectives", objective, OBJECTIVES)
        check_choice(self.name, "answer", self.answer, ("given", "own"))
        rules = pull_back_rules(self.names)
        pulled = [f"{name} {objective}" for name in rules for objective in self.objectives]
        self.check_reference(
            self.reference, Answers.reference, [*pulled, *(name for name in self.names if name not in rules)]
        )
        if self.removals < 0:
            raise InputError(f"{self.name}: the number of removals is at least 0, not {self.removals}.")

    def check(self, analyzer: Analyzer) -> None:
        super().check(analyzer)
        if analyzer.tokenizer is None or not analyzer.tokenizer.is_fast:
            raise InputError(f"{self.name} needs a fast tokenizer, which reports the characters that a token covers.")

    def needs(self, model: ModelFacts) -> Needs:
        return Needs(asks_model=True, asked=True)

    def calls(self, model: ModelFacts, length: int) -> int:
        return super().calls(model, length) + 2 * len(self.objectives) + self.removals

    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        assert item.asked is not None
        case = AskedModel(analyzer, item.asked, own=self.answer == "own")
        label = {"sequence": item.number, "set": item.asked.collection}
        rows: list[Row] = []
        if self.answer == "own" and item.asked.evidence:
            rows.append(
                label | {"measure": "right", "ranking": "", "method": "the model", "value": float(bool(case.part))}
            )
        refused: dict[str, str] = {}
        if case.part:
            shares, refused = self._shares(analyzer, case)
            rows += [label | row for row in self._rows(case, shares)]
        return Partial(rows={"rows": Rows((pa.Table.from_pylist(rows, schema=_ROWS),))}).merge(unavailable(refused))

    def _shares(self, analyzer: Analyzer, case: AskedModel) -> tuple[Shares, dict[str, str]]:
        """The share of every token in the answer, by method; and why methods are unavailable."""
        rules = pull_back_rules(self.names)
        names = [name for name in self.names if name not in rules]
        shares, refused = self._pulled(analyzer, case, rules)
        first = self._asked[0]
        wanted = [(each.row, Wanted(each.label, objective=first)) for each in case.outputs]
        others = shares_by(analyzer, case.sequence, LogitQuestion(analyzer, wanted), names, strict=False)
        summed = {name: np.nan_to_num(values).sum(0) for name, values in others.values.items()}
        return shares | summed, refused | others.refused

    def _pulled(
        self, analyzer: Analyzer, case: AskedModel, rules: Mapping[str, Weights]
    ) -> tuple[Shares, dict[str, str]]:
        """Pull-backs by every rule and of every objective; unless the text is long, one pass serves all."""
        if not rules:
            return {}, {}
        if not can_share(analyzer, case.sequence, PullRequest()):
            return self._streamed(analyzer, case, rules), {}
        wanted = [
            (each.row, Wanted(each.label, objective=objective)) for objective in self._asked for each in case.outputs
        ]
        sums = torch.eye(len(self._asked)).repeat_interleave(len(case.outputs), dim=1)
        question, several = LogitQuestion(analyzer, wanted), list(dict.fromkeys(rules.values()))
        pulled = shares_by_weights(analyzer, case.sequence, question, PullRequest(), several, sums)
        shares = {
            f"{name} {objective}": pulled.shares[rule][place].double().cpu().numpy()
            for name, rule in rules.items()
            if rule in pulled.shares
            for place, objective in enumerate(self._asked)
        }
        return shares, {name: str(pulled.refused[rule]) for name, rule in rules.items() if rule in pulled.refused}

    def _streamed(self, analyzer: Analyzer, case: AskedModel, rules: Mapping[str, Weights]) -> Shares:
        shares: Shares = {}
        every = [list(range(len(case.part)))]
        for name, rule in rules.items():
            for objective in self._asked:
                request = PullRequest(weights=rule)
                pulled = pull_back_spans(analyzer, case.sequence, case.outputs, every, objective, request)
                shares[f"{name} {objective}"] = pulled.shares[0].double().cpu().numpy()
        return shares

    @property
    def _asked(self) -> tuple[Objective, ...]:
        return tuple(cast("Objective", each) for each in self.objectives)

    def _rows(self, case: AskedModel, shares: Shares) -> Iterator[Row]:
        """The measures of every method; the falls without single sentences are a method too."""
        owners = case.sentence_of_tokens()
        falls = self._falls(case)
        for method, values in shares.items():
            context = float(np.abs(values[owners >= 0]).sum() / max(np.abs(values).sum(), np.finfo(float).tiny))
            rest = {"context": context, "calls": _calls(method, len(case.sequence))}
            for ranking in RANKINGS:
                scores = of_sentences(values, owners, len(case.asked.sentences), ranking)
                yield from self._measured(case, (method, ranking), scores, falls, rest)
        if falls is not None:
            yield from self._measured(case, (REMOVAL, "sum"), falls, None, {"calls": 1.0 + len(falls)})

    def _measured(
        self,
        case: AskedModel,
        label: tuple[str, str],
        scores: Float[np.ndarray, " sentence"],
        falls: Float[np.ndarray, " sentence"] | None,
        rest: Mapping[str, float],
    ) -> Iterator[Row]:
        """The measures of one ranking of the sentences."""
        measured = {**ranks_of(scores, case.asked.evidence), **rest}
        if self.removals:
            measured |= falls_of_top(case, scores)
        if falls is not None and len(scores) >= _FEWEST:
            measured["removal"] = statistics.spearman(scores, falls)
        method, ranking = label
        yield from (
            {"measure": name, "ranking": ranking, "method": method, "value": value} for name, value in measured.items()
        )

    def _falls(self, case: AskedModel) -> Float[np.ndarray, " sentence"] | None:
        """What the answer's log-probability loses without each sentence, unless there are too many."""
        count = len(case.asked.sentences)
        if count > self.removals:
            return None
        whole, *others = case.log_probability([(), *((place,) for place in range(count))])
        return whole - np.array(others)

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        table = partial.rows["rows"].select("SELECT * FROM rows ORDER BY set, sequence, method, ranking, measure")
        rows = sorted(table.to_pylist(), key=lambda row: (row["set"], _MEASURES.index(row["measure"])))
        if not rows:
            raise InputError(f"{self.name}: the model's own answer is right in no row, so there is nothing to explain.")
        by = ("set", "measure", "ranking")
        interval = bind(statistics.mean_with_interval, resamples=RESAMPLES, confidence=CONFIDENCE, seed=facts.seed)
        groups = statistics.grouped(rows, by)
        records = statistics.means(groups, by, interval)
        differences = statistics.differences(groups, by, self.reference, interval)
        results = {
            "answers": tables.from_records(records, _MEANS),
            "answers-differences": tables.from_records(differences, _DIFFERENCES),
            "answers-rows": table,
        }
        drawn = {
            name: bind(_figure, records, measure, label)
            for name, measure, label in (
                ("answers-evidence", "first", "evidence ranked first"),
                ("answers-drop", "drop_1", "fall of the log-probability"),
            )
            if any(record["measure"] == measure for record in records)
        }
        return Outcome(results, drawn, notes_of(partial))

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        known = [row for row in tables.rows_with(rows, "mean") if row["measure"] == "first" and row["ranking"] == "sum"]
        pulled = [row for row in known if row["method"].startswith(PULL_BACK)]
        best = max(pulled or known, key=lambda row: row["mean"])
        others = [row for row in known if row["set"] == best["set"] and row not in pulled]
        beside = max(others, key=lambda row: row["mean"])
        return (
            f"The sentence that holds the answer is ranked first in {best['mean']:.0%} of {best['sequences']} rows by "
            f"{best['method']}, and in {beside['mean']:.0%} by {beside['method']}."
        )


_DROPS = tuple(f"drop_{count}" for count in TOPS)
_MEASURES = ("first", "found", "reciprocal_rank", *_DROPS, "removal", "context", "calls", "right")
_LABELS = {"set": pa.string(), "measure": pa.string(), "ranking": pa.string(), "method": pa.string()}
_ROWS = pa.schema({"sequence": pa.int64(), **_LABELS, "value": pa.float64()})
_ENDS = {"low": pa.float64(), "high": pa.float64(), "sequences": pa.int64()}
_MEANS = pa.schema({**_LABELS, "mean": pa.float64(), **_ENDS})
_DIFFERENCES = pa.schema({**_LABELS, "reference": pa.string(), "difference": pa.float64(), **_ENDS})


def of_sentences(
    shares: Float[np.ndarray, " token"], owners: Int[np.ndarray, " token"], count: int, ranking: Rank
) -> Float[np.ndarray, " sentence"]:
    """The scores of sentences: sums, or means, over their tokens, or sums of what is positive."""
    inside = owners >= 0
    counted = np.maximum(shares, 0) if ranking == "positive" else shares
    sums = np.bincount(owners[inside], weights=counted[inside], minlength=count)
    sizes = np.bincount(owners[inside], minlength=count)
    return sums / np.maximum(sizes, 1) if ranking == "mean" else sums


def ranks_of(scores: Float[np.ndarray, " sentence"], evidence: Sequence[int]) -> dict[str, float]:
    """How well a ranking finds the evidence, if there is any; ties go to the sentence that comes first."""
    if not evidence:
        return {}
    order = np.argsort(-scores, kind="stable").tolist()
    best = min(order.index(place) for place in evidence)
    found = len(set(order[: len(evidence)]) & set(evidence)) / len(evidence)
    return {"first": float(best == 0), "found": found, "reciprocal_rank": 1 / (1 + best)}


def falls_of_top(case: AskedModel, scores: np.ndarray) -> dict[str, float]:
    """What the answer's log-probability loses without the sentences ranked first."""
    order = np.argsort(-scores, kind="stable").tolist()
    tops = [top for top in TOPS if top < len(scores)]
    whole, *without = case.log_probability([(), *(order[:top] for top in tops)])
    return {f"drop_{top}": float(whole - value) for top, value in zip(tops, without, strict=True)}


def _calls(method: str, length: int) -> float:
    return float(named_method(method.partition(" ")[0]).calls(length))


def _figure(records: list[Row], measure: str, label: str) -> Figure:
    wanted = [record for record in records if record["measure"] == measure and record["ranking"] == "sum"]
    return method_bars(wanted, "set", label=label)
