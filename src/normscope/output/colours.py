"""Colours of numbers on a terminal: those of the house palette that every terminal with 256 colours has, too.

A terminal without true colour shows the nearest of its 256 colours, and the nearest colours of a smooth ramp go back and
forth in lightness: a larger number may look weaker. The ramps here consist of terminal colours alone, and each step away
from the weak end is darker than the one before.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
from matplotlib.colors import to_hex
from rich.style import Style

from normscope.plots.style import DIVERGING, SEQUENTIAL, ink_on

_LEVELS = (0, 95, 135, 175, 215, 255)
_STEPS = 128
"""The number of steps in which a ramp is sampled."""

_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
_LEAST_STEP = 0.01
"""Two neighbours of a ramp differ by at least this luminance."""


def number_style(share: float, *, signed: bool) -> Style:
    """The style of a number that is this far along the palette, from 0 to 1; 0.5 is the middle of the signed one."""
    share = min(max(float(share), 0.0), 1.0)
    if signed:
        ramp, place = _ramp(0.5, float(share > 0.5), signed=True), abs(share - 0.5) * 2
    else:
        ramp, place = _ramp(0.0, 1.0, signed=False), share
    colour = next(colour for start, colour in reversed(ramp) if start <= place)
    return Style(color=ink_on(colour), bgcolor=to_hex(colour))


_Colour = tuple[float, float, float]


@cache
def _ramp(weak: float, strong: float, *, signed: bool) -> tuple[tuple[float, _Colour], ...]:
    """Terminal colours from the weak end of a palette to its strong end, each with the position from which it is used."""
    colours = DIVERGING if signed else SEQUENTIAL
    palette = np.array(list(_terminal_colours())) / 255
    kept: list[tuple[float, _Colour]] = []
    last = np.inf
    for place in np.linspace(0, 1, _STEPS + 1).tolist():
        wanted = np.array(colours(weak + place * (strong - weak))[:3])
        red, green, blue = palette[np.square(palette - wanted).sum(axis=1).argmin()].tolist()
        luminance = float(np.array([red, green, blue]) @ _LUMINANCE)
        if luminance < last - _LEAST_STEP:
            kept.append((place, (red, green, blue)))
            last = luminance
    return tuple(kept)


def _terminal_colours() -> Iterable[tuple[int, int, int]]:
    """The colour cube of terminals with 256 colours. Its greys are not used: terminals disagree about them."""
    return ((red, green, blue) for red in _LEVELS for green in _LEVELS for blue in _LEVELS)
