"""A pass that keeps the input of each block and what its attention makes of it. On the way back, every block is run again
by itself, except for those whose traces fit into a memory.

Attention weights are computed for blocks of query rows and never stored, so that memory is that of the states, and time
that of two forward passes and the pull-back. For one stack of blocks under a language-model head.
Every trace is proved as in a `Recording`, and so is that blocks which are run again have the same output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from normscope.capture import LONG, BlockCall, Side, TracesOfRows, capture_call
from normscope.capture.heads import HeadListener
from normscope.capture.hooks import forward_pass
from normscope.chain.head_trace import HeadTrace
from normscope.chain.trace import LayerTrace, SelfAttention
from normscope.errors import UnsupportedArchitectureError
from normscope.estimate.sizes import blocks_in, kept_of_long
from normscope.explain.pulling import LayersBack, PassedLayer, Pulled, PullRequest, Way, check_joined_blocks
from normscope.explain.question import LogitQuestion, Rows
from normscope.explain.recording import Played
from normscope.explain.rows import head_of_rows, keeps_rows, played_rows
from normscope.families.heads import head_of
from normscope.inputs import TokenSequence
from normscope.models.model import Model
from normscope.pullback import FlowPullBack, StatesPullBack

_WEIGHTS_AT_ONCE, _FEWEST_ROWS = 2**22, 16
"""Attention weights, of all heads, that are looked at together; a few copies of them are in the memory at once."""


class Stream:
    """The blocks of one stack for one input, run once forwards, and again one by one on every way back."""

    def __init__(self, model: Model, sequence: TokenSequence, request: PullRequest) -> None:
        self.model, self.sequence, self.request = model, sequence, request
        self.dtype = request.dtype or torch.promote_types(model.weight_dtype, torch.float32)
        self.calls: list[BlockCall] = []
        self.kept: dict[int, TracesOfRows] = {}
        self.leaving: Float[Tensor, "token d"] | None = None

    def play(self, rows: Rows) -> tuple[Played, Float[Tensor, "row label"]]:
        """Run the model once: the values wanted at some rows of its logits, and these rows."""
        head, logits = self._run([row for row, _ in rows if row is not None])
        assert self.leaving is not None
        return played_rows(self.model, head, rows, self.leaving), logits

    def _run(self, rows: Sequence[int]) -> tuple[HeadTrace, Float[Tensor, "row label"]]:
        """One pass forwards; the head of some rows alone, and their logits."""
        (batch,) = self.model.batches([self.sequence])
        wanted = torch.tensor(rows, device=next(iter(batch.features.values())).device)
        few = keeps_rows(self.model)
        if few:  # a row of logits is as long as the vocabulary
            batch = replace(batch, features={**batch.features, "logits_to_keep": wanted})
        listener = _CallListener(self.model, len(self.sequence), self.dtype)

        def keep(layer: int, path: str, output: Tensor) -> None:
            listener.calls[layer - 1].attended.setdefault(path, []).append(output)

        side = Side(
            *(self.model.family.stack, batch.lengths, range(1, 1 + self._kept_layers()), _nothing),
            blocks=lambda _: [],
            up_to_last=True,
            attended=keep,
            by_rows=self.kept.__setitem__,
        )
        self.model.capture(batch, [side], dtype=self.dtype, head=listener)
        self.calls = listener.calls
        (head,) = listener.traces()
        self.leaving = head.states
        selected = head_of_rows(head, wanted.to(head.states.device), few=few)
        return selected, selected.logits

    def _kept_layers(self) -> int:
        """How many layers fit into the memory, so that they need not be run again."""
        if self.request.max_memory is not None or self.request.scores != "no":
            return 0
        blocks = blocks_in(self.model.module, self.model.family.stack)
        return len(kept_of_long(blocks, len(self.sequence) * self.dtype.itemsize))

    def layers(self, *, flows: bool = False, last: bool = True) -> LayersBack:
        """The layers from the last to the first, each run again when covectors are pulled back through it, or kept.

        With `flows`, also what flows through each. On the `last` way back nothing is kept of a layer once it is passed.
        """
        above = self.leaving
        for done, call in enumerate(reversed(self.calls)):
            if self.request.tell is not None:
                self.request.tell(done, len(self.calls))
            yield call.layer, partial(self._through, call, above, flows)
            above = call.hidden[0].to(self.dtype)
            if last:
                self.kept.pop(call.layer, None)
                call.attended.clear()

    def _through(
        self, call: BlockCall, above: Tensor | None, flows: bool, covector: Float[Tensor, "target token d"]
    ) -> PassedLayer:
        pulled = (FlowPullBack if flows else StatesPullBack)(covector, self.request.weights)
        length, hidden = len(self.sequence), call.hidden[0].to(self.dtype)
        attention, seen = None, list[LayerTrace]()

        def consume(layer: int, _: int, trace: LayerTrace) -> None:
            nonlocal attention
            self.model.proof.layer(trace, f"layer {layer}", values=not seen)
            self._check_joined(layer, trace, above)
            pulled.add(trace if self.request.baseline is None else self.request.baseline.applied(trace))
            share = _received(trace)
            attention = share if attention is None else attention + share
            seen[:] = [trace]

        blocks = partial(_blocks, self.model, length)
        if call.layer in self.kept:
            with torch.no_grad(), forward_pass(self.model.module):
                for trace in self.kept[call.layer](blocks(0)):
                    consume(call.layer, 0, trace)
        else:
            side = Side(
                *(self.model.family.stack, [length], [call.layer], consume),
                blocks=blocks,
                scores=self.request.scores,
                up_to_last=True,
            )
            capture_call(self.model.module, side, call, dtype=self.dtype)
        assert attention is not None
        causal = seen[0].causal
        others = torch.arange(length - 1, -1, -1) if causal else torch.full((length,), length - 1)
        counted = attention / others.clamp(min=1).to(attention)
        if isinstance(pulled, FlowPullBack):
            return PassedLayer.of(pulled.finish_layer(), hidden, counted, causal)
        return PassedLayer(pulled.finish(), hidden, counted, causal)

    def _check_joined(self, layer: int, trace: LayerTrace, above: Tensor | None) -> None:
        output = trace.states[-1]
        if above is not None and output is not None:
            expected = above.to(output.device)[trace.queries]
            if not torch.equal(expected, output):
                raise UnsupportedArchitectureError(
                    f"What leaves layer {layer} of {self.model.name} is not what enters the next one, or is not what it was "
                    f"when the block is run again: something acts between two blocks, or a block keeps a state of its own."
                )


class _CallListener(HeadListener):
    """Listens to a head, and notes how every block before it is called."""

    def __init__(self, model: Model, length: int, dtype: torch.dtype) -> None:
        super().__init__(model.module, model.family, [length], dtype=dtype)
        self.calls: list[BlockCall] = []

    def hook(self) -> list[RemovableHandle]:
        own = [block.register_forward_pre_hook(self._note, with_kwargs=True) for block in self.blocks["head"]]
        return [*super().hook(), *own]

    def _note(self, block: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        self.calls.append(BlockCall.of(len(self.calls) + 1, block, args, kwargs))


def pull_back_long(model: Model, sequence: TokenSequence, question: LogitQuestion, request: PullRequest) -> Pulled:
    """The same as `pull_back` with all that flows except for edges."""
    check_joined_blocks(model)
    stream = Stream(model, sequence, request)
    played, logits = stream.play(question.rows)
    way = Way(model, played.values, played.sizes, played.pulled.bias)
    main = way.down(stream.layers(flows=True), "layer", played.pulled.covector, played.head.states)
    return Pulled(played.answers, logits, way.values, played.pulled.bias, main, None)


def is_streamed(model: Model, sequence: TokenSequence, request: PullRequest) -> bool:
    """Whether the blocks of an input are run again one by one: for long inputs, and within a memory, where they can be."""
    return (request.max_memory is not None or len(sequence) >= LONG) and can_stream(model)


def can_stream(model: Model) -> bool:
    """Whether the blocks of a model can be run again one by one: it is one stack under a language-model head."""
    stack = model.family.stack
    modules = model.family.encoder is None and stack.seams is None and stack.cut is None
    return modules and head_of(model.module).task == "causal-lm"


def _blocks(model: Model, length: int, _: int) -> Sequence[Tensor]:
    """Query rows that are pulled back together, the last ones first: these have all keys."""
    heads = blocks_in(model.module, model.family.stack)[0].heads
    return torch.arange(length).split(max(_FEWEST_ROWS, _WEIGHTS_AT_ONCE // (heads * length)))[::-1]


def _nothing(_: int, __: int, ___: LayerTrace) -> None:
    """No trace is requested on the way forwards."""


def _received(trace: LayerTrace) -> Float[Tensor, " token"]:
    """The attention that every token gets from the query rows of a trace other than its own: mean over heads, summed."""
    attention = next((step for step in trace.steps if isinstance(step, SelfAttention)), None)
    if attention is None:
        return torch.zeros(trace.length, device=trace.hidden.device)
    weights = attention.mixing_weights.mean(0).abs()
    own = weights[torch.arange(len(trace.queries), device=weights.device), trace.queries]
    received = weights.new_zeros(trace.length)
    received[: weights.shape[1]] = weights.sum(0)
    return received.index_add(0, trace.queries, -own)
