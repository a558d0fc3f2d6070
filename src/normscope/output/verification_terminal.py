"""Edges that were cut in the real model, as a table on the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from normscope.results.tokens import labels, name_of
from normscope.results.verification import Verification


def verification_view(verified: Verification) -> RenderableType:
    """Each edge with the change that was predicted and the one that was observed, and both for all edges together."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    title = f"\nCut in the model: one key's value for one query, and how {name_of(verified.target)} changes\n"
    names = labels(verified.tokens)
    for heading in ("layer", "from", "to"):
        table.add_column(heading, justify="right" if heading == "layer" else "left")
    for heading in ("predicted", "observed"):
        table.add_column(heading, justify="right")
    for edge, predicted, observed in zip(verified.edges, verified.predicted, verified.observed, strict=True):
        tokens = (f"{names[place]} ({place})" for place in (edge.key, edge.query))
        table.add_row(str(edge.layer), *map(Text, tokens), f"{predicted:+.3f}", f"{observed:+.3f}")
    table.add_row("", "all together", "", *(f"{change:+.3f}" for change in verified.together))
    correlation = f"\nCorrelation of predicted and observed: {verified.correlation:.2f}"
    return Group(Text(title), table, Text(correlation, "dim"))
