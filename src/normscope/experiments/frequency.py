"""frequency (2020) and mixing-frequency (2021): how the contribution or the mixing ratio of a token relates to its
frequency.

The frequency rank (1 is the most frequent) comes from a list, or is counted in the analysed corpus itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial as bind
from typing import ClassVar

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from scipy import stats

from normscope.experiments import chain, declared, figures, published, tables
from normscope.experiments.amplification import type_ids
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.statistics import spearman
from normscope.experiments.tables import Row
from normscope.experiments.tokens import CATEGORIES, categories, categories_of
from normscope.methods.norms import Decomposition
from normscope.methods.vectors import ValueNorms
from normscope.scopes import ATTENTION_WEIGHTS

ALL, WITHOUT_SPECIAL, WITHOUT_FIRST = "all", "without special tokens", "without the first token"


def _occurrences(observation: Observation, model: ModelFacts, values: Mapping[str, np.ndarray]) -> Partial:
    count = len(observation.tokens)
    table = pa.table(
        {
            "sequence": np.full(count, observation.number, np.int64),
            "position": np.arange(count),
            "type": type_ids(observation),
            "special": observation.special,
            "class": categories(observation, model).astype(np.int64),
            **{name: np.asarray(value, np.float64) for name, value in values.items()},
        }
    )
    return Partial(rows={"occurrences": Rows((table,))})


def _ordered(partial: Partial) -> dict[str, np.ndarray]:
    table = partial.rows["occurrences"].select("SELECT * FROM rows ORDER BY sequence, position")
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def rank_of_types(types: np.ndarray, ranks: Mapping[int, int] | None) -> np.ndarray:
    """The frequency rank of every token: as listed, with the last rank + 1 for what is not; or counted among `types`."""
    if ranks is not None:
        unseen = 1 + max(ranks.values(), default=0)
        return np.array([ranks.get(int(number), unseen) for number in types], np.float64)
    unique, inverse, counts = np.unique(types, return_inverse=True, return_counts=True)
    return stats.rankdata(-counts, method="average")[inverse.reshape(-1)] if len(unique) else np.zeros(0)


def _correlations(
    columns: dict[str, np.ndarray], names: Sequence[str], facts: RunFacts
) -> tuple[list[dict[str, object]], np.ndarray]:
    rank = rank_of_types(columns["type"], facts.ranks)
    records: list[dict[str, object]] = []
    selections = {ALL: np.ones(len(rank), bool), WITHOUT_SPECIAL: ~columns["special"].astype(bool)}
    if facts.model.causal:
        selections[WITHOUT_FIRST] = columns["position"] > 0
    for tokens, chosen in selections.items():
        for name in names:
            rho = spearman(rank[chosen], columns[name][chosen])
            records.append({"quantity": name, "tokens": tokens, "spearman": rho, "occurrences": int(chosen.sum())})
    return records, rank


_COLUMNS = {
    "tokens": "all, without special tokens, or, for causal models, without the first token",
    "spearman": "rank correlation with the frequency rank (1 is the most frequent), over token occurrences",
    "occurrences": "number of token occurrences",
}


@dataclass(frozen=True)
class Frequency(declared.Frequency, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "quantity": "weight: attention the token gets (mean over heads, queries, layers); f: ||f(x)|| (over heads, layers)",
        **_COLUMNS,
    }
    captions: ClassVar[dict[str, str]] = {
        "frequency": "Frequency rank of a token against attention weight and norm; each panel names its rank "
        "correlation.",
    }

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=(ATTENTION_WEIGHTS,), heads=True), ValueNorms()))

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        weights = observation.attention_weights().astype(np.float64)
        values = observation.result(ValueNorms())
        received = np.nanmean(weights, axis=2).mean((0, 1))
        return _occurrences(observation, model, {"weight": received, "f": values.mean((0, 1))})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        columns = _ordered(partial)
        records, rank = _correlations(columns, ["weight", "f"], facts)
        panels = {figures.ALPHA: columns["weight"], "‖f(x)‖": columns["f"]}
        drawn = bind(_figure, facts.model, rank, columns["class"], panels)
        return Outcome({"frequency": tables.from_records(records)}, {"frequency": drawn})

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        return tables.correlation_sentence("frequency rank and what a token is given", rows)


@dataclass(frozen=True)
class MixingFrequency(declared.MixingFrequency, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "quantity": "scope of the mixing ratio (mean over layers per token occurrence)",
        **_COLUMNS,
        "published": "the paper's value, where model, corpus and masking are the paper's (a note says why not)",
        "published_deviation": "of MultiBERTs, the deviation of the published value over 25 models",
    }
    captions: ClassVar[dict[str, str]] = {
        "mixing-frequency": "Frequency rank of a token against its mixing ratio, by scope.",
    }

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(ratios=tuple(chain.mixing(model.scopes))),), masked=self.masked)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        ratios = {s: observation.analysis.mixing_ratio(s).values for s in chain.mixing(model.scopes)}
        values = {str(scope): ratio.astype(np.float64).mean(0) for scope, ratio in ratios.items()}
        return _occurrences(observation, model, values)

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        scopes = chain.mixing(facts.model.scopes)
        columns = _ordered(partial)
        records, rank = _correlations(columns, scopes, facts)
        paper = published.paper_of(facts, self.name, masked=False)
        for record in records:
            if record["tokens"] != WITHOUT_FIRST:
                scope, tokens = str(record["quantity"]), "" if record["tokens"] == ALL else f" {record['tokens']}"
                record["published"] = paper.value(self.name, f"spearman{tokens}", scope)
                record["published_deviation"] = paper.value(self.name, f"deviation{tokens}", scope)
        drawn = bind(_figure, facts.model, rank, columns["class"], {scope: columns[scope] for scope in scopes})
        return Outcome({"mixing-frequency": tables.from_records(records)}, {"mixing-frequency": drawn}, paper.notes)

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        return tables.correlation_sentence("frequency rank and mixing ratio", rows)


def _figure(model: ModelFacts, rank: np.ndarray, classes: np.ndarray, panels: dict[str, np.ndarray]) -> Figure:
    """Every token occurrence: ordinary tokens as a density, special ones and punctuation as points."""
    figure, grid = figures.panels(len(panels), columns=2, width=4.4, height=3.2)
    ordinary = classes == CATEGORIES.index("other")
    for axes, (name, values) in zip(grid, panels.items(), strict=True):
        figures.density(axes, rank, values, ordinary, xlabel="frequency rank", ylabel=name)
        axes.set_title(f"{name} ({figures.RHO} = {spearman(rank, values):.2f})", fontsize=10)
        for index, category in enumerate(categories_of(model)):
            chosen = (classes == index) & ~ordinary
            if chosen.any():
                colour = figures.PALETTE[(1, 3, 4, 6, 2)[index]]
                axes.plot(rank[chosen], values[chosen], ".", ms=3.5, c=colour, label=category, rasterized=True)
    figures.legend_below(figure, grid[0])
    return figure
