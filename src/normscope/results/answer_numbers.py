"""The numbers of an answer, and the engine that computes those that are missing."""

from __future__ import annotations

import xarray as xr

from normscope.errors import SelectionError
from normscope.explain.answering import AnswerEngine
from normscope.results.answer_schema import TABLE, with_table


class AnswerNumbers:
    """The computed numbers of one answer, shared by the explanations of its parts: the dataset, and the engine for more."""

    def __init__(self, dataset: xr.Dataset, engine: AnswerEngine | None) -> None:
        self.dataset, self.engine = dataset, engine

    def table(self) -> xr.Dataset:
        """The dataset with its table, which is computed once."""
        if TABLE not in self.dataset:
            engine = self.at_hand("The table of all tokens of the answer")
            pulled = engine.spans([[place] for place in range(len(engine.exchange.ids))])
            self.dataset = with_table(self.dataset, pulled, engine.objective)
        return self.dataset

    def at_hand(self, what: str) -> AnswerEngine:
        if self.engine is None:
            raise SelectionError(f"{what} is not in this file. Explain the answer with table=True, and save it again.")
        return self.engine
