"""The image of a similarity: coloured by the shares of its patches, in total and with the strongest tokens of the other
side."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from normscope.plots.ribbons import line_of
from normscope.plots.style import diverging_norm
from normscope.plots.text import LINE_HEIGHT, draw_token
from normscope.results.similarity_schema import SIDES
from normscope.results.tokens import labels

if TYPE_CHECKING:
    from normscope.results.similarity import Similarity

_COLUMNS = 4
_GAP, _TITLE = 0.12, 0.24
_OPACITY = 0.6
_STRONGEST = 7
"""The number of tokens of the other side that have an image of their own."""


class WithImage:
    """The panel of an image and a text, or of two images."""

    name = "texts"
    has_image = True

    def __init__(self, similarity: Similarity, _: float, width: float) -> None:
        self._similarity, self._width = similarity, width
        self._images = [side for side in SIDES if similarity.patches(side) is not None]
        self._texts = {side: line_of(similarity, side, width) for side in SIDES if side not in self._images}
        self._side = (width - (_COLUMNS - 1) * _GAP) / _COLUMNS
        self._panels = {side: self._panels_of(side) for side in self._images}
        rows = sum(ceil(len(panels) / _COLUMNS) for panels in self._panels.values())
        lines = sum(1 + max(token.line for token in tokens) for tokens in self._texts.values())
        self.size = width + 0.3, rows * (self._side + _TITLE + _GAP) + lines * LINE_HEIGHT + 0.5

    def _panels_of(self, side: str) -> list[tuple[str, np.ndarray]]:
        """The titles and values of the panels of one image: all tokens together, then the strongest of the other side."""
        similarity = self._similarity
        panels = [("in all", getattr(similarity, side).values)]
        if not similarity.has_table or not self._texts:
            return panels
        cells = similarity.table.values if side == "first" else similarity.table.values.T
        other = SIDES[1 - SIDES.index(side)]
        names = labels(getattr(similarity, f"{other}_tokens"))
        special = similarity.dataset[f"{other}_special"].values
        order = np.argsort(-np.abs(cells).sum(0) * ~special, kind="stable")[: min(_STRONGEST, int((~special).sum()))]
        return panels + [(f"with {names[token]}", cells[:, token]) for token in sorted(order.tolist())]

    def draw(self, _: Figure, axes: Axes, colours: Colormap) -> None:
        top = 0.0
        for side, panels in self._panels.items():
            for index, (title, values) in enumerate(panels):
                left = index % _COLUMNS * (self._side + _GAP)
                upper = top + index // _COLUMNS * (self._side + _TITLE + _GAP)
                self._draw_image(axes, side, (left, upper + _TITLE), values, colours)
                axes.text(left, upper + _TITLE - 0.05, title, fontsize=8, va="bottom", parse_math=False)
            top += ceil(len(panels) / _COLUMNS) * (self._side + _TITLE + _GAP)
        for side, tokens in self._texts.items():
            shares = getattr(self._similarity, side).values
            norm = _norm(shares)
            below = ceil(top / LINE_HEIGHT)
            for token, value in zip(tokens, shares.tolist(), strict=True):
                draw_token(axes, replace(token, line=token.line + below), colours(norm(value)))
        axes.set(xlim=(0, self._width), ylim=(self.size[1] - 0.5 + LINE_HEIGHT, 0), aspect="equal")
        axes.set_axis_off()

    def _draw_image(
        self, axes: Axes, side: str, corner: tuple[float, float], values: np.ndarray, colours: Colormap
    ) -> None:
        """The image in grey, so that only shares have colours."""
        left, top = corner
        extent = (left, left + self._side, top + self._side, top)
        image, patches = self._similarity.image(side), self._similarity.patches(side)
        assert patches is not None
        if image is not None:
            grey = np.repeat(image.mean(-1, keepdims=True), 3, axis=-1).astype(np.uint8)
            axes.imshow(grey, extent=extent)
        shown = patches[:, 0] >= 0
        grid = np.full(patches.max(0) + 1, np.nan)
        grid[tuple(patches[shown].T)] = values[shown]
        axes.imshow(grid, colours, _norm(values[shown]), alpha=_OPACITY, extent=extent, interpolation="nearest")


def _norm(values: np.ndarray) -> Normalize:
    return diverging_norm(values[None], float(np.abs(values).max()) or None, "sqrt")
