"""evidence: does a method find the words that a model's choice between two words must rest on?

A row has a text, a good and a bad continuation, and the words of the text that decide between them. A method ranks the
tokens by their shares in the logit of the good word: alone (plain), against that of the bad one (contrastive), or
compared with the other words of the vocabulary as `Analyzer.explain` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial as bind
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from jaxtyping import Bool
from matplotlib.figure import Figure
from scipy import stats

from normscope.corpora.item import Item
from normscope.corpora.record import EvidenceTokens
from normscope.errors import InputError, listing
from normscope.experiments import declared, statistics, tables
from normscope.experiments.base import ModelFacts, Outcome, RunFacts, check_choice
from normscope.experiments.faithfulness.base import (
    ALL,
    CONFIDENCE,
    RESAMPLES,
    MethodShares,
    MethodTrial,
    notes_of,
    shares_by,
    unavailable,
)
from normscope.experiments.figures import method_bars
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.published import Paper
from normscope.experiments.tables import Row
from normscope.explain.pulling import PullRequest
from normscope.explain.question import LogitQuestion, Wanted
from normscope.explain.weightings import shares_by_weights
from normscope.models.source import short_name
from normscope.options import Objective

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

QUESTIONS: dict[str, Objective] = {
    "contrastive": "contrast",
    "plain": "logit",
    "centred": "centred",
    "alternatives": "alternatives",
    "runner-up": "contrast",
}
"""The objectives by the names of their questions. A contrastive one sets the bad word against the good one."""
MEASURES = ("reciprocal_rank", "mass")
WITHOUT_SINKS = "_without_sinks"
MEAN_OF_SETS = "mean of sets"

IOI = "ioi"
BLIMP = frozenset(
    {
        "anaphor_gender_agreement",
        "anaphor_number_agreement",
        "animate_subject_passive",
        "determiner_noun_agreement_1",
        "determiner_noun_agreement_irregular_1",
        "determiner_noun_agreement_with_adjective_1",
        "determiner_noun_agreement_with_adj_irregular_1",
        "npi_present_1",
        "distractor_agreement_relational_noun",
    }
)
"""The nine sets of BLiMP whose evidence is known (Yin & Neubig 2022)."""

_GPT2 = ("gpt2", 12, 768, 50257)
"""Type, layers, width and vocabulary of GPT-2 small."""


@dataclass(frozen=True)
class EvidenceExperiment(declared.EvidenceExperiment, MethodTrial):
    has_evidence: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = ("causal-lm",)
    columns: ClassVar[dict[str, str]] = {
        "set": "the file that rows came from, or the mean of the sets' means",
        "question": "contrastive: the logit of the good word minus that of the bad one; plain: of the good word alone; "
        "centred, alternatives: minus the mean over all words, or over all others, weighted by their probabilities; "
        "runner-up: minus that of the most probable other word",
        "method": "name of the method (normscope methods)",
        "measure": "reciprocal_rank: one by the rank of the first evidence token; mass: the evidence's share of all that "
        "speaks for the value (of all sizes, if the order is absolute); ..._without_sinks: the same among tokens that are "
        "no attention sinks, of rows whose evidence has such",
        "mean": "mean over rows",
        "low": "lower end of the 95 % bootstrap interval over rows",
        "high": "its upper end",
        "sequences": "number of rows",
        "published": "the paper's value, where model and sets are the paper's (a note says why not)",
        "reference": "the method that is subtracted",
        "difference": "mean difference, method minus reference, on the same rows",
        "sequence": "index of the row in the corpus, from 0",
        "value": "the measure of one row",
    }
    captions: ClassVar[dict[str, str]] = {
        "evidence": "How well each method finds the words that decide, with 95 % intervals.",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.name, "order", self.order, ("signed", "absolute"))
        self.check_reference(self.reference, EvidenceExperiment.reference, self.names)
        if not self.objectives:
            raise InputError(f"{self.name}: name at least one objective of {listing(QUESTIONS)}.")
        for objective in self.objectives:
            check_choice(self.name, "objectives", objective, tuple(QUESTIONS))
        if len(set(self.objectives)) < len(self.objectives):
            raise InputError(f"{self.name}: each objective is named once, not as in {listing(self.objectives)}.")

    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        evidence, sequence = item.evidence, item.sequence
        assert evidence is not None
        last = len(sequence) - 1
        questions = LogitQuestion(analyzer, [(last, _wanted(evidence, name)) for name in self.objectives])
        strict = ALL not in self.methods
        shares = shares_by(analyzer, sequence, questions, self.names, strict=strict)
        rows: list[Row] = []
        for suffix, counted, places in self._ranked(analyzer, item, questions, shares):
            for method, values in shares.values.items():
                for question, share in zip(self.objectives, values, strict=True):
                    for measure, value in zip(MEASURES, self._scores(share, counted, places), strict=True):
                        label = {"sequence": item.number, "set": evidence.collection, "question": question}
                        rows.append(label | {"method": method, "measure": measure + suffix, "value": value})
        partial = Partial(rows={"rows": Rows((pa.Table.from_pylist(rows, schema=_ROWS),))})
        return partial.merge(unavailable(shares.refused))

    def _ranked(
        self, analyzer: Analyzer, item: Item, question: LogitQuestion, shares: MethodShares
    ) -> Iterator[tuple[str, Bool[np.ndarray, " token"], list[int]]]:
        """Which tokens are ranked, and which of them are evidence; without sinks there may be none."""
        assert item.evidence is not None
        sequence, places = item.sequence, list(item.evidence.places)
        counted = np.ones(len(sequence), bool) if self.special else ~np.asarray(sequence.special, bool)
        counted[places] = True
        yield "", counted, places
        if not self.without_sinks:
            return
        sinks = shares.sinks
        if sinks is None:  # no pull-back among the methods
            sinks = shares_by_weights(analyzer, sequence, question, PullRequest(), ["constant"]).sinks.numpy()
        places = [place for place in places if not sinks[place]]
        if places:
            yield WITHOUT_SINKS, counted & ~sinks, places

    def _scores(self, share: np.ndarray, counted: np.ndarray, places: Sequence[int]) -> tuple[float, float]:
        is_evidence = np.zeros(len(share), bool)
        is_evidence[list(places)] = True
        sizes = np.abs(share) if self.order == "absolute" else share
        return scores(sizes[counted], is_evidence[counted])

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        table = partial.rows["rows"].select("SELECT * FROM rows ORDER BY sequence, method, question, measure")
        order = {name: index for index, name in enumerate(self.names)}
        rows = sorted(table.to_pylist(), key=lambda row: (row["set"], order[row["method"]], row["sequence"]))
        by = ("set", "question", "measure")
        interval = bind(statistics.mean_with_interval, resamples=RESAMPLES, confidence=CONFIDENCE, seed=facts.seed)
        groups = statistics.grouped(rows, by)
        records = [self._published(record, facts) for record in statistics.means(groups, by, interval)]
        over_sets = bind(statistics.mean_of_means, resamples=RESAMPLES, confidence=CONFIDENCE, seed=facts.seed)
        records += _means_of_sets(groups, facts, over_sets)
        differences = statistics.differences(groups, by, self.reference, interval)
        differences += _differences_of_sets(groups, self.reference, over_sets)
        results = {
            "evidence": tables.from_records(records, _MEANS),
            "evidence-differences": tables.from_records(differences, _DIFFERENCES),
            "evidence-rows": table,
        }
        drawn = {f"evidence-{question}": bind(_figure, records, question) for question in self.objectives}
        return Outcome(results, drawn, [*published_notes(facts.model), *notes_of(partial)])

    def _published(self, record: Row, facts: RunFacts) -> Row:
        value = None
        if record["measure"] == "reciprocal_rank" and self.order == "signed":
            value = published_rank(facts.model, {record["set"]}, record["question"], record["method"])
        return record | {"published": value}


_LABELS = {"set": pa.string(), "question": pa.string(), "measure": pa.string(), "method": pa.string()}
_ROWS = pa.schema({"sequence": pa.int64(), **_LABELS, "value": pa.float64()})
_ENDS = {"low": pa.float64(), "high": pa.float64(), "sequences": pa.int64()}
_MEANS = pa.schema({**_LABELS, "mean": pa.float64(), **_ENDS, "published": pa.float64()})
_DIFFERENCES = pa.schema({**_LABELS, "reference": pa.string(), "difference": pa.float64(), **_ENDS})


def scores(shares: np.ndarray, is_evidence: np.ndarray) -> tuple[float, float]:
    """The reciprocal rank of the best evidence token, ties sharing their ranks, and the evidence's share of what is above
    zero. A missing share is below all others."""
    known = np.where(np.isfinite(shares), shares, -np.inf)
    rank = float(stats.rankdata(-known)[is_evidence].min())
    positive = np.clip(np.nan_to_num(shares, nan=0.0), 0, None)
    total = positive.sum()
    return 1 / rank, float(positive[is_evidence].sum() / total) if total > 0 else 0.0


def _wanted(evidence: EvidenceTokens, question: str) -> Wanted:
    against = evidence.bad if question == "contrastive" else None
    return Wanted(evidence.good, against, objective=QUESTIONS[question])


_OverSets = Callable[[Sequence[np.ndarray]], tuple[float, float, float]]


def _sets_of(
    groups: Mapping[tuple[object, ...], statistics.Group],
) -> dict[tuple[object, ...], list[statistics.Group]]:
    """The groups of all sets, by question and measure; none for a single set, whose own mean is known."""
    found: dict[tuple[object, ...], list[statistics.Group]] = {}
    for (_, *rest), group in groups.items():
        found.setdefault(tuple(rest), []).append(group)
    return {key: several for key, several in found.items() if len({key[0] for key in groups}) > 1}


def _means_of_sets(
    groups: Mapping[tuple[object, ...], statistics.Group], facts: RunFacts, interval: _OverSets
) -> list[Row]:
    """The mean of the sets' means: every set counts alike. Its interval is over rows, drawn within each set."""
    records: list[Row] = []
    collections = sorted({str(key[0]) for key in groups})
    for (question, measure), several in _sets_of(groups).items():
        for method in several[0]:
            if len(several) < len(collections) or not all(method in group for group in several):
                continue
            mean, low, high = interval([np.array(list(group[method].values())) for group in several])
            known = measure == "reciprocal_rank"
            records.append(
                {"set": MEAN_OF_SETS, "question": question, "measure": measure, "method": method, "mean": mean}
                | {"low": low, "high": high, "sequences": sum(len(group[method]) for group in several)}
                | {"published": published_rank(facts.model, collections, str(question), method) if known else None}
            )
    return records


def _differences_of_sets(
    groups: Mapping[tuple[object, ...], statistics.Group], reference: str, interval: _OverSets
) -> list[Row]:
    """The same of the differences from the reference method, row by row."""
    records: list[Row] = []
    collections = {key[0] for key in groups}
    for (question, measure), several in _sets_of(groups).items():
        base = statistics.present(reference, several[0])
        for method in several[0]:
            pairs = [(group.get(method, {}), group.get(base, {})) for group in several]
            falls = [np.array([own[row] - other[row] for row in own if row in other]) for own, other in pairs]
            if method == base or len(several) < len(collections) or not all(len(each) for each in falls):
                continue
            mean, low, high = interval(falls)
            records.append(
                {"set": MEAN_OF_SETS, "question": question, "measure": measure, "method": method}
                | {"reference": base, "difference": mean, "low": low, "high": high}
                | {"sequences": sum(map(len, falls))}
            )
    return records


def _is_gpt2_small(model: ModelFacts) -> bool:
    """Whether a model is GPT-2 small, by name and by shape."""
    shape = (model.model_type, len(model.layers), model.width, model.vocabulary)
    return short_name(model.name) == "gpt2" and shape == _GPT2


def published_rank(model: ModelFacts, collections: Collection[str], question: str, method: str) -> float | None:
    """The mean reciprocal rank of a method on a set, or on the mean of the nine sets of BLiMP (Ferrando et al. 2023).

    Their method `logit` (.731 and 1.0) is not one of normscope's.
    """
    corpus = {frozenset({IOI}): "ioi", BLIMP: "blimp"}.get(frozenset(collections), "")
    if question != "contrastive" or not _is_gpt2_small(model):
        return None
    return Paper("gpt2", corpus).value(EvidenceExperiment.name, "reciprocal_rank", method)


def published_notes(model: ModelFacts) -> list[str]:
    """Why a run has no published values."""
    if _is_gpt2_small(model):
        return []
    return [f"No published values: those of ALTI-Logit's table are for GPT-2 small, and the model is {model.name!r}."]


def _figure(records: list[Row], question: str) -> Figure:
    wanted = [record for record in records if record["question"] == question and record["measure"] == "reciprocal_rank"]
    return method_bars(wanted, "set", label="mean reciprocal rank", limits=(0.0, 1.0))
