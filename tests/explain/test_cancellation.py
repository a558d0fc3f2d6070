"""Where tokens and biases make a value by cancelling, results say so, and what counts less of it."""

from __future__ import annotations

from typing import Any

import pytest
import xarray as xr
from rich.console import Console
from support.tiny_heads import tiny_head

import normscope as ns
from normscope.explorer.payload import build_payload
from normscope.output.explanation_terminal import explanation_view
from normscope.results import explanation_schema as names
from normscope.results.explanation import Explanation
from normscope.results.explanation_words import cancellation_note

REMEDY = "--ff-baseline bias"


@pytest.fixture(scope="module")
def data(analyzer: Any) -> xr.Dataset:
    tokenizer = analyzer.tokenizer
    model = ns.load(tiny_head("gpt2", "GPT2LMHeadModel", vocab_size=len(tokenizer)), tokenizer)
    return model.explain("The chef opened a restaurant.").dataset


def shifted(data: xr.Dataset, by: float, where: str = names.BIAS) -> Explanation:
    """The same value with more in biases and as much less in tokens."""
    moved = data.copy(deep=True)
    moved[where][(0,) * moved[where].ndim] += by
    return Explanation(moved)


def said(explanation: Explanation) -> str:
    console = Console(width=1000, record=True)
    with console.capture() as captured:
        console.print(explanation_view(explanation))
    return captured.get()


def test_what_cancels_is_said_with_what_avoids_it(data: xr.Dataset) -> None:
    explanation = shifted(data, -50)
    note = cancellation_note(explanation, [0])
    bias = explanation.biases[0]
    for part in (f"tokens (+{explanation.values[0] - bias:.2f})", f"biases (\N{MINUS SIGN}{-bias:.2f})", REMEDY):
        assert part in note
    assert note in said(explanation)
    (target,) = build_payload(explanation)["explanations"][0]["targets"]
    assert target["remark"] == note


def test_nothing_is_said_where_little_cancels(data: xr.Dataset) -> None:
    value = float(data[names.VALUE][0])
    assert cancellation_note(Explanation(data), [0]) == ""
    assert cancellation_note(shifted(data, value / 2), [0]) == ""  # a bias on the value's own side
    assert "cancel" not in said(Explanation(data))


def test_the_baseline_is_no_way_out_of_what_the_head_does_or_where_it_is_the_bias_already(data: xr.Dataset) -> None:
    head = cancellation_note(shifted(data, -50, names.END_BIAS), [0])
    assert "cancels" in head and REMEDY not in head
    changed = cancellation_note(shifted(data.assign_attrs(ff_baseline="bias"), -50), [0])
    assert "cancels" in changed and REMEDY not in changed


def test_the_strongest_of_several_values_is_named(data: xr.Dataset) -> None:
    second = shifted(data, -50).dataset.assign_coords(target_name=("target", ["second"]))
    both = Explanation(xr.concat([shifted(data, -20).dataset, second], "target", data_vars="minimal"))
    assert "most of all in second" in cancellation_note(both, range(2))
