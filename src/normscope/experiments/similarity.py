"""The similarity of two maps: a correlation of all their cells, of maps as they are or scaled by row or column.

The published values of the 2024 paper are Pearson's r of plain maps (docs/method.md explains how that is known): they are
compared with `PUBLISHED` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
import xarray as xr
from jaxtyping import Float

from normscope.errors import InputError
from normscope.experiments import figures
from normscope.experiments.base import check_choice
from normscope.experiments.statistics import correlation_matrix
from normscope.experiments.tables import Row
from normscope.options import Correlation, NormaliseAxis
from normscope.results.rollout import normalise

COLUMNS = {
    "correlation": "how maps are compared: pearson, r of their cells, or spearman, rho of the ranks of their cells",
    "normalisation": "how maps were scaled before: none, row (query) sums to 1, column (key) sums to 1",
}
"""The columns that name the comparison, for the tables of experiments."""

_SYMBOLS = {"pearson": "r", "spearman": figures.RHO}
_NAMES = {"pearson": "Pearson's r", "spearman": f"Spearman's {figures.RHO}"}


class MapComparison(NamedTuple):
    """One way of comparing maps."""

    correlation: Correlation = "pearson"
    normalisation: NormaliseAxis = "none"

    @property
    def symbol(self) -> str:
        return _SYMBOLS[self.correlation]

    @property
    def label(self) -> str:
        return _NAMES[self.correlation]

    @property
    def title(self) -> str:
        """What a panel of this way is called."""
        scaled = {"none": "maps as they are", "row": "rows scaled to 1", "column": "columns scaled to 1"}
        return f"{self.label}, {scaled[self.normalisation]}"


PUBLISHED = MapComparison("pearson", "none")
"""What the published similarities are."""


def map_comparisons(
    experiment: str, correlations: Sequence[Correlation], normalisations: Sequence[NormaliseAxis]
) -> tuple[MapComparison, ...]:
    """All combinations, each once; refuses those that do not exist."""
    if not correlations or not normalisations:
        raise InputError(f"{experiment}: name at least one correlation and one normalisation.")
    for correlation in correlations:
        check_choice(experiment, "correlations", correlation, get_args(Correlation))
    for axis in normalisations:
        check_choice(experiment, "normalisations", axis, get_args(NormaliseAxis))
    return tuple(
        dict.fromkeys(MapComparison(correlation, axis) for correlation in correlations for axis in normalisations)
    )


def similarities(
    maps: xr.DataArray, comparisons: Sequence[MapComparison]
) -> Float[np.ndarray, "comparison layer which which"]:
    """How alike any two of the maps `[layer, which, query, key]` of a layer are; cells that do not exist are left out."""
    ordered = maps.transpose("layer", ..., "query", "key")
    scaled = {
        axis: normalise(ordered, axis).values for axis in {comparison.normalisation for comparison in comparisons}
    }
    flat = {axis: values.reshape(*values.shape[:2], -1) for axis, values in scaled.items()}
    return np.stack([correlation_matrix(flat[axis], correlation) for correlation, axis in comparisons])


# ---- findings ----------------------------------------------------------------------------------------------------------


def first_comparison(rows: list[Row]) -> list[Row]:
    """The rows of the first way in which maps were compared; older tables do not name the correlation."""
    labels = [name for name in MapComparison._fields if name in rows[0]]
    return [row for row in rows if all(row[name] == rows[0][name] for name in labels)]


def correlation_name(row: Row) -> str:
    """The correlation of a row, for a sentence."""
    return "correlation (Pearson's r)" if row.get("correlation") == "pearson" else "rank correlation"
