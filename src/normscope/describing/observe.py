"""One pass of a model with hooks on all of its modules: what each reads and returns, and which modules are the blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from normscope.capture.hooks import RowWeights, eager_attention, forward_pass, recorded_attention
from normscope.errors import NormscopeError, UnsupportedArchitectureError, few, listing

_LIMITS = {torch.float64: 1e-6, torch.float32: 3e-5}
"""Up to this relative difference two tensors are taken to be the same. Some norms compute in float32, even in a model of
float64. What is taken to be the same is only proposed, and proved afterwards."""


def limit_of(tensor: Tensor) -> float:
    """The relative difference up to which tensors of a dtype are taken to be the same."""
    return _LIMITS.get(tensor.dtype, 0.0)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors agree within a tolerance relative to the largest number."""
    return one.shape == other.shape and difference(one, other) <= limit_of(other)


def difference(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors relative to the largest number."""
    scale = float(other.abs().max().clamp(min=1e-30))
    return float((one - other).abs().max()) / scale


@dataclass
class Call:
    """One call of a module, for one sequence. `start` orders calls; `arguments` and `output` are those of the call."""

    path: str
    module: nn.Module
    start: int
    arguments: tuple[Tensor, ...]
    output: Any = None
    end: int = -1

    @property
    def reads(self) -> Tensor:
        """`[token, feature]`: the first argument."""
        return _rows(self.arguments[0])

    @property
    def returns(self) -> Tensor:
        """`[token, feature]`: the first tensor of the output."""
        return _rows(first_tensor(self.output))

    @property
    def transforms(self) -> bool:
        """Whether the module turns one tensor of numbers into another with as many rows."""
        if not self.arguments or first_tensor(self.output).dim() == 0:
            return False
        given, output = self.arguments[0], first_tensor(self.output)
        return (
            given.is_floating_point()
            and output.is_floating_point()
            and given.dim() > 1 < output.dim()
            and len(self.reads) == len(self.returns)
        )


@dataclass
class BlockRun:
    """One call of a block: its own call, those of its submodules (paths relative to the block), and attentions.

    `attentions` has, for each module that goes through the attention interface of transformers, its weights, what its eager
    function makes of the identity as values, and its values.
    """

    module: nn.Module
    call: Call
    inside: list[Call]
    attentions: dict[str, tuple[Tensor, Tensor, Tensor]]

    @property
    def reads(self) -> Tensor:
        return self.call.reads

    @property
    def returns(self) -> Tensor:
        return self.call.returns


@dataclass
class Observation:
    """A pass of a model: its blocks in the order of their calls, the calls outside of them, and the model's output."""

    model: PreTrainedModel
    blocks: str
    runs: list[BlockRun]
    outside: list[Call]
    output: Any


Heard = tuple[nn.Module, int, Tensor, Tensor]
"""An attention's module, when it was called, its weights and its values."""


@dataclass
class _Recorder:
    """All calls of a pass, and the observed attentions."""

    calls: list[Call] = field(default_factory=list[Call])
    attentions: list[Heard] = field(default_factory=list[Heard])
    clock: int = 0
    open: dict[nn.Module, list[Call]] = field(default_factory=dict[nn.Module, list[Call]])

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def hook(self, path: str, module: nn.Module) -> list[RemovableHandle]:
        def starts(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            given = tuple(value.clone() for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
            call = Call(path, module, self.tick(), given)
            self.calls.append(call)
            self.open.setdefault(module, []).append(call)

        def ends(_: nn.Module, __: tuple[object, ...], output: object) -> None:
            call = self.open[module].pop()
            call.output, call.end = _copied(output), self.tick()

        return [module.register_forward_pre_hook(starts, with_kwargs=True), module.register_forward_hook(ends)]

    def listener(self, module: nn.Module) -> Callable[[Tensor | RowWeights, Tensor], None]:
        def note(weights: Tensor | RowWeights, values: Tensor) -> None:
            assert isinstance(weights, Tensor)
            self.attentions.append((module, self.tick(), weights[0].clone(), values[0].clone()))

        return note


def observe(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Observation:
    """Run a model once and find its blocks; raises if there is no stack of blocks, or more than one."""
    try:
        recorder, output = _run(model, inputs, probed=False, dispatched=True)
        probed, _ = _run(model, inputs, probed=True, dispatched=True) if recorder.attentions else (recorder, None)
    except (NormscopeError, RuntimeError, ValueError, TypeError, AttributeError):
        recorder = _Recorder()
        probed, output = recorder, None
    if not recorder.attentions:  # the model does not use the attention interface
        recorder, output = _run(model, inputs, probed=False, dispatched=False)
        probed = recorder
    path, blocks = _stack(model, recorder.calls)
    runs = [_block_run(call, recorder, probed) for call in blocks]
    inside = [(call.start, call.end) for call in blocks]
    outside = [call for call in recorder.calls if not any(start <= call.start <= end for start, end in inside)]
    return Observation(model, path, runs, outside, output)


def _run(model: PreTrainedModel, inputs: Mapping[str, Any], *, probed: bool, dispatched: bool) -> tuple[_Recorder, Any]:
    recorder = _Recorder()
    modules = dict(model.named_modules())
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        handles = stack.enter_context(forward_pass(model))
        for path, module in modules.items():
            if path:
                handles += recorder.hook(path, module)
        if dispatched:
            listeners = {module: recorder.listener(module) for module in model.base_model.modules()}
            stack.enter_context(recorded_attention(model, listeners, None, list(listeners) if probed else ()))
        else:
            stack.enter_context(eager_attention(model))
        output: Any = model(**inputs, return_dict=True)
    return recorder, output


def _stack(model: PreTrainedModel, calls: list[Call]) -> tuple[str, list[Call]]:
    """The list of modules whose calls follow each other, each reading what the one before it returned."""
    base, broken = model.base_model, []
    prefix = next((name for name, module in model.named_modules() if module is base), "")
    found: list[tuple[str, list[Call]]] = []
    for path, module in base.named_modules():
        if not isinstance(module, nn.ModuleList) or any(path.startswith(f"{outer}.") for outer, _ in found):
            continue
        members = set(module.children())
        runs = [call for call in calls if call.module in members]
        if not runs or not _are_blocks(runs) or {call.module for call in runs} != members:
            continue
        joint = _broken_joint(runs)
        if joint is not None:
            broken.append(f"{path}.* ({joint})")
            continue
        found.append((path, runs))
    where = f" below {prefix!r}" if prefix else ""
    if not found:
        seen = f" Seen: {few(broken)}." if broken else ""
        raise UnsupportedArchitectureError(
            f"No stack of blocks was found in {type(base).__name__}{where}: there is no list of modules of one class that "
            f"are called in order, each reading what the one before it returned.{seen}"
        )
    if len(found) > 1:
        raise UnsupportedArchitectureError(
            f"{type(model).__name__} has {len(found)} stacks of blocks ({listing(path for path, _ in found)}), and only "
            f"models with one stack are described automatically."
        )
    path, runs = found[0]
    return f"{path}.*", sorted(runs, key=lambda call: call.start)


def _are_blocks(runs: list[Call]) -> bool:
    classes = {type(call.module) for call in runs}
    return len(classes) == 1 and all(call.transforms and call.reads.shape == call.returns.shape for call in runs)


def _broken_joint(runs: list[Call]) -> str | None:
    for number, (before, after) in enumerate(pairwise(runs), start=2):
        if not torch.equal(before.returns, after.reads):
            return f"block {number} does not read what block {number - 1} returns"
    return None


def _block_run(block: Call, recorder: _Recorder, probed: _Recorder) -> BlockRun:
    names = {module: name for name, module in block.module.named_modules() if name}
    inside: list[Call] = []
    for call in recorder.calls:
        if block.start < call.start < block.end and call.module in names:
            relative = Call(names[call.module], call.module, call.start, call.arguments, call.output, call.end)
            inside.append(relative)
    attentions: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    for index, (module, time, weights, values) in enumerate(recorder.attentions):
        if block.start < time < block.end and module in names:
            attentions[names[module]] = (weights, probed.attentions[index][2], values)
    return BlockRun(block.module, block, inside, attentions)


def first_tensor(output: object) -> Tensor:
    """The first tensor of what a module returns; a number where there is none."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, dict):
        output = tuple(cast("dict[str, object]", output).values())
    if isinstance(output, tuple | list):
        for item in cast("tuple[object, ...]", output):
            if isinstance(item, Tensor):
                return item
    return torch.tensor(0)


def _copied(output: object) -> object:
    if isinstance(output, Tensor):
        return output.clone()
    if isinstance(output, tuple):
        return tuple(_copied(item) for item in cast("tuple[object, ...]", output))
    return output


def _rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1])
