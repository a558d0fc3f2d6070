"""Several short sequences as one: the traces of a layer side by side, with attention within each sequence only.

What holds for every trace holds for the packed one (its components, its proof, the way back through it), and nothing passes
from one sequence to another, so that one walk along the chain serves all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from normscope.chain.trace import (
    Expert,
    LayerTrace,
    Linear,
    Normalise,
    OwnFeedForward,
    SelfAttention,
    SequentialFeedForward,
    Transformation,
    ValueSource,
    map_components,
)


class CannotPackError(Exception):
    """Traces that cannot be packed: experts for some tokens, attention that is gated or looks at another sequence."""


def pack(traces: Sequence[LayerTrace]) -> LayerTrace:
    """The traces of one layer, for all queries of each sequence, as the trace of one sequence."""
    first = traces[0]
    return replace(
        first,
        hidden=torch.cat([trace.hidden for trace in traces]),
        queries=torch.arange(sum(trace.length for trace in traces), device=first.queries.device),
        steps=map_components(_packed, *(trace.steps for trace in traces)),
        states=tuple(_side_by_side(states, 0) for states in zip(*(trace.states for trace in traces), strict=True)),
        length=sum(trace.length for trace in traces),
    )


def _packed(*steps: Transformation) -> Transformation:
    match steps[0]:
        case Normalise():
            return _norm([each for each in steps if isinstance(each, Normalise)])
        case SelfAttention():
            return _attention([each for each in steps if isinstance(each, SelfAttention)])
        case SequentialFeedForward() as step:
            return replace(step, experts=_network([each for each in steps if isinstance(each, SequentialFeedForward)]))
        case OwnFeedForward() as step:
            own = [each for each in steps if isinstance(each, OwnFeedForward)]
            norms = [each.norm for each in own if each.norm is not None]
            hidden = torch.cat([each.hidden for each in own])
            return replace(step, experts=_network(own), hidden=hidden, norm=_norm(norms) if norms else None)
        case _:
            raise CannotPackError


def _norm(steps: Sequence[Normalise]) -> Normalise:
    return replace(steps[0], state_before=torch.cat([each.state_before for each in steps]))


def _attention(steps: Sequence[SelfAttention]) -> SelfAttention:
    first = steps[0]
    if any(each is not None for each in (first.scores, first.gating, first.beside)):
        raise CannotPackError
    sources = [each.source for each in steps if each.source is not None]
    norm = first.norm
    if norm is not None:
        deviations = [each.norm.deviations for each in steps if each.norm is not None]
        norm = replace(norm, deviations=torch.cat(deviations, 1))
    return replace(
        first,
        weights=torch.stack(
            [torch.block_diag(*heads) for heads in zip(*(each.weights for each in steps), strict=True)]
        ),
        values=torch.cat([each.values for each in steps], 1),
        source=_source(sources) if sources else None,
        gates=_side_by_side([each.gates for each in steps], 1),
        norm=norm,
    )


def _source(sources: Sequence[ValueSource]) -> ValueSource:
    if any(source.limit != sources[0].limit for source in sources):
        raise CannotPackError
    steps: list[Normalise | Linear] = []
    for each in zip(*(source.steps for source in sources), strict=True):
        norms = [step for step in each if isinstance(step, Normalise)]
        steps.append(_norm(norms) if norms else each[0])
    return replace(
        sources[0],
        states=torch.cat([source.states for source in sources]),
        steps=tuple(steps),
        slopes=_side_by_side([source.slopes for source in sources], 1),
        offset=_side_by_side([source.offset for source in sources], 1),
    )


def _network(steps: Sequence[SequentialFeedForward] | Sequence[OwnFeedForward]) -> tuple[Expert]:
    """The network of all tokens."""
    experts = [expert for step in steps for expert in step.experts]
    if len(experts) != len(steps):
        raise CannotPackError
    return (
        replace(
            experts[0],
            rows=torch.arange(sum(len(each.rows) for each in experts), device=experts[0].rows.device),
            weights=torch.cat([each.weights for each in experts]),
            pre_activations=tuple(
                torch.cat(each) for each in zip(*(expert.pre_activations for expert in experts), strict=True)
            ),
            scales=_side_by_side([each.scales for each in experts], 0),
        ),
    )


def _side_by_side(tensors: Sequence[Tensor | None], dim: int) -> Tensor | None:
    known = [each for each in tensors if each is not None]
    return torch.cat(known, dim) if known else None
