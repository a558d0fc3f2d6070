"""From what a user asks of an analyzer to its estimate, with a calibration of the machine where time is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

import torch

from normscope.errors import InputError
from normscope.measures import Decomposition
from normscope.planner.estimate import Asked, Estimate, estimate, of_sequence, size
from normscope.planner.machine import Clock, Machine, calibrate
from normscope.planner.sizes import BlockSizes, UnknownSizeError, blocks_in
from normscope.planner.work import Extent
from normscope.request import Request

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

ShortRun = Callable[[], object]

SHORT = 8
"""Tokens of the input whose analysis shows what a layer takes whatever its length."""


def asked_of(analyzer: Analyzer, request: Request) -> Asked | None:
    """What of a request the planner counts, or nothing if it has no norms or mixing ratios."""
    decompositions = [measure for measure in request.main.measures if isinstance(measure, Decomposition)]
    if not decompositions:
        return None
    joined = reduce(Decomposition.joined, decompositions)
    return Asked(
        joined.maps or joined.ratios,
        tuple(request.main.layers),
        request.rows,
        joined.heads,
        bool(joined.maps),
        analyzer.family.stack.causal,
        request.arithmetic(analyzer.weight_dtype).itemsize,
    )


def plan(
    analyzer: Analyzer,
    request: Request,
    lengths: Sequence[int],
    *,
    short_run: ShortRun | None = None,
    clock: Clock = time.perf_counter,
) -> Estimate:
    """The estimate for inputs of some lengths; with the time, if `short_run` does the same to an input of `SHORT` tokens."""
    refuse_lengths(analyzer, lengths)
    asked = asked_of(analyzer, request)
    if asked is None:
        raise InputError("The planner counts norms and mixing ratios, not other methods (max_memory is for norms).")
    blocks = blocks_in(analyzer.model, analyzer.family.stack)
    machine = None if short_run is None else _calibrated(analyzer, blocks, asked, short_run, clock)
    return estimate(blocks, list(lengths), asked, machine)


def costs(analyzer: Analyzer, request: Request, lengths: Sequence[int]) -> list[float]:
    """How much work each of some inputs is beside the others, for a progress bar."""
    asked = asked_of(analyzer, request)
    by_length = [float(length) for length in lengths]
    if asked is None or len(lengths) == 1:
        return by_length
    try:
        blocks = blocks_in(analyzer.model, analyzer.family.stack)
    except UnknownSizeError:
        return by_length

    @lru_cache
    def cost(tokens: int) -> float:
        extent = Extent(tokens, min(tokens, asked.queries or tokens), asked.causal)
        return sum(work.flops for work in of_sequence(blocks, extent, asked).values())

    return [cost(length) for length in lengths]


def refuse_memory(analyzer: Analyzer, request: Request, lengths: Sequence[int], max_memory: int) -> None:
    """Refuse an analysis that would take more memory than it may."""
    needed = plan(analyzer, request, lengths)
    if needed.memory > max_memory:
        raise InputError(
            f"The analysis would take about {size(needed.memory)} beside the model ({size(needed.result)} of it results), "
            f"but max_memory is {size(max_memory)}. Ask for fewer scopes, layers or queries, or for fewer inputs at a time."
        )


def refuse_lengths(analyzer: Analyzer, lengths: Sequence[int]) -> None:
    if analyzer.family.encoder is not None or analyzer.family.reads == "image":
        raise InputError(
            f"The planner counts models with one stack that read text; {analyzer.name} is of the family "
            f"{analyzer.family.name!r}. Time a short input instead."
        )
    if not lengths or min(lengths) < 1:
        raise InputError("An estimate needs inputs of at least one token.")
    if analyzer.longest is not None and max(lengths) > analyzer.longest:
        raise InputError(f"{analyzer.name} takes at most {analyzer.longest} tokens; {max(lengths)} were asked for.")


def _calibrated(
    analyzer: Analyzer, blocks: Sequence[BlockSizes], asked: Asked, short_run: ShortRun, clock: Clock
) -> Machine:
    device = analyzer.model.device
    if device.type == "meta":
        raise InputError("A model on the meta device cannot be timed: ask for the estimate without time.")
    dtype = torch.float64 if asked.item == 8 else torch.float32
    machine = calibrate(blocks[0], dtype=dtype, device=device, clock=clock)
    counted = estimate(blocks, [SHORT], asked, machine).seconds or 0.0
    measured = min(_timed(short_run, clock) for _ in range(3))
    return replace(machine, layer=max(0.0, measured - counted) / len(asked.layers))


def _timed(task: ShortRun, clock: Clock) -> float:
    started = clock()
    task()
    return clock() - started
