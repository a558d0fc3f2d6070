"""The estimate of one analysis: what is requested, its operations and memory, and the time that this machine needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from normscope.decompose import Approximation
from normscope.estimate.machine import Machine
from normscope.estimate.sizes import BlockSizes, kept_of_long
from normscope.estimate.work import (
    Extent,
    Work,
    approximate_maps,
    attention_maps,
    feed_forward_maps,
    forward,
    memory,
    proof,
    pull_back,
    sums,
    trace_bytes,
)
from normscope.scopes import Scope

_BATCH_TOKENS = 2048
"""The number of tokens that go through a model at once (as in `inputs.batches`)."""


class Length(NamedTuple):
    """The number of tokens of an input, and of the source that a decoder attends to."""

    tokens: int
    source: int = 0


@dataclass(frozen=True)
class Nearly:
    """Maps that are not exact: one approximation, or (`None`) a search that may end with exact ones.

    `sampled` gives the number of queries that are also computed exactly, from the number of all.
    """

    approximation: Approximation | None
    sampled: Callable[[int], int]

    def work(self, block: BlockSizes, extent: Extent, scopes: int) -> Work:
        """The maps themselves and the exact ones of the sample; for a search, an upper bound."""
        sample = extent._replace(queries=self.sampled(extent.queries), causal=False)
        exact = feed_forward_maps(block, sample, scopes)
        if self.approximation is None:
            return feed_forward_maps(block, extent, scopes) + exact * 2
        groups = [approximate_maps(block, each, scopes, self.approximation) for each in extent.groups()]
        return sum(groups, exact)


@dataclass(frozen=True)
class Asked:
    """What an analysis computes for a stack: scopes of maps, layers, queries per input (`None`: all), heads."""

    scopes: tuple[Scope, ...]
    layers: tuple[int, ...]
    queries: int | None = None
    heads: bool = False
    maps: bool = True
    causal: bool = False
    item: int = 4
    nearly: Nearly | None = None

    @property
    def before(self) -> int:
        """The number of norm maps that end before the feed-forward."""
        return sum(scope.quantity == "norm" and "Ff" not in scope.components for scope in self.scopes)

    @property
    def after(self) -> int:
        return sum(scope.quantity == "norm" and "Ff" in scope.components for scope in self.scopes)

    @property
    def of_source(self) -> int:
        """The number of norm maps that end before the feed-forward and have keys of an encoder."""
        return sum(
            scope.quantity == "norm" and "Cross" in scope.components and "Ff" not in scope.components
            for scope in self.scopes
        )

    def extent(self, length: Length) -> Extent:
        queries = min(length.tokens, self.queries or length.tokens)
        return Extent(length.tokens, queries, self.causal, self.item, length.source)

    def by_step(self, blocks: Sequence[BlockSizes], length: Length) -> dict[str, Work]:
        """The work for one input, by step."""
        return of_sequence(blocks, self.extent(length), self)

    def result(self, blocks: Sequence[BlockSizes], length: Length) -> float:
        """Bytes of the result of one input."""
        return result_bytes(self.extent(length), self, blocks[0].heads)

    def at_once(self, blocks: Sequence[BlockSizes], length: Length, together: int) -> float:
        """The memory that `together` inputs of a length need at once, in bytes, without the results."""
        return max(_layer_memory(block, self.extent(length), self, together) for block in blocks)


@dataclass(frozen=True)
class Explained:
    """What an explanation computes for a stack: the number of values that are pulled back, through all layers.

    `head` is the number of elements of the head's matrix, by which every token is multiplied once. Without `edges` only
    shares of the tokens are kept. A `streamed` explanation keeps what enters each block, and runs the blocks again on the
    way back, except for those whose traces are kept.
    """

    layers: tuple[int, ...]
    values: int = 1
    heads: bool = False
    head: int = 0
    causal: bool = False
    item: int = 4
    edges: bool = True
    streamed: bool = False

    def _extent(self, length: Length) -> Extent:
        return Extent(length.tokens, length.tokens, self.causal, self.item, length.source)

    def by_step(self, blocks: Sequence[BlockSizes], length: Length) -> dict[str, Work]:
        """The work for one input, by step."""
        extent = self._extent(length)
        passed = float(self.head) * self.item
        head = Work(large=2.0 * self.head * extent.tokens, passed=passed + extent.tokens * self.item)
        kept = len(kept_of_long(blocks, extent.tokens * self.item)) if self.streamed else len(blocks)
        again = sum((forward(block, extent) for block in blocks[kept:]), Work())
        return {
            "forward pass": sum((forward(block, extent) for block in blocks), head) + again,
            "proof": sum((proof(block, extent, feed_forward=True) for block in blocks), Work()),
            "way back": sum((pull_back(block, extent, self.values) for block in blocks), Work()),
        }

    def result(self, blocks: Sequence[BlockSizes], length: Length) -> float:
        """Bytes of the result of one input: edges, and those of each head if requested, or only shares of the tokens."""
        if not self.edges:
            return float(self.values * (length.tokens + length.source) * self.item)
        maps = (1 + self.heads * blocks[0].heads) * length.tokens * (length.tokens + length.source)
        return float(self.values * len(self.layers) * maps * self.item)

    def at_once(self, blocks: Sequence[BlockSizes], length: Length, together: int) -> float:
        """Bytes of the traces of all layers, or of one and of what enters the others, one input after another."""
        del together
        if self.streamed:
            token = length.tokens * self.item
            entering = 2 * sum(token * block.d for block in blocks)  # and what comes out of its attention
            return (
                entering
                + sum(kept_of_long(blocks, token))
                + max(
                    memory(block, self._extent(length), maps=False, feed_forward=False, together=1) for block in blocks
                )
            )
        return sum(trace_bytes(block, self._extent(length)) for block in blocks)


@dataclass(frozen=True)
class PassedThrough:
    """A stack that an input only passes through, such as an encoder whose maps are not requested."""

    item: int = 4
    layers: tuple[int, ...] = ()
    """The requested layers: none."""

    def by_step(self, blocks: Sequence[BlockSizes], length: Length) -> dict[str, Work]:
        """The work for one input, by step."""
        extent = Extent(length.tokens, length.tokens, causal=False, item=self.item)
        return {"forward pass": sum((forward(block, extent) for block in blocks), Work())}

    def result(self, blocks: Sequence[BlockSizes], length: Length) -> float:
        """No result."""
        del blocks, length
        return 0.0

    def at_once(self, blocks: Sequence[BlockSizes], length: Length, together: int) -> float:
        """Bytes of one layer's states and attention weights."""
        extent = Extent(length.tokens, length.tokens, causal=False, item=self.item)
        return max(memory(block, extent, maps=False, feed_forward=False, together=together) for block in blocks)


Question = Asked | Explained | PassedThrough
"""What may be requested of a stack."""


@dataclass(frozen=True)
class StackWork:
    """What is requested of one stack, with its blocks."""

    blocks: Sequence[BlockSizes]
    requested: Question
    lengths: Sequence[Length]


@dataclass(frozen=True)
class Estimate:
    """Operations by step, memory above the model's own, the size of the results, and seconds (`None`: not calibrated)."""

    work: dict[str, Work]
    memory: int
    """Peak memory in bytes, without the model: one layer's tensors, and the results so far."""
    result: int
    """Bytes of all results."""
    seconds: float | None
    lengths: tuple[int, ...] = field(repr=False)
    at_most: bool = False
    """Whether it may take less: the search for an approximation ends when one is good enough."""

    @property
    def flops(self) -> float:
        """All operations."""
        return sum(work.flops for work in self.work.values())

    @property
    def share(self) -> dict[str, float]:
        """The share of each step in the operations."""
        return {name: work.flops / self.flops for name, work in self.work.items()}

    def __str__(self) -> str:
        inputs = f"{len(self.lengths)} inputs of {min(self.lengths)} to {max(self.lengths)} tokens"
        if len(self.lengths) == 1:
            inputs = f"{self.lengths[0]} tokens"
        about = "at most about" if self.at_most else "about"
        time = "" if self.seconds is None else f", {about} {duration(self.seconds)}"
        space = f"{size(self.memory)} of memory, {size(self.result)} of results"
        return f"{inputs}: {quantity(self.flops, 'flop')}{time}, {space}"


def estimate(stacks: Mapping[str, StackWork], machine: Machine | None = None) -> Estimate:
    """The estimate for some inputs, from the work of each stack by name; the name of the main one is empty."""
    total: dict[str, Work] = {}
    worst, results, seconds, last = 0.0, 0.0, 0.0, 0.0
    for name, stack in stacks.items():
        worst = max(worst, _worst(stack))
        own = 0.0
        for length, count in _counts(stack.lengths).items():
            for step, work in stack.requested.by_step(stack.blocks, length).items():
                title = f"{name} {step}".strip()
                total[title] = total.get(title, Work()) + work * count
            own += count * stack.requested.result(stack.blocks, length)
        results, last = results + own, max(last, own / max(1, len(stack.requested.layers)))
        if machine is not None:
            seconds += len(stack.lengths) * len(stack.requested.layers) * machine.layer
    if machine is not None:
        seconds += sum(machine.seconds(work) for work in total.values())
    nearly = [getattr(stack.requested, "nearly", None) for stack in stacks.values()]
    return Estimate(
        total,
        int(worst + results + last),  # the maps of one layer exist twice while they are copied to the result
        int(results),
        None if machine is None else seconds,
        tuple(length.tokens for length in stacks[""].lengths),
        any(each is not None and each.approximation is None for each in nearly),
    )


def _counts(lengths: Sequence[Length]) -> dict[Length, int]:
    counts: dict[Length, int] = {}
    for length in sorted(lengths):
        counts[length] = counts.get(length, 0) + 1
    return counts


def _worst(stack: StackWork) -> float:
    """The memory of the layer that needs most, in bytes, without the results."""
    return max(
        stack.requested.at_once(stack.blocks, length, min(count, max(1, _BATCH_TOKENS // length.tokens)))
        for length, count in _counts(stack.lengths).items()
    )


def of_sequence(blocks: Sequence[BlockSizes], extent: Extent, requested: Asked) -> dict[str, Work]:
    """The work for one input, by step."""
    total = {
        "forward pass": Work(),
        "sums and proof": Work(),
        "maps of attention": Work(),
        "maps of feed-forward": Work(),
    }
    reaches = any("Ff" in scope.components for scope in requested.scopes)
    for layer, block in enumerate(blocks[: max(requested.layers)], 1):
        total["forward pass"] += forward(block, extent._replace(queries=extent.tokens))
        if layer not in requested.layers:
            continue
        total["sums and proof"] += sums(block, extent, feed_forward=reaches) + proof(
            block, extent, feed_forward=reaches
        )
        if requested.maps:
            total["maps of attention"] += attention_maps(block, extent, requested.before, requested.of_source)
            if requested.after:
                total["maps of feed-forward"] += _after(block, extent, requested)
    return total


def _after(block: BlockSizes, extent: Extent, requested: Asked) -> Work:
    if requested.nearly is None or block.beside:
        return feed_forward_maps(block, extent, requested.after)
    return requested.nearly.work(block, extent, requested.after)


def result_bytes(extent: Extent, requested: Asked, heads: int) -> float:
    """The size of the maps and mixing ratios of one input, in bytes."""
    maps = (len(requested.scopes) + 2 * heads * requested.heads) * extent.keys if requested.maps else 0
    return float(len(requested.layers)) * extent.queries * extent.item * (maps + len(requested.scopes))


def _layer_memory(block: BlockSizes, extent: Extent, requested: Asked, together: int) -> float:
    return memory(
        block,
        extent,
        maps=requested.maps and bool(requested.before or requested.after),
        feed_forward=bool(requested.after),
        together=together,
    )


# ---- in words ----------------------------------------------------------------------------------------------------------


def quantity(value: float | int, unit: str) -> str:
    """A number with a unit prefix."""
    for letter, scale in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {letter}{unit}"
    return f"{value:.3g} {unit}"


def size(value: float | int) -> str:
    """A number of bytes in readable form."""
    return quantity(value, "B")


def duration(seconds: float) -> str:
    """Seconds, minutes, hours or days, whichever is readable."""
    for name, scale in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.3g} {name}"
    return f"{seconds:.3g} seconds"
