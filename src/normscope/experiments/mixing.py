"""mixing-ratio (2021): how much of a token's state comes from other tokens, by scope, layer and kind of token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial as bind
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table as TextTable

from normscope.experiments import chain, declared, figures, published, tables
from normscope.experiments.base import (
    CLS,
    FIRST,
    MASK,
    SEP,
    Experiment,
    ModelFacts,
    Needs,
    Observation,
    Outcome,
    RunFacts,
)
from normscope.experiments.partial import Moments, Partial
from normscope.experiments.statistics import spearman
from normscope.experiments.tables import DIM, PaperTable, Row, Table
from normscope.methods.norms import Decomposition
from normscope.scopes import ATTENTION_WEIGHTS, HALF_ATTENTION_WEIGHTS

OVERALL, WITHOUT_FIRST = "overall", "without first"
KINDS = ("normal", MASK, CLS, SEP, OVERALL)


@dataclass(frozen=True)
class MixingRatio(declared.MixingRatio, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "scope": "scope of the ratio; of weights, the sum over other keys by that over all; AttnResW is half of AttnW's",
        "layer": "layer, from 1",
        "tokens": "overall, or, for causal models, without the first token of each sequence",
        "kind": "kind of token: normal, [MASK], [CLS], [SEP] (with the model's own names for these tokens), or overall; of "
        "a causal model the first token is a kind by itself, and there is overall without it",
        "spearman": "rank correlation of the layer with its mean ratio: how mixing goes with depth",
        "mean": "mean ratio: over all (sequence, layer, token), or, by layer, over the means of the sequences",
        "maximum": "largest ratio",
        "minimum": "smallest ratio",
        "standard_error": "that of the mean over sequences, of their means over layers and tokens, or by layer over tokens",
        "deviation": "standard deviation",
        "count": "number of (sequence, layer, token), or, by layer, of sequences that have this kind of token",
        "published": "the paper's value, where model, corpus and masking are the paper's (a note says why not)",
        "published_maximum": "the paper's largest ratio",
        "published_minimum": "the paper's smallest ratio",
        "published_deviation": "of MultiBERTs, the deviation of the published mean over 25 models",
    }
    captions: ClassVar[dict[str, str]] = {
        "mixing-ratio": "Mean mixing ratio in percent, by layer (down) and kind of token (across), for every scope.",
    }
    across_caption: ClassVar[str] = (
        "Mean mixing ratio over layers and tokens. Published: 2021, Tables 2, 5 and 6, on 992 sequences of "
        "Wikipedia unless another corpus is named."
    )

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(ratios=tuple(chain.mixing(model.scopes))),), masked=self.masked)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        ratios = _ratios(observation, model)
        kinds = token_kinds(observation, model)
        pools = {pool: Moments.of(ratios[..., kinds[pool]].transpose(2, 0, 1)) for pool in pools_of(model)}
        by_kind = np.stack([_mean(ratios[..., kinds[kind]]) for kind in kinds_of(model)], -1)
        wholes = np.stack([_mean(ratios[..., kinds[pool]]).mean(-1) for pool in pools_of(model)], -1)
        return Partial(moments={**pools, "kinds": Moments.once(by_kind), "sequences": Moments.once(wholes)})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        paper = published.paper_of(facts, self.name, masked=True)
        scopes, means = table_scopes(facts.model), partial.moments["kinds"].mean()
        pooled = _pooled_table(partial, facts.model, paper)
        return Outcome(
            {
                "mixing-ratio": pooled,
                "mixing-ratio-layers": _layer_table(partial.moments["kinds"], facts.model, paper),
                "mixing-ratio-depth": _depth_table(means, facts.model, paper),
            },
            {"mixing-ratio": lambda: _figure(scopes, facts.model, means)},
            paper.notes + ([_NOTE] if paper == _NOTED else []),
            bind(_printed, pooled, facts),
        )

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        overall = [row for row in tables.rows_with(rows, "mean") if row["tokens"] == OVERALL]
        weights = next(row for row in overall if row["scope"] == ATTENTION_WEIGHTS)
        last = max((row for row in overall if not row["scope"].endswith("W")), key=lambda row: len(row["scope"]))
        return (
            f"At {last['scope']} {last['mean']:.0%} of a state comes from other tokens on average; attention weights alone "
            f"would say {weights['mean']:.0%}."
        )


def pools_of(model: ModelFacts) -> tuple[str, ...]:
    """The sets of tokens over which ratios are averaged: all, and, for a causal model, all except the first."""
    return (OVERALL, WITHOUT_FIRST) if model.causal else (OVERALL,)


def kinds_of(model: ModelFacts) -> tuple[str, ...]:
    """The kinds of tokens that a model has, and the pools of them."""
    return (*KINDS[:-1], FIRST, *pools_of(model)) if model.causal else KINDS


def _pooled_table(partial: Partial, model: ModelFacts, paper: published.Paper) -> Table:
    scopes, pools = table_scopes(model), pools_of(model)
    moments = [partial.moments[pool].over(1) for pool in pools]
    known = {name: _or_nan([published_ratio(paper, scope, name) for scope in scopes]) for name in _PUBLISHED}
    absent = np.full(len(scopes), np.nan)
    return tables.tidy(
        {"scope": scopes, "tokens": pools},
        {
            "mean": np.stack([pool.mean() for pool in moments], -1),
            "maximum": np.stack([pool.maximum() for pool in moments], -1),
            "minimum": np.stack([pool.minimum() for pool in moments], -1),
            "standard_error": partial.moments["sequences"].standard_error(),
            "deviation": np.stack([pool.deviation() for pool in moments], -1),
            "count": np.stack([pool.count for pool in moments], -1),
            **{
                _PUBLISHED[name]: np.stack([values if pool == OVERALL else absent for pool in pools], -1)
                for name, values in known.items()
            },
        },
    )


def _printed(pooled: Table, facts: RunFacts) -> TextTable:
    """Table 2 of the paper: mean, largest and smallest ratio at every scope."""
    scopes, records = table_scopes(facts.model), pooled.to_pylist()
    table = PaperTable("Mixing ratio (%), over sequences, layers and tokens", ("model", ""), scopes)
    for pool in pools_of(facts.model):
        chosen = [record for record in records if record["tokens"] == pool]
        label = facts.model_label if pool == OVERALL else pool
        for column in ("mean", "standard_error", "maximum", "minimum"):
            known = [None if record[column] is None else 100 * record[column] for record in chosen]
            style = DIM if column == "standard_error" else ""
            table.add([label, column.replace("_", " ")], known, "{:.1f}", style)
            label = ""
    paper = published.nearest_paper(facts, MixingRatio.name)
    if paper is not None:
        label = f"{MixingRatio.paper}: {paper.model}, {paper.corpus}"
        for column in ("mean", "maximum", "minimum"):
            known = [paper.value(MixingRatio.name, column, scope) for scope in scopes]
            table.add([label, column], known, "{:.1f}", DIM)
            label = ""
    return table.text


_PUBLISHED = {
    "mean": "published",
    "maximum": "published_maximum",
    "minimum": "published_minimum",
    "deviation": "published_deviation",
}


_NOTED = published.Paper("bert-base", published.WIKIPEDIA)
_NOTE = "The authors' notebook prints 96.4 and 48.2 at AttnW and AttnResW, where the paper has 97.1 and 48.6."


def published_ratio(
    paper: published.Paper, scope: str, statistic: str = "mean", layer: int | None = None
) -> float | None:
    """A mixing ratio of the paper as a fraction: over all layers, or of one."""
    percent = paper.value(MixingRatio.name, statistic, scope, layer)
    return None if percent is None else percent / 100


def _layer_table(kinds: Moments, model: ModelFacts, paper: published.Paper) -> Table:
    scopes = table_scopes(model)
    known = [
        published_ratio(paper, scope, layer=layer) if kind == OVERALL else None
        for scope in scopes
        for layer in model.layers
        for kind in kinds_of(model)
    ]
    return tables.tidy(
        {"scope": scopes, "layer": model.layers, "kind": kinds_of(model)},
        {
            "mean": kinds.mean(),
            "standard_error": kinds.standard_error(),
            "deviation": kinds.deviation(),
            "count": kinds.count,
            "published": _or_nan(known).reshape(kinds.count.shape),
        },
    )


def _depth_table(means: np.ndarray, model: ModelFacts, paper: published.Paper) -> Table:
    """From the mean ratios `[scope, layer, kind]`."""
    scopes, kinds = table_scopes(model), kinds_of(model)
    known = [
        paper.value(MixingRatio.name, "depth", scope) if kind == OVERALL else None for scope in scopes for kind in kinds
    ]
    spearmans = [[_depth(model, means[s, :, k]) for k in range(len(kinds))] for s in range(len(scopes))]
    return tables.tidy(
        {"scope": scopes, "kind": kinds},
        {"spearman": np.array(spearmans), "published": _or_nan(known).reshape(len(scopes), len(kinds))},
    )


def table_scopes(model: ModelFacts) -> list[str]:
    """The scopes of the table, with half the attention weights after the attention."""
    scopes = chain.mixing(model.scopes)
    index = scopes.index(ATTENTION_WEIGHTS) + 2
    return [*scopes[:index], HALF_ATTENTION_WEIGHTS, *scopes[index:]]


def _ratios(observation: Observation, model: ModelFacts) -> np.ndarray:
    """`[scope, layer, token]`."""
    analysis = observation.analysis
    return np.stack([analysis.mixing_ratio(scope).values.astype(np.float64) for scope in table_scopes(model)])


def token_kinds(observation: Observation, model: ModelFacts) -> dict[str, np.ndarray]:
    """For every kind, which tokens are of it."""
    roles = np.array([model.roles.get(token, "normal") for token in observation.tokens])
    framing = observation.special | (roles == MASK)
    roles = np.where(framing, roles, "normal")
    first = np.zeros(len(roles), bool)
    first[0] = model.causal
    pools = {FIRST: first, WITHOUT_FIRST: ~first, OVERALL: np.ones(len(roles), bool)}
    return {kind: (roles == kind) & ~first for kind in KINDS[:-1]} | pools


def _mean(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis; missing where it is empty."""
    return values.mean(-1) if values.shape[-1] else np.full(values.shape[:-1], np.nan)


def _depth(model: ModelFacts, ratios: np.ndarray) -> float:
    return spearman(np.array(model.layers, np.float64), ratios)


def _or_nan(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values])


def _figure(scopes: list[str], model: ModelFacts, mean: np.ndarray) -> Figure:
    """The mean ratios `[scope, layer, kind]`, without the kinds that the corpus does not have."""
    present = np.flatnonzero(np.isfinite(mean).any((0, 1)))
    kinds = [kinds_of(model)[index] for index in present]
    figure, grid = figures.panels(len(scopes), width=0.72 * len(kinds) + 0.9, height=0.26 * len(model.layers) + 1.4)
    for index, (axes, scope) in enumerate(zip(grid, scopes, strict=True)):
        values = 100 * mean[index][:, present]
        image = figures.heat(axes, values, model.layers, kinds, title=scope, limits=(0.0, 100.0), form="{:.0f}")
        axes.set_ylabel("layer")
        if index == len(scopes) - 1:
            figure.colorbar(image, ax=grid, label="mixing ratio (%)", pad=0.02)
    return figure
