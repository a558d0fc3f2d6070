"""The estimate of a request, with a calibration of the machine if a time is requested."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch

from normscope.chain.measure import Request, StackRequest
from normscope.decompose.dense import PLAIN, Multiplication
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
from normscope.methods.approximate import Fast, sample_size
from normscope.methods.norms import Decomposition
from normscope.models.devices import entry_device, has_numbers
from normscope.models.model import Model
from normscope.options import whole_number

SHORT = 8
"""The length of the short input whose analysis measures the constant time of a layer."""

ENCODER = "encoder's"
"""The prefix of the names of an encoder's steps."""

Stacks = dict[str, Question]
"""What is requested of the main stack (under the empty name) and of the encoder."""


@dataclass(frozen=True)
class ShortRun:
    """The same work on a short input, to be timed: the task, its counted work, its length, and the arithmetic
    of its large products."""

    task: Callable[[], object]
    stacks: Stacks
    length: Length
    multiply: Multiplication = PLAIN


def lengths_of(sequences: Sequence[TokenSequence]) -> list[Length]:
    """The tokens of inputs, and of their sources if a decoder reads a target."""
    return [Length(len(item)) if item.target is None else Length(len(item.target), len(item)) for item in sequences]


def asked_of(model: Model, request: Request) -> Stacks | None:
    """The part of a request that the planner counts; `None` if it has no norms or mixing ratios."""
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
    return Asked(scopes, tuple(part.layers), queries, joined.heads, maps, stack.causal, item, _nearly(joined))


def _nearly(decomposition: Decomposition) -> Nearly | None:
    """How the maps are approximated, if they are; products in other arithmetic are as many."""
    near = decomposition.approximate
    if near is None or decomposition.multiplication.products is not None:
        return None
    return Nearly(None if isinstance(near, Fast) else near, sample_size)


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
    """What an explanation of this many values computes for each stack; `head` is whether it uses the model's own head."""
    item = (dtype or torch.promote_types(model.weight_dtype, torch.float32)).itemsize
    stacks: Stacks = {}
    for name, stack in (("", model.family.stack), (ENCODER, model.family.encoder)):
        if stack is not None:
            layers = tuple(range(1, 1 + stack.depth(model.config)))
            numbers = head_numbers(model) if head and not name else 0
            stacks[name] = Explained(layers, values, heads, numbers, stack.causal, item, edges, streamed)
    return stacks


def head_numbers(model: Model) -> int:
    """The number of elements of the matrix from states to words; 0 for a model without one."""
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
    """The estimate for inputs of some lengths; with the time, if there is a short run, or a device whose speed is
    measured without the model; the constant time of a layer is then left out."""
    check_lengths(model, lengths)
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
    """The relative work of each input, for a progress bar."""
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


def refuse_memory(model: Model, request: Request, lengths: Sequence[Length], most: int) -> None:
    """Refuse an analysis that would take more memory than it may: at `most` bytes."""
    most = whole_number(most, "The memory that an analysis may take (max_memory), in bytes,")
    needed = plan(model, asked_of(model, request), lengths)
    if needed.memory > most:
        raise InputError(
            f"The analysis would take about {size(needed.memory)} in addition to the model ({size(needed.result)} of it "
            f"results), but max_memory is {size(most)}. Request fewer scopes, layers or queries, or fewer inputs at a time."
        )


def check_lengths(model: Model, lengths: Sequence[Length]) -> None:
    """Raise for lengths that no input of the model can have."""
    if not lengths or min(length.tokens for length in lengths) < 1:
        raise InputError("An estimate needs inputs of at least one token.")
    if model.family.encoder is not None and min(length.source for length in lengths) < 1:
        raise InputError("An estimate needs a source of at least one token for its target.")
    longest = max(max(length) for length in lengths)
    if model.family.reads == "text" and model.longest is not None and longest > model.longest:
        raise InputError(f"{model.name} takes at most {model.longest} tokens; {longest} were requested.")


def _calibrated(
    model: Model, blocks: Mapping[str, list[BlockSizes]], stacks: Stacks, short_run: ShortRun, clock: Clock
) -> Machine:
    if not has_numbers(model.module):
        raise InputError("A model on the meta device cannot be timed: request the estimate without time.")
    device = entry_device(model.module)
    machine = calibrate(
        blocks[""][0], dtype=_arithmetic(stacks), device=device, multiply=short_run.multiply, clock=clock
    )
    counted = estimate(_works(blocks, short_run.stacks, [short_run.length]), machine).seconds or 0.0
    short_run.task()  # warm-up
    measured = min(_timed(short_run.task, clock) for _ in range(3))
    layers = sum(len(asked.layers) for asked in stacks.values())
    return replace(machine, layer=max(0.0, measured - counted) / layers)


def _arithmetic(stacks: Stacks) -> torch.dtype:
    return torch.float64 if stacks[""].item == 8 else torch.float32


def _timed(task: Callable[[], object], clock: Clock) -> float:
    started = clock()
    task()
    return clock() - started
