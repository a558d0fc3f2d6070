"""One pass, no further than needed, one layer in memory at a time, whatever mode or thread the model is used in."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from support.tiny_models import HEADS, capture_with, padded, tiny, token_ids
from torch import Tensor
from transformers import PreTrainedModel

import normscope as ns
from normscope.chain.trace import Attention, LayerTrace

from .samples import ONE_OF_EACH_ATTENTION, SEQUENCES, blocks


def test_training_mode_does_not_change_a_result() -> None:
    model = tiny("bert", hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    quiet = ns.load(model).analyze(padded(SEQUENCES[:1]))
    noisy = ns.load(model.train()).analyze(padded(SEQUENCES[:1]))
    assert quiet.dataset.equals(noisy.dataset)


def test_the_attention_implementation_of_the_model_does_not_change_a_result() -> None:
    eager, sdpa = (ns.load(tiny("bert", attention=name)).analyze(padded(SEQUENCES[:1])) for name in ("eager", "sdpa"))
    assert eager.dataset.equals(sdpa.dataset)


def test_autocast_around_an_analysis_does_not_lower_its_precision() -> None:
    analyzer = ns.load(tiny("bert"))
    expected = analyzer.analyze(padded(SEQUENCES[:1]))
    with torch.autocast("cpu", torch.bfloat16):
        found = analyzer.analyze(padded(SEQUENCES[:1]))
    assert found.dataset.equals(expected.dataset)


def test_no_gradient_is_recorded() -> None:
    seen: list[Tensor] = []

    def consume(_layer: int, _sequence: int, trace: LayerTrace) -> None:
        seen.extend(state for state in (trace.hidden, *trace.states) if state is not None)

    capture_with(tiny("bert"), SEQUENCES, consume)
    assert seen
    assert not any(tensor.requires_grad for tensor in seen)


def counted_calls(model: PreTrainedModel) -> tuple[list[int], Callable[[], None]]:
    """The blocks (from 1) that run, and what removes the count again."""
    called: list[int] = []
    handles = [
        block.register_forward_pre_hook(lambda *_, number=number: called.append(number))
        for number, block in enumerate(blocks(model), start=1)
    ]
    return called, lambda: [handle.remove() for handle in handles]


@pytest.mark.parametrize(("layers", "expected"), [([2], [1, 2]), ([1, 3], [1, 2, 3]), (1, [1]), (None, [1, 2, 3, 4])])
def test_the_forward_pass_ends_after_the_last_layer_that_is_asked_for(layers: Any, expected: list[int]) -> None:
    model = tiny("bert", num_hidden_layers=4)
    called, _ = counted_calls(model)
    ns.load(model).analyze(padded(SEQUENCES), layers=layers)
    assert called == expected


def test_neither_the_task_head_nor_the_pooler_runs() -> None:
    model, called = tiny("bert", auto=HEADS["sequence classification"]), []
    for module in (model.classifier, model.bert.pooler):
        module.register_forward_pre_hook(lambda *_: called.append("head"))
    ns.load(model).analyze(padded(SEQUENCES))
    assert called == []


def test_a_batch_goes_through_the_model_once() -> None:
    model = tiny("bert")
    called, _ = counted_calls(model)
    ns.load(model).analyze(padded(token_ids(6, 5, 4, 3)))
    assert called == [1, 2]


def tensors_of(trace: LayerTrace) -> Iterator[Tensor]:
    """The tensors of a trace that grow with the input."""
    yield trace.hidden
    yield from (state for state in trace.states if state is not None)
    yield from (t for s in trace.steps if isinstance(s, Attention) for t in (s.weights, s.values))


@ONE_OF_EACH_ATTENTION
def test_only_the_tensors_of_one_layer_are_alive_at_a_time(model_type: str) -> None:
    model = tiny(model_type, num_hidden_layers=3)
    alive: dict[int, list[weakref.ref[Any]]] = {}

    def consume(layer: int, sequence: int, trace: LayerTrace) -> None:
        for other, references in alive.items():
            assert other == layer or not any(reference() is not None for reference in references)
        alive.setdefault(layer, []).extend(map(weakref.ref, (trace, *tensors_of(trace))))
        assert alive[layer][-1]() is not None
        del sequence

    capture_with(model, SEQUENCES, consume)
    assert sorted(alive) == [1, 2, 3]
    assert not any(reference() is not None for references in alive.values() for reference in references)


@ONE_OF_EACH_ATTENTION
def test_threads_that_share_a_model_get_their_own_results(model_type: str) -> None:
    analyzer = ns.load(tiny(model_type))
    inputs = [torch.tensor(ids) for ids in token_ids(3, 5, 7, 9)] * 4
    alone = [analyzer.analyze(ids) for ids in inputs]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(analyzer.analyze, inputs))
    for one, other in zip(alone, together, strict=True):
        assert one.dataset.drop_attrs().identical(other.dataset.drop_attrs())
