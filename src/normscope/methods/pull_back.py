"""The pull-back: the exact attribution of a logit through all layers."""

from __future__ import annotations

from dataclasses import dataclass

import xarray as xr

from normscope.explain.pulling import pull_back
from normscope.explain.task import Asked, predictions_of
from normscope.methods import declared
from normscope.methods.prediction import Attribution, facts_of
from normscope.results.explanation_schema import explanation_tree


@dataclass(frozen=True)
class PullBack(declared.PullBack, Attribution):
    """The exact attribution of a logit through all layers."""

    through_slopes = True

    def explain(self, asked: Asked) -> xr.DataTree:
        model, sequence, question = asked.model, asked.sequence, asked.question
        pulled = pull_back(model, sequence, question, asked.request)
        predictions = predictions_of(model, question, pulled.logits, pulled.answers)
        return explanation_tree(pulled, sequence, facts_of(self, asked), predictions)
