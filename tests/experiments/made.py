"""Hand-made analyses: maps with numbers that a reader can check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from rich.console import Console
from scipy import stats

from normscope import Analysis
from normscope.experiments import Observation
from normscope.experiments.base import ModelFacts, Outcome

SCOPES = ("AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes", "AttnResLnFfResLn")
TOKENS = ["[CLS]", "a", "b", ",", "a", "[SEP]"]


def analysis(
    maps: Mapping[str, Any],
    tokens: Sequence[str],
    *,
    mixing: Mapping[str, Any] | None = None,
    words: Sequence[int] | None = None,
    heads: Mapping[str, Any] | None = None,
    special: Sequence[str] = ("[CLS]", "[SEP]"),
) -> Analysis:
    """An analysis with the maps `[layer, query, key]` given by scope."""
    scopes = list(maps) or list(mixing or {})
    layers = len(np.asarray(next(iter((maps or mixing or {}).values()))))
    flags = np.array([token in special for token in tokens])
    ids = np.arange(len(tokens)) if words is None else np.asarray(words)
    coordinates: dict[str, Any] = {"scope": scopes, "layer": np.arange(1, 1 + layers)}
    for dimension in ("query", "key"):
        coordinates |= {
            dimension: np.arange(len(tokens)),
            f"{dimension}_token": (dimension, np.array(tokens, object)),
            f"{dimension}_special": (dimension, flags),
            f"{dimension}_word": (dimension, np.where(flags, -1, ids)),
        }
    coordinates["key_group"] = "key", np.array(["self"] * len(tokens), object)
    variables: dict[str, Any] = {"completeness": ("layer", np.zeros(layers))}
    if maps:
        variables["map"] = ("scope", "layer", "query", "key"), np.stack([np.asarray(maps[s], float) for s in scopes])
    if mixing:
        variables["mixing_ratio"] = (
            ("scope", "layer", "query"),
            np.stack([np.asarray(mixing[s], float) for s in scopes]),
        )
    if heads:
        coordinates["head_scope"] = list(heads)
        variables["head_map"] = (
            ("head_scope", "layer", "head", "query", "key"),
            np.stack([np.asarray(heads[scope], float) for scope in heads]),
        )
    return Analysis(xr.Dataset(variables, coordinates, {"model": "made", "model_type": "bert"}))


def random_analysis(seed: int, tokens: Sequence[str], *, layers: int = 2, **options: Any) -> Analysis:
    """Random positive maps at all scopes of a BERT."""
    chance = np.random.default_rng(seed)
    maps = {scope: chance.random((layers, len(tokens), len(tokens))) for scope in SCOPES}
    return analysis(maps, tokens, **options)


def rows(outcome: Any, table: str, **wanted: Any) -> list[dict[str, Any]]:
    """The rows of a table with these values."""
    return [row for row in outcome.tables[table].to_pylist() if all(row[key] == value for key, value in wanted.items())]


def printed(outcome: Outcome) -> list[str]:
    """The lines that a run prints of an outcome."""
    assert outcome.printed is not None
    console = Console(width=160, file=StringIO(), record=True)
    console.print(outcome.printed())
    return console.export_text().splitlines()


def observed(item: Analysis, number: int, **extra: Any) -> Observation:
    return Observation(item, number, **extra)


def causal(tokens: list[str], seed: int = 0) -> tuple[Observation, ModelFacts]:
    """A sequence of a causal model, in which the first token's ratios are 0, and what is known of the model."""
    ratios = {scope: np.random.default_rng(seed).random((2, len(tokens))) for scope in SCOPES[:4]}
    for values in ratios.values():
        values[:, 0] = 0
    item = analysis({}, tokens, mixing=ratios)
    return Observation(item, seed), replace(ModelFacts.of_analysis(item), causal=True)


def pearson(first: np.ndarray, second: np.ndarray) -> float:
    """Pearson's r of all cells, by its definition."""
    x, y = (values.astype(np.float64).reshape(-1) - values.astype(np.float64).mean() for values in (first, second))
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rho of all cells: Pearson's r of their ranks."""
    return pearson(stats.rankdata(first), stats.rankdata(second))


def normalised(values: np.ndarray, axis: str) -> np.ndarray:
    """A map of norms as shares of its rows or columns, or as it is."""
    return {
        "none": values,
        "row": values / values.sum(-1, keepdims=True),
        "column": values / values.sum(-2, keepdims=True),
    }[axis]


def check_bands(axes: Axes, rows: Sequence[Mapping[str, Any]], by: str) -> None:
    """A panel has the interval of every line: from the lowest to the highest end of its rows in the table."""
    series = dict.fromkeys(row[by] for row in rows)
    drawn = [band.get_paths()[0].get_extents() for band in axes.collections if isinstance(band, PolyCollection)]
    for name, extent in zip(series, drawn, strict=True):
        own = [row for row in rows if row[by] == name]
        assert np.isclose(extent.ymin, min(row["low"] for row in own)), name
        assert np.isclose(extent.ymax, max(row["high"] for row in own)), name
