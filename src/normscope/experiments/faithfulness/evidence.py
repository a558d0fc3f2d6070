"""evidence: does a method find the words that a model's choice between two words must rest on?

A row has a text, a good and a bad continuation, and the words of the text that decide between them. A method ranks the
tokens by what they put into the logit of the good word, alone (plain) or against that of the bad one (contrastive).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial as bind
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from scipy import stats

from normscope.corpora.item import Item
from normscope.experiments import declared, statistics, tables
from normscope.experiments.base import ModelFacts, Outcome, RunFacts, check_choice
from normscope.experiments.faithfulness.base import (
    ALL,
    CONFIDENCE,
    RESAMPLES,
    MethodTrial,
    notes_of,
    shares_by,
    unavailable,
)
from normscope.experiments.figures import method_bars
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.published import Paper
from normscope.experiments.tables import Row
from normscope.explain.question import LogitQuestion, Wanted
from normscope.models.source import short_name

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

QUESTIONS = ("contrastive", "plain")
MEASURES = ("reciprocal_rank", "mass")
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
        "question": "contrastive: the logit of the good word minus that of the bad one; plain: of the good word alone",
        "method": "name of the method (normscope methods)",
        "measure": "reciprocal_rank: one by the rank of the first evidence token; mass: the evidence's share of all that "
        "speaks for the value (of all sizes, if the order is absolute)",
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

    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        evidence, sequence = item.evidence, item.sequence
        assert evidence is not None
        last = len(sequence) - 1
        targets = [(last, Wanted(evidence.good, evidence.bad)), (last, Wanted(evidence.good))]
        questions = LogitQuestion(analyzer, targets)
        shares, refused = shares_by(analyzer, sequence, questions, self.names, strict=ALL not in self.methods)
        counted = np.ones(len(sequence), bool) if self.special else ~np.asarray(sequence.special, bool)
        counted[list(evidence.places)] = True
        rows = [
            {"sequence": item.number, "set": evidence.collection, "question": question, "method": method}
            | {"measure": measure, "value": value}
            for method, values in shares.items()
            for question, share in zip(QUESTIONS, values, strict=True)
            for measure, value in zip(MEASURES, self._scores(share, counted, evidence.places), strict=True)
        ]
        return Partial(rows={"rows": Rows((pa.Table.from_pylist(rows, schema=_ROWS),))}).merge(unavailable(refused))

    def _scores(self, share: np.ndarray, counted: np.ndarray, places: tuple[int, ...]) -> tuple[float, float]:
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
        records += _means_of_sets(records, facts)
        differences = statistics.differences(groups, by, self.reference, interval)
        results = {
            "evidence": tables.from_records(records, _MEANS),
            "evidence-differences": tables.from_records(differences, _DIFFERENCES),
            "evidence-rows": table,
        }
        drawn = {f"evidence-{question}": bind(_figure, records, question) for question in QUESTIONS}
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


def _means_of_sets(records: list[Row], facts: RunFacts) -> list[Row]:
    """The mean of the sets' means, where there are several: every set counts alike."""
    collections = sorted({record["set"] for record in records})
    if len(collections) < 2:
        return []
    by_key: dict[tuple[str, str, str], list[Row]] = {}
    for record in records:
        by_key.setdefault((record["question"], record["measure"], record["method"]), []).append(record)
    return [
        {"set": MEAN_OF_SETS, "question": question, "measure": measure, "method": method}
        | {"mean": float(np.mean([record["mean"] for record in several]))}
        | {"low": None, "high": None, "sequences": sum(record["sequences"] for record in several)}
        | {
            "published": published_rank(facts.model, collections, question, method)
            if measure == "reciprocal_rank"
            else None
        }
        for (question, measure, method), several in by_key.items()
        if len(several) == len(collections)
    ]


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
    wanted = [
        record
        for record in records
        if record["question"] == question and record["measure"] == "reciprocal_rank" and record["low"] is not None
    ]
    return method_bars(wanted, "set", label="mean reciprocal rank", limits=(0.0, 1.0))
