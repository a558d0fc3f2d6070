"""Calls with numbers, vectors and names of the wrong kind: a sentence each. Whole numbers of numpy and torch are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_models import shaken
from transformers import LlamaConfig, LlamaForCausalLM

import normscope as ns
from normscope.options import is_whole, whole_numbers
from normscope.results.find import find_query
from normscope.results.select import select_map

SIZE: dict[str, Any] = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)
IDS = {"input_ids": [[5, 9, 7, 30]]}

pytestmark = pytest.mark.usefixtures("unchecked_types")


@pytest.fixture(scope="module")
def causal() -> Any:
    return ns.load(shaken(LlamaForCausalLM(LlamaConfig(vocab_size=40, num_key_value_heads=3, **SIZE))))


@pytest.fixture(scope="module")
def analysis(causal: Any) -> Any:
    return causal.analyze(IDS, heads=True)


@pytest.fixture(scope="module")
def explanation(causal: Any) -> Any:
    return causal.explain(IDS, target=3)


NO_NUMBERS: list[Any] = [True, 1.5, "1", b"1", [], [1.5], None.__class__, torch.tensor(True), np.array([1.0]), {}]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_whole_number_is_refused_wherever_one_is_meant(
    causal: Any, analysis: Any, explanation: Any, value: Any
) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "at": lambda: causal.explain(IDS, at=value),
        "max_memory": lambda: causal.analyze(IDS, max_memory=value),
        "max_memory of explain": lambda: causal.explain(IDS, max_memory=value),
        "max_memory of a method": lambda: ns.method("propagated", max_memory=value),
        "continue_for": lambda: causal.explain(IDS, continue_for=value),
        "layers": lambda: causal.analyze(IDS, layers=value),
        "queries": lambda: causal.analyze(IDS, queries=value),
        "plot": lambda: analysis.plot("Attn", layer=value),
        "head": lambda: select_map(analysis, "Attn", 1, head=value),
        "query": lambda: find_query(analysis.map("Attn"), value),
        "edges": lambda: explanation.edges(value),
        "flow": lambda: explanation.flow(target=value),
        "predictions": lambda: explanation.top_predictions(value),
        "values": lambda: causal.estimate_explanation(8, values=value, timed=False),
        "map": lambda: analysis.map(value),
        "method": lambda: causal.explain(IDS, method=value),
        "dtype": lambda: causal.explain(IDS, dtype=value),
        "approximate": lambda: causal.analyze(IDS, approximate=value),
        "value_bias": lambda: causal.mixing_ratios(IDS, value_bias=value),
        "ff_baseline": lambda: causal.explain(IDS, ff_baseline=value),
        "identity": lambda: analysis.rollout("Attn", add_identity=value),
        "words": lambda: analysis.words(keys=value),
        "normalised": lambda: analysis.normalised("Attn", value),
        "inputs": lambda: causal.analyze(value),
    }
    for name, call in calls.items():
        if (name, type(value)) == ("query", str):  # a query may be named by its token
            continue
        with pytest.raises(ns.NormscopeError) as refused:
            call()
        assert str(refused.value), name


@pytest.mark.parametrize("one", [np.int64(1), np.array(1), torch.tensor(1), np.uint8(1)], ids=repr)
def test_whole_numbers_of_numpy_and_torch_are_taken(causal: Any, analysis: Any, explanation: Any, one: Any) -> None:
    assert causal.analyze(IDS, layers=one, queries=one).map("Attn").shape == (1, 1, 4)
    assert causal.explain(IDS, target=one, at=one).value == causal.explain(IDS, target=1, at=1).value
    assert (
        causal.explain(IDS, target=[one], against=np.int64(2)).value == causal.explain(IDS, target=1, against=2).value
    )
    assert explanation.edges(one).equals(explanation.edges(1)) and len(explanation.top_predictions(one - 1)) == 5
    assert select_map(analysis, "Attn", one, head=one).layers == [1]
    assert find_query(analysis.map("Attn"), one) == 1
    assert whole_numbers(np.array([1, 2]), "") == whole_numbers(torch.tensor([1, 2]), "") == [1, 2]


def test_lists_of_numpy_and_torch_numbers_are_token_ids(causal: Any) -> None:
    plain = causal.explain(IDS, target=[3, 4])
    for ids in (np.array([3, 4]), torch.tensor([3, 4]), [np.int64(3), torch.tensor(4)], (3, 4)):
        assert causal.explain(IDS, target=ids).values == plain.values
    read = causal.analyze({"input_ids": [[np.int64(5), 9, torch.tensor(7), 30]]}, scopes="AttnW")
    assert read.tokens == ["5", "9", "7", "30"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"target": ["a", "b"]}, "One target is explained at a time, not the list"),
        ({"target": 1.5}, "The target is a text, the name or number of a label, or a list of token ids, not 1.5"),
        ({"target": True}, "not True"),
        ({"target": b"x"}, "not b'x'"),
        ({"target": []}, r"token ids \[\]"),
        ({"target": [3, 99]}, "has those from 0 to 39"),
        ({"target": "x\udcff"}, "half a character"),
        ({"target": 3, "against": [4, 5]}, "one word or label"),
        ({"at": 4}, "There is no token 4: the input has 4 tokens, 0 to 3"),
        ({"direction": "foo"}, "A direction is a vector, or 'state' for the state itself, not 'foo'"),
        ({"direction": np.ones((2, 6))}, r"one vector \[d\] of numbers, not of shape \(2, 6\)"),
        ({"direction": np.full(12, np.nan)}, "finite numbers"),
        ({"direction": np.zeros(12)}, "not all of them zero"),
        ({"direction": ["a"]}, "a vector of numbers"),
        ({"direction": np.ones(5)}, r"has shape \(5,\), but a state has \(12,\)"),
    ],
)
def test_a_question_of_the_wrong_kind_is_refused(causal: Any, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ns.InputError, match=message):
        causal.explain(IDS, **asked)


def test_a_direction_may_be_of_numpy_torch_or_plain_numbers(causal: Any) -> None:
    direction = np.arange(1, 13)
    kinds = (direction, torch.tensor(direction), direction.tolist(), direction.astype(np.float32))
    values = [causal.explain(IDS, direction=each).values[0] for each in kinds]
    assert values == pytest.approx([values[0]] * len(values))


@pytest.mark.parametrize("target", [3, -3, 10**30])
def test_a_value_that_is_not_explained_is_refused(explanation: Any, target: int) -> None:
    for call in (
        explanation.top_predictions,
        lambda t: explanation.flow(target=t),
        lambda t: explanation.plot_flow(target=t),
    ):
        with pytest.raises(ns.SelectionError, match="1 are explained, 0 to 0"):
            call(target)


def test_a_share_is_a_number_from_0_to_1(explanation: Any) -> None:
    for share in ("x", None, True, float("nan"), 0, 2, [0.5]):
        with pytest.raises(ns.InputError, match="above 0 and at most 1"):
            explanation.flow(share)
    assert explanation.flow(np.float32(0.5)).layers == 2


def test_positions_that_a_model_does_not_know_are_refused(analyzer: ns.Analyzer) -> None:
    ids = [[101, 7592, 102]]
    for positions, message in (([[0, 1, 512]], "knows 0 to 511"), ([[0, 1, 10**30]], "knows 0 to 511")):
        with pytest.raises(ns.InputError, match=message):
            analyzer.analyze({"input_ids": ids, "position_ids": positions})


def test_a_truth_value_is_no_whole_number_and_neither_is_an_array_of_one() -> None:
    assert [is_whole(value) for value in (1, np.int8(1), torch.tensor(1), True, np.True_, np.array([1]), "1", 1.0)] == [
        *(True, True, True),
        *(False, False, False, False, False),
    ]


@pytest.mark.parametrize("path", [3, 1.5, None, ["x.nc"], b"x.nc"])
def test_what_names_no_file_is_refused_where_one_is_meant(path: Any, analyzer: ns.Analyzer, explanation: Any) -> None:
    analysis = analyzer.analyze("A text.", scopes="AttnW")
    for call in (ns.open, analysis.save, explanation.save):
        with pytest.raises(ns.FileError, match="is named by a text or a path, not by"):
            call(path)
