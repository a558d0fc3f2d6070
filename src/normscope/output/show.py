"""`show`: any result, as the explorer in a notebook and as coloured text on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from normscope.options import also_spelled, check_keywords
from normscope.results.analysis import Analysis
from normscope.results.answer import Answer
from normscope.results.base import Result
from normscope.results.explanation import Explanation
from normscope.results.select import select_map
from normscope.results.similarity import Similarity

if TYPE_CHECKING:
    from rich.console import RenderableType

_OPTIONS: dict[type[Result], tuple[str, ...]] = {
    Analysis: ("scope", "layer", "head", "normalise", "normalize"),
    Answer: ("unit", "count"),
}


def show(result: Result, **options: object) -> None:
    """Show a result in a notebook or on the terminal; with options, which choose what is shown, always as text."""
    check_keywords("show", options, _OPTIONS.get(type(result), ()))
    if not options and _in_notebook():
        from IPython.display import display  # noqa: PLC0415  (only in a notebook)

        display(result)
        return
    console = Console(highlight=False)
    for view in _views(result, console.width, options):
        console.print(view)


def _views(result: Result, width: int, options: dict[str, Any]) -> list[RenderableType]:
    """A result as text, by the module for its kind (imported on use: matplotlib is slow)."""
    match result:
        case Analysis():
            return map_tables(result, width=width, **options)
        case Explanation():
            from normscope.output.explanation_terminal import explanation_view  # noqa: PLC0415

            return [explanation_view(result)]
        case Answer():
            from normscope.output.answer_terminal import answer_view  # noqa: PLC0415

            return [answer_view(result, **options)]
        case Similarity():
            from normscope.output.similarity_terminal import similarity_view  # noqa: PLC0415

            return [similarity_view([result])]
        case _:
            raise TypeError(f"{type(result).__name__} cannot be shown as text")


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
    """A table of every layer requested, by default the last; without the keys that do not exist."""
    from normscope.output.terminal import map_table  # noqa: PLC0415  (matplotlib is slow)

    layers = analysis.layers[-1] if layer is None else layer
    selection = select_map(analysis, scope, layers, head=head, normalised=normalise).without_missing_keys()
    return [map_table(selection, number, width) for number in selection.layers]


def _in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook, which displays the value of a cell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
