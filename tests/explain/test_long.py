"""Explanations of long inputs: blocks run again one by one give all that a recording of the whole pass gives but edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import xarray as xr
from support.tiny_heads import tiny_head

import normscope as ns
from normscope.capture import capture_call
from normscope.explain import streaming

IDS = {"input_ids": torch.tensor([[5, 9, 7, 30, 12, 8, 21]])}
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("llama", "LlamaForCausalLM", {}),
    ("gpt2", "GPT2LMHeadModel", {}),
    ("gemma2", "Gemma2ForCausalLM", {"final_logit_softcapping": 0.5}),
    ("mixtral", "MixtralForCausalLM", {}),
    ("gpt_neox", "GPTNeoXForCausalLM", {}),
    ("diffllama", "DiffLlamaForCausalLM", {}),
    ("mistral", "MistralForCausalLM", {"sliding_window": 4}),
]
EDGES = {"edges", "head_edges"}
TOLERANCES = {"eager": 1e-9, "own": 1e-5}
"""By attention implementation: weights are those of eager attention, whose softmax is in float32, and so are the states of
a recording; those of a long input are by the model's own implementation."""


@pytest.fixture(autouse=True)
def _few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normscope.capture.ROWS_AT_ONCE", 3)
    monkeypatch.setattr("normscope.explain.streaming._FEWEST_ROWS", 3)
    monkeypatch.setattr("normscope.explain.streaming._WEIGHTS_AT_ONCE", 1)


def explained(analyzer: ns.Analyzer, **asked: Any) -> ns.Explanation:
    explanation = analyzer.explain(IDS, **asked)
    assert isinstance(explanation, ns.Explanation)
    return explanation


def assert_same(one: ns.Explanation, other: ns.Explanation, tolerance: float) -> None:
    """The same numbers of everything but edges, and the same names and positions."""
    names = set(map(str, one.dataset.variables)) - EDGES
    assert names == set(map(str, other.dataset.variables)) - EDGES
    for name in names - {"conservation_error"}:
        ours, theirs = one.dataset[name].values, other.dataset[name].values
        if ours.dtype.kind != "f":
            assert ours.tolist() == theirs.tolist()
            continue
        assert abs(ours - theirs).max() <= tolerance * max(1e-30, abs(theirs).max()), name


@pytest.mark.parametrize("asked", [{}, {"at": 3, "objective": "centred"}, {"target": [3, 4, 5], "at": 2}])
@pytest.mark.parametrize("implementation", list(TOLERANCES))
@pytest.mark.parametrize(("model_type", "class_name", "changes"), MODELS, ids=[name for name, *_ in MODELS])
def test_a_streamed_explanation_is_that_of_the_whole_recording(
    model_type: str, class_name: str, changes: dict[str, Any], implementation: str, asked: dict[str, Any]
) -> None:
    analyzer = ns.load(tiny_head(model_type, class_name, torch.float64, **changes))
    if implementation == "eager":
        analyzer.model.set_attn_implementation("eager")
    whole = explained(analyzer, **asked)
    streamed = explained(analyzer, edges=False, max_memory=1, **asked)
    assert not streamed.has_edges
    assert_same(streamed, whole, TOLERANCES[implementation])
    assert streamed.targets == whole.targets
    assert streamed.completeness < 1e-6  # norms compute in float32


def test_without_edges_a_recording_gives_the_same_as_with_them() -> None:
    for analyzer, asked in (
        (ns.load(tiny_head("bert", "BertForSequenceClassification", torch.float64)), {}),
        (ns.load(tiny_head("t5", "T5ForConditionalGeneration", torch.float64)), {"target": [6, 7, 8]}),
    ):
        with_edges, without = (explained(analyzer, edges=edges, **asked) for edges in (True, False))
        assert_same(without, with_edges, 1e-9)
        assert with_edges.has_edges
        assert not without.has_edges
        if with_edges.has_encoder:
            assert_same(without.encoder, with_edges.encoder, 1e-9)


def test_edges_of_long_inputs_are_kept_if_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normscope.methods.pull_back.LONG", 4)
    monkeypatch.setattr("normscope.explain.streaming.LONG", 4)
    analyzer = ns.load(tiny_head("llama", "LlamaForCausalLM", torch.float64))
    short = explained(analyzer, edges=False)
    for options in ({"edges": True}, {"heads": True}):
        assert explained(analyzer, **options).edges(1).shape == (7, 7)
    long = explained(analyzer)
    assert_same(long, short, 1e-9)
    with pytest.raises(ns.SelectionError, match="was not kept, since the input is long"):
        long.edges(1)
    with pytest.raises(ns.SelectionError, match="was not kept, since the input is long"):
        long.flow()


def test_what_a_long_explanation_has_is_saved_and_opened(tmp_path: Any) -> None:
    long = explained(ns.load(tiny_head("llama", "LlamaForCausalLM")), edges=False)
    opened = ns.open(long.save(tmp_path / "long.nc"))
    assert isinstance(opened, ns.Explanation)
    xr.testing.assert_equal(opened.head_shares, long.head_shares)
    for name in ("long.html", "long.csv", "long.svg"):
        assert long.save(tmp_path / name).stat().st_size > 0


def test_a_method_that_follows_nothing_has_no_edges() -> None:
    with pytest.raises(ns.InputError, match="follows nothing through the layers"):
        ns.load(tiny_head("llama", "LlamaForCausalLM")).explain(IDS, method="random", edges=True)


@pytest.mark.parametrize("weights", ["half", "players", "joint"])
def test_a_streamed_explanation_counts_the_weights_as_a_whole_one_does(weights: str) -> None:
    analyzer = ns.load(tiny_head("llama", "LlamaForCausalLM", torch.float64))
    analyzer.model.set_attn_implementation("eager")
    whole = explained(analyzer, edges=False, weights=weights)
    assert_same(explained(analyzer, edges=False, max_memory=1, weights=weights), whole, 1e-6)


@pytest.mark.parametrize("model_type", ["llama", "gpt_neox", "mistral"])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_layers_whose_traces_fit_into_the_memory_are_not_run_again(
    kept: int, model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_name, changes = next((name, changes) for each, name, changes in MODELS if each == model_type)
    analyzer = ns.load(tiny_head(model_type, class_name, torch.float64, **changes))
    whole = explained(analyzer)
    again: list[int] = []

    def noted(model: Any, side: Any, call: Any, **options: Any) -> None:
        again.append(call.layer)
        capture_call(model, side, call, **options)

    def fitting(blocks: list[Any], _: int) -> list[int]:
        return [1] * min(kept, len(blocks))

    monkeypatch.setattr("normscope.methods.pull_back.LONG", 4)
    monkeypatch.setattr(streaming, "LONG", 4)
    monkeypatch.setattr(streaming, "capture_call", noted)
    monkeypatch.setattr(streaming, "kept_of_long", fitting)
    assert_same(explained(analyzer), whole, TOLERANCES["own"])
    assert again == list(range(len(analyzer.layers), kept, -1))
