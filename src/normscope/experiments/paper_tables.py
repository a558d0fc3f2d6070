"""Results as the papers print them: a table of text with a column for each component or scope, standard errors below the
means, and the row of the paper, which is named, below those."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rich import box
from rich.table import Table as TextTable
from rich.text import Text

from normscope.experiments import published_values as values
from normscope.experiments.base import RunFacts
from normscope.experiments.published import paper_of_model
from normscope.models.source import short_name
from normscope.scopes import scopes_of

ERROR = "standard error"
DIM = "dim"
_CHAIN = tuple(scopes_of(("Attn", "Res", "Ln", "Ff", "Res", "Ln")))
"""The scopes of the papers' models."""


class PaperTable:
    """A table that rows are added to."""

    def __init__(self, title: str, labels: Sequence[str], columns: Iterable[str]) -> None:
        self.text = TextTable(box=box.SIMPLE, pad_edge=False, title=Text(title), title_justify="left")
        for label in labels:
            self.text.add_column(label, overflow="fold")
        for column in columns:
            self.text.add_column(Text(column), justify="right", no_wrap=True)

    def add(self, labels: Sequence[str], numbers: Iterable[float | None], form: str, style: str = "") -> None:
        """A row: its labels, and its numbers as `form` has them; one that is missing is an empty cell."""
        cells = ["" if number is None or np.isnan(number) else form.format(number) for number in numbers]
        self.text.add_row(*(Text(cell) for cell in (*labels, *cells)), style=style)


def model_label(facts: RunFacts) -> str:
    """What a row of the run is called: its model, with the stack that is looked at."""
    return f"{short_name(facts.model.name)}{f' ({facts.model.stack})' if facts.model.stack else ''}"


def nearest_row(facts: RunFacts, rows: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """The published row (model, corpus) to show beside a run: its own model's and corpus's, or else that of BERT-base on
    Wikipedia. Beside a chain of other components there is none."""
    if tuple(facts.model.scopes) != _CHAIN:
        return None
    known, model = set(rows), paper_of_model(facts.model).model
    candidates = ((model, facts.corpus), (model, values.WIKIPEDIA))
    return next((each for each in candidates if each in known), ("bert-base", values.WIKIPEDIA))


def row_label(row: tuple[str, str], paper: str) -> str:
    """What a published row is called."""
    return f"{paper}: {row[0]}, {row[1]}"
