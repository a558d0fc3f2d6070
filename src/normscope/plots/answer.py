"""The picture of an explained answer: its context, with every span coloured by its share, and the answer above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from normscope.options import Unit
from normscope.output.answer_terminal import heading, shortened
from normscope.plots.heat import add_colour_bar
from normscope.plots.picture import Picture
from normscope.plots.style import DIVERGING, add_caption, colour_map, diverging_norm, publication
from normscope.plots.text import LINE_HEIGHT, Placed, draw_token, widths_of

if TYPE_CHECKING:
    from normscope.results.answer import Answer
    from normscope.results.spans import Span

_GAP = 0.04
_MOST = 200
"""The most spans in one picture: more would not be readable."""


def plot_answer(
    answer: Answer,
    *,
    unit: Unit = "sentence",
    colours: str | Colormap = DIVERGING,
    limit: float | None = None,
    width: float = 7.5,
    title: str | None = None,
) -> Figure:
    """The context with every span coloured by its share, then what was left out.

    Args:
        answer: what to show.
        unit: what is coloured: sentences, or another unit of `Answer.spans`.
        colours: a matplotlib colour map or its name.
        limit: the share of the darkest colour (default: the largest).
        width: the width of a line of text, in inches.
        title: the title (default: the answer, and what of it is explained).

    Examples:
        >>> from normscope.plots import plot_answer
        >>> plot_answer(answer, unit="document").savefig("answer.svg")
    """
    spans = answer.spans(unit)
    ranked = {id(span) for span in spans.top(_MOST)}
    shown = [span for span in spans.in_text_order() if id(span) in ranked]
    shares = np.array([span.share for span in (*shown, *spans.left_out)])
    norm, palette = diverging_norm(shares[None], limit, "linear"), colour_map(colours)
    with publication():
        placed = _laid_out([*shown, *spans.left_out], len(shown), width)
        lines = 1 + max((each.line for each, _ in placed), default=0)
        figure = Picture(figsize=(width + 1.3, lines * LINE_HEIGHT + 0.72), layout="constrained")
        axes = figure.subplots()
        axes.set(xlim=(0, width), ylim=(lines * LINE_HEIGHT, 0), aspect="equal")
        axes.set_axis_off()
        for word, span in placed:
            draw_token(axes, word, palette(norm(span.share)))
        add_colour_bar(figure, [axes], palette, norm, "share", shares, beside=width)
        named = f"{shortened(answer.text)}\n{heading(answer)}"
        axes.set_title(named if title is None else title, parse_math=False, loc="left")
        add_caption(figure, {"model": answer.attrs.get("model", "")})
    return figure


def _laid_out(spans: list[Span], inside: int, width: float) -> list[tuple[Placed, Span]]:
    """The words of every span in lines; what was left out begins on a line of its own, each with its share."""
    words = [
        (word, span, number)
        for number, span in enumerate(spans)
        for word in (span.text.split() if number < inside else [f"{span.text} {span.share:+.2f}"])
    ]
    widths = widths_of([word for word, _, _ in words])
    placed: list[tuple[Placed, Span]] = []
    left, line, before = 0.0, 0, 0
    for (word, span, number), needed in zip(words, widths, strict=True):
        if left and (left + needed > width or (number == inside != before)):
            left, line = 0.0, line + 1
        placed.append((Placed(word, left, needed, line), span))
        left, before = left + needed + (_GAP if number >= inside else 0.0), number
    return placed
