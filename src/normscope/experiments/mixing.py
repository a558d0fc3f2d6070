"""mixing-ratio (2021): how much of a token's state comes from other tokens, by scope, layer and kind of token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure

from normscope.experiments import chain, figures, published, tables
from normscope.experiments.base import CLS, MASK, SEP, Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.exact import Moments
from normscope.experiments.histograms import spearman
from normscope.experiments.partial import Partial
from normscope.measures import Decomposition
from normscope.scopes import ATTENTION_WEIGHTS, HALF_ATTENTION_WEIGHTS

KINDS = ("normal", MASK, CLS, SEP, "overall")


@dataclass(frozen=True)
class MixingRatio(Experiment):
    """Option `masked`: whether tokens are masked first, as in the paper."""

    masked: bool = True

    name: ClassVar[str] = "mixing-ratio"
    paper: ClassVar[str] = "Kobayashi et al. 2021"
    shows: ClassVar[str] = "Tables 2, 5, 6, 7, Figure 3"
    summary: ClassVar[str] = (
        "share of a state that comes from other tokens: mean, maximum, minimum; by layer and kind of token"
    )
    columns: ClassVar[dict[str, str]] = {
        "scope": "scope of the ratio; AttnResW is half of AttnW's",
        "layer": "layer, from 1",
        "kind": "kind of token: normal, [MASK], [CLS], [SEP], or overall (with the model's own names for these tokens)",
        "spearman": "rank correlation of the layer with its mean ratio: how mixing goes with depth",
        "mean": "mean ratio: over all (sequence, layer, token), or, by layer, over the means of the sequences",
        "maximum": "largest ratio",
        "minimum": "smallest ratio",
        "deviation": "standard deviation",
        "count": "number of (sequence, layer, token), or, by layer, of sequences that have this kind of token",
        "published": "the paper's value, where model, corpus and masking are the paper's (a note says why not)",
        "published_maximum": "the paper's largest ratio",
        "published_minimum": "the paper's smallest ratio",
        "published_deviation": "of MultiBERTs, the deviation of the published mean over 25 models",
    }

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(ratios=tuple(chain.mixing(model.scopes))),), masked=self.masked)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        ratios = _ratios(observation, model)
        kinds = token_kinds(observation, model)
        return Partial(
            moments={
                "all": Moments.of(ratios.transpose(2, 0, 1)),
                "kinds": Moments.once(np.stack([_mean(ratios[..., kinds[kind]]) for kind in KINDS], -1)),
            }
        )

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        model = facts.model
        scopes = table_scopes(model)
        pooled, kinds = partial.moments["all"].over(1), partial.moments["kinds"]
        paper = published.paper_of(facts, self.name, masked=True)
        overall = tables.tidy(
            {"scope": scopes},
            {
                "mean": pooled.mean(),
                "maximum": pooled.maximum(),
                "minimum": pooled.minimum(),
                "deviation": pooled.deviation(),
                "count": pooled.count,
                "published": _or_nan([paper.mixing_ratio(scope) for scope in scopes]),
                **{
                    f"published_{name}": _or_nan([paper.mixing_ratio(scope, name) for scope in scopes])
                    for name in ("maximum", "minimum", "deviation")
                },
            },
        )
        by_layer = [
            paper.mixing_ratio_of_layer(scope, layer) if kind == "overall" else None
            for scope in scopes
            for layer in model.layers
            for kind in KINDS
        ]
        layered = tables.tidy(
            {"scope": scopes, "layer": model.layers, "kind": KINDS},
            {
                "mean": kinds.mean(),
                "deviation": kinds.deviation(),
                "count": kinds.count,
                "published": _or_nan(by_layer).reshape(kinds.count.shape),
            },
        )
        means = kinds.mean()
        depth = tables.tidy(
            {"scope": scopes, "kind": KINDS},
            {
                "spearman": np.array(
                    [[_depth(model, means[s, :, k]) for k in range(len(KINDS))] for s in range(len(scopes))]
                ),
                "published": _or_nan(
                    [paper.mixing_depth(scope) if kind == "overall" else None for scope in scopes for kind in KINDS]
                ).reshape(len(scopes), len(KINDS)),
            },
        )
        return Outcome(
            {"mixing-ratio": overall, "mixing-ratio-layers": layered, "mixing-ratio-depth": depth},
            {"mixing-ratio": lambda: _figure(scopes, model, kinds.mean())},
            paper.notes + paper.mixing_ratio_note(),
        )


def table_scopes(model: ModelFacts) -> list[str]:
    """The scopes of the table, with half the attention weights after the attention."""
    scopes = chain.mixing(model.scopes)
    place = scopes.index(ATTENTION_WEIGHTS) + 2
    return [*scopes[:place], HALF_ATTENTION_WEIGHTS, *scopes[place:]]


def _ratios(observation: Observation, model: ModelFacts) -> np.ndarray:
    """`[scope, layer, token]`."""
    analysis = observation.analysis
    return np.stack([analysis.mixing_ratio(scope).values.astype(np.float64) for scope in table_scopes(model)])


def token_kinds(observation: Observation, model: ModelFacts) -> dict[str, np.ndarray]:
    """For every kind, which tokens are of it."""
    roles = np.array([model.roles.get(token, "normal") for token in observation.tokens])
    framing = observation.special | (roles == MASK)
    roles = np.where(framing, roles, "normal")
    return {kind: roles == kind for kind in KINDS[:-1]} | {"overall": np.ones(len(roles), bool)}


def _mean(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis; missing where it is empty."""
    return values.mean(-1) if values.shape[-1] else np.full(values.shape[:-1], np.nan)


def _depth(model: ModelFacts, ratios: np.ndarray) -> float:
    return spearman(np.array(model.layers, np.float64), ratios)


def _or_nan(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values])


def _figure(scopes: list[str], model: ModelFacts, mean: np.ndarray) -> Figure:
    figure, grid = figures.panels(len(scopes), width=4.0, height=0.26 * len(model.layers) + 1.4)
    for place, (axes, scope) in enumerate(zip(grid, scopes, strict=True)):
        figures.heat(
            axes, 100 * mean[place], model.layers, KINDS, title=f"{scope} (%)", limits=(0.0, 100.0), form="{:.0f}"
        )
        axes.set_ylabel("layer")
    return figure
