"""The estimate of one analysis: what is asked, how much work and memory that is, and how long this machine takes for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from normscope.decompose import Approximation
from normscope.estimate.approximations import approximate_maps
from normscope.estimate.machine import Machine
from normscope.estimate.sizes import BlockSizes
from normscope.estimate.work import (
    Extent,
    Work,
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
"""How many tokens go through a model at once (as `inputs.batches` puts them together)."""


class Length(NamedTuple):
    """The tokens of an input, and those of the source that a decoder looks at."""

    tokens: int
    source: int = 0


@dataclass(frozen=True)
class Nearly:
    """Maps that are not exact: one approximation, or (`None`) a search that may end with exact ones.

    `sampled` says how many queries, of so many, are computed exactly, too.
    """

    approximation: Approximation | None
    sampled: Callable[[int], int]

    def work(self, block: BlockSizes, extent: Extent, scopes: int) -> Work:
        """The maps themselves and the exact ones of the sample; of a search, the most that it takes."""
        sample = extent._replace(queries=self.sampled(extent.queries), causal=False)
        exact = feed_forward_maps(block, sample, scopes)
        if self.approximation is None:
            return feed_forward_maps(block, extent, scopes) + exact * 2
        groups = [approximate_maps(block, each, scopes, self.approximation) for each in extent.groups()]
        return sum(groups, exact)


@dataclass(frozen=True)
class Asked:
    """What an analysis computes of a stack: scopes of maps, layers, how many queries of each input (`None`: all), heads."""

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
        """How many norm maps end before the feed-forward."""
        return sum(scope.quantity == "norm" and "Ff" not in scope.components for scope in self.scopes)

    @property
    def after(self) -> int:
        return sum(scope.quantity == "norm" and "Ff" in scope.components for scope in self.scopes)

    @property
    def of_source(self) -> int:
        """How many norm maps that end before the feed-forward look at an encoder."""
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
        """Bytes beside the results that some inputs of a length need at once."""
        return max(_layer_memory(block, self.extent(length), self, together) for block in blocks)


@dataclass(frozen=True)
class Explained:
    """What an explanation computes of a stack: how many values are pulled back, through all layers.

    `head` are the numbers of the head's matrix, which every token goes through once. Without `edges` only shares of the
    tokens are kept. A `streamed` explanation keeps what enters each block, and runs the blocks again on the way back.
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
        head = Work(products=2.0 * self.head * extent.tokens, passed=passed + extent.tokens * self.item)
        again = sum((forward(block, extent) for block in blocks if self.streamed), Work())
        return {
            "forward pass": sum((forward(block, extent) for block in blocks), head) + again,
            "proof": sum((proof(block, extent, feed_forward=True) for block in blocks), Work()),
            "way back": sum((pull_back(block, extent, self.values) for block in blocks), Work()),
        }

    def result(self, blocks: Sequence[BlockSizes], length: Length) -> float:
        """Bytes of the result of one input: edges, and of each head if they are asked for, or only shares of the tokens."""
        if not self.edges:
            return float(self.values * (length.tokens + length.source) * self.item)
        maps = (1 + self.heads * blocks[0].heads) * length.tokens * (length.tokens + length.source)
        return float(self.values * len(self.layers) * maps * self.item)

    def at_once(self, blocks: Sequence[BlockSizes], length: Length, together: int) -> float:
        """Bytes of the traces of all layers, or of one and of what enters the others, one input after another."""
        del together
        if self.streamed:
            entering = sum(length.tokens * block.d * self.item for block in blocks)
            return entering + max(
                memory(block, self._extent(length), maps=False, feed_forward=False, together=1) for block in blocks
            )
        return sum(trace_bytes(block, self._extent(length)) for block in blocks)


@dataclass(frozen=True)
class PassedThrough:
    """A stack that an input goes through without anything being asked of it, as an encoder before its decoder."""

    item: int = 4
    layers: tuple[int, ...] = ()
    """Those that something is asked of: none."""

    def by_step(self, blocks: Sequence[BlockSizes], length: Length) -> dict[str, Work]:
        """The work for one input, by step."""
        extent = Extent(length.tokens, length.tokens, causal=False, item=self.item)
        return {"forward pass": sum((forward(block, extent) for block in blocks), Work())}

    def result(self, blocks: Sequence[BlockSizes], length: Length) -> float:
        """Nothing comes of it."""
        del blocks, length
        return 0.0

    def at_once(self, blocks: Sequence[BlockSizes], length: Length, together: int) -> float:
        """Bytes of one layer's states and attention weights."""
        extent = Extent(length.tokens, length.tokens, causal=False, item=self.item)
        return max(memory(block, extent, maps=False, feed_forward=False, together=together) for block in blocks)


Question = Asked | Explained | PassedThrough
"""What may be asked of a stack."""


@dataclass(frozen=True)
class StackWork:
    """What is asked of one stack with these blocks."""

    blocks: Sequence[BlockSizes]
    asked: Question
    lengths: Sequence[Length]


@dataclass(frozen=True)
class Estimate:
    """Operations by step, memory above the model's own, the size of the results, and seconds (`None`: not calibrated)."""

    work: dict[str, Work]
    memory: int
    """Bytes at the most beside the model: one layer's tensors, and the results so far."""
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
    """What some inputs take, by the name of each stack; that of the main one is empty."""
    total: dict[str, Work] = {}
    worst, results, seconds, last = 0.0, 0.0, 0.0, 0.0
    for name, stack in stacks.items():
        worst = max(worst, _worst(stack))
        own = 0.0
        for length, count in _counts(stack.lengths).items():
            for step, work in stack.asked.by_step(stack.blocks, length).items():
                title = f"{name} {step}".strip()
                total[title] = total.get(title, Work()) + work * count
            own += count * stack.asked.result(stack.blocks, length)
        results, last = results + own, max(last, own / max(1, len(stack.asked.layers)))
        if machine is not None:
            seconds += len(stack.lengths) * len(stack.asked.layers) * machine.layer
    if machine is not None:
        seconds += sum(machine.seconds(work) for work in total.values())
    nearly = [getattr(stack.asked, "nearly", None) for stack in stacks.values()]
    return Estimate(
        total,
        int(worst + results + last),  # the maps of one layer are there twice, while they are moved to their place
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
    """Bytes of the layer that needs most, beside the results."""
    return max(
        stack.asked.at_once(stack.blocks, length, min(count, max(1, _BATCH_TOKENS // length.tokens)))
        for length, count in _counts(stack.lengths).items()
    )


def of_sequence(blocks: Sequence[BlockSizes], extent: Extent, asked: Asked) -> dict[str, Work]:
    """The work for one input, by step."""
    total = {
        "forward pass": Work(),
        "sums and proof": Work(),
        "maps of attention": Work(),
        "maps of feed-forward": Work(),
    }
    reaches = any("Ff" in scope.components for scope in asked.scopes)
    for layer, block in enumerate(blocks[: max(asked.layers)], 1):
        total["forward pass"] += forward(block, extent._replace(queries=extent.tokens))
        if layer not in asked.layers:
            continue
        total["sums and proof"] += sums(block, extent, feed_forward=reaches) + proof(
            block, extent, feed_forward=reaches
        )
        if asked.maps:
            total["maps of attention"] += attention_maps(block, extent, asked.before, asked.of_source)
            if asked.after:
                total["maps of feed-forward"] += _after(block, extent, asked)
    return total


def _after(block: BlockSizes, extent: Extent, asked: Asked) -> Work:
    if asked.nearly is None or block.beside:
        return feed_forward_maps(block, extent, asked.after)
    return asked.nearly.work(block, extent, asked.after)


def result_bytes(extent: Extent, asked: Asked, heads: int) -> float:
    """The maps of one input, and the mixing ratios beside them."""
    maps = (len(asked.scopes) + 2 * heads * asked.heads) * extent.keys if asked.maps else 0
    return float(len(asked.layers)) * extent.queries * extent.item * (maps + len(asked.scopes))


def _layer_memory(block: BlockSizes, extent: Extent, asked: Asked, together: int) -> float:
    return memory(
        block,
        extent,
        maps=asked.maps and bool(asked.before or asked.after),
        feed_forward=bool(asked.after),
        together=together,
    )


# ---- in words ----------------------------------------------------------------------------------------------------------


def quantity(value: float | int, unit: str) -> str:
    """A number with the letter of its thousands."""
    for letter, scale in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {letter}{unit}"
    return f"{value:.3g} {unit}"


def size(value: float | int) -> str:
    """Bytes as people say them."""
    return quantity(value, "B")


def duration(seconds: float) -> str:
    """Seconds, minutes, hours or days, whichever is readable."""
    for name, scale in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.3g} {name}"
    return f"{seconds:.3g} seconds"
