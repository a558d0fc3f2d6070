"""`show`: a result where it is asked for, as the explorer in a notebook and as coloured text on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from normscope.options import also_spelled, check_keywords
from normscope.results.analysis import Analysis
from normscope.results.explanation import Explanation
from normscope.results.select import select_map

if TYPE_CHECKING:
    from rich.console import RenderableType

    from normscope.results.base import Result

_OF_MAPS = ("scope", "layer", "head", "normalise", "normalize")


def show(result: Result, **options: Any) -> None:
    """Show a result in a notebook or on the terminal; with options, which choose a map, always as text."""
    check_keywords("show", options, _OF_MAPS if isinstance(result, Analysis) else ())
    if not options and _in_notebook():
        from IPython.display import display  # noqa: PLC0415  (only in a notebook)

        display(result)
        return
    console = Console(highlight=False)
    if isinstance(result, Analysis):
        for table in map_tables(result, width=console.width, **options):
            console.print(table)
    elif isinstance(result, Explanation):
        from normscope.output.explanation_terminal import explanation_view  # noqa: PLC0415  (matplotlib is slow)

        console.print(explanation_view(result))


@also_spelled(normalize="normalise")
def map_tables(
    analysis: Analysis,
    scope: str | None = None,
    layer: int | Sequence[int] | None = None,
    head: int | None = None,
    normalise: str = "none",
    *,
    width: int,
) -> list[RenderableType]:
    """A table of every layer asked for, by default the last; without the keys that do not exist."""
    from normscope.output.terminal import map_table  # noqa: PLC0415  (matplotlib is slow)

    layers = analysis.layers[-1] if layer is None else layer
    selection = select_map(analysis, scope, layers, head=head, normalised=normalise).without_missing_keys()
    return [map_table(selection, number, width) for number in selection.layers]


def _in_notebook() -> bool:
    """Whether this runs in a notebook's kernel, which displays what a cell shows."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
