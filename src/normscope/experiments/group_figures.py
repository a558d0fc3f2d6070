"""Figures of amplified groups: the means of the two sides by layer (2024, Figure 7) and their distributions (Figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from normscope.experiments import figures

_WIDTH = 0.4
_NORMAL = 1.96


def bars(group: np.ndarray, other: np.ndarray, tested: Sequence[dict[str, Any]], label: str) -> Figure:
    """`[layer, pair]` of both sides: their means, with whiskers of 95 %, and a star where the difference is significant."""
    layers = [record["layer"] for record in tested]
    figure, (axes,) = figures.panels(1, width=max(4.8, 0.62 * len(layers) + 1.6), height=3.4)
    for place, (values, name, colour) in enumerate(((group, label, 1), (other, "other pairs", 6))):
        error = _NORMAL * values.std(1) / np.sqrt(values.shape[1])
        at = np.array(layers) + (place - 0.5) * _WIDTH
        axes.bar(
            at, values.mean(1), _WIDTH, yerr=error, color=figures.PALETTE[colour], label=name, error_kw={"lw": 0.9}
        )
    low, high = axes.get_ylim()
    for record in tested:
        if record["significant"]:
            axes.text(record["layer"], high, "*", ha="center", va="center", fontsize=11)
    axes.set_ylim(low, high + 0.1 * (high - low))
    axes.axhline(0, color="k", linewidth=0.8)
    count = f"{group.shape[1]:,} pairs on each side; * significant difference"
    axes.set(ylabel="mean amplification")
    axes.set_title(count, fontsize=9)
    figures.layer_ticks(axes, layers)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, frameon=False)
    return figure


def histograms(group: np.ndarray, other: np.ndarray, layers: tuple[int, ...], label: str) -> Figure:
    figure, grid = figures.panels(len(layers), width=3.2, height=2.4)
    for place, (axes, layer) in enumerate(zip(grid, layers, strict=True)):
        both = np.concatenate([group[place], other[place]])
        low, high = np.quantile(both, [0.005, 0.995])
        edges = cast(list[float], np.linspace(low, high, 51).tolist()) if high > low else 10
        for values, name, colour in ((other, "other pairs", 6), (group, label, 1)):
            shown = np.clip(values[place], low, high)
            axes.hist(shown, edges, alpha=0.55, color=figures.PALETTE[colour], label=name)
        axes.set_title(f"layer {layer}", fontsize=10)
        axes.tick_params(labelsize=7)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    grid[0].legend(fontsize=7, frameon=False)
    figure.supxlabel("amplification (the outermost 0.5 % of pairs are in the outermost bars)", fontsize=9)
    figure.supylabel("number of pairs", fontsize=9)
    return figure
