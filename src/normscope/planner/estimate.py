"""The estimate of one analysis: what is asked, how much work and memory that is, and how long this machine takes for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from normscope.planner.machine import Machine
from normscope.planner.sizes import BlockSizes
from normscope.planner.work import Extent, Work, attention_maps, feed_forward_maps, forward, memory, sums
from normscope.scopes import Scope

_BATCH_TOKENS = 2048
"""How many tokens go through a model at once (as `inputs.batches` puts them together)."""


@dataclass(frozen=True)
class Asked:
    """What an analysis computes: the scopes of maps, the layers, how many queries of each input (`None`: all), heads."""

    scopes: tuple[Scope, ...]
    layers: tuple[int, ...]
    queries: int | None = None
    heads: bool = False
    maps: bool = True
    causal: bool = False
    item: int = 4

    @property
    def before(self) -> int:
        """How many norm maps end before the feed-forward."""
        return sum(scope.quantity == "norm" and "Ff" not in scope.components for scope in self.scopes)

    @property
    def after(self) -> int:
        return sum(scope.quantity == "norm" and "Ff" in scope.components for scope in self.scopes)


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
        time = "" if self.seconds is None else f", about {duration(self.seconds)}"
        space = f"{size(self.memory)} of memory, {size(self.result)} of results"
        return f"{inputs}: {quantity(self.flops, 'flop')}{time}, {space}"


def estimate(
    blocks: Sequence[BlockSizes], lengths: Sequence[int], asked: Asked, machine: Machine | None = None
) -> Estimate:
    """What the maps of some inputs take."""
    total: dict[str, Work] = {}
    worst, results, seconds = 0.0, 0.0, 0.0
    for tokens, count in sorted({tokens: lengths.count(tokens) for tokens in lengths}.items()):
        extent = Extent(tokens, min(tokens, asked.queries or tokens), asked.causal, asked.item)
        for name, work in of_sequence(blocks, extent, asked).items():
            total[name] = total.get(name, Work()) + work * count
        results += count * result_bytes(extent, asked, blocks[0].heads)
        together = min(count, max(1, _BATCH_TOKENS // tokens))
        worst = max([worst, *(_layer_memory(block, extent, asked, together) for block in blocks)])
        if machine is not None:
            seconds += count * len(asked.layers) * machine.layer
    if machine is not None:
        seconds += sum(machine.seconds(work) for work in total.values())
    twice = results / len(asked.layers)  # the maps of one layer, while they are moved to their place
    return Estimate(
        total, int(worst + results + twice), int(results), None if machine is None else seconds, tuple(lengths)
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
        total["sums and proof"] += sums(block, extent, feed_forward=reaches)
        if asked.maps:
            total["maps of attention"] += attention_maps(block, extent, asked.before)
            if asked.after:
                total["maps of feed-forward"] += feed_forward_maps(block, extent, asked.after)
    return total


def result_bytes(extent: Extent, asked: Asked, heads: int) -> float:
    """The maps of one input, and the mixing ratios beside them."""
    maps = (len(asked.scopes) + 2 * heads * asked.heads) * extent.tokens if asked.maps else 0
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
