"""Tiles, the order of multiplication and what a batch shares make no difference to the numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.traces import (
    Shape,
    make_trace,
)

from normscope.chain.trace import Attention, FeedForward
from normscope.decompose import decompose, dense, key_groups

from .truth import (
    BOTH_DIRECTIONS,
    EVERY_TOPOLOGY,
    LONG_AND_NARROW,
    all_scopes,
    assert_correct,
    solved,
)


@EVERY_TOPOLOGY
@BOTH_DIRECTIONS
@pytest.mark.parametrize("vectors", [1, 20])
def test_the_size_of_tiles_makes_no_difference(
    topology: str, causal: bool, vectors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "TILE_VECTORS", vectors)
    monkeypatch.setattr(key_groups, "NUMBERS", vectors)
    trace, truth = solved(topology, Shape(causal=causal))
    assert_correct(decompose(trace, all_scopes(trace)), trace, truth)


@EVERY_TOPOLOGY
@BOTH_DIRECTIONS
@pytest.mark.parametrize("folded", [False, True], ids=["expanded", "folded"])
def test_the_order_of_multiplication_makes_no_difference(
    topology: str, causal: bool, folded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense.ExpandedNetwork, "_folding_is_cheaper", lambda *_: folded)
    monkeypatch.setattr(dense, "TILE_VECTORS", 20)
    trace, truth = solved(topology, Shape(causal=causal))
    assert_correct(decompose(trace, all_scopes(trace)), trace, truth)


@pytest.mark.parametrize(("shape", "order"), [(Shape(), "_write_expanded"), (LONG_AND_NARROW, "_write_folded")])
def test_many_keys_of_few_dimensions_are_folded_and_others_expanded(
    shape: Shape, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = set[str]()

    def spy(name: str) -> Callable[..., None]:
        original = getattr(dense.ExpandedNetwork, name)

        def write(*args: Any) -> None:
            used.add(name)
            original(*args)

        return write

    for name in ("_write_expanded", "_write_folded"):
        monkeypatch.setattr(dense.ExpandedNetwork, name, spy(name))
    trace = make_trace("gated_pre_norm", shape)
    decompose(trace, all_scopes(trace))
    assert used == {order}


def test_sequences_of_a_batch_share_what_follows_from_the_weights_alone() -> None:
    """The fold of two matrices is one object for two traces of a block, and the maps are those of each alone."""
    first, second = (make_trace("post_norm", LONG_AND_NARROW, seed=seed) for seed in (0, 0))
    attention = next(step for step in first.steps if isinstance(step, Attention))
    network = next(step for step in first.steps if isinstance(step, FeedForward)).experts[0].network
    steps = tuple(
        replace(step, shared=attention.shared)
        if isinstance(step, Attention)
        else replace(step, experts=(replace(step.experts[0], network=network),))
        if isinstance(step, FeedForward)
        else step
        for step in second.steps
    )
    scopes = all_scopes(first)
    alone, kept = decompose(second, scopes).maps, attention.shared
    decompose(first, scopes)
    made = dict(kept._kept)
    together = decompose(replace(second, steps=steps), scopes).maps
    assert made
    assert kept._kept == made
    for scope in scopes:
        assert torch.equal(together[scope].nan_to_num(), alone[scope].nan_to_num())
