"""How all pictures look: fonts, colours, and how large things are for a given number of tokens.

Colours are perceptually ordered and safe for colour-blind readers, and go from light to dark, so that they print well and a
missing cell (blank) is not taken for a dark one.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files as resources
from math import ceil
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Colormap, FuncNorm, LinearSegmentedColormap, Normalize, PowerNorm

from normscope.errors import InputError
from normscope.models.source import model_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PALETTE: dict[str, Any] = json.loads((resources("normscope.plots") / "palette.json").read_text(encoding="utf-8"))
"""The house palette, which the explorer's front end uses, too: maps look the same everywhere."""

SEQUENTIAL = LinearSegmentedColormap.from_list("normscope", _PALETTE["sequential"])
"""Pale green to night blue in equal steps of lightness (CIELAB L* from 96 to 7)."""

DIVERGING = LinearSegmentedColormap.from_list("normscope-diverging", _PALETTE["diverging"])
"""ColorBrewer's PuOr from violet (less) over near-white (0) to orange (more)."""

OUTLIER = float(_PALETTE["outlier"])
"""The colours reach up to this many times the typical largest value of a row; larger values are marked at the colour bar."""

_SMALLEST_FONT, _LARGEST_FONT = 4.5, 8.0
_LINE = 1.35
"""The room that a line of text needs, in font sizes."""

_WIDE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans", "Noto Sans Arabic"),
    *("Noto Sans Devanagari", "WenQuanYi Zen Hei", "Droid Sans Fallback", "PingFang SC", "Hiragino Sans"),
    *("Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Arial Unicode MS"),
)
"""Fonts for characters that DejaVu lacks, used as fallbacks if they are installed."""


@contextmanager
def publication() -> Generator[None]:
    """The settings under which figures are made and written; the user's settings are restored afterwards."""
    from matplotlib.font_manager import fontManager  # noqa: PLC0415  (slow to import, and terminals have fonts)

    installed = {font.name for font in fontManager.ttflist}
    settings: dict[Any, Any] = {
        "font.family": ["DejaVu Sans", *(font for font in _WIDE_FONTS if font in installed)],
        "font.size": _LARGEST_FONT,
        "axes.titlesize": _LARGEST_FONT + 1,
        "axes.linewidth": 0.6,
        "xtick.major.width": 0.4,
        "ytick.major.width": 0.4,
        "xtick.major.size": 2,
        "ytick.major.size": 2,
        "text.usetex": False,
        "text.parse_math": False,
        "svg.fonttype": "none",  # text stays text: it can be searched, and a browser finds glyphs for any script
        "svg.hashsalt": "normscope",  # the same figure gives the same file
        "pdf.fonttype": 42,
        "savefig.dpi": 200,
    }
    with mpl.rc_context(settings):
        yield


def colour_map(colours: str | Colormap) -> Colormap:
    """A colour map, perhaps by its matplotlib name, with missing cells blank."""
    if isinstance(colours, str) and colours not in mpl.colormaps:
        raise InputError(f"There is no colour map {colours!r}: give one of matplotlib's, such as 'viridis'.")
    return mpl.colormaps.get_cmap(colours).with_extremes(bad=(1.0, 1.0, 1.0, 0.0))


def sequential_norm(values: np.ndarray, limit: float | None, colour_scale: str) -> Normalize:
    """Colours for values from 0 to `limit`, by default to the largest value that is not an outlier."""
    largest = typical_largest(values) if limit is None else limit
    match colour_scale:
        case "sqrt":
            return PowerNorm(0.5, 0, largest)
        case "linear":
            return Normalize(0, largest)
        case _:
            raise InputError(f"A scale of colours is 'sqrt' or 'linear', not {colour_scale!r}.")


def diverging_norm(values: np.ndarray, limit: float | None, colour_scale: str) -> Normalize:
    """Colours for values on both sides of 0, which is in the middle."""
    largest = typical_largest(np.abs(values)) if limit is None else limit
    match colour_scale:
        case "sqrt":
            return FuncNorm((_signed_sqrt, _signed_square), -largest, largest)
        case "linear":
            return Normalize(-largest, largest)
        case _:
            raise InputError(f"A scale of colours is 'sqrt' or 'linear', not {colour_scale!r}.")


def _signed_sqrt(values: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.sqrt(np.abs(values))


def _signed_square(values: np.ndarray) -> np.ndarray:
    return values * np.abs(values)


def typical_largest(values: np.ndarray) -> float:
    """The largest value `[..., row, column]`, but at most `OUTLIER` times what is typically the largest of a row."""
    rows = np.where(np.isfinite(values), values, 0.0).max(axis=-1)
    typical = float(np.median(rows[rows > 0])) if (rows > 0).any() else 1.0  # any value will do if all are 0
    return min(float(rows.max()) or 1.0, OUTLIER * typical)


def ink_on(colour: tuple[float, ...]) -> str:
    """Black or white, whichever reads better on a colour (by its relative luminance)."""
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour[:3])
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "white"


@dataclass(frozen=True)
class Scale:
    """How large a panel's cells are (inches), how large its labels (points), and that every `step`-th token has one."""

    cell: float
    font: float
    step: int

    def room(self, names: Sequence[str]) -> float:
        """About how much room the longest of these names needs, in inches."""
        return max(map(len, names), default=0) * self.font * 0.62 / 72

    def side(self, count: int) -> float:
        """The length of this many cells, in inches."""
        return self.cell * count


def scale_for(count: int, smallest: float, largest: float) -> Scale:
    """The scale at which `count` cells fill a side between `smallest` and `largest` inches, with readable labels."""
    wanted = _LARGEST_FONT * _LINE / 72
    cell = min(max(wanted, smallest / count), largest / count)
    font = min(_LARGEST_FONT, max(_SMALLEST_FONT, cell * 72 / _LINE))
    return Scale(cell, font, ceil(font * _LINE / 72 / cell - 1e-9))


# ---- The small line at the foot of a figure: the model, and the text that it read.

_CAPTION_SIZE, _CAPTION_COLOUR = 6.5, "0.4"
_CHARACTERS_PER_INCH = 14


def caption_of(attributes: Mapping[Any, Any], width: float) -> str:
    """Model and text of a result, as long as a figure of this width (in inches) has room for; or nothing."""
    model, text = (str(attributes.get(name, "")) for name in ("model", "text"))
    source = str(attributes.get("source_text", ""))
    read = " \N{RIGHTWARDS ARROW} ".join(filter(None, (source, text)))
    room = max(24, int(width * _CHARACTERS_PER_INCH) - len(model_name(model)))
    parts = [model_name(model) if model else "", f"\u201c{shorten(read, room, placeholder='…')}\u201d" if read else ""]
    return " \N{MIDDLE DOT} ".join(filter(None, parts))


def add_caption(figure: Figure, attributes: Mapping[Any, Any]) -> None:
    """Name the model and the text at the foot of a figure whose layout makes room for it."""
    caption = caption_of(attributes, figure.get_figwidth())
    if caption:
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=_CAPTION_SIZE, color=_CAPTION_COLOUR, parse_math=False)
