"""ff-amplification of groups (2024, Figures 7 and 8): pairs within a word, or within an entity, against other pairs.

As in the paper, a pair is an ordered pair of subword types: its amplification is the mean over its occurrences (here: those
at one token distance), and what was seen once is left out. The other pairs are sampled so that they have exactly the token
distances of the group's pairs; the difference of the means is tested by an unpaired bootstrap, layer by layer.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial as bind
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from normscope.choices import NormaliseAxis
from normscope.errors import InputError
from normscope.experiments import group_figures, published, tables
from normscope.experiments.amplification import KINDS, UNIT, changes, scopes_needed, type_ids
from normscope.experiments.arrow import Table
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts, check_choice
from normscope.experiments.bootstrap import Comparison, compare_means
from normscope.experiments.partial import Partial, Rows
from normscope.measures import Decomposition

_SPARE = 2
"""How many other pairs of a distance are kept for each group pair of a sequence, so that matching can choose."""


def match_distances(in_group: np.ndarray, distances: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of group pairs and of other pairs to compare: equally many of every distance, the first by `order`."""
    chosen: list[list[np.ndarray]] = [[], []]
    for distance in np.unique(distances[in_group]):
        at = [np.flatnonzero((distances == distance) & (in_group == group)) for group in (True, False)]
        count = min(len(rows) for rows in at)
        for place, rows in enumerate(at):
            chosen[place].append(np.sort(rows[np.argsort(order[rows], kind="stable")[:count]]))
    empty = np.zeros(0, np.int64)
    group, other = (np.concatenate([empty, *rows]) for rows in chosen)
    return group, other


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
        "significant": "whether p is below the level",
        "group_mean": "mean amplification of the group's pairs",
        "other_mean": "mean amplification of the other pairs",
        "pairs": "number of pairs on each side, after matching distances",
        "group_pairs_left_out": "group pairs without a partner of the same distance",
        "group_pairs_seen_once": "group pairs (of types) that were seen once, and are left out",
        "published_significant": "whether the paper found the group amplified, where model and corpus are the paper's",
        "distance": "distance of the pair in tokens: key minus query (or its absolute value)",
        "group_pairs": "compared group pairs of this distance",
        "other_pairs": "compared other pairs of this distance",
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
        same = (groups[query] == groups[key]) & (groups[query] >= 0)
        distance = key - query if self.distance == "signed" else np.abs(key - query)
        if self.unit == "type":
            kept = np.flatnonzero(np.isin(distance, distance[same]))
        else:
            kept = _candidates(same, distance, observation)
        pairs = _Pairs(query[kept], key[kept], same[kept], distance[kept])
        return Partial(rows={"pairs": pairs.rows(self.unit, observation, change, model)})

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=scopes_needed(model)),))

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        layers = facts.model.layers
        rows, seen_once = _units(partial.rows["pairs"], self.unit, layers)
        in_group = rows["in_group"].to_numpy(zero_copy_only=False)
        distances = rows["distance"].to_numpy()
        order = np.random.default_rng(facts.seed).permutation(len(distances))
        group, other = match_distances(in_group, distances, order)
        values = {kind: np.stack([rows[f"{kind}_{layer}"].to_numpy() for layer in layers]) for kind in KINDS}
        paper = published.paper_of(facts, self.name, masked=False)
        counts = {
            "pairs": len(group),
            "group_pairs_left_out": int(in_group.sum()) - len(group),
            "group_pairs_seen_once": seen_once,
        }
        records: list[dict[str, Any]] = []
        for kind in KINDS:
            tested = compare_means(
                values[kind][:, group], values[kind][:, other], self.resamples, 1 - self.level, self.sides, facts.seed
            )
            records += self._records(kind, layers, tested, counts, paper)
        drawn: dict[str, Any] = {}
        for kind in KINDS if len(group) > 1 else ():
            sides = values[kind][:, group], values[kind][:, other]
            tested = [record for record in records if record["kind"] == kind]
            drawn[f"{self.name}-{kind}"] = bind(group_figures.bars, *sides, tested, self.label)
            drawn[f"{self.name}-{kind}-histograms"] = bind(group_figures.histograms, *sides, layers, self.label)
        return Outcome(
            {
                self.name: tables.from_records(records, _SCHEMA),
                f"{self.name}-distances": _distance_table(distances[group], distances[other]),
            },
            drawn,
            paper.notes,
        )

    def _records(
        self,
        kind: str,
        layers: tuple[int, ...],
        tested: list[Comparison],
        counts: dict[str, int],
        paper: published.Paper,
    ) -> list[dict[str, Any]]:
        p = np.array([comparison.p for comparison in tested])
        if self.correction == "holm":
            p = holm(p)
        return [
            {
                "kind": kind,
                "layer": layer,
                "effect": comparison.effect,
                "low": comparison.low,
                "high": comparison.high,
                "p": float(value),
                "significant": bool(value < self.level),
                "group_mean": comparison.first_mean,
                "other_mean": comparison.second_mean,
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
        **dict.fromkeys(("pairs", "group_pairs_left_out", "group_pairs_seen_once"), pa.int64()),
        "published_significant": pa.bool_(),
    }
)


@dataclass(frozen=True)
class _Pairs:
    """Pairs of positions of one sequence: those of groups, and others of the same distances."""

    query: np.ndarray
    key: np.ndarray
    in_group: np.ndarray
    distance: np.ndarray

    def rows(self, unit: str, observation: Observation, change: np.ndarray, model: ModelFacts) -> Rows:
        """One row for every pair, with its places, or, to be added up, with its types."""
        labels: dict[str, Any] = {"in_group": self.in_group, "distance": self.distance}
        amounts = change[..., self.query, self.key]
        if unit == "occurrence":
            sequence = np.full(len(self.query), observation.number, np.int64)
            labels |= {"sequence": sequence, "query": self.query, "key": self.key}
            return Rows((pa.table(labels | _columns(amounts, model)),))
        types = type_ids(observation)
        labels |= {"query": types[self.query], "key": types[self.key]}
        amounts = np.rint(amounts * UNIT).astype(np.int64)
        counted = {"occurrences": np.ones(len(self.query), np.int64)}
        return Rows((pa.table(labels | counted | _columns(amounts, model)),), keys=tuple(labels))


def _columns(amounts: np.ndarray, model: ModelFacts) -> dict[str, np.ndarray]:
    return {
        f"{name}_{layer}": amounts[kind, place]
        for kind, name in enumerate(KINDS)
        for place, layer in enumerate(model.layers)
    }


def _units(rows: Rows, unit: str, layers: tuple[int, ...]) -> tuple[Table, int]:
    """The pairs to compare, in a fixed order, and how many group pairs were seen once and left out."""
    if unit == "occurrence":
        return rows.select("SELECT * FROM rows ORDER BY sequence, query, key"), 0
    means = ", ".join(
        f"sum({kind}_{layer})::DOUBLE / {UNIT} / sum(occurrences) AS {kind}_{layer}"
        for kind in KINDS
        for layer in layers
    )
    pairs = (
        f"SELECT in_group, query, key, distance, sum(occurrences) AS seen, {means} FROM rows "
        f"GROUP BY in_group, query, key, distance"
    )
    with rows.database() as connection:
        connection.execute(f"CREATE TABLE units AS {pairs}")
        ((once,),) = connection.execute("SELECT count(*) FROM units WHERE in_group AND seen = 1").fetchall()
        table = connection.sql("SELECT * FROM units WHERE seen > 1 ORDER BY query, key, distance, in_group")
        return table.to_arrow_table(), int(once)


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's correction of p-values for testing several layers."""
    order = np.argsort(p, kind="stable")
    scaled = np.ones(len(p))
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, float(p[index]) * (len(p) - place)))
        scaled[index] = running
    return scaled


def _candidates(same: np.ndarray, distance: np.ndarray, observation: Observation) -> np.ndarray:
    """All pairs of groups, and, of each of their distances, other pairs to spare, drawn by the run's seed."""
    order = np.random.default_rng([observation.number, 7, observation.seed]).permutation(len(same))
    kept = [np.flatnonzero(same)]
    for value, count in zip(*np.unique(distance[same], return_counts=True), strict=True):
        rows = np.flatnonzero(~same & (distance == value))
        kept.append(rows[np.argsort(order[rows], kind="stable")[: _SPARE * int(count)]])
    return np.sort(np.concatenate(kept))


def _distance_table(group: np.ndarray, other: np.ndarray) -> Table:
    values, counts = np.unique(group, return_counts=True)
    return tables.tidy(
        {"distance": values.tolist()},
        {"group_pairs": counts, "other_pairs": np.array([(other == value).sum() for value in values])},
    )


@dataclass(frozen=True)
class WordSplit(GroupAmplification):
    """Pairs of subwords of one word."""

    name: ClassVar[str] = "word-split"
    shows: ClassVar[str] = "Figures 7a, 8"
    summary: ClassVar[str] = (
        "whether the feed-forward brings subwords of one word together, against distance-matched pairs"
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
