"""Figures that span models: those of the tables in `across`, and the effects of `word-split` and `entities` by depth.

Models have different numbers of layers, so the position of a layer is its depth: its number divided by that of all layers.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, MultipleLocator

from normscope.experiments import figures
from normscope.experiments.groups import published_significant
from normscope.experiments.published import CONLL, SHAPES, TITLES, WIKIPEDIA, Paper
from normscope.experiments.tables import Row
from normscope.report.across import (
    MAXIMUM,
    MEAN,
    MINIMUM,
    Across,
    ModelRow,
    differing,
    having_table,
    left_out,
    names_of,
)
from normscope.report.run import Run

KINDS = {"ff": "the feed-forward alone", "group": "with its norms and residual"}
"""The kinds of amplification, in words."""

_CORPORA = {"word-split": WIKIPEDIA, "entities": CONLL}
"""The experiments, and the corpus that each has in the paper."""

_NEEDED = {"kind", "layer", "effect", "low", "high", "significant"}
"""The columns of a table that can be drawn; those of other versions may lack some."""


@dataclass(frozen=True)
class Point:
    """A layer: its depth, the effect, the ends of its band (the bootstrap interval or, of several runs, one deviation to
    both sides), and whether it is significant (`None`: not known, or not so in all runs alike)."""

    depth: float
    effect: float
    low: float | None
    high: float | None
    significant: bool | None


@dataclass(frozen=True)
class Effects:
    """The effects of one experiment by kind and by model, and where a paper's models have significant ones, as depths."""

    experiment: str
    lines: dict[str, dict[str, list[Point]]]
    published: dict[str, list[float]]
    together: bool
    note: str = ""


def effects_across(runs: Sequence[Run], *, together: bool = False) -> list[Effects]:
    """The effects of every experiment on groups that at least two runs have."""
    return [
        effects
        for experiment in _CORPORA
        if (effects := _effects(experiment, having_table(runs, experiment), together=together))
    ]


def omitted_effects(runs: Sequence[Run]) -> dict[str, str]:
    """Titles of figures that do not exist because no run can be read, each with a sentence that says so."""
    omitted: dict[str, str] = {}
    for experiment in _CORPORA:
        present = having_table(runs, experiment)
        unreadable = [run for run in present if not _is_readable(run, experiment)]
        if len(present) > 1 and len(unreadable) == len(present):
            omitted[effects_title(experiment)] = left_out(unreadable, experiment)
    return omitted


def effects_title(experiment: str) -> str:
    return f"Effects of {experiment} by depth"


def _is_readable(run: Run, experiment: str) -> bool:
    return set(run.table(experiment).column_names) >= _NEEDED


def _effects(experiment: str, present: Sequence[Run], *, together: bool) -> Effects | None:
    runs = [run for run in present if _is_readable(run, experiment)]
    unreadable = [run for run in present if not _is_readable(run, experiment)]
    names = names_of(runs, together=together)
    rows = [run.table(experiment).to_pylist() for run in runs]
    lines: dict[str, dict[str, list[Point]]] = {}
    for kind in KINDS:
        for name in dict.fromkeys(names):
            own = [run_rows for run_rows, of in zip(rows, names, strict=True) if of == name]
            points = _points([[row for row in run_rows if row["kind"] == kind] for run_rows in own])
            if points:
                lines.setdefault(kind, {})[name] = points
    if len(present) < 2 or not lines:
        return None
    note = " ".join(filter(None, (differing(runs, experiment), left_out(unreadable, experiment))))
    return Effects(experiment, lines, _published(experiment), together, note)


def _points(seeds: Sequence[Sequence[Row]]) -> list[Point]:
    """The layers of one model that have an effect, over one run or several."""
    by_layer: dict[int, list[Row]] = {}
    for row in (row for seed in seeds for row in seed):
        by_layer.setdefault(row["layer"], []).append(row)
    depth = max(by_layer, default=1)
    known = {layer: [row for row in rows if row["effect"] is not None] for layer, rows in by_layer.items()}
    return [_point(layer / depth, rows) for layer, rows in sorted(known.items()) if rows]


def _point(depth: float, rows: Sequence[Row]) -> Point:
    if len(rows) == 1:
        (row,) = rows
        return Point(depth, row["effect"], row["low"], row["high"], row["significant"])
    effects = [row["effect"] for row in rows]
    mean, deviation = statistics.fmean(effects), statistics.stdev(effects)
    verdicts = {row["significant"] for row in rows}
    return Point(depth, mean, mean - deviation, mean + deviation, verdicts.pop() if len(verdicts) == 1 else None)


def _published(experiment: str) -> dict[str, list[float]]:
    """The depths at which the paper found the feed-forward to amplify the group, by the paper's model."""
    found: dict[str, list[float]] = {}
    for model, title in TITLES.items():
        paper, layers = Paper(model, _CORPORA[experiment]), SHAPES[model][1]
        depths = [layer / layers for layer in range(1, layers + 1) if published_significant(paper, experiment, layer)]
        if depths:
            found[f"paper: {title}"] = depths
    return found


# ---- Figures that span models: a row for each model, a panel for each component or scope, and effects by depth.
#
# Dots are measured, diamonds published: those on a model's own row are of that very model and corpus, those below the
# line are the papers' own models.

_ROW = 0.25
"""Inches for a model."""
_GAP = 0.7
"""Rows between the models of the runs and those of the papers."""
_LONGEST = 32
"""Maximum number of characters of a row's name."""
_BETWEEN = 0.07
"""Inches between panels."""

_MEASURED, _PUBLISHED = figures.PALETTE[0], figures.PALETTE[1]
_SHADE = "#f4f2ee"
_DASHES = ("-", "--", ":")


def drawn_across(table: Across) -> Figure:
    """The figure of a table: the range over layers in one panel, or a panel for each column."""
    return _ranges(table) if {MEAN, MINIMUM, MAXIMUM} <= set(table.columns) else _dots(table)


def _dots(table: Across) -> Figure:
    count, at = len(table.columns), _heights(table)
    figure, grid = figures.panels(count, columns=count, width=max(1.35, 2.6 / count), height=_height(at))
    for axes, column in zip(grid, table.columns, strict=True):
        for row, height in zip(table.rows, at, strict=True):
            _dot(axes, table, row, column, height)
        axes.set_title(column, fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(3) if table.percent else MultipleLocator(0.5))
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(w_pad=_BETWEEN)
    _rows(grid, table, at)
    for axes, limits in zip(grid, _limits(table), strict=True):
        axes.set_xlim(*limits)
    _legend(figure, table)
    return figure


def _dot(axes: Axes, table: Across, row: ModelRow, column: str, height: float) -> None:
    number = row.numbers.get(column)
    if number is None:
        return
    value = table.shown(number.value)
    if row.of_paper:
        axes.plot(value, height, marker="D", ms=4, color=_PUBLISHED, mfc="none", lw=0)
        return
    if number.published is not None:
        axes.plot(
            table.shown(number.published), height, marker="D", ms=5.5, color=_PUBLISHED, mfc="none", lw=0, zorder=3
        )
    error = None if number.error is None else table.shown(number.error)
    if error is not None and row.runs > 1:
        axes.plot([value - error, value + error], [height] * 2, color=_MEASURED, lw=6, alpha=0.3, solid_capstyle="butt")
    elif error is not None:
        axes.plot([value - error, value + error], [height] * 2, color=_MEASURED, lw=1.2)
    axes.plot(value, height, marker="o", ms=4, color=_MEASURED, lw=0)


def _ranges(table: Across) -> Figure:
    """Means over layers, with lines from the smallest layer to the largest; a ratio has a logarithmic axis."""
    at = _heights(table)
    figure, (axes,) = figures.panels(1, width=6.2, height=_height(at))
    for row, height in zip(table.rows, at, strict=True):
        ends = [row.numbers[column].value for column in (MINIMUM, MAXIMUM) if column in row.numbers]
        if len(ends) == 2:
            colour, style = (_PUBLISHED, ":") if row.of_paper else (_MEASURED, "-")
            axes.plot(ends, [height] * 2, color=colour, lw=1.2, ls=style)
        _dot(axes, table, row, MEAN, height)
    figures.log_scale(axes, "x")
    axes.axvline(1, color="k", lw=0.8, ls=":")
    axes.set_xlabel("expansion rate: mean over layers, and from the smallest layer to the largest", fontsize=8)
    _rows([axes], table, at)
    _legend(figure, table)
    return figure


def _heights(table: Across) -> list[float]:
    """The vertical position of each row."""
    return [index + (_GAP if row.of_paper else 0.0) for index, row in enumerate(table.rows)]


def _height(at: Sequence[float]) -> float:
    return _ROW * (at[-1] + 1) + 1.1


def _rows(grid: Sequence[Axes], table: Across, at: Sequence[float]) -> None:
    """The names of the rows, once, on the left; the papers' own on a shade."""
    for index, axes in enumerate(grid):
        axes.set_yticks(
            at, [_short(row.name) for row in table.rows] if index == 0 else [""] * len(at), parse_math=False
        )
        for label, row in zip(axes.get_yticklabels(), table.rows, strict=True):
            label.set(style="italic" if row.of_paper else "normal", color="#555555" if row.of_paper else "k")
        axes.tick_params(axis="y", length=0, labelsize=8)
        axes.tick_params(axis="x", which="both", labelsize=7)
        axes.set_ylim(at[-1] + 0.7, -0.7)
        if table.published:
            axes.axhspan(len(table.measured) - 0.5 + _GAP / 2 - 0.15, at[-1] + 0.7, color=_SHADE, zorder=0, lw=0)
        axes.grid(axis="both", alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right", "left"]].set_visible(False)


def _short(name: str) -> str:
    """A name that leaves room for the panels: of a long one its end, where the folders of runs differ."""
    return name if len(name) <= _LONGEST else f"\N{HORIZONTAL ELLIPSIS}{name[1 - _LONGEST :]}"


def _limits(table: Across) -> list[tuple[float, float]]:
    """The ends of each panel's axis: correlations share theirs, shares have room around their own numbers."""
    values = [_extent(table, column) for column in table.columns]
    if not table.percent:
        return [(min(-0.04, *(1.05 * low for low, _ in values)), 1.06)] * len(values)
    spans: list[tuple[float, float]] = []
    for low, high in values:
        room = max(0.12 * (high - low), (10 - (high - low)) / 2)
        spans.append((low - room, high + room))
    return spans


def _extent(table: Across, column: str) -> tuple[float, float]:
    numbers = [row.numbers[column] for row in table.rows if column in row.numbers]
    ends = [number.value + sign * (number.error or 0) for number in numbers for sign in (-1, 1)]
    ends += [number.published for number in numbers if number.published is not None]
    return table.shown(min(ends)), table.shown(max(ends))


def _legend(figure: Figure, table: Across) -> None:
    """What the marks mean, below all panels; of those that are there."""
    several = any(row.runs > 1 for row in table.measured)
    errors = any(number.error is not None for row in table.measured if row.runs == 1 for number in row.numbers.values())
    known: list[Line2D | Patch] = [Line2D([], [], marker="o", ms=4, lw=0, color=_MEASURED, label="measured")]
    if errors:
        known.append(Line2D([], [], lw=1.2, color=_MEASURED, label="one standard error over sequences"))
    if several:
        known.append(Patch(color=_MEASURED, alpha=0.3, lw=0, label="one deviation over seeds"))
    if table.published:
        known.append(Line2D([], [], marker="D", ms=4, lw=0, color=_PUBLISHED, mfc="none", label="published"))
    figure.legend(handles=known, loc="outside lower center", ncols=4, fontsize=7, frameon=False)


def drawn_effects(effects: Effects) -> Figure:
    """A line for each model over the depth, with its band, a panel for each kind; filled marks are significant."""
    kinds = [kind for kind in KINDS if kind in effects.lines]
    figure, grid = figures.panels(len(kinds), columns=2, width=4.6, height=3.7)
    for axes, kind in zip(grid, kinds, strict=True):
        for index, (name, points) in enumerate(effects.lines[kind].items()):
            colour = figures.PALETTE[index % len(figures.PALETTE)]
            depth, effect = [point.depth for point in points], [point.effect for point in points]
            style = _DASHES[index // len(figures.PALETTE) % len(_DASHES)]
            axes.plot(depth, effect, color=colour, lw=1.4, ls=style, marker="o", ms=4.5, mfc="w", label=name)
            sure = [point for point in points if point.significant]
            axes.plot([p.depth for p in sure], [p.effect for p in sure], color=colour, lw=0, marker="o", ms=4.5)
            ends = [(point.low, point.high) for point in points]
            low, high = (np.array([np.nan if v is None else v for v in side]) for side in zip(*ends, strict=True))
            axes.fill_between(depth, low, high, color=colour, alpha=0.15, lw=0)
        axes.axhline(0, color="k", lw=0.8)
        axes.set_title(KINDS[kind], fontsize=10)
        axes.set(xlabel="depth (layer by number of layers)", xlim=(0, 1.03))
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    grid[0].set_ylabel("amplification above that of other pairs")
    _mark_published(grid[0], effects)
    figures.legend_below(figure, grid[0])
    return figure


def _mark_published(axes: Axes, effects: Effects) -> None:
    """Where a paper's feed-forwards amplify the group, in a line at the bottom of their panel."""
    for index, (name, depths) in enumerate(effects.published.items()):
        height = [0.03 + 0.06 * index] * len(depths)
        label, where = f"{name}, where significant", axes.get_xaxis_transform()
        axes.plot(depths, height, marker="D", ms=4, lw=0, color="#555555", mfc="none", transform=where, label=label)
