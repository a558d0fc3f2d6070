"""How near sketched maps come to exact ones, layer by layer, by the number of directions: the embedded model on the text
that comes with normscope."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measuring import MINILM, SUBJECT, Column, Row, Section
from scipy.stats import spearmanr

import normscope as ns
from normscope.corpora import bundled
from normscope.decompose import Approximation

DIRECTIONS = (48, 64, 96, 128, 192, 256)
CHARACTERS = 600


def rows(quick: bool) -> Iterator[Row]:
    text = Path(bundled()).read_text(encoding="utf-8")[:CHARACTERS]
    analyzer = ns.load()
    exact = analyzer.analyze(text)
    reached: dict[int, Row] = {
        layer: dict(model=MINILM, tokens=len(exact.tokens), what=f"layer {layer}") for layer in analyzer.layers
    }
    for directions in DIRECTIONS[:4] if quick else DIRECTIONS:
        near = analyzer.analyze(text, approximate=Approximation(1.0, directions))
        for layer, row in reached.items():
            row[f"directions_{directions}"] = worst(exact, near, layer)
    yield from reached.values()


def worst(exact: ns.Analysis, near: ns.Analysis, layer: int) -> float:
    """The rank correlation of all cells of a layer, in the worst scope from the feed-forward on."""
    scopes = [scope for scope in exact.scopes if "Ff" in scope]
    return min(float(spearmanr(cells(exact, scope, layer), cells(near, scope, layer)).statistic) for scope in scopes)


def cells(analysis: ns.Analysis, scope: str, layer: int) -> np.ndarray:
    return analysis.map(scope).sel(layer=layer).values.ravel()


SECTION = Section(
    "Sketched maps: rank correlation with exact ones, worst scope",
    (
        *SUBJECT,
        Column("what", "layer"),
        *(Column(f"directions_{number}", f"{number} directions", "{:.4f}") for number in DIRECTIONS),
    ),
    rows,
    drawn="directions_128",
)
