"""Two texts above each other, with ribbons between their tokens whose width is the size of a pair's share.

At every token the ribbons lie side by side, in the order of their other ends. Everything is measured in inches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from normscope.plots.text import LINE_HEIGHT, Placed, draw_token, widths_of
from normscope.results.tokens import label

if TYPE_CHECKING:
    from normscope.results.similarity import Similarity

_BETWEEN = 4
"""Lines between the texts."""

_GAP = 0.06
_WIDEST, _THINNEST = 0.3, 0.008
_RAISES, _LOWERS = 0.84, 0.16
"""Positions of the colours of both signs on a diverging map."""


@dataclass(frozen=True)
class Texts:
    """The layout of both texts, and their total height."""

    first: list[Placed]
    second: list[Placed]

    @property
    def height(self) -> float:
        return (1 + max(token.line for token in self.second)) * LINE_HEIGHT


def lay_out(similarity: Similarity, width: float) -> Texts:
    """Both texts in lines no wider than `width`, the second below the first."""
    first = line_of(similarity, "first", width)
    below = first[-1].line + 1 + _BETWEEN
    second = [replace(token, line=token.line + below) for token in line_of(similarity, "second", width)]
    return Texts(first, second)


def line_of(similarity: Similarity, side: str, width: float) -> list[Placed]:
    """One text: parts of a word touch, and a text of one line is centred."""
    dataset = similarity.dataset
    names = [label(str(token)) for token in dataset[f"{side}_token"].values]
    words = dataset[f"{side}_word"].values.tolist()
    placed: list[Placed] = []
    left, line = 0.0, 0
    for index, (name, own) in enumerate(zip(names, widths_of(names), strict=True)):
        joined = index > 0 and words[index] >= 0 and words[index] == words[index - 1]
        left += 0.0 if joined or not left else _GAP
        if left and left + own > width:
            left, line = 0.0, line + 1
        placed.append(Placed(name, left, own, line))
        left += own
    shift = max(0.0, width - left) / 2 if line == 0 else 0.0
    return [replace(token, left=token.left + shift) for token in placed]


def strongest(cells: np.ndarray, share: float) -> list[tuple[int, int]]:
    """The fewest cells whose sizes are some share of the sizes of all, the largest first."""
    order = np.argsort(-np.abs(cells), axis=None, kind="stable")
    sizes = np.abs(cells).ravel()[order].cumsum()
    count = int(np.searchsorted(sizes, share * sizes[-1] * (1 - 1e-9))) + 1 if sizes[-1] > 0 else 0
    rows, columns = np.unravel_index(order[:count], cells.shape)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def draw_texts(
    axes: Axes, similarity: Similarity, texts: Texts, colours: Colormap, norm: Normalize, share: float
) -> None:
    """The ribbons of the strongest pairs, below the tokens, which have the colours of their shares."""
    cells = similarity.table.values
    pairs = strongest(cells, share)
    sizes = np.array([abs(cells[pair]) for pair in pairs])
    widths = np.maximum(_THINNEST, sizes * _per_unit(texts, pairs, sizes))
    ends = _spread(texts.first, texts.second, pairs, widths), _spread(texts.second, texts.first, _turned(pairs), widths)
    for index in reversed(range(len(pairs))):
        top = (texts.first[pairs[index][0]].line + 1) * LINE_HEIGHT - 0.03
        bottom = texts.second[pairs[index][1]].line * LINE_HEIGHT + 0.03
        colour = colours(_RAISES if cells[pairs[index]] > 0 else _LOWERS)
        band = _band((ends[0][index], top), (ends[1][index], bottom), float(widths[index]))
        axes.add_patch(PathPatch(band, facecolor=colour, alpha=0.55, linewidth=0))
    for tokens, shares in ((texts.first, similarity.first.values), (texts.second, similarity.second.values)):
        for token, value in zip(tokens, shares.tolist(), strict=True):
            draw_token(axes, token, colours(norm(value)))


def _per_unit(texts: Texts, pairs: Sequence[tuple[int, int]], sizes: np.ndarray) -> float:
    """Inches of a ribbon's width for a cell of 1: no token's ribbons are wider than it."""
    fits = [_WIDEST / max(float(sizes.max(initial=0.0)), 1e-30)]
    for tokens, side in ((texts.first, 0), (texts.second, 1)):
        sums = np.bincount([pair[side] for pair in pairs], weights=sizes, minlength=len(tokens))
        fits += [token.width / total for token, total in zip(tokens, sums, strict=True) if total > 0]
    return min(fits)


def _turned(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(second, first) for first, second in pairs]


def _spread(
    own: list[Placed], other: list[Placed], pairs: Sequence[tuple[int, int]], widths: np.ndarray
) -> list[float]:
    """Of every ribbon the middle of its end at a text, its own token first in `pairs`: side by side, by the other ends."""
    middles = [0.0] * len(pairs)
    for token in {first for first, _ in pairs}:
        mine = [index for index, (first, _) in enumerate(pairs) if first == token]
        mine.sort(key=lambda index: other[pairs[index][1]].left)
        left = own[token].left + own[token].width / 2 - float(widths[mine].sum()) / 2
        for index in mine:
            middles[index] = left + float(widths[index]) / 2
            left += float(widths[index])
    return middles


def _band(start: tuple[float, float], end: tuple[float, float], width: float) -> Path:
    """An upright band of constant width between two points."""
    (x, top), (to, bottom), half, middle = start, end, width / 2, (start[1] + end[1]) / 2
    corners = [
        (x - half, top),
        *((x - half, middle), (to - half, middle), (to - half, bottom)),
        (to + half, bottom),
        *((to + half, middle), (x + half, middle), (x + half, top)),
        (x - half, top),
    ]
    kinds = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    return Path(corners, kinds)
