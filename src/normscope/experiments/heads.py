"""dispersion and categories (2020): attention weights beside the vectors that they weigh, head by head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from normscope.experiments import figures, tables
from normscope.experiments.arrow import Table
from normscope.experiments.base import CLS, FIRST, SEP, Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.exact import Moments
from normscope.experiments.histograms import LogBins
from normscope.experiments.partial import Partial, Rows
from normscope.measures import Decomposition
from normscope.measures.vectors import HiddenNorms, ValueNorms
from normscope.plots.style import SEQUENTIAL
from normscope.scopes import ATTENTION_WEIGHTS, Scope

PUNCTUATION = "comma, period"
CATEGORIES = (CLS, SEP, PUNCTUATION, "other")

_VECTORS = LogBins(-6, 6, 1200)
_QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


def categories_of(model: ModelFacts) -> tuple[str, ...]:
    """The categories of a model's tokens: of a causal model, the first token is one by itself."""
    return (*CATEGORIES, FIRST) if model.causal else CATEGORIES


def categories(observation: Observation, model: ModelFacts) -> np.ndarray:
    """For every token the place of its category in `categories_of(model)`."""
    found = np.full(len(observation.tokens), CATEGORIES.index("other"))
    for place, (token, special) in enumerate(zip(observation.tokens, observation.special, strict=True)):
        role = model.roles.get(token) if special else None
        if role in (CLS, SEP):
            found[place] = CATEGORIES.index(role)
        elif token.lstrip("Ġ▁ ") in (",", "."):
            found[place] = CATEGORIES.index(PUNCTUATION)
    if model.causal:
        found[0] = len(CATEGORIES)
    return found


def head_maps(observation: Observation, scope: str) -> np.ndarray:
    """`[layer, head, query, key]` of the block's own attention."""
    return observation.analysis.map(scope, heads=True).values[..., : len(observation.tokens)]


@dataclass(frozen=True)
class Dispersion(Experiment):
    """No options."""

    name: ClassVar[str] = "dispersion"
    paper: ClassVar[str] = "Kobayashi et al. 2020"
    shows: ClassVar[str] = "dispersion of ||x|| and ||f(x)||"
    summary: ClassVar[str] = "how much the norms of input vectors and of each head's transformed vectors vary"
    columns: ClassVar[dict[str, str]] = {
        "quantity": "x: norm of the block's input vectors; f(x): norm of a head's transformed vectors",
        "layer": "layer, from 1",
        "head": "head, from 1; empty where heads do not apply or are pooled",
        "mean": "mean over all tokens",
        "deviation": "standard deviation",
        "cv": "coefficient of variation: deviation / mean",
        "minimum": "smallest norm",
        "maximum": "largest norm",
        "median": "median (this and the other quantiles to 0.1 %, from a histogram with bins of that half-width)",
        "q05": "5 % quantile",
        "q25": "25 % quantile",
        "q75": "75 % quantile",
        "q95": "95 % quantile",
        "count": "number of vectors",
    }

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((HiddenNorms(), ValueNorms()))

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        hidden, values = observation.result(HiddenNorms()), observation.result(ValueNorms())
        return Partial(
            moments={"x": Moments.of(hidden.T), "f": Moments.of(np.moveaxis(values, -1, 0))},
            rows={"x": _histogram(hidden[:, None]), "f": _histogram(values)},
        )

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        x, f = partial.moments["x"], partial.moments["f"]
        of_x, of_f = (_Histograms.read(partial.rows[name]) for name in ("x", "f"))
        pooled = f.over(1)
        records: list[dict[str, object]] = []
        for place, layer in enumerate(facts.model.layers):
            for quantity, moments, histograms in (("x", x, of_x), ("f(x)", pooled, of_f)):
                labels = {"quantity": quantity, "layer": layer, "head": None}
                records.append(_spread(moments, (place,), labels) | histograms.quantiles(place))
            for head in range(f.count.shape[1]):
                labels = {"quantity": "f(x)", "layer": layer, "head": head + 1}
                records.append(_spread(f, (place, head), labels) | of_f.quantiles(place, head))
        schema = pa.schema({"quantity": pa.string(), "layer": pa.int64(), "head": pa.int64()} | _SPREAD_TYPES)
        table = tables.from_records(records, schema)
        return Outcome({"dispersion": table}, {"dispersion": lambda: _dispersion_figure(table, facts.model)})


_SPREAD_TYPES = {
    **dict.fromkeys(("mean", "deviation", "cv", "minimum", "maximum", *_QUANTILES), pa.float64()),
    "count": pa.int64(),
}


def _histogram(values: np.ndarray) -> Rows:
    """`[layer, head, token]` to rows of layer, head, bin and count."""
    layer, head, _ = (index.reshape(-1) for index in np.indices(values.shape))
    columns = {"layer": layer, "head": head, "bin": _VECTORS.places(values).reshape(-1)}
    keys = tuple(columns)
    return Rows((Rows((pa.table({**columns, "count": np.ones(len(layer), np.int64)}),), keys).compacted(),), keys)


@dataclass(frozen=True)
class _Histograms:
    """The columns of all rows."""

    layer: np.ndarray
    head: np.ndarray
    places: np.ndarray
    counts: np.ndarray

    @classmethod
    def read(cls, rows: Rows) -> _Histograms:
        table = rows.select("SELECT layer, head, bin, sum(count)::BIGINT AS count FROM rows GROUP BY layer, head, bin")
        return cls(*(table[name].to_numpy() for name in ("layer", "head", "bin", "count")))

    def quantiles(self, layer: int, head: int | None = None) -> dict[str, object]:
        """Those of a head, or of all heads of a layer."""
        chosen = (self.layer == layer) & (True if head is None else self.head == head)
        places, counts = self.places[chosen], self.counts[chosen]
        return {name: _VECTORS.quantile(places, counts, share) for name, share in _QUANTILES.items()}


def _spread(moments: Moments, place: tuple[int, ...], labels: Mapping[str, object]) -> dict[str, object]:
    mean, deviation = float(moments.mean()[place]), float(moments.deviation()[place])
    return {
        **labels,
        "mean": mean,
        "deviation": deviation,
        "cv": deviation / mean if mean else float("nan"),
        "minimum": float(moments.minimum()[place]),
        "maximum": float(moments.maximum()[place]),
        "count": int(moments.count[place]),
    }


def _dispersion_figure(table: Table, model: ModelFacts) -> Figure:
    figure, grid = figures.panels(2, columns=2, width=4.4, height=3.4)
    rows = [row for row in table.to_pylist() if row["head"] is None]
    for axes, quantity in zip(grid, ("x", "f(x)"), strict=True):
        chosen = [row for row in rows if row["quantity"] == quantity]
        boxes = [
            {"med": r["median"], "q1": r["q25"], "q3": r["q75"], "whislo": r["q05"], "whishi": r["q95"], "fliers": []}
            for r in chosen
        ]
        axes.bxp(
            boxes, positions=list(model.layers), showfliers=False, patch_artist=True, boxprops={"facecolor": "#9ecae1"}
        )
        axes.set(xlabel="layer", ylabel="norm", title=f"‖{quantity}‖ (5, 25, 50, 75, 95 %)")
    return figure


@dataclass(frozen=True)
class Categories(Experiment):
    """No options."""

    name: ClassVar[str] = "categories"
    paper: ClassVar[str] = "Kobayashi et al. 2020"
    shows: ClassVar[str] = "attention to [CLS], [SEP], punctuation and other tokens"
    summary: ClassVar[str] = "what special tokens and punctuation get by attention weights and by norms"
    columns: ClassVar[dict[str, str]] = {
        "category": "[CLS], [SEP], comma or period, other, or, of a causal model, its first token (of the keys)",
        "layer": "layer, from 1",
        "head": "head, from 1",
        "weights": "attention weights to the category: sum over its columns, mean over queries, sequences (and heads)",
        "norms": "the same of the norms of weighted vectors, ||a f(x)||; not normalised",
        "f": "mean ||f(x)|| of the category's tokens",
        "sequences": "sequences that have the category",
    }

    def needs(self, model: ModelFacts) -> Needs:
        return Needs((Decomposition(maps=(ATTENTION_WEIGHTS, Scope("Attn")), heads=True), ValueNorms()))

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        of_token = categories(observation, model)
        members = [of_token == place for place in range(len(categories_of(model)))]
        values = observation.result(ValueNorms())
        moments = {"f": Moments.once(np.stack([_mean_of(values, chosen) for chosen in members], -1))}
        for name, scope in (("weights", ATTENTION_WEIGHTS), ("norms", "Attn")):
            maps = head_maps(observation, scope)
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


def _mean_of(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return values[..., chosen].mean(-1) if chosen.any() else np.full(values.shape[:-1], np.nan)


def _categories_figure(pooled: dict[str, np.ndarray], model: ModelFacts) -> Figure:
    figure, grid = figures.panels(3, width=4.2, height=3.4)
    titles = {"weights": f"attention weights {figures.ALPHA}", "norms": f"norms ‖{figures.ALPHA}f(x)‖", "f": "‖f(x)‖"}
    for axes, (name, title) in zip(grid, titles.items(), strict=True):
        series = {category: pooled[name][:, place] for place, category in enumerate(categories_of(model))}
        figures.lines(axes, model.layers, series, label="mean", title=title)
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
        beside = grid[row * len(names) : (row + 1) * len(names)]
        figure.colorbar(ScalarMappable(scale, SEQUENTIAL), ax=beside, pad=0.01, fraction=0.03)
    figure.supxlabel("head", fontsize=8)
    figure.supylabel("layer", fontsize=8)
    return figure
