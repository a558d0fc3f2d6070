"""The speed of a machine, measured in about a second, with products of the shapes that a model needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from normscope.decompose.dense import PLAIN, Multiplication
from normscope.estimate.sizes import BlockSizes
from normscope.estimate.work import Work

Clock = Callable[[], float]

_ROUNDS = 3
_ROWS = 1024
_PASSED = 1 << 22
"""The number of elements of a pass over memory; the result is newly allocated, as most results of the engine are."""
_PAIRS = (128, 512)
"""The number of keys and queries whose norms are computed from Gram matrices: more than fits into a processor's cache."""


@dataclass(frozen=True)
class Machine:
    """Operations per second of large, thin and float64 thin products, bytes per second, and the constant time of a layer."""

    large: float
    thin: float
    thin_double: float
    passed: float
    layer: float = 0.0

    def seconds(self, work: Work, layers: float = 0) -> float:
        """The time for some work, over a number of layers."""
        return (
            work.large / self.large
            + work.thin / self.thin
            + work.thin_double / self.thin_double
            + work.passed / self.passed
            + layers * self.layer
        )


def calibrate(
    block: BlockSizes,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    multiply: Multiplication = PLAIN,
    clock: Clock = time.perf_counter,
) -> Machine:
    """The rates of this machine for the shapes of a block, with large products in lower precision if requested."""
    random = partial(torch.randn, dtype=dtype, device=device)
    left, right = random(_ROWS, block.neurons), random(block.d, block.neurons).T  # laid out as in the engine
    out = random(_ROWS, block.d)
    keys, rows, width = 32, 32, min(1024, block.neurons)
    weights, factors, hidden = (
        random(keys, rows, block.heads),
        random(keys, block.heads, width),
        random(keys, rows, width),
    )
    double = torch.float64 if device is None or device.type != "mps" else torch.float32
    grams = torch.randn(_PAIRS[0], block.heads, block.heads, dtype=double, device=device)
    pairs = random(*_PAIRS, block.heads)
    memory = random(_PASSED)

    def run(task: Callable[[], object]) -> float:
        return _best(task, clock, device)

    return Machine(
        large=2.0 * left.numel() * block.d / run(lambda: multiply.add(out, left, right, first=True)),
        thin=2.0 * hidden.numel() * block.heads / run(lambda: torch.bmm(weights, factors, out=hidden)),
        thin_double=2.0 * pairs.numel() * block.heads / run(lambda: _squares(pairs.to(double), grams)),
        passed=2.0 * memory.numel() * memory.element_size() / run(lambda: memory * 1.0),
    )


def _squares(weights: Tensor, grams: Tensor) -> Tensor:
    """The squared norms of parts, as `decompose.factored` computes them."""
    return (weights @ grams).mul_(weights).sum(-1)


def _best(task: Callable[[], object], clock: Clock, device: torch.device | None) -> float:
    """The smallest time of a few rounds, each repeated until the clock can measure it."""
    task()
    best = float("inf")
    for _ in range(_ROUNDS):
        repeats, spent = 0, 0.0
        started = clock()
        while spent < 0.02:
            task()
            repeats += 1
            if device is not None and device.type == "cuda":
                torch.cuda.synchronize(device)
            spent = clock() - started
        best = min(best, spent / repeats)
    return best
