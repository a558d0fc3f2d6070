"""Similarities as a page without scripts: both texts coloured by what their tokens do, and the table between them.

Every text is escaped; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader
from matplotlib.colors import to_hex

from normscope.output.similarity_terminal import heading
from normscope.plots.style import DIVERGING, diverging_norm, ink_on
from normscope.results.files import replacing
from normscope.results.tokens import labels, pieces

if TYPE_CHECKING:
    from normscope.results.similarity import Similarity

_MOST_CELLS = 100_000


def write_similarity_page(similarities: Sequence[Similarity], path: str | Path) -> Path:
    """Write the page of one similarity, or of several in their order."""
    views = [_view(each) for each in similarities]
    facts = similarities[0].attrs
    page = (
        _environment()
        .get_template("similarity.html")
        .render(title=f"Why {facts['model']} finds these similar", views=views, facts=facts)
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")  # a lone surrogate cannot be written
    return Path(path)


@cache
def _environment() -> Environment:
    return Environment(loader=PackageLoader("normscope.output"), autoescape=True, trim_blocks=True, lstrip_blocks=True)


def _view(similarity: Similarity) -> dict[str, Any]:
    """What the page shows of one similarity."""
    return {
        "heading": heading(similarity),
        "error": f"{similarity.completeness:.1e}",
        "sides": [_side(similarity, side) for side in ("first", "second")],
        "table": _table(similarity),
    }


def _side(similarity: Similarity, side: str) -> list[dict[str, Any]]:
    dataset, shares = similarity.dataset, getattr(similarity, side).values
    colour = _colours(shares)
    running = pieces(dataset[f"{side}_token"].values.tolist(), dataset[f"{side}_special"].values.tolist())
    return [
        {"text": piece.text, "spaced": piece.spaced, "value": f"{value:+.4f}", **colour(value)}
        for piece, value in zip(running, shares.tolist(), strict=True)
    ]


def _table(similarity: Similarity) -> dict[str, Any] | None:
    """The cells with margins and constant; `None` without a table, and where it would make the page heavy."""
    if not similarity.has_table or similarity.table.size > _MOST_CELLS:
        return None
    cells = similarity.to_pandas()
    colour = _colours(similarity.table.values)
    rows = zip(labels(cells.index), cells.to_numpy().tolist(), strict=True)
    return {
        "columns": labels(cells.columns),
        "rows": [
            {"name": name, "cells": [{"value": f"{value:+.3f}", **colour(value)} for value in values]}
            for name, values in rows
        ],
    }


def _colours(values: np.ndarray) -> Any:
    """A function from a share to its background and ink."""
    norm = diverging_norm(np.atleast_2d(values), None, "linear")

    def colour(value: float) -> dict[str, str]:
        shown = DIVERGING(norm(value))
        return {"background": to_hex(shown), "ink": ink_on(shown)}

    return colour
