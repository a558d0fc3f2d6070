"""Capture leaves no mark on a model, whatever happens inside."""

from __future__ import annotations

import pytest
import torch
from support.tiny_models import ENCODERS, HEADS, capture_with, padded, tiny
from torch import Tensor
from transformers import PreTrainedModel

import normscope as ns
from normscope.chain import proof
from normscope.chain.trace import LayerTrace

from .samples import ONE_OF_EACH_ATTENTION, SEQUENCES, assert_same, blocks, marks


def outputs(model: PreTrainedModel) -> list[Tensor]:
    """What the model itself answers, with the dropout of its present mode."""
    torch.manual_seed(3)
    with torch.no_grad():
        return list(model(**padded(SEQUENCES, model.config.pad_token_id), output_hidden_states=True).hidden_states)


def partly_training(model: PreTrainedModel) -> PreTrainedModel:
    """Some modules in training mode, some not, so that a mere `train()` afterwards would be noticed."""
    for place, module in enumerate(model.modules()):
        module.training = place % 3 == 0
    return model


@pytest.fixture(params=["eager", "sdpa"])
def attention(request: pytest.FixtureRequest) -> str:
    return request.param


def with_any_head(model_type: str, attention: str | None) -> PreTrainedModel:
    hooked = model_type in ("mpnet", "deberta", "deberta-v2")  # these know no other implementation
    return tiny(model_type, auto=HEADS["masked LM"], attention=None if hooked else attention)


@pytest.mark.parametrize("model_type", ENCODERS)
def test_an_analysis_leaves_the_model_exactly_as_it_was(model_type: str, attention: str) -> None:
    model = partly_training(with_any_head(model_type, attention))
    expected = outputs(model)
    before = marks(model)
    ns.load(model).analyze(padded(SEQUENCES), heads=True)
    assert_same(before, marks(model))
    assert_same(expected, outputs(model))


@ONE_OF_EACH_ATTENTION
def test_mixing_ratios_leave_the_model_exactly_as_it_was(model_type: str, attention: str) -> None:
    model = partly_training(with_any_head(model_type, attention))
    before = marks(model)
    ns.load(model).mixing_ratios(padded(SEQUENCES))
    assert_same(before, marks(model))


@ONE_OF_EACH_ATTENTION
def test_a_refused_result_leaves_the_model_exactly_as_it_was(
    model_type: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(proof.TOLERANCE, torch.float32, 0.0)
    model = partly_training(with_any_head(model_type, attention))
    expected = outputs(model)
    before = marks(model)
    with pytest.raises(ns.CompletenessError, match=r"layer 1 .* relative error .*tolerance 0e\+00 for float32"):
        ns.load(model).analyze(padded(SEQUENCES))
    assert_same(before, marks(model))
    assert_same(expected, outputs(model))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
@ONE_OF_EACH_ATTENTION
def test_an_exception_in_a_consumer_passes_through_and_leaves_the_model_as_it_was(
    model_type: str, error: type[BaseException]
) -> None:
    model = partly_training(with_any_head(model_type, None))
    before = marks(model)

    def consume(layer: int, sequence: int, _: LayerTrace) -> None:
        if (layer, sequence) == (2, 1):
            raise error

    with pytest.raises(error):
        capture_with(model, SEQUENCES, consume)
    assert_same(before, marks(model))


def test_an_exception_inside_the_model_passes_through_and_leaves_the_model_as_it_was(attention: str) -> None:
    model = partly_training(with_any_head("bert", attention))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    blocks(model)[1].attention.output.dense.register_forward_hook(interrupt)
    before = marks(model)
    with pytest.raises(KeyboardInterrupt):
        ns.load(model).analyze(padded(SEQUENCES))
    assert_same(before, marks(model))


def test_a_model_can_be_analysed_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    analyzer = ns.load(tiny("bert"))
    with monkeypatch.context() as patched, pytest.raises(ns.CompletenessError):
        patched.setitem(proof.TOLERANCE, torch.float32, 0.0)
        analyzer.analyze(padded(SEQUENCES))
    again = analyzer.analyze(padded(SEQUENCES))
    expected = ns.load(tiny("bert")).analyze(padded(SEQUENCES))
    assert [one.dataset.equals(other.dataset) for one, other in zip(again, expected, strict=True)] == [True, True]


def test_hooks_of_the_user_still_run_and_stay() -> None:
    model, calls = tiny("bert"), []
    blocks(model)[0].register_forward_hook(lambda *_: calls.append("block"))
    ns.load(model).analyze(padded(SEQUENCES))
    assert calls == ["block"]
    outputs(model)
    assert calls == ["block", "block"]
