"""ff-amplification of groups (2024, Figures 7 and 8): pairs within a word, or within an entity, against other pairs.

As in the paper, a pair is an ordered pair of subword types: its amplification is the mean over its occurrences, and what
was seen once is left out. The group is compared with all other pairs, weighted so that their token distances are distributed
as the group's (`matching`); the difference of the means is tested by an unpaired bootstrap, layer by layer.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial as bind
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from normscope.errors import InputError
from normscope.experiments import group_figures, published, tables
from normscope.experiments.amplification import KINDS, UNIT, changes, scopes_needed, type_ids
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts, check_choice
from normscope.experiments.bootstrap import Comparison, compare_means
from normscope.experiments.matching import matched
from normscope.experiments.partial import Partial, Rows
from normscope.measures import Decomposition
from normscope.options import NormaliseAxis

FEWEST = 20
"""With fewer pairs on a side, nothing is called significant: a bootstrap of so few values is too sure of itself."""


@dataclass(frozen=True)
class GroupAmplification(Experiment):
    """Options: `unit`, whether a pair is one of types, averaged over its occurrences, or each occurrence counts by itself;
    `axis` of normalisation, `distance` signed or absolute, `resamples`, `sides`, `level`, `correction`."""

    unit: str = "type"
    axis: NormaliseAxis = "column"
    distance: str = "signed"
    resamples: int = 10_000
    sides: str = "two"
    level: float = 0.05
    correction: str = "none"

    label: ClassVar[str]
    paper: ClassVar[str] = "Kobayashi et al. 2024"
    columns: ClassVar[dict[str, str]] = {
        "kind": "ff: the feed-forward alone; group: norm, feed-forward, residual and norm",
        "layer": "layer, from 1",
        "effect": "mean amplification of the group's pairs minus that of the other pairs; empty with fewer than two pairs",
        "low": "lower end of the bootstrap confidence interval (percentile)",
        "high": "upper end of it",
        "p": "p-value of no difference, corrected as asked",
        "significant": f"whether p is below the level; empty with fewer than {FEWEST} pairs on a side",
        "group_mean": "mean amplification of the group's pairs",
        "other_mean": "mean amplification of the other pairs, weighted to the distances of the group's",
        "pairs": "number of pairs of the group",
        "other_pairs": "number of other pairs with a weight; in the table of distances, of their occurrences",
        "other_effective": "number of other pairs of equal weight whose mean would be as certain (Kish)",
        "group_pairs_left_out": "group pairs at distances that no other pair has",
        "group_pairs_seen_once": "group pairs (of types) that were seen once, and are left out",
        "published_significant": "whether the paper found the group amplified, where model and corpus are the paper's",
        "distance": "distance of the pair in tokens: key minus query (or its absolute value)",
        "group_pairs": "occurrences of the group's pairs at this distance",
        "other_weight": "how much an occurrence of another pair counts at this distance",
    }

    def __post_init__(self) -> None:
        check_choice(self.name, "unit", self.unit, ("type", "occurrence"))
        check_choice(self.name, "axis", self.axis, ("none", "row", "column"))
        check_choice(self.name, "distance", self.distance, ("signed", "absolute"))
        check_choice(self.name, "sides", self.sides, ("two", "greater", "less"))
        check_choice(self.name, "correction", self.correction, ("none", "holm"))
        if self.resamples < 1 or not 0 < self.level < 1:
            raise InputError(f"{self.name}: resamples is at least 1, and level between 0 and 1.")

    @abstractmethod
    def groups(self, observation: Observation) -> np.ndarray:
        """For every token the number of its group, -1 outside every group."""

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        change = changes(observation, model, self.axis)
        groups = self.groups(observation)
        count = len(groups)
        query, key = np.nonzero(~np.eye(count, dtype=bool) & np.asarray(np.isfinite(change).all((0, 1)))[:, :count])
        content = ~observation.special[query] & ~observation.special[key]
        query, key = query[content], key[content]
        labels: dict[str, Any] = {
            "in_group": (groups[query] == groups[key]) & (groups[query] >= 0),
            "distance": key - query if self.distance == "signed" else np.abs(key - query),
        }
        if self.unit == "occurrence":
            labels |= {"sequence": np.full(len(query), observation.number, np.int64), "query": query, "key": key}
        else:
            types = type_ids(observation)
            labels |= {"query": types[query], "key": types[key]}
        kinds = change.shape[0] * change.shape[1]
        amounts = np.rint(change[..., query, key] * UNIT).astype(np.int64).reshape(kinds, len(query))
        columns = dict(zip(_columns(model.layers), amounts, strict=True))
        table = pa.table(labels | {"occurrences": np.ones(len(query), np.int64)} | columns)
        return Partial(rows={"pairs": Rows((table,), keys=tuple(labels))})

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=scopes_needed(model)),))

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        layers = facts.model.layers
        paper = published.paper_of(facts, self.name, masked=False)
        identity, fewest = (("query", "key"), 2) if self.unit == "type" else (("sequence", "query", "key"), 1)
        records: list[dict[str, Any]] = []
        drawn: dict[str, Any] = {}
        with matched(partial.rows["pairs"], identity, _columns(layers), fewest) as pairs:
            group, other = pairs.side(group=True), pairs.side(group=False)
            tested = compare_means(
                group,
                other,
                len(pairs.columns),
                resamples=self.resamples,
                confidence=1 - self.level,
                sides=self.sides,
                seed=facts.seed,
            )
            counts = {
                "pairs": len(group),
                "other_pairs": len(other),
                "other_effective": other.effective,
                "group_pairs_left_out": pairs.left_out,
                "group_pairs_seen_once": pairs.seen_once,
            }
            for place, kind in enumerate(KINDS):
                chosen = range(place * len(layers), (place + 1) * len(layers))
                found = self._records(kind, layers, [tested[row] for row in chosen], counts, paper)
                records += found
                if min(len(group), len(other)) > 1:
                    shapes = [group_figures.Shape.of(group, other, row) for row in chosen]
                    errors = [tested[row].errors for row in chosen]
                    drawn[f"{self.name}-{kind}"] = bind(group_figures.bars, found, errors, self.label)
                    drawn[f"{self.name}-{kind}-histograms"] = bind(
                        group_figures.histograms, shapes, layers, counts, self.label
                    )
            found = {self.name: tables.from_records(records, _SCHEMA), f"{self.name}-distances": pairs.distances}
        return Outcome(found, drawn, paper.notes)

    def _records(
        self,
        kind: str,
        layers: tuple[int, ...],
        tested: list[Comparison],
        counts: dict[str, Any],
        paper: published.Paper,
    ) -> list[dict[str, Any]]:
        p = np.array([comparison.p for comparison in tested])
        if self.correction == "holm":
            p = holm(p)
        enough = min(counts["pairs"], counts["other_pairs"]) >= FEWEST
        return [
            {
                "kind": kind,
                "layer": layer,
                "effect": comparison.effect,
                "low": comparison.low,
                "high": comparison.high,
                "p": float(value),
                "significant": bool(value < self.level) if enough else None,
                "group_mean": comparison.means[0],
                "other_mean": comparison.means[1],
                **counts,
                "published_significant": paper.significant(self.name, layer) if kind == "ff" else None,
            }
            for layer, comparison, value in zip(layers, tested, p, strict=True)
        ]


_SCHEMA = pa.schema(
    {
        "kind": pa.string(),
        "layer": pa.int64(),
        **dict.fromkeys(("effect", "low", "high", "p"), pa.float64()),
        "significant": pa.bool_(),
        **dict.fromkeys(("group_mean", "other_mean"), pa.float64()),
        **dict.fromkeys(("pairs", "other_pairs"), pa.int64()),
        "other_effective": pa.float64(),
        **dict.fromkeys(("group_pairs_left_out", "group_pairs_seen_once"), pa.int64()),
        "published_significant": pa.bool_(),
    }
)


def _columns(layers: tuple[int, ...]) -> list[str]:
    return [f"{kind}_{layer}" for kind in KINDS for layer in layers]


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's correction of p-values for testing several layers."""
    order = np.argsort(p, kind="stable")
    scaled = np.ones(len(p))
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, float(p[index]) * (len(p) - place)))
        scaled[index] = running
    return scaled


@dataclass(frozen=True)
class WordSplit(GroupAmplification):
    """Pairs of subwords of one word."""

    name: ClassVar[str] = "word-split"
    shows: ClassVar[str] = "Figures 7a, 8"
    summary: ClassVar[str] = (
        "whether the feed-forward brings subwords of one word together, against other pairs of the same distances"
    )
    label: ClassVar[str] = "same word"

    def groups(self, observation: Observation) -> np.ndarray:
        return observation.words


@dataclass(frozen=True)
class Entities(GroupAmplification):
    """Pairs of tokens of one named entity; needs a corpus with entity labels (CoNLL)."""

    name: ClassVar[str] = "entities"
    shows: ClassVar[str] = "Figure 7b"
    summary: ClassVar[str] = (
        "whether the feed-forward brings tokens of one named entity together (needs a CoNLL corpus)"
    )
    label: ClassVar[str] = "same entity"

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=scopes_needed(model)),), labels=True)

    def groups(self, observation: Observation) -> np.ndarray:
        if observation.entities is None:
            raise InputError("entities needs entity labels: a corpus in CoNLL columns (--format conll).")
        return observation.entities
