"""Figures of amplified groups: the means of the two sides by layer (2024, Figure 7) and their distributions (Figure 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from normscope.experiments import figures
from normscope.experiments.bootstrap import Sample

_WIDTH = 0.4
_NORMAL = 1.96
_BINS = 50
_TAIL = 0.005


@dataclass(frozen=True)
class Shape:
    """How the amplifications of a layer are distributed: the share of both sides in each bin."""

    edges: np.ndarray
    group: np.ndarray
    other: np.ndarray

    @classmethod
    def of(cls, group: Sample, other: Sample, row: int) -> Shape:
        values = [sample.products(row) / sample.weights for sample in (group, other)]
        low, high = np.quantile(np.concatenate(values), [_TAIL, 1 - _TAIL])
        edges = np.linspace(low, high, _BINS + 1) if high > low else np.linspace(low - 1, low + 1, _BINS + 1)
        shares = [
            np.histogram(np.clip(each, low, high), edges, weights=sample.weights / sample.weights.sum())[0]
            for each, sample in zip(values, (group, other), strict=True)
        ]
        return cls(edges, *shares)


def _counted(counts: Mapping[str, Any]) -> str:
    return f"{counts['pairs']:,} pairs of the group, {counts['other_pairs']:,} others weighted to their distances"


def bars(tested: Sequence[dict[str, Any]], errors: Sequence[tuple[float, float]], label: str) -> Figure:
    """The means of both sides by layer, with whiskers of 95 %, and a star where the difference is significant."""
    layers = [record["layer"] for record in tested]
    figure, (axes,) = figures.panels(1, width=max(4.8, 0.62 * len(layers) + 1.6), height=3.4)
    for place, (side, name, colour) in enumerate((("group_mean", label, 1), ("other_mean", "other pairs", 6))):
        at = np.array(layers) + (place - 0.5) * _WIDTH
        means, error = [record[side] for record in tested], [_NORMAL * each[place] for each in errors]
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
    axes.legend(fontsize=7, frameon=False)
    return figure


def histograms(shapes: Sequence[Shape], layers: tuple[int, ...], counts: Mapping[str, Any], label: str) -> Figure:
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
