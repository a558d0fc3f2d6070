"""From a request for a model to its estimate, with a calibration of the machine where a time is requested."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch

from normscope.errors import InputError
from normscope.estimate.estimate import (
    Asked,
    Estimate,
    Explained,
    Length,
    Nearly,
    PassedThrough,
    Question,
    StackWork,
    estimate,
    size,
)
from normscope.estimate.machine import Clock, Machine, calibrate
from normscope.estimate.sizes import BlockSizes, UnknownSizeError, blocks_in
from normscope.families.spec import Stack
from normscope.inputs import TokenSequence
from normscope.measures import Decomposition
from normscope.measures.approximated import Approximate, Fast, sample_size
from normscope.measures.request import Request, StackRequest
from normscope.models.devices import entry_device, has_numbers
from normscope.models.model import Model
from normscope.options import Products

SHORT = 8
"""Tokens of the input whose analysis shows what a layer takes whatever its length."""

ENCODER = "encoder's"
"""What the steps of an encoder are called by, beside those of its decoder."""

Stacks = dict[str, Question]
"""What is asked of the main stack (under the empty name) and of the encoder."""


@dataclass(frozen=True)
class ShortRun:
    """The same work on a short input, to be timed: what it does, what of it is counted, for which length, and in which
    arithmetic its large products are."""

    task: Callable[[], object]
    stacks: Stacks
    length: Length
    products: Products | None = None


def lengths_of(sequences: Sequence[TokenSequence]) -> list[Length]:
    """The tokens of inputs, and of their sources where a decoder reads a target."""
    return [Length(len(item)) if item.target is None else Length(len(item.target), len(item)) for item in sequences]


def asked_of(model: Model, request: Request) -> Stacks | None:
    """What of a request the planner counts, or nothing if it has no norms or mixing ratios."""
    family, item = model.family, request.arithmetic(model.weight_dtype).itemsize
    main = _of_stack(request.main, family.stack, request.rows, item)
    if main is None:
        return None
    if family.encoder is None:
        return {"": main}
    of_encoder = None if request.encoder is None else _of_stack(request.encoder, family.encoder, None, item)
    return {"": main, ENCODER: of_encoder or PassedThrough(item)}


def _of_stack(part: StackRequest, stack: Stack, queries: int | None, item: int) -> Asked | None:
    decompositions = [measure for measure in part.measures if isinstance(measure, Decomposition)]
    if not decompositions:
        return None
    joined = reduce(Decomposition.joined, decompositions)
    scopes, maps = joined.maps or joined.ratios, bool(joined.maps)
    near = _nearly(joined.approximate)
    return Asked(scopes, tuple(part.layers), queries, joined.heads, maps, stack.causal, item, near)


def _nearly(approximate: Approximate | None) -> Nearly | None:
    if approximate is None or (not isinstance(approximate, Fast) and approximate.name.endswith("products")):
        return None
    return Nearly(None if isinstance(approximate, Fast) else approximate, sample_size)


def explained_of(
    model: Model,
    values: int,
    dtype: torch.dtype | None,
    *,
    heads: bool,
    head: bool,
    edges: bool = True,
    streamed: bool = False,
) -> Stacks:
    """What an explanation of so many values computes of each stack; `head` says whether it asks the model's own head."""
    item = (dtype or torch.promote_types(model.weight_dtype, torch.float32)).itemsize
    stacks: Stacks = {}
    for name, stack in (("", model.family.stack), (ENCODER, model.family.encoder)):
        if stack is not None:
            layers = tuple(range(1, 1 + stack.depth(model.config)))
            numbers = head_numbers(model) if head and not name else 0
            stacks[name] = Explained(layers, values, heads, numbers, stack.causal, item, edges, streamed)
    return stacks


def head_numbers(model: Model) -> int:
    """The numbers of the matrix from states to words; 0 for a model without one."""
    embeddings = model.module.get_output_embeddings()
    return 0 if embeddings is None else sum(each.numel() for each in embeddings.parameters())


def plan(
    model: Model,
    stacks: Stacks | None,
    lengths: Sequence[Length],
    *,
    short_run: ShortRun | None = None,
    device: torch.device | None = None,
    clock: Clock = time.perf_counter,
) -> Estimate:
    """The estimate for inputs of some lengths; with the time, if there is a short run, or a device of which the speed is
    measured without the model: what a layer takes whatever its length is then left out."""
    refuse_lengths(model, lengths)
    if stacks is None:
        raise InputError(
            "The planner counts norms, mixing ratios and explanations, not other methods (max_memory is for norms)."
        )
    blocks = _blocks(model, stacks)
    machine = None if short_run is None else _calibrated(model, blocks, stacks, short_run, clock)
    if machine is None and device is not None:
        machine = calibrate(blocks[""][0], dtype=_arithmetic(stacks), device=device, clock=clock)
    return estimate(_works(blocks, stacks, lengths), machine)


def _blocks(model: Model, stacks: Stacks) -> dict[str, list[BlockSizes]]:
    families = {"": model.family.stack, ENCODER: model.family.encoder}
    return {name: blocks_in(model.module, stack) for name, stack in families.items() if name in stacks and stack}


def _works(blocks: Mapping[str, list[BlockSizes]], stacks: Stacks, lengths: Sequence[Length]) -> dict[str, StackWork]:
    of_encoder = [Length(length.source) for length in lengths]
    return {
        name: StackWork(blocks[name], asked, of_encoder if name else list(lengths)) for name, asked in stacks.items()
    }


def costs(model: Model, request: Request, lengths: Sequence[Length]) -> list[float]:
    """How much work each of some inputs is beside the others, for a progress bar."""
    stacks = asked_of(model, request)
    by_length = [float(length.tokens + length.source) for length in lengths]
    if stacks is None or len(lengths) == 1:
        return by_length
    try:
        blocks = _blocks(model, stacks)
    except UnknownSizeError:
        return by_length
    each = {length: estimate(_works(blocks, stacks, [length])).flops for length in set(lengths)}
    return [each[length] for length in lengths]


def refuse_memory(model: Model, request: Request, lengths: Sequence[Length], max_memory: int) -> None:
    """Refuse an analysis that would take more memory than it may."""
    needed = plan(model, asked_of(model, request), lengths)
    if needed.memory > max_memory:
        raise InputError(
            f"The analysis would take about {size(needed.memory)} beside the model ({size(needed.result)} of it results), "
            f"but max_memory is {size(max_memory)}. Ask for fewer scopes, layers or queries, or for fewer inputs at a time."
        )


def refuse_lengths(model: Model, lengths: Sequence[Length]) -> None:
    """Refuse lengths that no input of the model has."""
    if not lengths or min(length.tokens for length in lengths) < 1:
        raise InputError("An estimate needs inputs of at least one token.")
    if model.family.encoder is not None and min(length.source for length in lengths) < 1:
        raise InputError("An estimate needs a source of at least one token for its target.")
    longest = max(max(length) for length in lengths)
    if model.family.reads == "text" and model.longest is not None and longest > model.longest:
        raise InputError(f"{model.name} takes at most {model.longest} tokens; {longest} were asked for.")


def _calibrated(
    model: Model, blocks: Mapping[str, list[BlockSizes]], stacks: Stacks, short_run: ShortRun, clock: Clock
) -> Machine:
    if not has_numbers(model.module):
        raise InputError("A model on the meta device cannot be timed: ask for the estimate without time.")
    device = entry_device(model.module)
    machine = calibrate(
        blocks[""][0], dtype=_arithmetic(stacks), device=device, products=short_run.products, clock=clock
    )
    counted = estimate(_works(blocks, short_run.stacks, [short_run.length]), machine).seconds or 0.0
    short_run.task()  # what is slow only once
    measured = min(_timed(short_run.task, clock) for _ in range(3))
    layers = sum(len(asked.layers) for asked in stacks.values())
    return replace(machine, layer=max(0.0, measured - counted) / layers)


def _arithmetic(stacks: Stacks) -> torch.dtype:
    return torch.float64 if stacks[""].item == 8 else torch.float32


def _timed(task: Callable[[], object], clock: Clock) -> float:
    started = clock()
    task()
    return clock() - started
