"""ff-amplification of groups (2023, Figures 7 and 8): pairs within a word, or within an entity, against other pairs.

The other pairs are sampled so that they have exactly the token distances of the group's pairs; the difference of the means
is tested by an unpaired bootstrap, layer by layer.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial as bind
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from normscope.analysis import NormaliseAxis
from normscope.errors import InputError
from normscope.experiments import figures, tables
from normscope.experiments.amplification import KINDS, changes, scopes_needed
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
    """Options: `axis` of normalisation, `distance` signed or absolute, `resamples`, `sides`, `level`, `correction`."""

    axis: NormaliseAxis = "column"
    distance: str = "signed"
    resamples: int = 10_000
    sides: str = "two"
    level: float = 0.05
    correction: str = "none"

    label: ClassVar[str]
    paper: ClassVar[str] = "Kobayashi et al. 2023"
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
        "distance": "distance of the pair in tokens: key minus query (or its absolute value)",
        "group_pairs": "compared group pairs of this distance",
        "other_pairs": "compared other pairs of this distance",
    }

    def __post_init__(self) -> None:
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
        order = np.random.default_rng([observation.number, 7]).permutation(len(query))
        kept = _candidates(same, distance, order)
        columns = {
            "sequence": np.full(len(kept), observation.number, np.int64),
            "query": query[kept],
            "key": key[kept],
            "in_group": same[kept],
            "distance": distance[kept],
        }
        for kind, name in enumerate(KINDS):
            for place, layer in enumerate(model.layers):
                columns[f"{name}_{layer}"] = change[kind, place, query[kept], key[kept]]
        return Partial(rows={"pairs": Rows((pa.table(columns),))})

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=scopes_needed(model)),))

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        rows = partial.rows["pairs"].select("SELECT * FROM rows ORDER BY sequence, query, key")
        in_group = rows["in_group"].to_numpy(zero_copy_only=False)
        distances = rows["distance"].to_numpy()
        order = np.random.default_rng(facts.seed).permutation(len(distances))
        group, other = match_distances(in_group, distances, order)
        layers = facts.model.layers
        values = {kind: np.stack([rows[f"{kind}_{layer}"].to_numpy() for layer in layers]) for kind in KINDS}
        records: list[dict[str, object]] = []
        for kind in KINDS:
            tested = compare_means(
                values[kind][:, group], values[kind][:, other], self.resamples, 1 - self.level, self.sides, facts.seed
            )
            records += self._records(kind, layers, tested, len(group), int(in_group.sum()) - len(group))
        return Outcome(
            {
                self.name: tables.from_records(records),
                f"{self.name}-distances": _distance_table(distances[group], distances[other]),
            },
            {
                f"{self.name}-{kind}": bind(_figure, values[kind][:, group], values[kind][:, other], layers, self.label)
                for kind in KINDS
                if len(group) > 1
            },
        )

    def _records(
        self, kind: str, layers: tuple[int, ...], tested: list[Comparison], pairs: int, left_out: int
    ) -> list[dict[str, object]]:
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
                "pairs": pairs,
                "group_pairs_left_out": left_out,
            }
            for layer, comparison, value in zip(layers, tested, p, strict=True)
        ]


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's correction of p-values for testing several layers."""
    order = np.argsort(p, kind="stable")
    scaled = np.ones(len(p))
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, float(p[index]) * (len(p) - place)))
        scaled[index] = running
    return scaled


def _candidates(same: np.ndarray, distance: np.ndarray, order: np.ndarray) -> np.ndarray:
    """All pairs of groups, and, of each of their distances, other pairs to spare."""
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


def _figure(group: np.ndarray, other: np.ndarray, layers: tuple[int, ...], label: str) -> Figure:
    figure, grid = figures.panels(len(layers), width=3.2, height=2.4)
    for place, (axes, layer) in enumerate(zip(grid, layers, strict=True)):
        both = np.concatenate([group[place], other[place]])
        low, high = np.quantile(both, [0.005, 0.995])
        edges = cast(list[float], np.linspace(low, high, 51).tolist()) if high > low else 10
        for values, name, colour in ((other, "other pairs", 6), (group, label, 1)):
            shown = np.clip(values[place], low, high)
            axes.hist(shown, edges, density=True, alpha=0.55, color=figures.PALETTE[colour], label=name)
        axes.set_title(f"layer {layer}", fontsize=10)
        axes.set_yticks([])
        axes.tick_params(axis="x", labelsize=7)
    grid[0].legend(fontsize=7, frameon=False)
    figure.supxlabel("amplification", fontsize=9)
    return figure


@dataclass(frozen=True)
class WordSplit(GroupAmplification):
    """Pairs of subwords of one word."""

    name: ClassVar[str] = "word-split"
    shows: ClassVar[str] = "Figure 7"
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
    shows: ClassVar[str] = "Figure 8"
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
