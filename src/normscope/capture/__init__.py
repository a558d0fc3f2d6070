"""Capture: runs an unmodified Hugging Face model and passes on each block's trace as soon as the block is done.

One layer's tensors live at a time: a trace is made in the block's own hook, consumed, and freed before the next block.
Knows Hugging Face and hooks; knows no mathematics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from normscope.capture.between import Joints, watch_outside
from normscope.capture.blocks import TraceBuilder, TracesOfRows
from normscope.capture.experts import experts_path
from normscope.capture.fused import add_fused
from normscope.capture.hooks import (
    AttentionListener,
    RowWeights,
    eager_attention,
    forward_pass,
    kept_outputs,
    recorded_attention,
)
from normscope.capture.loose import turned
from normscope.capture.mixing_calls import Mixer, MixingListener, recorded_mixing
from normscope.capture.probing import probed_weights
from normscope.capture.scores import WantedScores
from normscope.capture.stacks import bare_model, blocks_of, family_in, module_between, sequence_first, watched_paths
from normscope.capture.view import Arguments, CapturedCall, Keywords, MixingCall, SequenceView
from normscope.capture.weights import BlockWeights
from normscope.capture.windows import Windows, windows_in
from normscope.chain.trace import LayerTrace
from normscope.errors import UnsupportedArchitectureError
from normscope.families import Family
from normscope.families.spec import (
    NO_FEED_FORWARD,
    DispatchedAttention,
    DispatchedCrossAttention,
    HookedAttention,
    LinearMixer,
    Part,
    ProbedPart,
    Stack,
    attentions_in,
)

__all__ = [
    "LONG",
    "ROWS_AT_ONCE",
    "BlockCall",
    "Side",
    "TracesOfRows",
    "bare_model",
    "blocks_of",
    "capture",
    "capture_call",
    "capture_sides",
    "family_in",
    "module_between",
    "rows_together",
]

Consumer = Callable[[int, int, LayerTrace], None]
"""A callback with the layer (from 1), the index of the sequence in the batch, and the trace."""


@dataclass(frozen=True)
class Side:
    """One stack to capture: the lengths of its sequences (and of those it attends to), its layers, and a callback.

    `components` is the number of components of the chain to capture (default all), so that no more is stored than needed.
    `blocks` gives for each sequence of the batch the query rows that go together: attention weights are then recomputed for
    these rows and never stored, if the model's attention allows it, and there is a trace for each block. `scores`:
    self-attentions also have the queries and keys of their weights, where these are `"known"`, or everywhere
    (`"required"`). `up_to_last`: in the trace of a block of rows, causal attention has the keys up to the last of these
    rows alone, since all others are hidden from them. `attended` gets the layer, the module's path and the output of every
    attention of a long input that torch computes. `by_rows` gets the layer and what gives the traces of blocks of rows
    of long inputs later, instead of `consume`.
    """

    stack: Stack
    lengths: Sequence[int]
    layers: Sequence[int]
    consume: Consumer
    source_lengths: Sequence[int] | None = None
    components: int | None = None
    blocks: Callable[[int], Sequence[Tensor]] | None = None
    scores: WantedScores = "no"
    up_to_last: bool = False
    attended: Callable[[int, str, Tensor], None] | None = None
    by_rows: Callable[[int, TracesOfRows], None] | None = None


LONG = 1024
"""From this many tokens on, the attention weights of a layer are not stored, but recomputed for blocks of query rows."""

ROWS_AT_ONCE = 256
"""Number of query rows of a long sequence whose attention is computed together."""

_PAIRS_AT_ONCE = 4096 * ROWS_AT_ONCE


def rows_together(length: int) -> int:
    """Number of query rows of a long sequence that are measured together; what they share is computed once."""
    return max(ROWS_AT_ONCE, _PAIRS_AT_ONCE // length)


Recorder = Callable[[nn.Module, Arguments, Keywords, Any], None]
"""A forward hook that records the input and output of a module."""


class _AllDone(Exception):
    """Ends a forward pass after the last requested block."""


def capture(
    model: PreTrainedModel,
    family: Family,
    inputs: Mapping[str, object],
    lengths: Sequence[int],
    layers: Sequence[int],
    consume: Consumer,
    *,
    dtype: torch.dtype,
    below_attention: bool = False,
) -> None:
    """Run a batch (padded on the right to `lengths`) and pass every trace of the requested layers to `consume`.

    With `below_attention`, traces also have the computation of the values of every attention (`Attention.source`).
    """
    side = Side(family.stack, lengths, layers, consume)
    capture_sides(model, inputs, [side], dtype=dtype, below_attention=below_attention)


def capture_sides(
    model: PreTrainedModel,
    inputs: Mapping[str, object],
    sides: Sequence[Side],
    *,
    dtype: torch.dtype,
    below_attention: bool = False,
    head_hooks: Callable[[], list[RemovableHandle]] | None = None,
    to_the_end: bool = False,
) -> None:
    """The same for several stacks of one model (encoder and decoder), in one forward pass.

    `head_hooks` are registered on the whole model, with its task head. The pass ends after the last requested layer, or,
    with `to_the_end`, after the head.
    """
    listeners = [_Listener(model, side, dtype, below_attention) for side in sides]
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        handles = stack.enter_context(forward_pass(model))
        attentions: dict[nn.Module, AttentionListener] = {}
        probed: list[nn.Module] = []
        mixers: list[Mixer] = []
        blocks = [blocks_of(model, side.stack) for side in sides]
        handles += watch_outside(model, [block for stack in blocks for block in stack])
        for listener, own in zip(listeners, blocks, strict=True):
            chains = listener.chains
            for index, block in enumerate(own):
                chain = chains[index % len(chains)]
                handles += listener.hook(
                    block, chain, done=lambda: not to_the_end and all(other.done for other in listeners)
                )
                attentions |= listener.attentions(block, chain)
                probed += _probed(block, chain)
                mixers += listener.mixers(block, chain)
        rows = ROWS_AT_ONCE if all(side.blocks is not None for side in sides) else None
        stack.enter_context(
            recorded_attention(model, attentions, rows, probed) if attentions else eager_attention(model)
        )
        outputs = {module: hear for each in listeners for module, hear in each.output_listeners.items()}
        stack.enter_context(kept_outputs({}, outputs))
        stack.enter_context(recorded_mixing(mixers))
        stack.enter_context(suppress(_AllDone))
        if head_hooks is None:
            bare_model(model)(**inputs)
        else:
            handles += head_hooks()
            model(**inputs)
    for listener in listeners:
        listener.check_done(model)


@dataclass(frozen=True)
class BlockCall:
    """How a block was called in a pass, so that it can be run again by itself: `hidden` is its input."""

    layer: int
    block: nn.Module
    hidden: Tensor
    args: Arguments
    kwargs: Keywords
    attended: dict[str, list[Tensor]] = field(default_factory=dict[str, list[Tensor]])
    """Outputs of attentions by the paths of their modules, where they are kept: they are not computed again."""

    @staticmethod
    def of(layer: int, block: nn.Module, args: Arguments, kwargs: Keywords) -> BlockCall:
        """With a copy of the states, which some models add to in place."""
        hidden = _first(args, kwargs).clone()
        others = {name: value for name, value in kwargs.items() if args or name != "hidden_states"}
        return BlockCall(layer, block, hidden, args[1:], others)


def capture_call(model: PreTrainedModel, side: Side, call: BlockCall, *, dtype: torch.dtype) -> None:
    """Run one block again, and consume its traces, below attention, as in the pass that its call was recorded in."""
    listener = _Listener(model, side, dtype, below_attention=True)
    listener.layer = call.layer - 1
    index = blocks_of(model, side.stack).index(call.block)
    chain = listener.chains[index % len(listener.chains)]
    attentions = listener.attentions(call.block, chain)
    rows = ROWS_AT_ONCE if side.blocks is not None else None
    with torch.no_grad(), forward_pass(model) as handles:
        handles.extend(listener.hook(call.block, chain, done=lambda: False))
        probed = _probed(call.block, chain)
        mixers = listener.mixers(call.block, chain)
        recorded = recorded_attention(model, attentions, rows, probed) if attentions else eager_attention(model)
        known = {_original(call.block.get_submodule(path)): outputs for path, outputs in call.attended.items()}
        with recorded, kept_outputs(known, {}), recorded_mixing(mixers):
            call.block(call.hidden, *call.args, **call.kwargs)


def _probed(block: nn.Module, chain: Sequence[Part]) -> list[nn.Module]:
    """The attentions of a block whose weights are measured by running them on the identity."""
    parts = [part for part in attentions_in(chain) if isinstance(part, DispatchedAttention) and part.probed]
    return [_original(block.get_submodule(part.module)) for part in parts]


def _beginning(chain: Sequence[Part], components: int | None) -> Sequence[Part]:
    """The chain up to a number of components, and one more, whose input is the state after them: the whole chain, if the
    state shows nowhere before its end."""
    if components is None or NO_FEED_FORWARD in chain:
        return chain
    ends = [index + 1 for index, part in enumerate(chain) if part.component]
    return chain[: ends[min(components, len(ends) - 1)]]


class _Listener:
    """Captures a stack block by block. Layers are counted by calls, since modules may be shared between layers."""

    def __init__(self, model: PreTrainedModel, side: Side, dtype: torch.dtype, below_attention: bool) -> None:
        self.side, self.dtype, self.below_attention, self.config = side, dtype, below_attention, model.config
        self.whole_chains = [topology.chain() for topology in side.stack.topologies(model.config)]
        self.chains = [_beginning(chain, side.components) for chain in self.whole_chains]
        self.joints = None if module_between(model, side.stack) else Joints(model, copied=side.stack.seams is not None)
        self.axes = None if side.stack.seams is None else side.stack.seams.axes
        self.windows: Windows | None = None
        self.layer = 0
        self.output_listeners: dict[nn.Module, Callable[[Tensor], None]] = {}
        self.captured: CapturedCall | None = None

    @property
    def done(self) -> bool:
        return self.layer >= max(self.side.layers, default=0)

    def check_done(self, model: PreTrainedModel) -> None:
        """Raise if the pass ended before the last requested layer."""
        if not self.done:
            raise UnsupportedArchitectureError(
                f"{type(model).__name__} ran {self.layer} of {self.side.stack.depth(model.config)} blocks at "
                f"{self.side.stack.blocks!r}: it has other blocks than its configuration says."
            )

    def hook(self, block: nn.Module, chain: Sequence[Part], done: Callable[[], bool]) -> list[RemovableHandle]:
        """Hooks on a block and on the submodules that its chain needs."""

        def ends(_: nn.Module, __: Arguments, output: Tensor | Sequence[Any]) -> None:
            states = output if isinstance(output, Tensor) else output[0]
            self._block_ends(block, chain, states)
            if self.joints is not None:
                self.joints.leave(states)
            if done():
                raise _AllDone

        handles = [block.register_forward_pre_hook(self._block_starts, with_kwargs=True)]
        for part in chain:
            if isinstance(part, HookedAttention) and part.zeroed is not None:
                module = block.get_submodule(part.weights)
                handles.append(module.register_forward_pre_hook(_zeroing(part.zeroed), with_kwargs=True))
        tokens_first = sequence_first(chain)
        for path in watched_paths(chain, below_attention=self.below_attention):
            recorder = self._recorder(path, (0, 1) if path in tokens_first else self.axes)
            handles.append(block.get_submodule(path).register_forward_hook(recorder, with_kwargs=True))
        for part in chain:
            if isinstance(part, ProbedPart):
                module = block.get_submodule(part.module)
                handles.append(module.register_forward_hook(self._probe(block, part), with_kwargs=True))
        for path in self._with_scores(chain):
            called = block.get_submodule(path).register_forward_pre_hook(self._call_recorder(path), with_kwargs=True)
            handles.append(called)
        for path in filter(None, map(experts_path, chain)):
            handles.append(block.get_submodule(path).register_forward_pre_hook(self._routing_recorder(path)))
        return [*handles, block.register_forward_hook(ends)]

    def _with_scores(self, chain: Sequence[Part]) -> list[str]:
        """The attention modules whose calls are kept, to run them again for their queries and keys."""
        return (
            [part.module for part in attentions_in(chain) if isinstance(part, DispatchedAttention)]
            if self.side.scores != "no"
            else []
        )

    def attentions(self, block: nn.Module, chain: Sequence[Part]) -> dict[nn.Module, AttentionListener]:
        """Listeners for the attention modules of a block that go through the attention interface."""
        dispatched = (DispatchedAttention, DispatchedCrossAttention)
        paths = [part.module for part in attentions_in(chain) if isinstance(part, dispatched)]
        modules = {path: _original(block.get_submodule(path)) for path in paths}
        if self.side.attended is not None:
            self.output_listeners |= {modules[path]: self._output_recorder(path) for path in paths}
        return {modules[path]: self._attention_recorder(path) for path in paths}

    def _output_recorder(self, path: str) -> Callable[[Tensor], None]:
        def note(output: Tensor) -> None:
            if self.side.attended is not None:
                self.side.attended(self.layer, path, output)

        return note

    def mixers(self, block: nn.Module, chain: Sequence[Part]) -> list[Mixer]:
        """The mixers of a block that mix by a function of their own."""
        return [
            Mixer(_original(block.get_submodule(part.module)), part.function_name, self._mixing_recorder(part.module))
            for part in attentions_in(chain)
            if isinstance(part, LinearMixer) and part.function_name is not None
        ]

    def _mixing_recorder(self, path: str) -> MixingListener:
        def note(call: MixingCall) -> None:
            if self.captured is not None:
                self.captured.mixing[path] = call

        return note

    def _block_starts(self, block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self.layer += 1
        hidden = _first(args, kwargs)
        if self.joints is not None:
            self.joints.enter(hidden, self.layer)
        if self.layer in self.side.layers:
            if self.side.stack.windows is not None:
                self.windows = windows_in(block, self.side.stack.windows, hidden, args, kwargs)
            self.captured = CapturedCall(hidden=hidden.clone(), source=_source(block, args, kwargs))

    def _block_ends(self, block: nn.Module, chain: Sequence[Part], output: Tensor) -> None:
        if self.captured is None:
            return
        captured, self.captured = self.captured, None  # modules that are run again are no part of the call
        weights = BlockWeights(block, self.dtype, output.device)
        whole = tuple(chain) in self.whole_chains
        stack, side = self.side.stack, self.side
        below = self.below_attention, side.scores, side.up_to_last
        builder = TraceBuilder(chain, whole, weights, self.config, stack.causal, *below)
        source_lengths = self.side.source_lengths or [0] * len(self.side.lengths)
        for sequence, (length, source) in enumerate(zip(self.side.lengths, source_lengths, strict=True)):
            view = SequenceView(captured, output, sequence, length, source, self.dtype)
            if self.side.blocks is None or not view.is_long:
                self.side.consume(self.layer, sequence, builder.trace(view))
                continue
            if side.by_rows is not None:  # later blocks may add to this one's output in place
                side.by_rows(self.layer, builder.by_rows(replace(view, output_states=output.clone())))
                continue
            for trace in builder.traces_of_rows(view, self.side.blocks(sequence)):
                self.side.consume(self.layer, sequence, trace)

    def _recorder(self, path: str, axes: tuple[int, int] | None) -> Recorder:
        """Exchanges two axes of the states in the input and output of a module."""

        def note(_: nn.Module, args: Arguments, kwargs: Keywords, output: Any) -> None:
            if self.captured is not None:
                windows = self._windows_around(path)
                states, given = _first(args, kwargs), output
                if windows is not None:
                    states, given = windows.tokens(states), windows.tokens(given)
                self.captured.add(path, turned(states, axes), turned(given, axes))
                second = args[1] if len(args) > 1 else kwargs.get("gate")
                if isinstance(second, Tensor):
                    self.captured.seconds[path] = second

        return note

    def _windows_around(self, path: str) -> Windows | None:
        """The windows in which a submodule of the block sees the tokens; `None` if it sees all of them in order."""
        outer = self.side.stack.windows
        return self.windows if outer is not None and f"{path}.".startswith(f"{outer}.") else None

    def _call_recorder(self, path: str) -> Callable[[nn.Module, Arguments, Keywords], None]:
        def note(_: nn.Module, args: Arguments, kwargs: Keywords) -> None:
            if self.captured is not None:
                self.captured.calls[path] = args, kwargs

        return note

    def _probe(self, block: nn.Module, part: ProbedPart) -> Recorder:
        def run_again(_: nn.Module, args: Arguments, kwargs: Keywords, output: object) -> None:
            captured, self.captured = self.captured, None  # nothing of this is recorded
            if captured is not None and getattr(part, "fused", False):
                add_fused(captured, block, part, part.heads(self.config), args, kwargs, output)
            elif captured is not None:
                heads, width = part.heads(self.config), captured.inputs[part.output].shape[-1]
                weights = probed_weights(block, part, heads, width, args, kwargs)
                windows = self._windows_around(part.module)
                captured.probed[part.module] = weights if windows is None else windows.weights(weights)
            self.captured = captured

        return run_again

    def _routing_recorder(self, path: str) -> Callable[[nn.Module, Arguments], None]:
        def note(_: nn.Module, args: Arguments) -> None:
            if self.captured is not None:
                _, choices, weights = args
                self.captured.routing[path] = (choices, weights)

        return note

    def _attention_recorder(self, path: str) -> AttentionListener:
        def note(weights: Tensor | RowWeights, values: Tensor) -> None:
            if self.captured is not None:
                self.captured.attention[path] = (weights, values)

        return note


def _zeroing(
    name: str,
) -> Callable[[nn.Module, tuple[object, ...], dict[str, object]], tuple[object, dict[str, object]]]:
    """A hook that replaces one argument of a module by zeros."""

    def hook(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, dict[str, object]]:
        return args, {**kwargs, name: torch.zeros_like(cast(Tensor, kwargs[name]))}

    return hook


def _original(module: nn.Module) -> nn.Module:
    """The original of a compiled module, which calls the attention function; otherwise the module itself."""
    return cast(nn.Module, getattr(module, "_orig_mod", module))


def _source(block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> Tensor | None:
    """The encoder's states that a block was called with, if any."""
    name = "encoder_hidden_states"
    if name in kwargs or not args[1:]:
        return cast("Tensor | None", kwargs.get(name))
    try:
        return signature(block.forward).bind(*args, **kwargs).arguments.get(name)
    except (TypeError, ValueError):  # not called by its signature
        return None


def _first(args: tuple[object, ...], kwargs: dict[str, object]) -> Tensor:
    """The states that a module was called with."""
    return cast(Tensor, args[0] if args else kwargs["hidden_states"])
