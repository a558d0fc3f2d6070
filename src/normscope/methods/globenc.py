"""GlobEnc (Modarressi et al. 2022): norms of the parts through the whole block, with the feed-forward's output left out.

Its residual and the norm after it still act, with the deviation of the model's own state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from normscope.chain.measure import AnyMeasure
from normscope.chain.trace import FeedForward, Fork, LayerTrace, OwnFeedForward, Residual
from normscope.decompose import decompose
from normscope.methods import declared
from normscope.methods.layer import LayerMethod, MapRequest, refuse_options
from normscope.methods.maps import LayerMaps, MapMeasure
from normscope.scopes import Scope, scopes_of


@dataclass(frozen=True)
class GlobEncMaps(MapMeasure):
    """Norm maps of every layer without its feed-forward."""

    quantity: ClassVar[str] = "norm"

    def of_layer(self, trace: LayerTrace) -> LayerMaps:
        first, last = _branch(trace)
        fork = trace.steps[first]
        around = fork.around if isinstance(fork, Fork) else ()
        left = replace(
            trace,
            steps=(*trace.steps[:first], *around, *trace.steps[last:]),
            # After the branch the model's own states hold what is left out here, so that there is nothing to compare with.
            states=(*trace.states[:first], *[None] * len((*around, *trace.states[last:]))),
        )
        scope = scopes_of(left.components, weights=False)[-1]
        result = decompose(left, [scope])
        return LayerMaps({_scope(trace, first, last): result.maps[scope]}, errors=result.errors)


def _branch(trace: LayerTrace) -> tuple[int, int]:
    """The steps of the feed-forward's branch, from its fork to its residual; if it is parallel, its own step alone."""
    place = next(index for index, step in enumerate(trace.steps) if isinstance(step, FeedForward))
    if isinstance(trace.steps[place], OwnFeedForward):
        return place, place + 1
    fork = max(index for index, step in enumerate(trace.steps[:place]) if isinstance(step, Fork))
    residual = next(index for index in range(place, len(trace.steps)) if isinstance(trace.steps[index], Residual))
    return fork, residual + 1


def _scope(trace: LayerTrace, first: int, last: int) -> Scope:
    """The components without those of the branch, but with the residual around it: `AttnResLnResLn` for BERT."""
    kept: Sequence[str] = [
        step.name
        for index, step in enumerate(trace.steps)
        if step.name and (not first <= index < last or isinstance(step, Residual))
    ]
    return Scope.of(kept)


@dataclass(frozen=True)
class GlobEnc(declared.GlobEnc, LayerMethod):
    def measures(self, request: MapRequest) -> list[AnyMeasure]:
        refuse_options(self, request)
        return [GlobEncMaps()]
