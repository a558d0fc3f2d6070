"""A model that skips one component of one block: the block is computed again from its trace without the component, and the
model goes on from there by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normscope.capture import blocks_of
from normscope.chain.fold import Point, fold, forward
from normscope.chain.trace import Attention, LayerTrace, SequentialFeedForward, Step
from normscope.decompose.replay import Replay
from normscope.inputs import TokenSequence
from normscope.models.model import Model

_TOKENS_AT_ONCE = 2048


@dataclass(frozen=True)
class Component:
    """A component of a block: the index of its step, how it is called, and the head (from 1), if it is one."""

    place: int
    name: str
    head: int | None = None


def components_of(trace: LayerTrace) -> Iterator[Component]:
    """The components of a block in their order, each attention followed by its heads. If a kind occurs twice, its name has
    a number."""
    counts: dict[str, int] = {}
    names = trace.components
    for place, step in enumerate(trace.steps):
        if step.name:
            counts[step.name] = counts.get(step.name, 0) + 1
            name = step.name if names.count(step.name) == 1 else f"{step.name}{counts[step.name]}"
            yield Component(place, name)
            if isinstance(step, Attention):
                yield from (Component(place, "head", head) for head in range(1, len(step.weights) + 1))


def without(trace: LayerTrace, skipped: Component | None) -> Float[Tensor, "token d"]:
    """The block's output without a component: an attention, a head or a feed-forward adds nothing, a residual is not added,
    a norm changes nothing. Attention weights and routers are those of the model's own pass."""
    replay, start = Replay(), Point(trace.hidden)
    if skipped is None:
        return fold(trace.steps, replay, start).value
    step = trace.steps[skipped.place]
    before = fold(trace.steps[: skipped.place], replay, start)
    after = forward(before, step, replay)
    after = replace(after, value=_skipping(step, skipped.head, before.value, after.value))
    return fold(trace.steps[skipped.place + 1 :], replay, after).value


def _skipping(step: Step, head: int | None, before: Tensor, after: Tensor) -> Float[Tensor, "token d"]:
    """The state after a step that is skipped (or one of its heads), from the state before it and its output."""
    match step:
        case Attention() if head is not None:
            return after - _of_head(step, head)
        case Attention() | SequentialFeedForward():
            return torch.zeros_like(after)
        case _:
            return before


def _of_head(step: Attention, head: int) -> Float[Tensor, "query d"]:
    return step.weights[head - 1] @ step.values[head - 1] @ step.output[head - 1]


@dataclass(frozen=True)
class Continued:
    """What the model makes of a block's output: the states after its last block, and its logits (if it has a head)."""

    states: Float[Tensor, "many token d"]
    logits: Float[Tensor, "many token label"] | None


def continued(
    model: Model, sequence: TokenSequence, layer: int, outputs: Float[Tensor, "many token d"], *, logits: bool
) -> Continued:
    """The model run on copies of a sequence, each with its own output of one block."""
    at_once = max(1, _TOKENS_AT_ONCE // len(sequence))
    pieces = [_run(model, sequence, layer, some, logits=logits) for some in outputs.split(at_once)]
    scores = [piece.logits for piece in pieces if piece.logits is not None]
    return Continued(torch.cat([piece.states for piece in pieces]), torch.cat(scores) if scores else None)


def _run(
    model: Model, sequence: TokenSequence, layer: int, outputs: Float[Tensor, "many token d"], *, logits: bool
) -> Continued:
    (batch,) = model.batches([sequence])
    blocks = blocks_of(model.module, model.family.stack)
    last: list[Tensor] = []
    hook = _replacing(layer, outputs.to(model.weight_dtype), last)
    with torch.no_grad():
        output = model.run(
            batch.repeated(len(outputs)), lambda: [block.register_forward_hook(hook) for block in blocks], head=False
        )
    return Continued(last[-1].float(), output.logits.float() if logits else None)


def _replacing(layer: int, outputs: Tensor, last: list[Tensor]) -> Callable[..., Any]:
    """Counts the blocks as they are run, since a block may be run more than once, and notes what each outputs."""
    count = 0

    def hook(_: nn.Module, __: tuple[object, ...], output: Any) -> Any:
        nonlocal count
        count += 1
        whole: Sequence[Any] | None = None if isinstance(output, Tensor) else output
        own: Tensor = output if whole is None else whole[0]
        states = outputs.to(own.device) if count == layer else own
        last[:] = [states]
        return states if whole is None else (states, *whole[1:])

    return hook
