"""Figures of alignments: error rates by layer and head, and single pairs with their soft, hard and gold alignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from normscope.experiments import figures
from normscope.experiments.arrow import Table
from normscope.experiments.base import ModelFacts
from normscope.experiments.links import NONE
from normscope.experiments.partial import Partial
from normscope.plots.style import SEQUENTIAL

ENDS = {"argmax": "sentence end takes part", "exclude": "without sentence end"}


def layers(aer: np.ndarray, settings: Sequence[str], ends: Sequence[str], model: ModelFacts) -> Figure:
    """`[setting, end, method, layer, 1 + head]`: the error rate of each layer, by weights and by norms."""
    figure, grid = figures.panels(len(settings), columns=2, width=4.6, height=3.4)
    for s, (axes, setting) in enumerate(zip(grid, settings, strict=True)):
        for (e, end), (m, method) in product(enumerate(ends), enumerate(("weights", "norms"))):
            style = "-" if end == "argmax" else "--"
            label = f"{method}, {ENDS[end]}"
            axes.plot(
                model.layers, 100 * aer[s, e, m, :, 0], style, marker="o", ms=3.5, c=figures.PALETTE[m], label=label
            )
        axes.set(ylabel="AER (%)", title=setting)
        figures.layer_ticks(axes, model.layers)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figures.legend_below(figure, grid[0])
    return figure


def heads(aer: np.ndarray, title: str, methods: Sequence[str], model: ModelFacts) -> Figure:
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
class Example:
    """One pair: for each method the map of its best layer (soft), the links made from it (hard), and the gold links."""

    setting: str
    end: str
    panels: list[tuple[str, int, np.ndarray, set[tuple[int, int]]]]
    gold: dict[tuple[int, int], str]
    sources: list[str]
    targets: list[str]

    @classmethod
    def read(cls, partial: Partial, made: dict[str, Table], sequence: int, setting: str, end: str) -> Example:
        soft = partial.rows["soft"].select(f"SELECT * FROM rows WHERE sequence = {sequence} AND setting = '{setting}'")
        best = {
            row["method"]: row["at_layer"]
            for row in made["alignment"].to_pylist()
            if row["which"] == "best layer" and (row["setting"], row["eos"]) == (setting, end)
        }
        rows = [row for row in soft.to_pylist() if best[row["method"]] == row["layer"]]
        gold = [row for row in made["alignment-gold"].to_pylist() if row["sequence"] == sequence]
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
        figure.suptitle(f"{self.setting}, {ENDS[self.end]}: soft (shade), hard (dot), gold (box)", fontsize=9)
        return figure

    def _mark(self, axes: Axes, hard: set[tuple[int, int]]) -> None:
        for source, target in hard:
            right = (source, target) in self.gold
            axes.plot(source, target, "o", ms=4.5, color=figures.PALETTE[2 if right else 1], mec="w", mew=0.5)
        for (source, target), kind in self.gold.items():
            style: Any = "-" if kind == "sure" else (0, (2, 1.5))
            box = Rectangle((source - 0.45, target - 0.45), 0.9, 0.9, fill=False, linewidth=1.1, linestyle=style)
            axes.add_patch(box)


def _map(
    rows: list[dict[str, Any]], method: str, sources: list[int], targets: list[int], end: str
) -> tuple[np.ndarray, set[tuple[int, int]]]:
    columns = [*sources, NONE]
    values = np.zeros((len(targets), len(columns)))
    for row in rows:
        if row["method"] == method:
            values[targets.index(row["target"]), columns.index(row["source"])] = row["value"]
    best = values[:, : None if end == "argmax" else -1].argmax(-1)
    return values, {(int(source), place) for place, source in enumerate(best) if source < len(sources)}
