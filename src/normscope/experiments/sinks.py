"""sinks: what attention sinks get by weight and by norm, layer by layer and head by head, and what is left without them.

Every key belongs to one class: the first token, the other special tokens (separators), tokens with a massive state (norm of
the block's input more than `massive` times the median of the sequence, in that layer), and all others. A share is the sum
over a class's columns over the sum of the row, mean over query rows; the first query of a causal model, which sees only
itself, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from normscope.errors import InputError
from normscope.experiments import declared, figures, tables
from normscope.experiments.base import FIRST, Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.partial import Moments, Partial
from normscope.experiments.tables import Row
from normscope.methods.norms import Decomposition
from normscope.methods.vectors import HiddenNorms, ValueNorms
from normscope.plots.style import SEQUENTIAL
from normscope.scopes import ATTENTION_WEIGHTS, Scope

CLASSES = (FIRST, "special", "massive", "other")
"""The first three are the sinks."""
KEYS = ("all", "without sinks")

_WIDE = 10
"""States at least this many times longer than the median are drawn on a logarithmic scale."""


@dataclass(frozen=True)
class Sinks(declared.Sinks, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1",
        "head": "head, from 1",
        "class": "of the keys: first (token), special (all others), massive (state), or other; each token is in the first "
        "that it belongs to",
        "weights": "share of the attention weights, mean over queries, sequences (and heads)",
        "norms": "share of the norms of weighted vectors, ||a f(x)||, of each head, mean over the same",
        "attention": "share in the map after attention, in which heads are summed as vectors",
        "map": "share in the map of the whole layer, with the residual connection",
        "f": "mean ||f(x)|| of the class's tokens",
        "state": "mean norm of the states that enter the layer",
        "state_ratio": "the same over the median of the sequence",
        "tokens": "mean number of tokens of the class in a sequence",
        "sequences": "sequences that have the class in this layer",
        "keys": "all, or without sinks: only keys of the class other",
        "share": "share of these keys in the map of the whole layer",
        "correlation": "Pearson's r of weights (mean over heads) and norms after attention over cells of these keys",
    }
    captions: ClassVar[dict[str, str]] = {
        "sinks": "What sinks get by weights and by norms, the norms of their states, and how the two agree without "
        "them.",
        "sinks-heads": "The share of all sinks together in every head (across) of every layer (down).",
    }

    def __post_init__(self) -> None:
        if not self.massive > 1:
            raise InputError(f"{self.name}: massive is a multiple of the median norm, more than 1, not {self.massive}.")

    def needs(self, model: ModelFacts) -> Needs:
        decomposition = Decomposition(maps=(ATTENTION_WEIGHTS, Scope("Attn"), model.scopes[-1]), heads=True)
        return Needs((decomposition, HiddenNorms(), ValueNorms()))

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        norms, values = observation.result(HiddenNorms()), observation.result(ValueNorms())
        ratio = norms / np.median(norms, axis=-1, keepdims=True)
        of_token = classes(observation.special, ratio > self.massive)
        members = np.stack([of_token == index for index in range(len(CLASSES))], -1)
        own = len(observation.tokens)
        first = 1 if model.causal and own > 1 else 0
        of_heads = observation.attention_weights(), observation.head_maps("Attn")
        weights, by_head = (maps[..., first:, :] for maps in of_heads)
        attention, whole = (observation.map(scope)[..., first:, :own] for scope in ("Attn", model.scopes[-1]))
        found = {
            "weights": _shares(weights, members[:, None]),
            "norms": _shares(by_head, members[:, None]),
            "attention": _shares(attention, members),
            "map": _shares(whole, members),
            "f": _means(values, members[:, None]),
            "state": _means(norms, members),
            "state_ratio": _means(ratio, members),
            "tokens": members.sum(-2).astype(np.float64),
            "correlation": _correlations(np.nan_to_num(weights).mean(1), attention, of_token),
        }
        return Partial(moments={name: Moments.once(values) for name, values in found.items()})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        layers = facts.model.layers
        means = {name: moments.mean() for name, moments in partial.moments.items()}
        heads = range(1, 1 + means["weights"].shape[1])
        by_head = {name: means[name] for name in ("weights", "norms", "f")}
        by_layer = {name: values.mean(1) for name, values in by_head.items()} | {
            name: means[name] for name in ("attention", "map", "state", "state_ratio", "tokens")
        }
        others = by_layer["map"][:, -1]
        share = np.stack([np.ones_like(others), others], -1)
        count = partial.moments["state"].count
        return Outcome(
            {
                "sinks": tables.tidy({"layer": layers, "class": CLASSES}, {**by_layer, "sequences": count}),
                "sinks-heads": tables.tidy({"layer": layers, "head": heads, "class": CLASSES}, by_head),
                "sinks-maps": tables.tidy(
                    {"layer": layers, "keys": KEYS}, {"share": share, "correlation": means["correlation"]}
                ),
            },
            {
                "sinks": lambda: _figure(by_layer, means["correlation"], layers),
                "sinks-heads": lambda: _heads_figure(by_head, layers),
            },
        )

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        rows = tables.rows_with(rows, "weights", "norms", "map")
        layers = {row["layer"] for row in rows}
        weights, norms, whole = (
            sum(row[name] for row in rows if row["class"] != "other") / len(layers)
            for name in ("weights", "norms", "map")
        )
        return (
            f"Sinks (first token, separators, massive states) get {weights:.0%} of the attention weights, {norms:.0%} of "
            f"the weighted vectors' norms and {whole:.0%} of the whole layer's map (mean over layers)."
        )


def classes(special: np.ndarray, massive: np.ndarray) -> np.ndarray:
    """`[layer, token]`: the index into `CLASSES` of every token, from those that are special and the states that are massive
    `[layer, token]`."""
    found = np.where(massive, CLASSES.index("massive"), CLASSES.index("other"))
    found[:, special] = CLASSES.index("special")
    found[:, 0] = CLASSES.index(FIRST)
    return found


def _shares(maps: np.ndarray, members: np.ndarray) -> np.ndarray:
    """`[..., query, key]` and `[..., key, class]` to `[..., class]`: the shares of the rows, mean over queries."""
    there = np.nan_to_num(maps.astype(np.float64))
    rows = there.sum(-1, keepdims=True)
    return (np.divide(there, rows, out=np.zeros_like(there), where=rows > 0) @ members).mean(-2)


def _means(values: np.ndarray, members: np.ndarray) -> np.ndarray:
    """`[..., token]` and `[..., token, class]` to `[..., class]`: means over the tokens of a class; missing without any."""
    count = np.broadcast_to(members, (*values.shape, members.shape[-1])).sum(-2)
    total = (values[..., None] * members).sum(-2)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def _correlations(weights: np.ndarray, norms: np.ndarray, of_token: np.ndarray) -> np.ndarray:
    """`[layer, 2]`: Pearson's r of two maps `[layer, query, key]`, over all keys and over those that are no sinks."""
    selections = np.stack([np.ones_like(of_token, dtype=bool), of_token == CLASSES.index("other")], 1)
    return np.array(
        [
            [_pearson(weights[layer], norms[layer], np.isfinite(norms[layer]) & chosen) for chosen in selections[layer]]
            for layer in range(len(weights))
        ]
    )


def _pearson(first: np.ndarray, second: np.ndarray, chosen: np.ndarray) -> float:
    """NaN where one side is constant, or there are fewer than three cells."""
    pair = first[chosen], second[chosen]
    if len(pair[0]) < 3 or any(np.ptp(values) == 0 for values in pair):
        return float("nan")
    return float(np.corrcoef(*pair)[0, 1])


def _figure(by_layer: dict[str, np.ndarray], correlation: np.ndarray, layers: Sequence[int]) -> Figure:
    """Weights and norms of each class, the norms of states, and how weights and norms agree with and without sinks."""
    figure, grid = figures.panels(4, columns=2, width=4.4, height=3.2)
    titles = {
        "weights": f"attention weights {figures.ALPHA}",
        "norms": f"norms ‖{figures.ALPHA}f(x)‖ of heads",
        "state_ratio": "norm of the states, over the median",
    }
    for axes, (name, title) in zip(grid, titles.items(), strict=False):
        known = {kind: by_layer[name][:, index] for index, kind in enumerate(CLASSES)}
        series = {kind: values for kind, values in known.items() if by_layer["tokens"][:, CLASSES.index(kind)].any()}
        label = "times the median" if name == "state_ratio" else "share, mean over heads"
        figures.lines(axes, layers, series, label=label, title=title)
        if name != "state_ratio":
            axes.set_ylim(-0.02, 1.02)
    if np.nanmax(by_layer["state_ratio"]) > _WIDE:
        figures.log_scale(grid[2], "y")
    agreement = {keys: correlation[:, index] for index, keys in enumerate(KEYS)}
    figures.lines(grid[3], layers, agreement, label="Pearson's r", title="weights and norms, over keys")
    return figure


def _heads_figure(by_head: dict[str, np.ndarray], layers: Sequence[int]) -> Figure:
    """What all sinks together get in every head (across) of every layer (down)."""
    count = by_head["weights"].shape[1]
    figure, grid = figures.panels(2, columns=2, width=0.3 * count + 1.6, height=0.26 * len(layers) + 1.2)
    scale = Normalize(0, 1)
    for axes, (name, title) in zip(
        grid, (("weights", "weights"), ("norms", f"norms ‖{figures.ALPHA}f(x)‖")), strict=True
    ):
        axes.imshow(1 - by_head[name][..., -1], cmap=SEQUENTIAL, norm=scale, aspect="auto")
        axes.set_xticks(range(count), [str(head + 1) for head in range(count)], fontsize=6)
        axes.set_yticks(range(len(layers)), [str(layer) for layer in layers], fontsize=6)
        axes.set_title(title, fontsize=9)
        axes.set(xlabel="head", ylabel="layer")
    figure.colorbar(ScalarMappable(scale, SEQUENTIAL), ax=grid, label="share of all sinks", pad=0.01)
    return figure
