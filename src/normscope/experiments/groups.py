"""ff-amplification of groups (2024, Figures 7 and 8): pairs within a word, or within an entity, against other pairs.

As in the paper, a pair is an ordered pair of subword types: its amplification is the mean over its occurrences, and what
was seen once is left out. The group is compared with all other pairs, weighted so that their token distances are distributed
as the group's (`matching`); the difference of the means is tested by an unpaired bootstrap, layer by layer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial as bind
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from normscope.errors import InputError
from normscope.experiments import declared, figures, published, tables
from normscope.experiments.amplification import KINDS, UNIT, changes, scopes_needed, type_ids
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts, check_choice
from normscope.experiments.matching import matched
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.statistics import MeanDifference, Sample, compare_means
from normscope.experiments.tables import Row
from normscope.methods.norms import Decomposition

FEWEST = 20
"""With fewer pairs on a side, nothing is called significant: a bootstrap of few values is too confident."""

_WIDTH = 0.4
_NORMAL = 1.96
_BINS = 50
_TAIL = 0.005


@dataclass(frozen=True)
class GroupAmplification(declared.GroupAmplification, Experiment):
    label: ClassVar[str]
    """What the group is called in figures."""
    members: ClassVar[str]
    """What its members are called at the beginning of a sentence."""
    columns: ClassVar[dict[str, str]] = {
        "kind": "ff: the feed-forward alone; group: norm, feed-forward, residual and norm",
        "layer": "layer, from 1",
        "effect": "mean amplification of the group's pairs minus that of the other pairs; empty with fewer than two pairs",
        "low": "lower end of the bootstrap confidence interval (percentile)",
        "high": "upper end of it",
        "p": "p-value of no difference, corrected as requested",
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
        labels: dict[str, object] = {
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
        records: list[Row] = []
        drawn: dict[str, Callable[[], Figure]] = {}
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
            for index, kind in enumerate(KINDS):
                chosen = range(index * len(layers), (index + 1) * len(layers))
                found = self._records(kind, layers, [tested[row] for row in chosen], counts, paper)
                records += found
                if min(len(group), len(other)) > 1:
                    shapes = [_Shape.of(group, other, row) for row in chosen]
                    errors = [tested[row].errors for row in chosen]
                    drawn[f"{self.name}-{kind}"] = bind(_bars, found, errors, self.label)
                    drawn[f"{self.name}-{kind}-histograms"] = bind(_histograms, shapes, layers, counts, self.label)
            found = {self.name: tables.from_records(records, _SCHEMA), f"{self.name}-distances": pairs.distances}
        return Outcome(found, drawn, paper.notes)

    def _records(
        self,
        kind: str,
        layers: tuple[int, ...],
        tested: list[MeanDifference],
        counts: dict[str, Any],
        paper: published.Paper,
    ) -> list[Row]:
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
                "published_significant": published_significant(paper, self.name, layer) if kind == "ff" else None,
            }
            for layer, comparison, value in zip(layers, tested, p, strict=True)
        ]

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        layers = [row for row in rows if row["kind"] == rows[0]["kind"]]
        known = tables.rows_with(layers, "effect", "significant")
        amplified = sum(bool(row["significant"]) and row["effect"] > 0 for row in known)
        total = f"{len(layers)} layers" if known == layers else f"the {len(known)} layers that have enough such pairs"
        where = f"in {amplified} of {total}"
        return f"{cls.members} are brought together, more than pairs at the same distance, {where}."


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


def published_significant(paper: published.Paper, experiment: str, layer: int) -> bool | None:
    """Whether the paper found the feed-forward of a layer to amplify the group's pairs significantly."""
    value = paper.value(experiment, "significant", layer=layer)
    return None if value is None else bool(value)


def _columns(layers: tuple[int, ...]) -> list[str]:
    return [f"{kind}_{layer}" for kind in KINDS for layer in layers]


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's correction of p-values for testing several layers."""
    order = np.argsort(p, kind="stable")
    scaled = np.ones(len(p))
    running = 0.0
    for rank, test in enumerate(order):
        running = max(running, min(1.0, float(p[test]) * (len(p) - rank)))
        scaled[test] = running
    return scaled


@dataclass(frozen=True)
class WordSplit(declared.WordSplit, GroupAmplification):
    """Pairs of subwords of one word."""

    label: ClassVar[str] = "same word"
    captions: ClassVar[dict[str, str]] = {
        "word-split": "Amplification between subwords of one word, compared with other pairs at the same distance.",
    }
    across_caption: ClassVar[str] = (
        "By how much the amplification between subwords of one word exceeds that of other pairs at the same "
        "distances. Filled marks: significant; bands: bootstrap interval, or one deviation over seeds."
    )
    members: ClassVar[str] = "Subwords of one word"

    def groups(self, observation: Observation) -> np.ndarray:
        return observation.words


@dataclass(frozen=True)
class Entities(declared.Entities, GroupAmplification):
    """Pairs of tokens of one named entity; needs a corpus with entity labels (CoNLL)."""

    label: ClassVar[str] = "same entity"
    captions: ClassVar[dict[str, str]] = {
        "entities": "Amplification between tokens of one named entity, compared with other pairs at the same distance.",
    }
    across_caption: ClassVar[str] = (
        "By how much the amplification between tokens of one named entity exceeds that of other pairs at the same "
        "distances. Filled marks: significant; bands: bootstrap interval, or one deviation over seeds."
    )
    members: ClassVar[str] = "Tokens of one named entity"

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=scopes_needed(model)),), labels=True)

    def groups(self, observation: Observation) -> np.ndarray:
        if observation.entities is None:
            raise InputError("entities needs entity labels: a corpus in CoNLL columns (--format conll).")
        return observation.entities


@dataclass(frozen=True)
class _Shape:
    """How the amplifications of a layer are distributed: the share of both sides in each bin."""

    edges: np.ndarray
    group: np.ndarray
    other: np.ndarray

    @classmethod
    def of(cls, group: Sample, other: Sample, row: int) -> _Shape:
        values = [sample.weighted(row) / sample.weights for sample in (group, other)]
        low, high = np.quantile(np.concatenate(values), [_TAIL, 1 - _TAIL])
        edges = np.linspace(low, high, _BINS + 1) if high > low else np.linspace(low - 1, low + 1, _BINS + 1)
        shares = [
            np.histogram(np.clip(amplifications, low, high), edges, weights=sample.weights / sample.weights.sum())[0]
            for amplifications, sample in zip(values, (group, other), strict=True)
        ]
        return cls(edges, *shares)


def _counted(counts: Mapping[str, object]) -> str:
    return f"{counts['pairs']:,} pairs of the group, {counts['other_pairs']:,} others weighted to their distances"


def _bars(tested: Sequence[Row], errors: Sequence[tuple[float, float]], label: str) -> Figure:
    """The means of both sides by layer, with whiskers of 95 %, and a star where the difference is significant."""
    layers = [record["layer"] for record in tested]
    figure, (axes,) = figures.panels(1, width=max(4.8, 0.62 * len(layers) + 1.6), height=3.4)
    for index, (side, name, colour) in enumerate((("group_mean", label, 1), ("other_mean", "other pairs", 6))):
        at = np.array(layers) + (index - 0.5) * _WIDTH
        means, error = [record[side] for record in tested], [_NORMAL * pair[index] for pair in errors]
        axes.bar(at, means, _WIDTH, yerr=error, color=figures.PALETTE[colour], label=name, error_kw={"lw": 0.9})
    low, high = axes.get_ylim()
    for record in tested:
        if record["significant"]:
            axes.text(record["layer"], high, "*", ha="center", va="center", fontsize=11)
    axes.set_ylim(low, high + 0.1 * (high - low))
    axes.axhline(0, color="k", linewidth=0.8)
    decided = any(record["significant"] is not None for record in tested)
    axes.set(ylabel="mean amplification")
    axes.set_title(
        f"{_counted(tested[0])};\n{'* significant difference' if decided else 'too few to test'}", fontsize=9
    )
    figures.layer_ticks(axes, layers)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _histograms(shapes: Sequence[_Shape], layers: tuple[int, ...], counts: Mapping[str, object], label: str) -> Figure:
    figure, grid = figures.panels(len(layers), width=3.2, height=2.4)
    for axes, layer, shape in zip(grid, layers, shapes, strict=True):
        for shares, name, colour in ((shape.other, "other pairs", 6), (shape.group, label, 1)):
            edges = cast(list[float], shape.edges.tolist())
            axes.stairs(shares, edges, fill=True, alpha=0.55, color=figures.PALETTE[colour], label=name)
        axes.set_title(f"layer {layer}", fontsize=10)
        axes.tick_params(labelsize=7)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    grid[0].legend(fontsize=7, frameon=False)
    figure.suptitle(_counted(counts), fontsize=9)
    figure.supxlabel("amplification (the outermost 0.5 % of pairs are in the outermost bars)", fontsize=9)
    figure.supylabel("share of pairs", fontsize=9)
    return figure
