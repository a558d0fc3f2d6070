"""The pull-back: the exact attribution of a logit through all layers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import xarray as xr

from normscope.capture import LONG
from normscope.explain.pulling import PullRequest, pull_back
from normscope.explain.question import LogitQuestion
from normscope.explain.streaming import is_streamed, pull_back_long
from normscope.explain.task import Asked, predictions_of
from normscope.methods import declared
from normscope.methods.prediction import Attribution, facts_of
from normscope.options import weights_of
from normscope.results.explanation_schema import explanation_tree


@dataclass(frozen=True)
class PullBack(declared.PullBack, Attribution):
    """The exact attribution of a logit through all layers."""

    through_slopes = True

    def explain(self, asked: Asked) -> xr.DataTree:
        if self.weights:
            asked = replace(asked, request=replace(asked.request, weights=weights_of(self.weights)))
        model, sequence, question = asked.model, asked.sequence, asked.question
        request = asked.request if asked.request.edges is not None else _with_edges(asked)
        followed = request.edges or request.head_edges
        if not followed and isinstance(question, LogitQuestion) and is_streamed(model, sequence, request):
            pulled = pull_back_long(model, sequence, question, request)
        else:
            pulled = pull_back(model, sequence, question, request)
        predictions = predictions_of(model, question, pulled.logits, pulled.answers)
        return explanation_tree(pulled, sequence, facts_of(self, asked), predictions)


def _with_edges(asked: Asked) -> PullRequest:
    """Edges are kept unless the input is long: they have a number for every layer, query and key."""
    longest = max(len(asked.sequence), len(asked.sequence.target or ()))
    return replace(asked.request, edges=longest < LONG)
