"""alignment (2020, Section 5): word alignments from cross-attention, by weights and by norms, against gold ones.

The decoder reads the reference. A row belongs to its output token (AWO) or to its input token (AWI). Whether the
end of the sentence takes part in the choice of the best source word decides on some data who wins, so both are computed. AER
is counted over the whole corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial as bind
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy import stats

from normscope.errors import InputError
from normscope.experiments import declared, figures, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts, check_choice
from normscope.experiments.links import (
    NONE,
    AlignedPair,
    WordMaps,
    alignment_error_rate,
    error_counts,
    gold_rows,
    link_rows,
    soft_rows,
)
from normscope.experiments.partial import Moments, Partial, Rows
from normscope.experiments.tables import Row, Table
from normscope.methods.norms import Decomposition
from normscope.plots.style import SEQUENTIAL
from normscope.scopes import CROSS_WEIGHTS, resolve

METHODS = ("weights", "norms")
_SCOPES = {"weights": "CrossW", "norms": "Cross"}
_LINKS = ("best", "all", "none")
_ENDS = {"argmax": "sentence end takes part", "exclude": "without sentence end"}


@dataclass(frozen=True)
class Alignment(declared.Alignment, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "setting": "AWO: a row belongs to the token it outputs; AWI: to the token it reads",
        "eos": "argmax: the end of the sentence may be the best, and then there is no link; exclude: it is left out",
        "method": "weights: mean attention weights (or one head's); norms: ||sum_h a f(x)|| (or one head's ||a f(x)||)",
        "layer": "layer of the decoder, from 1",
        "head": "head, from 1; empty for the whole layer",
        "aer": "alignment error rate over the corpus",
        "links": "number of links",
        "mean_norm": "mean of ||a f(x)|| over all rows and columns of the head (for a layer: sum over its heads)",
        "which": "layer mean, best layer, best head, or the layer and head of highest mean norm",
        "at_layer": "the layer that this is",
        "at_head": "the head that this is",
        "spearman": "rank correlation of the heads' AER by norms with their mean norm",
        "pearson": "linear correlation of the same",
        "sequence": "index of the pair in the corpus, from 0",
        "source": "source word, from 1",
        "source_word": "its text",
        "target": "target word, from 1",
        "target_word": "its text",
        "gold": "whether the gold alignment has the link as sure, as possible, or not at all (wrong)",
    }
    captions: ClassVar[dict[str, str]] = {
        "alignment": "Alignment error rate of every head (across) in every layer (down); less is better.",
        "alignment-example": "A sentence pair: cells are the values of the method, dots the links that people annotated.",
        "alignment-layers": "Alignment error rate by layer, for attention weights and for norms; less is better.",
    }

    def __post_init__(self) -> None:
        check_choice(self.name, "setting", self.setting, ("AWO", "AWI", "both"))
        check_choice(self.name, "eos", self.eos, ("argmax", "exclude", "both"))
        check_choice(self.name, "links", self.links, _LINKS)
        if self.examples < 0:
            raise InputError(f"{self.name}: examples is the number of pairs to draw, at least 0, not {self.examples}.")

    @property
    def settings(self) -> tuple[str, ...]:
        return ("AWO", "AWI") if self.setting == "both" else (self.setting,)

    @property
    def ends(self) -> tuple[str, ...]:
        return ("argmax", "exclude") if self.eos == "both" else (self.eos,)

    def needs(self, model: ModelFacts) -> Needs:
        if "CrossW" not in model.scopes:
            raise InputError(f"alignment needs an encoder-decoder model; {model.name} has no cross-attention.")
        return Needs((Decomposition(maps=(CROSS_WEIGHTS, resolve("Cross", model.scopes)), heads=True),), gold=True)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        pair = observation.pair
        if pair is None:
            raise InputError(
                "alignment needs sentence pairs with gold links: --corpus pairs.src-tgt --gold pairs.gold."
            )
        maps = {method: _maps(observation, model, method) for method in METHODS}
        layers, per_layer, rows, columns = maps["weights"].shape
        counts = np.zeros((len(self.settings), len(self.ends), len(METHODS), layers, per_layer, 4), np.int64)
        bags: list[dict[str, Table]] = []
        for s, setting in enumerate(self.settings):
            for m, method in enumerate(METHODS):
                tokens = maps[method].reshape(-1, rows, columns)
                words = WordMaps.of(tokens, pair.rows(setting), pair.source_words)
                for e, end in enumerate(self.ends):
                    hits = [error_counts(links, pair.gold) for links in words.links(end=end == "argmax")]
                    counts[s, e, m] = np.reshape(hits, counts.shape[3:])
                of_layers = WordMaps(words.values[::per_layer], words.targets, words.sources)
                labels = {"sequence": observation.number, "setting": setting, "method": method}
                bags.append(self._rows(labels, of_layers, pair, model.layers))
        heads = maps["norms"][:, 1:].reshape(layers, per_layer - 1, -1)
        return Partial(
            moments={"norm": Moments.of(np.moveaxis(heads, -1, 0))},
            counts={"links": counts},
            rows={
                "gold": Rows((gold_rows(observation.number, pair),)),
                **{name: Rows(tuple(bag[name] for bag in bags)) for name in bags[0]},
            },
        )

    def _rows(
        self, labels: dict[str, Any], words: WordMaps, pair: AlignedPair, layers: tuple[int, ...]
    ) -> dict[str, Table]:
        """The best source words by layer and target word; of the first pairs also the maps themselves."""
        bags: dict[str, Table] = {}
        if self.links != "none":
            bags["links"] = link_rows(labels, words, pair, layers)
        if self.examples:
            bags["soft"] = soft_rows(labels, words, pair, layers if labels["sequence"] < self.examples else ())
        return bags

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        counts, norm = partial.counts["links"], partial.moments["norm"].mean()
        aer, model = alignment_error_rate(counts), facts.model
        records = [
            {
                **self._labels(s, e),
                "method": METHODS[m],
                "layer": model.layers[k],
                "head": None if h == 0 else h,
                "aer": float(aer[s, e, m, k, h]),
                "links": int(counts[s, e, m, k, h, 2]),
                "mean_norm": float(norm[k].sum() if h == 0 else norm[k, h - 1]),
            }
            for s, e, m, k, h in np.ndindex(aer.shape)
        ]
        ways = list(np.ndindex(aer.shape[:2]))
        summary = [self._labels(s, e) | row for s, e in ways for row in _summary(aer[s, e], norm, model)]
        correlations = [self._labels(s, e) | _correlation(aer[s, e, 1, :, 1:], norm) for s, e in ways]
        results = {
            "alignment": tables.from_records(summary, _SUMMARY),
            "alignment-heads": tables.from_records(records, _HEADS),
            "alignment-norm": tables.from_records(correlations),
            "alignment-gold": partial.rows["gold"].select("SELECT * FROM rows ORDER BY sequence, target, source"),
        }
        if self.links != "none":
            results["alignment-links"] = self._link_table(partial, results["alignment"])
        return Outcome(results, self._figures(partial, aer, results, model))

    def _labels(self, setting: int, end: int) -> dict[str, object]:
        return {"setting": self.settings[setting], "eos": self.ends[end]}

    def _link_table(self, partial: Partial, summary: Table) -> Table:
        """The links, each with the gold's verdict; of the best layer, unless all are requested."""
        ways = " UNION ALL ".join(
            f"SELECT sequence, setting, '{end}' AS eos, method, layer, target, target_word, source, source_word, gold "
            f"FROM rows WHERE chosen_by_{end}"
            for end in self.ends
        )
        order = "ORDER BY sequence, setting, eos, method, layer, target"
        with partial.rows["links"].database() as connection:
            if self.links == "all":
                return connection.sql(f"SELECT * FROM ({ways}) {order}").to_arrow_table()
            connection.register("best", summary)
            return connection.sql(
                f"SELECT links.* FROM ({ways}) AS links JOIN best USING (setting, eos, method) "
                f"WHERE best.which = 'best layer' AND best.at_layer = links.layer {order}"
            ).to_arrow_table()

    def _figures(
        self, partial: Partial, aer: np.ndarray, results: dict[str, Table], model: ModelFacts
    ) -> dict[str, Callable[[], Figure]]:
        drawn: dict[str, Callable[[], Figure]] = {
            "alignment-layers": bind(_layers_figure, aer, self.settings, self.ends, model)
        }
        for s, e in np.ndindex(aer.shape[:2]):
            title = f"{self.settings[s]}, {_ENDS[self.ends[e]]}"
            name = f"alignment-{self.settings[s].lower()}-{self.ends[e]}"
            drawn[name] = bind(_heads_figure, aer[s, e], title, METHODS, model)
        if self.examples:
            for sequence, setting in self._drawable(partial):
                example = _Example.read(partial, results, sequence, setting, self.ends[-1])
                drawn[f"alignment-example-{sequence + 1}-{setting.lower()}"] = example.figure
        return drawn

    def _drawable(self, partial: Partial) -> Iterator[tuple[int, str]]:
        rows = partial.rows["soft"].select("SELECT DISTINCT sequence, setting FROM rows ORDER BY sequence, setting")
        for row in rows.to_pylist():
            yield row["sequence"], row["setting"]

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        best = min(tables.rows_with(rows, "aer"), key=lambda row: row["aer"])
        return f"The lowest alignment error rate is {best['aer']:.1%}, by {best['method']}."


_LABELS = {"setting": pa.string(), "eos": pa.string(), "method": pa.string()}
_HEADS = pa.schema(
    {
        **_LABELS,
        "layer": pa.int64(),
        "head": pa.int64(),
        "aer": pa.float64(),
        "links": pa.int64(),
        "mean_norm": pa.float64(),
    }
)
_SUMMARY = pa.schema(
    {**_LABELS, "which": pa.string(), "at_layer": pa.int64(), "at_head": pa.int64(), "aer": pa.float64()}
)


def _maps(observation: Observation, model: ModelFacts, method: str) -> np.ndarray:
    """`[layer, 1 + head, row, source]`: the map of the layer, then those of its heads."""
    analysis = observation.analysis
    source = analysis.dataset["key_group"].values == "source"
    layer = analysis.map(resolve(_SCOPES[method], model.scopes)).values[..., source]
    heads = analysis.dataset["head_map"].sel(head_scope=_SCOPES[method]).values[..., source]
    return np.concatenate([layer[:, None], heads], 1).astype(np.float64)


def _summary(aer: np.ndarray, norm: np.ndarray, model: ModelFacts) -> list[dict[str, object]]:
    records: list[dict[str, object]] = []
    for m, method in enumerate(METHODS):
        layers, heads = aer[m, :, 0], aer[m, :, 1:]
        best = int(layers.argmin())
        best_head = np.unravel_index(int(heads.argmin()), heads.shape)
        highest = int(norm.sum(1).argmax())
        highest_head = np.unravel_index(int(norm.argmax()), norm.shape)
        for which, layer, head, value in (
            ("layer mean", None, None, layers.mean()),
            ("best layer", best, None, layers[best]),
            ("best head", best_head[0], best_head[1], heads[best_head]),
            ("layer of highest mean norm", highest, None, layers[highest]),
            ("head of highest mean norm", highest_head[0], highest_head[1], heads[highest_head]),
        ):
            records.append(
                {
                    "method": method,
                    "which": which,
                    "at_layer": None if layer is None else model.layers[int(layer)],
                    "at_head": None if head is None else int(head) + 1,
                    "aer": float(value),
                }
            )
    return records


def _correlation(aer: np.ndarray, norm: np.ndarray) -> dict[str, object]:
    first, second = aer.reshape(-1), norm.reshape(-1)
    if np.ptp(first) == 0 or np.ptp(second) == 0 or len(first) < 3:
        return {"spearman": float("nan"), "pearson": float("nan")}
    ranked: object = stats.spearmanr(first, second)
    linear: object = stats.pearsonr(first, second)
    return {"spearman": float(ranked.statistic), "pearson": float(linear.statistic)}


def _layers_figure(aer: np.ndarray, settings: Sequence[str], ends: Sequence[str], model: ModelFacts) -> Figure:
    """`[setting, end, method, layer, 1 + head]`: the error rate of each layer, by weights and by norms."""
    figure, grid = figures.panels(len(settings), columns=2, width=4.6, height=3.4)
    for s, (axes, setting) in enumerate(zip(grid, settings, strict=True)):
        for (e, end), (m, method) in product(enumerate(ends), enumerate(("weights", "norms"))):
            style = "-" if end == "argmax" else "--"
            label = f"{method}, {_ENDS[end]}"
            axes.plot(
                model.layers, 100 * aer[s, e, m, :, 0], style, marker="o", ms=3.5, c=figures.PALETTE[m], label=label
            )
        axes.set(ylabel="AER (%)", title=setting)
        figures.layer_ticks(axes, model.layers)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figures.legend_below(figure, grid[0])
    return figure


def _heads_figure(aer: np.ndarray, title: str, methods: Sequence[str], model: ModelFacts) -> Figure:
    """`[method, layer, 1 + head]`: the error rate of each layer and head."""
    width, height = 0.55 * aer.shape[2] + 1.6, 0.42 * len(model.layers) + 1.5
    figure, grid = figures.panels(2, columns=2, width=width, height=height)
    columns = ["layer", *range(1, aer.shape[2])]
    limits = float(100 * np.nanmin(aer)), float(100 * np.nanmax(aer))
    for m, (axes, method) in enumerate(zip(grid, methods, strict=True)):
        image = figures.heat(
            axes,
            100 * aer[m],
            model.layers,
            columns,
            title=method,
            form="{:.1f}",
            colours=SEQUENTIAL.reversed(),
            limits=limits,
        )
        axes.axvline(0.5, color="w", linewidth=3)
        axes.set(xlabel="head", ylabel="layer")
        if m == len(methods) - 1:
            figure.colorbar(image, ax=grid, label="AER (%)", pad=0.02)
    figure.suptitle(f"AER (%), {title}", fontsize=10)
    return figure


@dataclass(frozen=True)
class _Example:
    """One pair: for each method the map of its best layer (soft), the links made from it (hard), and the gold links."""

    setting: str
    end: str
    panels: list[tuple[str, int, np.ndarray, set[tuple[int, int]]]]
    gold: dict[tuple[int, int], str]
    sources: list[str]
    targets: list[str]

    @classmethod
    def read(cls, partial: Partial, results: dict[str, Table], sequence: int, setting: str, end: str) -> _Example:
        soft = partial.rows["soft"].select(f"SELECT * FROM rows WHERE sequence = {sequence} AND setting = '{setting}'")
        best = {
            row["method"]: row["at_layer"]
            for row in results["alignment"].to_pylist()
            if row["which"] == "best layer" and (row["setting"], row["eos"]) == (setting, end)
        }
        rows = [row for row in soft.to_pylist() if best[row["method"]] == row["layer"]]
        gold = [row for row in results["alignment-gold"].to_pylist() if row["sequence"] == sequence]
        words = {side: {row[side]: row[f"{side}_word"] for row in rows} for side in ("source", "target")}
        sources, targets = sorted({row["source"] for row in rows} - {NONE}), sorted({row["target"] for row in rows})
        panels = [(method, best[method], *_map(rows, method, sources, targets, end)) for method in ("weights", "norms")]
        return cls(
            setting,
            end,
            panels,
            {
                (sources.index(row["source"] - 1), targets.index(row["target"] - 1)): row["gold"]
                for row in gold
                if row["source"] - 1 in sources and row["target"] - 1 in targets  # a word may have no tokens
            },
            [words["source"][word] for word in (*sources, NONE)],
            [words["target"][word] for word in targets],
        )

    def figure(self) -> Figure:
        """Shades are the soft alignment, dots the hard one, boxes the gold (dashed where it is only possible)."""
        wide, high = len(self.sources), len(self.targets)
        figure, grid = figures.panels(2, columns=2, width=0.26 * wide + 1.5, height=0.26 * high + 1.7)
        for axes, (method, layer, values, hard) in zip(grid, self.panels, strict=True):
            axes.imshow(values, cmap=SEQUENTIAL, aspect="equal", vmin=0)
            self._mark(axes, hard)
            axes.set_xticks(range(wide), self.sources, rotation=90, fontsize=7, parse_math=False)
            axes.set_yticks(range(high), self.targets, fontsize=7, parse_math=False)
            axes.tick_params(length=0)
            axes.set_title(f"{method}, layer {layer}", fontsize=9)
        figure.suptitle(f"{self.setting}, {_ENDS[self.end]}: soft (shade), hard (dot), gold (box)", fontsize=9)
        return figure

    def _mark(self, axes: Axes, hard: set[tuple[int, int]]) -> None:
        for source, target in hard:
            right = (source, target) in self.gold
            axes.plot(source, target, "o", ms=4.5, color=figures.PALETTE[2 if right else 1], mec="w", mew=0.5)
        for (source, target), kind in self.gold.items():
            style: object = "-" if kind == "sure" else (0, (2, 1.5))
            box = Rectangle((source - 0.45, target - 0.45), 0.9, 0.9, fill=False, linewidth=1.1, linestyle=style)
            axes.add_patch(box)


def _map(
    rows: list[Row], method: str, sources: list[int], targets: list[int], end: str
) -> tuple[np.ndarray, set[tuple[int, int]]]:
    columns = [*sources, NONE]
    values = np.zeros((len(targets), len(columns)))
    for row in rows:
        if row["method"] == method:
            values[targets.index(row["target"]), columns.index(row["source"])] = row["value"]
    best = values[:, : None if end == "argmax" else -1].argmax(-1)
    return values, {(int(source), target) for target, source in enumerate(best) if source < len(sources)}
