"""categories (2020): what special tokens and punctuation get by attention weights and by norms, head by head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from normscope.experiments import declared, figures, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.partial import Moments, Partial
from normscope.experiments.tables import Row
from normscope.experiments.tokens import categories, categories_of
from normscope.methods.norms import Decomposition
from normscope.methods.vectors import ValueNorms
from normscope.plots.style import SEQUENTIAL
from normscope.scopes import ATTENTION_WEIGHTS, Scope


@dataclass(frozen=True)
class Categories(declared.Categories, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "category": "[CLS], [SEP], comma or period, other, or, for causal models, the first token (of the keys)",
        "layer": "layer, from 1",
        "head": "head, from 1",
        "weights": "attention weights to the category: sum over its columns, mean over queries, sequences (and heads)",
        "norms": "the same of the norms of weighted vectors, ||a f(x)||; not normalised",
        "f": "mean ||f(x)|| of the category's tokens",
        "sequences": "sequences that have the category",
    }
    captions: ClassVar[dict[str, str]] = {
        "categories": "What special tokens, punctuation and other tokens get in each layer, by weights and by norms.",
        "categories-heads": "The same for every head (across) in every layer (down).",
    }

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=(ATTENTION_WEIGHTS, Scope("Attn")), heads=True), ValueNorms()))

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        of_token = categories(observation, model)
        members = [of_token == index for index in range(len(categories_of(model)))]
        values = observation.result(ValueNorms())
        moments = {"f": Moments.once(np.stack([_mean_of(values, chosen) for chosen in members], -1))}
        of_heads = {"weights": observation.attention_weights(), "norms": observation.head_maps("Attn")}
        for name, maps in of_heads.items():
            sums = [np.nansum(maps[..., chosen].astype(np.float64), -1).mean(-1) for chosen in members]
            there = [
                value if chosen.any() else np.full_like(value, np.nan)
                for value, chosen in zip(sums, members, strict=True)
            ]
            moments[name] = Moments.once(np.stack(there, -1))
        return Partial(moments=moments)

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        means = {name: partial.moments[name].mean() for name in ("weights", "norms", "f")}
        count = partial.moments["weights"].count
        heads = range(1, 1 + count.shape[1])
        names = categories_of(facts.model)
        axes = {"layer": facts.model.layers, "head": heads, "category": names}
        by_head = tables.tidy(axes, {**means, "sequences": count})
        pooled = {name: values.mean(1) for name, values in means.items()}
        by_layer = tables.tidy({"layer": facts.model.layers, "category": names}, {**pooled, "sequences": count[:, 0]})
        return Outcome(
            {"categories": by_layer, "categories-heads": by_head},
            {
                "categories": lambda: _categories_figure(pooled, facts.model),
                "categories-heads": lambda: _heads_figure(means, facts.model),
            },
        )

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        rows = tables.rows_with(rows, "weights", "norms")
        special = [row for row in rows if row["category"].startswith(("[", "<"))]
        names = " and ".join(dict.fromkeys(row["category"] for row in special))
        top = max(special, key=lambda row: row["weights"])
        layer = [row for row in rows if row["layer"] == top["layer"]]
        norms = top["norms"] / sum(row["norms"] for row in layer)
        weights = top["weights"] / sum(row["weights"] for row in layer)
        return (
            f"Of {names}, {top['category']} gets most attention, in layer {top['layer']}: {weights:.0%} by weights and "
            f"{norms:.0%} by norms."
        )


def _mean_of(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return values[..., chosen].mean(-1) if chosen.any() else np.full(values.shape[:-1], np.nan)


def _categories_figure(pooled: dict[str, np.ndarray], model: ModelFacts) -> Figure:
    figure, grid = figures.panels(3, width=4.2, height=3.4)
    titles = {"weights": f"attention weights {figures.ALPHA}", "norms": f"norms ‖{figures.ALPHA}f(x)‖", "f": "‖f(x)‖"}
    for axes, (name, title) in zip(grid, titles.items(), strict=True):
        series = {category: pooled[name][:, index] for index, category in enumerate(categories_of(model))}
        figures.lines(axes, model.layers, series, label="mean over queries, heads and sequences", title=title)
    return figure


def _heads_figure(means: dict[str, np.ndarray], model: ModelFacts) -> Figure:
    """`[layer, head, category]` of weights, norms and vectors: one row of panels for each, one panel for each category."""
    layers, heads = means["weights"].shape[:2]
    names = categories_of(model)
    width, height = 0.3 * heads + 1.2, 0.26 * layers + 0.9
    figure, grid = figures.panels(3 * len(names), columns=len(names), width=width, height=height)
    for row, (name, label) in enumerate((("weights", "weight"), ("norms", f"‖{figures.ALPHA}f(x)‖"), ("f", "‖f(x)‖"))):
        scale = Normalize(0, float(np.nanmax(means[name])))
        for column, category in enumerate(names):
            axes = grid[row * len(names) + column]
            axes.imshow(means[name][..., column], cmap=SEQUENTIAL, norm=scale, aspect="auto")
            axes.set_xticks(range(heads), [str(head + 1) for head in range(heads)], fontsize=6)
            axes.set_yticks(range(layers), [str(layer) for layer in model.layers], fontsize=6)
            axes.set_title(f"{category}: {label}", fontsize=8)
        panels = grid[row * len(names) : (row + 1) * len(names)]
        figure.colorbar(ScalarMappable(scale, SEQUENTIAL), ax=panels, pad=0.01, fraction=0.03)
    figure.supxlabel("head", fontsize=8)
    figure.supylabel("layer", fontsize=8)
    return figure
