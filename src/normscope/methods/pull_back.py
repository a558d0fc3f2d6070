"""The pull-back: the exact attribution of a logit through all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import xarray as xr

from normscope.capture import LONG
from normscope.chain.packing import CannotPackError
from normscope.explain.batch import can_batch, groups, pull_back_batch
from normscope.explain.pulling import Pulled, PullRequest, pull_back
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
        asked = self._with_weights(asked)
        model, sequence, question = asked.model, asked.sequence, asked.question
        request = asked.request if asked.request.edges is not None else _with_edges(asked)
        followed = request.edges or request.head_edges
        if not followed and isinstance(question, LogitQuestion) and is_streamed(model, sequence, request):
            pulled = pull_back_long(model, sequence, question, request)
        else:
            pulled = pull_back(model, sequence, question, request)
        return self._tree(asked, pulled)

    def explain_all(self, asked: Sequence[Asked]) -> list[xr.DataTree]:
        """Short inputs together, and the others one by one."""
        trees, asked = dict[int, xr.DataTree](), [self._with_weights(each) for each in asked]
        for places in groups([each.sequence for each in asked]):
            together = [asked[place] for place in places]
            batch = self._batch(together) if len(places) > 1 else None
            trees |= zip(places, map(self.explain, together) if batch is None else batch, strict=True)
        return [trees[place] for place in range(len(asked))]

    def _batch(self, asked: Sequence[Asked]) -> list[xr.DataTree] | None:
        """The same of inputs that are explained together, if they can be."""
        first, request = asked[0], _with_edges(asked[0]) if asked[0].request.edges is None else asked[0].request
        if not all(can_batch(each.model, each.question, request) for each in asked):
            return None
        sequences, questions = [each.sequence for each in asked], [each.question for each in asked]
        try:
            pulled = pull_back_batch(first.model, sequences, questions, request)
        except CannotPackError:
            return None
        return [self._tree(*pair) for pair in zip(asked, pulled, strict=True)]

    def _with_weights(self, asked: Asked) -> Asked:
        if not self.weights:
            return asked
        return replace(asked, request=replace(asked.request, weights=weights_of(self.weights)))

    def _tree(self, asked: Asked, pulled: Pulled) -> xr.DataTree:
        predictions = predictions_of(asked.model, asked.question, pulled.logits, pulled.answers)
        return explanation_tree(pulled, asked.sequence, facts_of(self, asked), predictions)


def _with_edges(asked: Asked) -> PullRequest:
    """Edges are kept unless the input is long: they have a number for every layer, query and key."""
    longest = max(len(asked.sequence), len(asked.sequence.target or ()))
    return replace(asked.request, edges=longest < LONG)
