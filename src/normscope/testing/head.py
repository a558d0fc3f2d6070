"""`assert_head`: the whole battery of checks for a task head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from normscope.capture.bind_head import given_logits
from normscope.capture.heads import capture_head
from normscope.capture.session import evaluation_mode
from normscope.families import family_of
from normscope.families.heads import Head, head_of
from normscope.head_trace import HeadTrace, Target
from normscope.pullback import pull_back_head, values_of
from normscope.testing.comparison import assert_close, assert_same, state_of
from normscope.testing.inputs import head_inputs, only_second


def assert_head(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor] | None = None,
    lengths: Sequence[int] | None = None,
    *,
    tolerance: float = 1e-5,
) -> None:
    """Check that the head registered for a model's class describes it.

    1. Certificate: what the tokens and the bias contribute to a logit, or a difference of two, adds up to the model's own.
    2. Padding: a padded sequence of a batch gives what it gives alone.
    3. Model restored: hooks, training flags, attention implementation and outputs are as before.

    Args:
        model: a tiny random model of a registered family, with its head.
        inputs: what to call it with: sequences padded on the right. Made up from the configuration by default.
        lengths: the lengths of the sequences that the head's stack of blocks sees, where inputs are given.
        tolerance: the largest error allowed, relative to the largest logit, for float32 models.

    Examples:
        >>> from normscope.testing import assert_head
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16)
        >>> assert_head(BertForSequenceClassification(tiny))
    """
    family, head = family_of(model.config.model_type), head_of(model)
    if inputs is None or lengths is None:
        inputs, lengths = head_inputs(family, head, model)
    cached = {"use_cache": False} if family.stack.causal or head.task == "causal-lm" else {}
    before, plain = state_of(model), _plain_logits(model, head, {**inputs, **cached})
    traces = capture_head(model, family, {**inputs, **cached}, lengths, dtype=model.dtype)
    assert_same(before, state_of(model), "the model after the analysis")
    for one, other in zip(plain, _plain_logits(model, head, {**inputs, **cached}), strict=True):
        assert torch.equal(one, other), "the model computes other logits after the analysis"
    relevance = [_assert_certificate(trace, tolerance, f"sequence {index + 1}") for index, trace in enumerate(traces)]
    if "attention_mask" in inputs and len(traces) > 1:
        single = only_second(inputs, lengths[1], nested=head.task == "multiple-choice")
        (alone,) = capture_head(model, family, {**single, **cached}, lengths[1:2], dtype=model.dtype)
        what = "relevance of the tokens of a padded sequence"
        assert_close(relevance[1], _assert_certificate(alone, tolerance, "a sequence alone"), 10 * tolerance, what)


def _plain_logits(model: PreTrainedModel, head: Head, inputs: Mapping[str, Any]) -> list[Tensor]:
    with torch.no_grad(), evaluation_mode(model):
        return given_logits(model, head, model(**inputs))


def _assert_certificate(trace: HeadTrace, tolerance: float, place: str) -> Tensor:
    """The sum of the tokens and the bias, for a few logits and a difference of two; gives the relevance of the tokens."""
    rows, labels = trace.logits.shape
    targets = [Target(row, {label: 1.0}) for row in {0, rows // 2, rows - 1} for label in {0, labels // 2, labels - 1}]
    targets += [Target(rows - 1, {0: 1.0, labels - 1: -1.0})] if labels > 1 else []
    pulled = pull_back_head(trace, targets)
    relevance = pulled.relevance(trace.states)
    largest = trace.logits.abs().nan_to_num(posinf=0).max()
    error = (relevance.sum(-1) + pulled.bias - values_of(trace, targets)).abs().max() / largest
    assert error <= tolerance, f"the logits of {place} are off by {float(error):.1e}, allowed {tolerance:.0e}"
    return relevance
