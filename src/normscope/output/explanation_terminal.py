"""An explanation in words and a few numbers, as pictures, tables and pages say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_hex
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from normscope.plots.style import DIVERGING, SEQUENTIAL, diverging_norm, ink_on, sequential_norm
from normscope.results.tokens import labels, name_of, pieces

if TYPE_CHECKING:
    from normscope.results.explanation import Explanation


def meaning(explanation: Explanation) -> str:
    """What a share is."""
    logit = "centred logit" if explanation.attrs.get("objective") == "centred" else "logit"
    return f"share of the {logit}" if explanation.quantity == "logit" else explanation.quantity


def heading(explanation: Explanation, target: int) -> str:
    """What is explained, how it adds up, and by which method."""
    value = explanation.values[target]
    shown = f"{name_of(explanation.targets[target])}: {value:.2f}"
    if explanation.adds_up:
        bias = explanation.biases[target]
        shown += f" = tokens {_signed(value - bias)} and bias {_signed(bias)}"
    return f"{shown}   ({explanation.method})"


SINK = "attention sink"
"""How a token is called that gets much of the attention whatever it says."""


def token_names(explanation: Explanation) -> list[str]:
    """The tokens as tables call them: sinks are named as such."""
    names = labels(explanation.tokens)
    return [f"{name} ({SINK})" if place in explanation.sinks else name for place, name in enumerate(names)]


def sink_note(explanation: Explanation) -> str:
    """What a reader has to know of the sinks, in a sentence; empty without any."""
    if not explanation.sinks:
        return ""
    named = ", ".join(f'"{name_of(explanation.tokens[place])}"' for place in explanation.sinks)
    are = f"is an {SINK}" if len(explanation.sinks) == 1 else f"are {SINK}s"
    return (
        f"{named} {are}: much attention goes there whatever the token is, so a large share tells little about the word."
    )


def sums(explanation: Explanation, target: int) -> list[tuple[str, str]]:
    """The bias, the sum, the model's own value and how far the two are apart, where shares are meant to add up; what sinks
    and other tokens put in, where there are any."""
    value = explanation.values[target]
    if not explanation.adds_up:
        return [("value", f"{value:+.4f}")]
    bias = explanation.biases[target]
    shares = np.nan_to_num(explanation.shares.isel(target=target).values)
    total, parked = float(shares.sum()) + bias, float(shares[explanation.sinks].sum())
    apart = [(f"{SINK}s", f"{parked:+.4f}"), ("other tokens", f"{total - bias - parked:+.4f}")]
    return [
        *(apart if explanation.sinks else []),
        ("bias", f"{bias:+.4f}"),
        ("sum", f"{total:+.4f}"),
        ("the model's own value", f"{value:+.4f}"),
        ("conservation error", f"{explanation.completeness:.1e}"),
    ]


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\u2212")


# ---- An explanation on a terminal: the text on diverging colours, a table of the tokens' shares, and what the model
# predicts.
#
# Makes rich renderables and prints nothing. Tokens go in as plain text, so that nothing in them is read as markup.


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
