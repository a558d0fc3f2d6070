"""The small line at the foot of a figure: the model, and the text that it read."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from matplotlib.figure import Figure

from normscope.models.source import model_name

_SIZE, _COLOUR = 6.5, "0.4"
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
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=_SIZE, color=_COLOUR, parse_math=False)
