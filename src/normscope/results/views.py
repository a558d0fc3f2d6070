"""The views of a result: the functions that draw, write and explore it, imported by name on first use.

Results lie below `output`, `plots` and `explorer`, which take results as arguments. The methods `plot`, `save` and `explore`
are shorthands for functions there, so a result knows them only by name, as pandas knows its plotting backends.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

from normscope.errors import require_extra

View = Literal[
    "plots:plot_map",
    "plots:plot_tokens",
    "plots:plot_image_map",
    "plots:plot_explanation",
    "plots:plot_flow",
    "plots:plot_answer",
    "output.answer_export:export_answer",
    "output.answer_terminal:show_spans",
    "plots:plot_similarity",
    "output.export:export_analysis",
    "output.explanation_export:export_explanation",
    "output.explanation_page:fragment",
    "output.show:show",
    "output.similarity_export:export_similarities",
    "explorer.page:frame",
    "results.opening:open",
    "results.frames:map_frame",
    "results.frames:top_cells",
    "results.frames:attribution_frame",
    "results.frames:top_tokens",
    "results.frames:edge_frame",
    "results.frames:top_edges",
    "results.frames:cut_frame",
]


def view(name: View) -> Callable[..., Any]:
    """The function of a name, `module:function` inside of normscope."""
    module, _, function = name.partition(":")
    return getattr(import_module(f"normscope.{module}"), function)


def widget(*results: object) -> object:
    """The explorer of results as a notebook widget, which needs the extra `notebook`."""
    require_extra("notebook", "The widget", "anywidget")
    return import_module("normscope.explorer.widget").ExplorerWidget(*results)
