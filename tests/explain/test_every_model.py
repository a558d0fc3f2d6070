"""Predictions of every task class of every registered architecture add up from their tokens to the model's own logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny_heads import cases, inputs_of, tiny_head
from support.tiny_models import tiny

import normscope as ns
from normscope.testing import assert_explained

CASES = list(cases())
FIRST = {case[0]: index for index, case in reversed(list(enumerate(CASES)))}
"""The first task class of each architecture; the others go through the same blocks to other heads, and are slow tests."""


@pytest.mark.parametrize(
    ("model_type", "class_name", "changes"),
    [
        pytest.param(*case, marks=[] if FIRST[case[0]] == index else [pytest.mark.slow])
        for index, case in enumerate(CASES)
    ],
    ids=[f"{name}({changes or model_type})" for model_type, name, changes in CASES],
)
def test_a_prediction_adds_up_from_the_tokens_through_the_whole_model(
    model_type: str, class_name: str, changes: dict[str, Any]
) -> None:
    model = tiny_head(model_type, class_name, **changes)
    given, _ = inputs_of(model)
    assert_explained(model, None if given is None else {name: tensor[:1] for name, tensor in given.items()})


def test_a_module_between_blocks_is_refused_by_its_name() -> None:
    analyzer = ns.load(tiny("deberta-v2", conv_kernel_size=3, conv_act="gelu"))
    ids = {"input_ids": torch.tensor([[5, 6, 7]])}
    for method in ("pull-back", "gradient-x-input"):
        with pytest.raises(ns.UnsupportedArchitectureError, match=r"module 'encoder.conv' acts between two blocks"):
            analyzer.explain(ids, direction="state", method=method)
    assert len(analyzer.explain(ids, direction="state", method=ns.method("leave-one-out", removal="drop")).tokens) == 3
