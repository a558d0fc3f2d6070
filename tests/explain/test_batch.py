"""Inputs of a list are explained together, and give what each gives by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny_architectures import EXPERTS, GROUPED
from support.tiny_heads import tiny_head

import normscope as ns
from normscope.chain import packing
from normscope.chain.trace import LayerTrace, SelfAttention
from normscope.explain import batch

TEXTS = [[5, 9, 7, 30, 12, 8, 21], [4, 17], [6, 7, 8, 9, 10], [11, 3, 5]]
MODELS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("llama", "LlamaForCausalLM", {}, {}),
    ("llama", "LlamaForCausalLM", {}, {"heads": True, "objective": "centred"}),
    ("gpt2", "GPT2LMHeadModel", {}, {"target": [3, 4], "at": 1}),
    ("gpt2", "GPT2LMHeadModel", {}, {"edges": False}),
    ("gpt_neox", "GPTNeoXForCausalLM", {}, {"ff_baseline": "bias"}),
    ("bert", "BertForSequenceClassification", {}, {}),
    ("bert", "BertForTokenClassification", {}, {"at": -1}),
    ("roberta", "RobertaModel", {}, {"direction": "state", "at": 1}),
    ("llama", "LlamaForCausalLM", {}, {"weights": "half"}),
    ("llama", "LlamaForCausalLM", {}, {"weights": "half", "edges": False}),
    ("gpt2", "GPT2LMHeadModel", {}, {"weights": "players"}),
    ("mixtral", "MixtralForCausalLM", {}, {}),
    ("olmoe", "OlmoeForCausalLM", {**GROUPED, **EXPERTS}, {}),
    ("t5", "T5ForConditionalGeneration", {}, {"target": [6, 7]}),
]


def padded() -> dict[str, torch.Tensor]:
    longest = max(map(len, TEXTS))
    rows = [text + [1] * (longest - len(text)) for text in TEXTS]
    mask = [[1] * len(text) + [0] * (longest - len(text)) for text in TEXTS]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}


def explanations(analyzer: ns.Analyzer, inputs: dict[str, torch.Tensor], **asked: Any) -> list[ns.Explanation]:
    found = analyzer.explain(inputs, **asked)
    return found if isinstance(found, list) else [found]


def assert_same(one: ns.Explanation, other: ns.Explanation) -> None:
    assert set(one.dataset.variables) == set(other.dataset.variables)
    for name in set(one.dataset.variables) - {"conservation_error"}:
        ours, theirs = one.dataset[name].values, other.dataset[name].values
        if ours.dtype.kind != "f":
            assert ours.tolist() == theirs.tolist()
            continue
        assert ours.shape == theirs.shape
        assert abs(ours - theirs).max() <= 1e-6 * max(1e-30, abs(theirs).max()), name  # norms compute in float32


@pytest.mark.parametrize(("model_type", "class_name", "changes", "asked"), MODELS)
def test_inputs_of_a_list_give_what_each_gives_by_itself(
    model_type: str, class_name: str, changes: dict[str, Any], asked: dict[str, Any]
) -> None:
    analyzer = ns.load(tiny_head(model_type, class_name, torch.float64, **changes))
    together = explanations(analyzer, padded(), **asked)
    for text, explanation in zip(TEXTS, together, strict=True):
        (alone,) = explanations(analyzer, {"input_ids": torch.tensor([text])}, **asked)
        assert_same(explanation, alone)
        assert explanation.completeness < 1e-6


def test_language_models_are_run_once_for_all_inputs_of_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    analyzer = ns.load(tiny_head("llama", "LlamaForCausalLM"))
    calls: list[int] = []

    def count(_: Any, __: Any) -> None:
        calls.append(1)

    handle = analyzer.model.register_forward_pre_hook(count)
    try:
        explanations(analyzer, padded())
        assert len(calls) == 1
        monkeypatch.setattr(batch, "TOKENS_AT_ONCE", 14)
        explanations(analyzer, padded())
        assert len(calls) == 1 + 2
    finally:
        handle.remove()


def test_one_input_that_is_not_conserved_gives_no_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    analyzer, own = ns.load(tiny_head("llama", "LlamaForCausalLM")), packing.pack

    def mixed(traces: list[LayerTrace]) -> LayerTrace:
        packed = own(traces)
        (attention,) = (step for step in packed.steps if isinstance(step, SelfAttention))
        attention.weights[:, -1, 0] += 0.1  # the last input looks at the first
        return packed

    monkeypatch.setattr(batch, "pack", mixed)
    with pytest.raises(ns.CompletenessError):
        explanations(analyzer, padded())


def test_progress_of_a_batch_is_told_and_may_cancel_it() -> None:
    analyzer, told = ns.load(tiny_head("llama", "LlamaForCausalLM")), list[tuple[int, int]]()

    def note(done: int, of: int) -> None:
        told.append((done, of))

    explanations(analyzer, padded(), on_progress=note)
    assert told == [(0, 2), (1, 2)]

    def cancel(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explanations(analyzer, padded(), on_progress=cancel)
