"""The way from a block's input to its values is watched only on demand."""

from __future__ import annotations

import pytest
import torch
from support.tiny_models import capture_with, tiny, traces

from normscope.chain.trace import Attention, LayerTrace, Normalise, ValueSource

from .samples import SEQUENCES, blocks


@pytest.mark.parametrize("asked", [False, True])
def test_the_way_to_the_values_is_watched_only_where_it_is_asked_for(asked: bool) -> None:
    model = tiny("roberta-prelayernorm")
    attention = blocks(model)[0].attention
    way, hooks, sources = (attention.LayerNorm, attention.self.value), list[int](), list[ValueSource | None]()

    def consume(_layer: int, _sequence: int, trace: LayerTrace) -> None:
        hooks.append(sum(len(module._forward_hooks) for module in way))
        sources.extend(step.source for step in trace.steps if isinstance(step, Attention))

    capture_with(model, SEQUENCES, consume, below_attention=asked)
    assert set(hooks) == {2 if asked else 0}
    assert {source is not None for source in sources} == {asked}
    assert not any(module._forward_hooks for module in way)


def test_a_source_holds_the_norm_and_the_projection_of_the_model() -> None:
    model = tiny("roberta-prelayernorm")
    attention = blocks(model)[0].attention
    (trace, *_) = traces(model, SEQUENCES[:1], below_attention=True).values()
    (source,) = [step.source for step in trace.steps if isinstance(step, Attention)]
    assert source is not None and source.bias is not None
    (norm,) = source.steps
    assert isinstance(norm, Normalise)
    assert torch.equal(norm.norm.weight, attention.LayerNorm.weight)
    assert torch.equal(norm.state_before, source.states)
    assert torch.equal(source.states, trace.hidden)
    assert torch.equal(source.projection.flatten(0, 1), attention.self.value.weight)
    assert torch.equal(source.bias.flatten(), attention.self.value.bias)


def test_a_source_keeps_all_keys_when_queries_are_selected() -> None:
    (trace, *_) = traces(tiny("bert"), SEQUENCES[:1], below_attention=True).values()
    (source,) = [step.source for step in trace.select(torch.tensor([2])).steps if isinstance(step, Attention)]
    assert source is not None
    assert len(source.states) == len(SEQUENCES[0])
