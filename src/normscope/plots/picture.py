"""Figures that show themselves in a notebook, in which every character can be read.

Figures are made without pyplot, so a notebook would not display them by itself. A character that the fonts of a figure lack
is taken from any installed font that has it; what none has is an escape. A box says nothing, but `\\u65e5` can be read,
searched and copied, and the figure says what it stands for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache, partial
from io import BytesIO

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text
from matplotlib.ticker import Formatter, FuncFormatter

from normscope.plots.style import publication


class Picture(Figure):
    """A matplotlib figure: everything that works with one works with this."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        with publication(), legible(self):
            self.savefig(content, format="png", dpi=120, bbox_inches="tight", pad_inches=0.05)
        return content.getvalue()


_MOST_TOLD = 12
_PLACEHOLDERS = "Last Resort"
"""The font of matplotlib that has a picture of a box for every character."""

NOTE = "\\u....: characters that no font here has"


class MissingGlyphs(UserWarning):
    """Some characters have no picture in any font that is installed."""


@contextmanager
def legible(figure: Figure, *, text_stays: bool = False) -> Generator[None]:
    """Write a figure inside this: every character has a font that is installed, or is an escape.

    Args:
        text_stays: whether text stays text, as in svg, which is read with the fonts of its reader: nothing is escaped.
    """
    texts = _texts(figure)
    missing = {text: _missing(text) for text in texts}
    wanted = set[str]().union(*missing.values())
    found = _fonts_with(wanted)
    for text, characters in missing.items():
        names = [name for name, has in found.items() if has & characters]
        if names:
            text.set_fontfamily([*text.get_fontfamily(), *names])
    without = wanted - set[str]().union(*found.values())
    if not without:
        yield
        return
    if text_stays:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from")
            yield
        return
    _tell(without)
    undo = _escaped(figure, texts, without)
    try:
        yield
    finally:
        for step in undo:
            step()


def escaped(text: str, characters: Iterable[str]) -> str:
    """A text with some characters as `\\uXXXX`."""
    return text.translate({ord(one): f"\\u{ord(one):04x}" for one in characters})


def _texts(figure: Figure) -> list[Text]:
    """Every text of a figure; the labels of ticks exist once they have been requested."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            axis.get_ticklabels(which="both")
    return figure.findobj(Text)


def _missing(text: Text) -> set[str]:
    """The characters of a text that none of its fonts has."""
    characters = {one for one in text.get_text() if not one.isspace() and not one.isascii()}
    if not characters:
        return characters
    properties = text.get_fontproperties()
    for family in text.get_fontfamily():
        one = FontProperties(family=[family], style=properties.get_style(), weight=properties.get_weight())
        characters = characters - _has(fontManager.findfont(one))
    return characters


def _fonts_with(wanted: set[str]) -> dict[str, frozenset[str]]:
    """Installed fonts that have some of the characters, by name, each with those that it is needed for."""
    found: dict[str, frozenset[str]] = {}
    left = set(wanted)
    for font in fontManager.ttflist:
        if not left:
            break
        if font.name.startswith(_PLACEHOLDERS) or font.name in found:
            continue
        has = frozenset(left & _has(font.fname))
        if has:
            found[font.name] = has
            left -= has
    return found


@cache
def _has(path: str) -> frozenset[str]:
    """The characters that a font file has pictures of."""
    return frozenset(chr(code) for code in FT2Font(path).get_charmap())


def _escaped_label(formatter: Formatter, characters: set[str], value: float, index: int | None) -> str:
    return escaped(formatter(value, index), characters)


def _escaped(figure: Figure, texts: list[Text], characters: set[str]) -> list[Callable[[], object]]:
    """Write characters as escapes in all texts of a figure, and say so below it; the steps that take it back."""
    undo: list[Callable[[], object]] = []
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        labels = "".join(label.get_text() for label in axis.get_ticklabels())
        if characters & set(labels):  # labels of ticks are written anew whenever the figure is drawn
            formatter = axis.get_major_formatter()
            axis.set_major_formatter(FuncFormatter(partial(_escaped_label, formatter, characters)))
            undo.append(lambda axis=axis, formatter=formatter: axis.set_major_formatter(formatter))
    for text in texts:
        before = text.get_text()
        text.set_text(escaped(before, characters))
        undo.append(lambda text=text, before=before: text.set_text(before))
    note = figure.text(0.995, 0.002, NOTE, ha="right", va="bottom", fontsize=5, parse_math=False)
    undo.append(note.remove)
    return undo


def _tell(without: set[str]) -> None:
    shown = "".join(sorted(without)[:_MOST_TOLD]) + ("\u2026" if len(without) > _MOST_TOLD else "")
    warnings.warn(
        f"No font here has {shown}: escapes such as {escaped(min(without), without)} are written. Install one that does "
        "(Debian: fonts-noto-cjk for Chinese, Japanese and Korean, fonts-noto for the rest), or write svg, which is read "
        "with the fonts of its reader.",
        MissingGlyphs,
        stacklevel=5,
    )
