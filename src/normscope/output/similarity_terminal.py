"""Similarities on a terminal: the value and how it adds up, the strongest cells, and the share of every token.

Makes rich renderables; only `show_similarities` prints. Tokens go in as plain text, so that nothing in them is read as
markup, and every number is printed, so piped output has all that colours show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from normscope.output.colours import number_style
from normscope.plots.style import diverging_norm
from normscope.results.tokens import labels

if TYPE_CHECKING:
    from normscope.results.similarity import Similarity

_CELLS, _CELLS_OF_A_HIT, _EXCERPT, _PATCHES = 8, 3, 70, 12


def show_similarities(similarities: Sequence[Similarity], console: Console | None = None) -> None:
    """Print one similarity in full, or several as a ranking."""
    (console or Console(highlight=False)).print(similarity_view(similarities))


def similarity_view(similarities: Sequence[Similarity]) -> Group:
    """One similarity in full, or several with their strongest cells."""
    if len(similarities) != 1:
        return Group(*(part for rank, each in enumerate(similarities, 1) for part in _hit(rank, each)))
    (similarity,) = similarities
    shown: list[RenderableType] = [Text(heading(similarity), style="bold"), Text("")]
    if similarity.has_table:
        shown += [_cells(similarity, _CELLS), Text("")]
    shown += [_tokens(similarity, "first"), Text(""), _tokens(similarity, "second"), Text("")]
    return Group(*shown, Text(f"completeness error {similarity.completeness:.1e}"))


def heading(similarity: Similarity) -> str:
    """The value, and how it adds up."""
    value = f"{similarity.measure} {similarity.value:.4f}"
    value += "" if similarity.logit is None else f" (logit {similarity.logit:.4f})"
    if not similarity.has_table:
        return f"{value} = tokens {_signed(similarity.value - similarity.first_bias)}, bias {_signed(similarity.first_bias)}"
    margins = [float(each.sum()) for each in (similarity.first_margin, similarity.second_margin)]
    return (
        f"{value} = pairs of tokens {_signed(float(similarity.table.sum()))}, margins {_signed(margins[0])} and "
        f"{_signed(margins[1])}, constant {_signed(similarity.constant)}"
    )


def _signed(value: float) -> str:
    return f"{value:+.4f}"


def _cells(similarity: Similarity, count: int) -> Table:
    """The strongest cells, and the part of all cells that each is."""
    table = _columns("first", "second", f"{similarity.measure} of the pair", "share of all pairs")
    style, total = _styles(similarity.table.values), float(np.abs(similarity.table.values).sum())
    first, second = (token_names(similarity, side) for side in ("first", "second"))
    for cell in similarity.top(count):
        number = Text(_signed(cell.value), style(cell.value))
        share = f"{abs(cell.value) / total:.1%}" if total else ""
        table.add_row(first[cell.first_position], second[cell.second_position], number, share)
    return table


def _tokens(similarity: Similarity, side: str) -> Table:
    """The share of every token of one text, and its strongest partner."""
    shares, names = getattr(similarity, side).values, token_names(similarity, side)
    partners = _partners(similarity, side)
    kind = "text" if similarity.patches(side) is None else "image"
    table = _columns(f"{side} {kind}", "does", *(["most with", ""] if partners else []), numbers=(1, 3))
    style = _styles(shares)
    shown = _shown(similarity, side, shares)
    for index in shown:
        value, name = float(shares[index]), names[index]
        prompt = bool(similarity.dataset[f"{side}_prompt"].values[index])
        row = [Text(f"{name} (prompt)" if prompt else name), Text(_signed(value), style(value))]
        table.add_row(*row, *(partners[index] if partners else ()))
    others = len(shares) - len(shown)
    if others:
        table.add_row(f"{others} other patches", _signed(float(shares.sum() - shares[shown].sum())))
    table.add_section()
    table.add_row("bias", Text(_signed(getattr(similarity, f"{side}_bias")), "bold"))
    return table


def token_names(similarity: Similarity, side: str) -> list[str]:
    """The tokens of one side as labels; patches of an image by row and column."""
    names, patches = labels(getattr(similarity, f"{side}_tokens")), similarity.patches(side)
    if patches is None:
        return names
    return [name if row < 0 else f"patch {name}" for name, (row, _) in zip(names, patches.tolist(), strict=True)]


def _shown(similarity: Similarity, side: str, shares: np.ndarray) -> list[int]:
    """All tokens of a text; for an image, those with the largest shares, in their order."""
    if similarity.patches(side) is None:
        return list(range(len(shares)))
    return np.argsort(-np.abs(shares), kind="stable")[:_PATCHES].tolist()


def _partners(similarity: Similarity, side: str) -> list[tuple[str, str]]:
    """For every token of one text, the token of the other with which its cell is largest."""
    if not similarity.has_table:
        return []
    cells = similarity.table.values if side == "first" else similarity.table.values.T
    others = token_names(similarity, "second" if side == "first" else "first")
    best = np.abs(cells).argmax(1)
    return [(others[index], _signed(float(row[index]))) for row, index in zip(cells, best, strict=True)]


def _hit(rank: int, similarity: Similarity) -> list[RenderableType]:
    """One of several: its rank, its value, its text and its strongest cells in a line."""
    text = " ".join(similarity.texts[1].split())
    text = text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "\u2026"
    first = Text.assemble((f"{rank}. {similarity.measure} {similarity.value:.4f}", "bold"), f"  {text}")
    if not similarity.has_table:
        return [first]
    cells = similarity.top(_CELLS_OF_A_HIT)
    names = [token_names(similarity, side) for side in ("first", "second")]
    named = [
        f"{names[0][cell.first_position]} - {names[1][cell.second_position]} {_signed(cell.value)}" for cell in cells
    ]
    return [first, Text(f"   {', '.join(named)}", style="dim")]


def _columns(*names: str, numbers: Sequence[int] = (2, 3)) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, name in enumerate(names):
        table.add_column(name, justify="right" if index in numbers else "left", no_wrap=True)
    return table


def _styles(values: np.ndarray):
    """A function from a number to its colours."""
    norm = diverging_norm(np.atleast_2d(values), None, "linear")

    def style(value: float) -> Style:
        return number_style(norm(value), signed=True)

    return style
