"""Figures that trials share: methods as bars with their intervals, and heat maps of pairs of methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from normscope.experiments import figures


def bars(
    records: Sequence[dict[str, Any]], panel: str, *, label: str, limits: tuple[float, float] | None = None
) -> Figure:
    """One panel for each value of a column; methods from the highest mean down, with the ends of their intervals."""
    names = list(dict.fromkeys(record[panel] for record in records))
    most = max((sum(record[panel] == name for record in records) for name in names), default=1)
    figure, grid = figures.panels(max(1, len(names)), width=4.2, height=0.9 + 0.24 * most)
    for axes, name in zip(grid, names, strict=False):
        several = sorted((record for record in records if record[panel] == name), key=lambda record: record["mean"])
        means = np.array([record["mean"] for record in several])
        ends = np.array([[_end(record, "low"), _end(record, "high")] for record in several]).reshape(-1, 2)
        spread = np.abs(ends.T - means)
        axes.barh(
            range(len(several)), means, xerr=spread, color=figures.PALETTE[0], height=0.7, ecolor="0.3", capsize=2
        )
        axes.set_yticks(range(len(several)), [record["method"] for record in several], fontsize=7)
        axes.set_title(f"{name} ({several[0]['sequences']} texts)", fontsize=9)
        axes.set_xlabel(label, fontsize=8)
        axes.axvline(0, color="0.3", linewidth=0.8)
        if limits is not None:
            axes.set_xlim(*limits)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _end(record: dict[str, Any], name: str) -> float:
    value = record[name]
    return record["mean"] if value is None or not np.isfinite(value) else float(value)
