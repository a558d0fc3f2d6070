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
    counted = verified.explained.counts_weights
    for heading in ("share", "predicted", "observed") if counted else ("predicted", "observed"):
        table.add_column(heading, justify="right")
    for edge, share, *changes in zip(
        verified.edges, verified.explained.shares, verified.predicted, verified.observed, strict=True
    ):
        tokens = (f"{names[place]} ({place})" for place in (edge.key, edge.query))
        numbers = [share, *changes] if counted else changes
        table.add_row(str(edge.layer), *map(Text, tokens), *(f"{number:+.3f}" for number in numbers))
    table.add_row(
        "", "all together", "", *([""] if counted else []), *(f"{change:+.3f}" for change in verified.together)
    )
    correlation = f"\nCorrelation of predicted and observed: {verified.correlation:.2f}"
    note = _COUNTED.format(verified.explained.weights) if counted else ""
    return Group(Text(title), table, Text(correlation + note, "dim"))


_COUNTED = (
    "\nPredicted with attention weights as they were. The share is what the explanation gives the edge (weights={}): a cut "
    "takes away all that weight and value make together, of which that is a part."
)
