"""An explanation on a terminal: the text on diverging colours, a table of the tokens' shares, and what the model predicts.

Makes rich renderables and prints nothing. Tokens go in as plain text, so that nothing in them is read as markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from normscope.output.colours import number_style
from normscope.plots.style import diverging_norm, sequential_norm
from normscope.results.explanation_words import (
    beginnings,
    cancellation_note,
    heading,
    meaning,
    shares_of,
    sink_note,
    sums,
    token_names,
    without_sinks,
)
from normscope.results.tokens import labels, name_of, pieces

if TYPE_CHECKING:
    from normscope.results.explanation import Explanation
    from normscope.results.verification import Verification


TOP = 15
"""How many tokens are listed if nothing else is requested."""


def explanation_view(explanation: Explanation, top: int = TOP) -> Group:
    """Every value with its coloured text, and the strongest tokens as numbers; for several values, the sums over all of
    them."""
    parts: list[RenderableType] = []
    for target in range(len(explanation.targets)):
        parts += [Text(heading(explanation, target), style="bold"), _coloured(explanation, target)]
        predicted = _predictions(explanation, target)
        parts += [predicted, Text("")] if predicted is not None else [Text("")]
    if explanation.sinks:
        parts += [Text(sink_note(explanation), style="dim"), Text("")]
    cancelling = cancellation_note(explanation, range(len(explanation.targets)))
    if cancelling:
        parts += [Text(cancelling, style="dim"), Text("")]
    several = len(explanation.targets) > 1
    if several:
        parts.append(Text(f"Sum over all {len(explanation.targets)} values", style="bold"))
    return Group(*parts, _table(explanation, None if several else 0, top))


_SINK = Style(dim=True, underline=True)
"""The style of an attention sink, whose share has no colour."""


class _Colours:
    """The colours of shares of one value, or of sums over values."""

    def __init__(self, explanation: Explanation, shares: np.ndarray) -> None:
        self.signed = signed = explanation.signed
        values = without_sinks(explanation, shares)
        self.norm = (diverging_norm if signed else sequential_norm)(np.nan_to_num(values)[None], None, "linear")

    def style(self, value: float) -> Style:
        if not np.isfinite(value):
            return Style(dim=True)
        return number_style(self.norm(value), signed=self.signed)


def _coloured(explanation: Explanation, target: int) -> Text:
    shares = explanation.shares.isel(target=target)
    colours, text = _Colours(explanation, shares.values), Text()
    sinks = set(explanation.sinks)
    starts = beginnings(shares)
    running = pieces(shares["token_token"].values.tolist(), shares["token_special"].values.tolist())
    for index, (piece, value) in enumerate(zip(running, shares.values.tolist(), strict=True)):
        if index in starts:
            text.append("\n")
        elif piece.spaced:
            text.append(" ")
        text.append(piece.text, _SINK if index in sinks else colours.style(value))
    return text


def _predictions(explanation: Explanation, target: int) -> Text | None:
    ranked = explanation.top_predictions(target)
    if not ranked:
        return None
    listed = ", ".join(f"{name_of(name)} {probability:.1%}" for name, probability in ranked)
    of = explanation.probabilities_of
    return Text(f"The model predicts {listed}{f' ({of})' if of else ''}", style="dim")


def _table(explanation: Explanation, target: int | None, top: int) -> Table:
    """The strongest tokens in the order of the text, the others as one row, sinks separately, and how all of them add
    up."""
    shares = shares_of(explanation, target)
    colours, sinks = _Colours(explanation, shares.values), explanation.sinks
    names, positions, values = token_names(explanation), shares["token_position"].values, shares.values
    ranked = np.argsort(-np.abs(np.nan_to_num(values)), kind="stable")
    order = ranked[~np.isin(ranked, sinks)]
    kept, others = np.sort(order[:top]), order[top:]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("position", justify="right")
    table.add_column(str(explanation.attrs.get("unit", "token")), no_wrap=True)
    table.add_column(meaning(explanation), justify="right", no_wrap=True)
    for index in kept.tolist():
        value = float(values[index])
        number = Text(f"{value:+.4f}" if np.isfinite(value) else "", colours.style(value))
        table.add_row(str(positions[index]), Text(names[index]), number)
    if len(others):
        rest = float(np.nan_to_num(values)[others].sum())
        table.add_row("", Text(f"{len(others)} weaker ones", style="dim"), Text(f"{rest:+.4f}", style="dim"))
    for index in sinks:
        share = f"{values[index]:+.4f}" if np.isfinite(values[index]) else ""
        table.add_row(str(positions[index]), Text(names[index], style="dim"), Text(share, style="dim"))
    table.add_section()
    for name, value in sums(explanation, target):
        table.add_row("", Text(name, style="bold"), Text(value, style="bold"))
    return table


# ---- Edges that were cut in the real model.

_COUNTED = (
    "\nPredicted with attention weights as they were. The share is that of the edge in the explanation (weights={}): a cut "
    "removes the whole product of weight and value, of which the share is a part."
)


def verification_view(verified: Verification) -> RenderableType:
    """Each edge with the change that was predicted and the one that was observed, and both for all edges together."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    title = f"\nCut in the model: one key's value for one query, and how {name_of(verified.target)} changes\n"
    names = labels(verified.tokens)
    for column in ("layer", "from", "to"):
        table.add_column(column, justify="right" if column == "layer" else "left")
    counted = verified.explained.counts_weights
    for column in ("share", "predicted", "observed") if counted else ("predicted", "observed"):
        table.add_column(column, justify="right")
    for edge, share, *changes in zip(
        verified.edges, verified.explained.shares, verified.predicted, verified.observed, strict=True
    ):
        tokens = (f"{names[index]} ({index})" for index in (edge.key, edge.query))
        numbers = [share, *changes] if counted else changes
        table.add_row(str(edge.layer), *map(Text, tokens), *(f"{number:+.3f}" for number in numbers))
    table.add_row(
        "", "all together", "", *([""] if counted else []), *(f"{change:+.3f}" for change in verified.together)
    )
    correlation = f"\nCorrelation of predicted and observed: {verified.correlation:.2f}"
    note = _COUNTED.format(verified.explained.weights) if counted else ""
    return Group(Text(title), table, Text(correlation + note, "dim"))
