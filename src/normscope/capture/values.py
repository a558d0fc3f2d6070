"""The values of an attention: where they are in the output of their projection, and how they are computed.

Owns the path from a block's input (or the encoder's output) to the values, and raises if the description of it does not
fit: the input of each module must be, bit for bit, the output of the one before it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from normscope.capture.view import SequenceView
from normscope.capture.weights import BlockWeights
from normscope.chain.trace import Linear, Normalise, ValueSource
from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import (
    AttentionPart,
    CrossPart,
    DispatchedAttention,
    FusedPerHead,
    FusedPerHeadWithBias,
    FusedRange,
    FusedShards,
    FusedTail,
    LatentPerHead,
    LinearMixer,
    NormedHeads,
    NormPart,
    PairedHeads,
    ScaledHeads,
    SequenceFirst,
    SideBySide,
    SplitHeads,
    Value,
    WholeState,
)


def value_share(value: Value, projected: Tensor, groups: int, d_head: int) -> Tensor:
    """`[..., group, d_head]`: the values among the outputs of their projection (or its bias)."""
    match value:
        case WholeState():
            return projected.unsqueeze(-2).expand(*projected.shape[:-1], groups, d_head)
        case SplitHeads() | NormedHeads() | SequenceFirst() | SideBySide() | ScaledHeads():
            return projected.unflatten(-1, (groups, d_head))
        case PairedHeads():
            return projected.unflatten(-1, (2, groups, d_head // 2)).movedim(-3, -2).flatten(-2)
        case FusedTail():
            return projected[..., -groups * d_head :].unflatten(-1, (groups, d_head))
        case FusedShards():
            shards = projected.unflatten(-1, (value.shards, 3, -1))
            return shards[..., 1, :].flatten(-2).unflatten(-1, (groups, d_head))
        case FusedRange():
            blocks = projected.unflatten(-1, (value.blocks, -1))[..., value.start : value.start + value.width]
            share = blocks.flatten(-2).unflatten(-1, (groups, d_head))
            return share if value.factor == 1 else share * value.factor
        case FusedPerHead() | FusedPerHeadWithBias() | LatentPerHead():
            return projected.unflatten(-1, (groups, -1))[..., -d_head:]


def projections(value: Value) -> tuple[str, ...]:
    """The modules that output the values."""
    return value.modules if isinstance(value, SideBySide) else (value.module,)


def projected_values(part: AttentionPart, read: BlockWeights, view: SequenceView, groups: int, d_head: int) -> Tensor:
    """`[group, key, d_head]` from the output of the value projection."""
    source = isinstance(part, CrossPart)
    output = torch.cat([view.output(path, source=source) for path in projections(part.value)], dim=-1)
    values = value_share(part.value, output, groups, d_head)
    if isinstance(part.value, ScaledHeads):
        values = values * float(read.attribute(part.value.scale))
    if isinstance(part.value, FusedPerHeadWithBias):
        values = values + read.parameter(part.value.bias).reshape(groups, d_head)
    return values.transpose(0, 1)


def watched_below(part: AttentionPart) -> tuple[str, ...]:
    """The submodules between the block's input and the values."""
    norm = () if part.norm is None else (part.norm.module,)
    latent = (part.value.down, part.value.norm.module) if isinstance(part.value, LatentPerHead) else ()
    return (*norm, *latent, *projections(part.value))


def value_source(
    part: AttentionPart, read: BlockWeights, view: SequenceView, values: Tensor, heads: int
) -> ValueSource:
    """The computation of the values `[group, key, d_head]` of an attention."""
    path = path_to_values(part, read, view)
    groups, _, d_head = values.shape
    projection, bias = value_projection(part.value, read, groups, d_head)
    projection = projection * path.factor
    repeats = heads // groups
    projected = projected_values(part, read, view, groups, d_head)
    slopes = None
    if isinstance(part.value, NormedHeads):
        deviations = (projected.square().mean(-1, keepdim=True) + read.epsilon(part.value.norm)).sqrt()
        slopes = _repeated((1 / deviations).expand_as(projected), repeats)
    return ValueSource(
        states=path.states,
        steps=tuple(path.steps),
        projection=_repeated(projection, repeats),
        bias=None if bias is None else _repeated(bias, repeats),
        limit=math.inf if slopes is not None else _limit(projected, values),
        slopes=slopes,
    )


def path_to_values(part: AttentionPart, read: BlockWeights, view: SequenceView) -> PathToValues:
    """The path from the states that an attention reads to the input of its value projection."""
    path = PathToValues(read, view, source=isinstance(part, CrossPart), start=part.value.module)
    if part.norm is not None:
        path.normalise(part.norm)
    if isinstance(part.value, LatentPerHead):
        path.narrow(part.value.down, width=view.input(part.value.norm.module).shape[-1])
        path.normalise(part.value.norm)
    path.factor = entering_factor(part)
    for module in projections(part.value):
        path.enter(module)
    return path


def entering_factor(part: AttentionPart) -> float:
    """What an attention or mixer multiplies the states by that it reads."""
    return part.entering if isinstance(part, DispatchedAttention | LinearMixer) else 1.0


def _repeated(tensor: Tensor, repeats: int) -> Tensor:
    return tensor if repeats == 1 else tensor.repeat_interleave(repeats, dim=0)


def _limit(projected: Tensor, values: Tensor) -> float:
    """The limit to which values are clipped after their projection; infinite if they are not only clipped."""
    limit = float(values.abs().amax())
    clipped = not torch.equal(projected, values) and torch.equal(projected.clamp(-limit, limit), values)
    return limit if clipped else math.inf


def value_projection(value: Value, read: BlockWeights, groups: int, d_head: int) -> tuple[Tensor, Tensor | None]:
    """The value projection, `[group, d_head, inputs]`, and its bias, `[group, d_head]`."""
    linear = _joined([read.linear(path) for path in projections(value)])
    if isinstance(value, ScaledHeads):
        factor = float(read.attribute(value.scale))
        linear = Linear(linear.weight * factor, None if linear.bias is None else linear.bias * factor)
    projection = value_share(value, linear.weight.T, groups, d_head).permute(1, 2, 0)
    if isinstance(value, FusedPerHeadWithBias):
        return projection, read.parameter(value.bias).reshape(groups, d_head)
    return projection, None if linear.bias is None else value_share(value, linear.bias, groups, d_head)


def _joined(projections: list[Linear]) -> Linear:
    """One map whose output concatenates those of several."""
    if len(projections) == 1:
        return projections[0]
    biases = [projection.bias for projection in projections if projection.bias is not None]
    bias = torch.cat(biases) if len(biases) == len(projections) else None
    return Linear(torch.cat([projection.weight for projection in projections]), bias)


class PathToValues:
    """The path from the states that an attention reads to its values, module by module."""

    def __init__(self, read: BlockWeights, view: SequenceView, *, source: bool, start: str) -> None:
        self.read, self.view, self.source = read, view, source
        self.states = view.source_states(start) if source else view.hidden
        self.reached = self.states
        self.steps: list[Normalise | Linear] = []
        self.factor = 1.0

    def enter(self, module: str) -> None:
        """Check that the input of a module is the last output, in the dtype in which the module reads it."""
        reached = self.reached.to(self.view.captured.inputs[module].dtype)
        reached = reached if self.factor == 1 else reached * self.factor
        if not torch.equal(self.view.input(module, source=self.source), reached.to(self.reached.dtype)):
            raise UnsupportedArchitectureError(
                f"{module} does not read what its family says: the path from the block's input to the values "
                f"({[type(step).__name__ for step in self.steps] or 'no step'} so far) is a different one."
            )

    def normalise(self, part: NormPart) -> None:
        self.enter(part.module)
        self.steps.append(Normalise(self.read.norm(part, self.reached), state_before=self.reached))
        self.reached = self.view.output(part.module, source=self.source)

    def narrow(self, module: str, width: int) -> None:
        """Through the first outputs of a linear layer."""
        self.enter(module)
        linear = self.read.linear(module)
        self.steps.append(Linear(linear.weight[:width], None if linear.bias is None else linear.bias[:width]))
        self.reached = self.view.output(module, source=self.source)[:, :width]
