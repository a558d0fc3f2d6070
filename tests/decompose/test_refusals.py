"""What must not pass: states that do not fit, weights that are no numbers, chains that no map exists for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from support.traces import (
    TOPOLOGIES,
    Block,
    make_trace,
)
from torch import Tensor

from normscope.chain.activations import GELU, Activation
from normscope.chain.trace import Attention, FeedForward, Linear, Normalise, ValueSource
from normscope.decompose import LayerResult, decompose, mixing_ratios
from normscope.errors import UnsupportedArchitectureError

from .truth import (
    EVERY_TOPOLOGY,
    all_scopes,
)


def test_a_state_that_does_not_fit_shows_in_the_error_of_its_query_and_scope() -> None:
    trace = make_trace("post_norm")
    wrong = [None if state is None else state.clone() for state in trace.states]
    assert wrong[-1] is not None
    wrong[-1][3] *= 1.01
    errors = decompose(replace(trace, states=tuple(wrong)), all_scopes(trace)).errors
    assert errors["AttnResLnFfResLn"][3].item() == pytest.approx(0.01 / 1.01, rel=1e-3)
    assert errors["AttnResLnFfResLn"][[0, 1, 2, 4, 5, 6]].max() < 1e-5
    assert errors["AttnResLnFfRes"].max() < 1e-5


def poisoned(step: Any) -> list[Any]:
    """The step again and again, each time with one other of its weight tensors holding one NaN."""
    weights = {Attention: ("values", "output", "bias", "weights"), Linear: ("weight", "bias")}
    names = next((names for kind, names in weights.items() if isinstance(step, kind)), None)
    found = list[Any]()
    for each in fields(step):
        value = getattr(step, each.name)
        if isinstance(value, Tensor) and value.is_floating_point() and (names is None or each.name in names):
            bad = value.clone()
            bad.view(-1)[0] = math.nan
            found.append(replace(step, **{each.name: bad}))
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            found += [replace(step, **{each.name: (bad, *value[1:])}) for bad in poisoned(value[0])]
        elif is_dataclass(value) and not isinstance(
            value, Activation | ValueSource | Normalise
        ):  # the last two lie below
            found += [replace(step, **{each.name: bad}) for bad in poisoned(value)]
    return found


@EVERY_TOPOLOGY
@pytest.mark.parametrize("analyse", [decompose, mixing_ratios])
def test_a_weight_that_is_not_a_number_makes_the_error_not_a_number(
    topology: str, analyse: Callable[..., LayerResult]
) -> None:
    trace = make_trace(topology)
    scopes = all_scopes(trace)
    for index, step in enumerate(trace.steps):
        for bad in poisoned(step):
            steps = (*trace.steps[:index], bad, *trace.steps[index + 1 :])
            errors = analyse(replace(trace, steps=steps), scopes[-1:]).errors[scopes[-1]]
            assert errors.max().isnan()


@EVERY_TOPOLOGY
@pytest.mark.parametrize("analyse", [decompose, mixing_ratios])
def test_a_model_that_computes_no_number_makes_the_error_not_a_number(
    topology: str, analyse: Callable[..., LayerResult]
) -> None:
    def broken(block: Block) -> None:
        block.hidden[2, 0] = math.nan
        TOPOLOGIES[topology](block)

    trace = make_trace(broken)
    scope = all_scopes(trace)[-1]
    assert analyse(trace, [scope]).errors[scope][2].isnan()


def again(block: Block) -> None:
    """Attention once more, after the feed-forward of the same block."""
    TOPOLOGIES["post_norm"](block)
    block.attend()


def branch_after_feed_forward(block: Block) -> None:
    block.attend()
    block.feed_forward(block.plain(GELU))
    block.fork()
    block.normalise(block.layer_norm())
    block.residual()


def attention_on_both_branches(block: Block) -> None:
    block.attend()
    block.fork()
    block.attend()
    block.residual()


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        (again, "after its feed-forward"),
        (branch_after_feed_forward, "after its feed-forward"),
        (attention_on_both_branches, "parts of the same keys"),
    ],
)
def test_a_chain_whose_parts_cannot_be_followed_is_refused(topology: Callable[[Block], None], why: str) -> None:
    trace = make_trace(topology)
    with pytest.raises(UnsupportedArchitectureError, match=why):
        decompose(trace, all_scopes(trace))


def test_mixing_ratios_need_no_single_keys_so_they_follow_any_chain() -> None:
    trace = make_trace(again)
    scopes = all_scopes(trace)
    assert max(errors.max() for errors in mixing_ratios(trace, scopes).errors.values()) < 1e-5


@pytest.mark.parametrize("kind", [Attention, FeedForward])
def test_the_kinds_that_steps_have_in_common_are_no_steps_themselves(kind: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        kind()
