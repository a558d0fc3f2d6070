"""An explanation on a terminal: the text on diverging colours, a table of the tokens' shares, and what the model predicts.

Makes rich renderables and prints nothing. Tokens go in as plain text, so that nothing in them is read as markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_hex
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from normscope.output.explanation_words import heading, meaning, sink_note, sums, token_names
from normscope.plots.style import DIVERGING, SEQUENTIAL, diverging_norm, ink_on, sequential_norm
from normscope.results.tokens import name_of, pieces

if TYPE_CHECKING:
    from normscope.results.explanation import Explanation


def explanation_view(explanation: Explanation) -> Group:
    """Every value with its coloured text; of a single one also the table of its tokens."""
    shown: list[RenderableType] = []
    for target in range(len(explanation.targets)):
        shown += [Text(heading(explanation, target), style="bold"), _coloured(explanation, target)]
        predicted = _predictions(explanation, target)
        shown += [predicted, Text("")] if predicted is not None else [Text("")]
    if explanation.sinks:
        shown += [Text(sink_note(explanation), style="dim"), Text("")]
    if len(explanation.targets) == 1:
        shown.append(_table(explanation, 0))
    elif explanation.adds_up:
        shown.append(Text(f"conservation error {explanation.completeness:.1e}"))
    return Group(*shown)


class _Colours:
    """The colours of the shares of one value."""

    def __init__(self, explanation: Explanation, target: int) -> None:
        values = np.nan_to_num(explanation.shares.values[target])[None]
        self.colours = DIVERGING if explanation.signed else SEQUENTIAL
        self.norm = (diverging_norm if explanation.signed else sequential_norm)(values, None, "linear")

    def style(self, value: float) -> Style:
        if not np.isfinite(value):
            return Style(dim=True)
        colour = self.colours(self.norm(value))
        return Style(color=ink_on(colour), bgcolor=to_hex(colour))


def _coloured(explanation: Explanation, target: int) -> Text:
    shares = explanation.shares.isel(target=target)
    colours, text = _Colours(explanation, target), Text()
    groups = shares["token_group"].values
    running = pieces(shares["token_token"].values.tolist(), shares["token_special"].values.tolist())
    for place, (piece, value) in enumerate(zip(running, shares.values.tolist(), strict=True)):
        if place and groups[place] != groups[place - 1]:
            text.append("\n")
        elif piece.spaced:
            text.append(" ")
        text.append(piece.text, colours.style(value))
    return text


def _predictions(explanation: Explanation, target: int) -> Text | None:
    ranked = explanation.top_predictions(target)
    if not ranked:
        return None
    listed = ", ".join(f"{name_of(name)} {probability:.1%}" for name, probability in ranked)
    of = explanation.probabilities_of
    return Text(f"The model predicts {listed}{f' ({of})' if of else ''}", style="dim")


def _table(explanation: Explanation, target: int) -> Table:
    """Tokens with their shares, and how they add up."""
    shares, colours = explanation.shares.isel(target=target), _Colours(explanation, target)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("position", justify="right")
    table.add_column("token", no_wrap=True)
    table.add_column(meaning(explanation), justify="right", no_wrap=True)
    for name, position, value in zip(
        token_names(explanation), shares["token_position"].values, shares.values.tolist(), strict=True
    ):
        number = Text(f"{value:+.4f}" if np.isfinite(value) else "", colours.style(value))
        table.add_row(str(position), Text(name), number)
    table.add_section()
    for name, value in sums(explanation, target):
        table.add_row("", Text(name, style="bold"), Text(value, style="bold"))
    return table
