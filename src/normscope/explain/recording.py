"""A recorded pass: the traces of every layer of an input, and of its head, to be gone through from the last to the first.

Every trace is proved when it is captured, and that each joins the next when they are gone through. Owns how much of them is
kept at once: everything, or, with a limit of memory, as many layers as fit, captured again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.capture import Side
from normscope.capture.heads import HeadListener
from normscope.capture.scores import WantedScores
from normscope.chain.baseline import BiasBaseline, baseline
from normscope.chain.head_trace import EncoderEnd, HeadTrace
from normscope.chain.measure import check_arithmetic
from normscope.chain.trace import CrossAttention, LayerTrace
from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import Stack
from normscope.inputs import TokenSequence
from normscope.models.model import Model
from normscope.options import FeedForwardBaseline, Weights, whole_number
from normscope.passes import Tell
from normscope.pullback import PulledHead, pull_back_head, sizes_of, values_of

if TYPE_CHECKING:
    from normscope.explain.question import Answer, Question


@dataclass(frozen=True)
class Played:
    """The explained values, by the model's own logits, and the way from them to the states that leave the last layer."""

    answers: list[Answer]
    head: HeadTrace
    pulled: PulledHead
    values: Float[Tensor, " target"]
    sizes: Float[Tensor, " target"]

    def tokens(self, target: int) -> list[int]:
        """The tokens that a value is read off."""
        return sorted(set(self.pulled.tokens[self.pulled.targets == target].tolist()))


@dataclass(frozen=True)
class PullRequest:
    """How to pull back: with edges or not, in which arithmetic, within how much memory (bytes), from where the integrated
    gradients of feed-forwards start, and what becomes of attention weights."""

    head_edges: bool = False
    dtype: torch.dtype | None = None
    max_memory: int | None = None
    tell: Tell | None = None
    ff_baseline: FeedForwardBaseline = "zero"
    edges: bool | None = True
    """`None`: unless the input is long."""
    weights: Weights = "constant"

    @property
    def baseline(self) -> BiasBaseline | None:
        """Where they start, if not at zero."""
        return baseline(self.ff_baseline, "states")

    @property
    def scores(self) -> WantedScores:
        """Whether it is asked what the weights are made of."""
        wanted: dict[Weights, WantedScores] = {"joint": "required", "players": "known"}
        return wanted.get(self.weights, "no")

    def __post_init__(self) -> None:
        check_arithmetic(self.dtype)
        if self.max_memory is not None:
            whole_number(self.max_memory, "The memory that traces may take (max_memory), in bytes,")


class Recording:
    """The layers of one stack for one input, and what is needed to capture them again."""

    def __init__(
        self,
        model: Model,
        sequence: TokenSequence,
        request: PullRequest,
        *,
        encoder: bool = False,
    ) -> None:
        self.model, self.sequence, self.request = model, sequence, request
        self.max_memory, self.tell, self.baseline = request.max_memory, request.tell, request.baseline
        self.dtype = request.dtype or torch.promote_types(model.weight_dtype, torch.float32)
        self.is_encoder = encoder
        self.stack: Stack = model.family.encoder if encoder else model.family.stack  # pyright: ignore[reportAttributeAccessIssue]
        self.depth = self.stack.depth(model.config)
        self.traces: dict[int, LayerTrace] = {}
        self._bytes_of_a_layer = 1
        self._encoder: Recording | None = None
        self._end: EncoderEnd | None = None
        self._leaving: Tensor | None = None

    @property
    def encoder_end(self) -> EncoderEnd:
        """What acts between the encoder's last block and the states that the decoder reads."""
        assert self._end is not None
        return self._end

    def of_encoder(self) -> Recording:
        """The recording of the encoder, made in the same pass."""
        assert self._encoder is not None
        return self._encoder

    def play(self, question: Question) -> Played:
        """Run the model once: the explained values, its head, and the traces of as many layers as memory holds."""
        head = self._heard(question)
        answers = question.answers(head.logits)
        targets = [answer.target for answer in answers]
        with torch.no_grad():
            played = Played(
                answers, head, pull_back_head(head, targets), values_of(head, targets), sizes_of(head, targets)
            )
        self.model.proof.head(head, sorted({label for target in targets for label in target.weights}))
        self._leaving = head.states
        self._check_joined(self.depth, self.traces[self.depth], self._leaving)
        return played

    def heard_rows(self, question: Question, rows: Sequence[int]) -> HeadTrace:
        """Run the model once for some rows of its logits, and keep the layers; for models that can leave out the others."""
        head = self._heard(question, rows)
        self._leaving = head.states
        self._check_joined(self.depth, self.traces[self.depth], self._leaving)
        return head

    def _heard(self, question: Question, rows: Sequence[int] | None = None) -> HeadTrace:
        has_encoder = self.model.family.encoder is not None and self.sequence.target is not None
        if has_encoder:
            self._encoder = Recording(self.model, self.sequence, replace(self.request, tell=None), encoder=True)
        first = [] if self.max_memory is None else [self.depth]
        kept = first or list(range(1, 1 + self.depth))
        lengths, source_lengths = self._lengths()
        listener = None
        if question.asks_head or has_encoder:
            listener = HeadListener(
                *(self.model.module, self.model.family, lengths),
                dtype=self.dtype,
                encoder_lengths=source_lengths if has_encoder else None,
                head=question.asks_head,
            )
        recordings = [self, *([] if self._encoder is None or self.max_memory is not None else [self._encoder])]
        sides = [each._side(kept if each is self else range(1, 1 + each.depth)) for each in recordings]
        self._capture(sides, listener, rows)
        if listener is not None and self._encoder is not None:
            (self._end,) = listener.encoder_ends()
            self._encoder._leaving = self._end.states
        if listener is None or listener.head is None:
            return question.head_of(self._last_states())
        (head,) = listener.traces()
        return head

    def back(self, *, keep: bool = False) -> Iterator[tuple[int, LayerTrace]]:
        """Layers and their traces, from the last to the first; each is forgotten once it has been gone through.

        With `keep` those that were captured in the first place stay, to be gone through again.
        """
        above, read = self._leaving, None
        for layer in range(self.depth, 0, -1):
            if layer not in self.traces:
                self._hear_again(layer)
            trace = self.traces[layer] if keep and self.max_memory is None else self.traces.pop(layer)
            self._check_joined(layer, trace, above)
            read = self._check_source(layer, trace, read)
            above = trace.hidden
            yield layer, trace

    def _hear_again(self, last: int) -> None:
        """Capture layers once more, up to one of them: as many as fit into the memory, at least one."""
        most = 1 if self.max_memory is None else max(1, self.max_memory // self._bytes_of_a_layer)
        self._capture([self._side(range(max(1, last - most + 1), last + 1))], None)

    def _side(self, layers: Sequence[int]) -> Side:
        lengths, source_lengths = self._lengths()

        def keep(layer: int, _: int, trace: LayerTrace) -> None:
            if self.tell is not None:
                self.tell(layer - 1, self.depth)
            self.model.proof.layer(trace, self._named(layer))
            kept = trace if self.baseline is None else self.baseline.applied(trace)
            self.traces[layer] = kept
            self._bytes_of_a_layer = bytes_of(kept)

        sources = None if self.is_encoder else source_lengths
        return Side(self.stack, lengths, layers, keep, sources, scores=self.request.scores)

    def _lengths(self) -> tuple[list[int], list[int] | None]:
        target = self.sequence.target
        if self.is_encoder or target is None:
            return [len(self.sequence)], None
        return [len(target)], [len(self.sequence)]

    def _capture(self, sides: Sequence[Side], listener: HeadListener | None, rows: Sequence[int] | None = None) -> None:
        (batch,) = self.model.batches([self.sequence])
        if rows is not None:
            wanted = torch.tensor(rows, device=next(iter(batch.features.values())).device)
            batch = replace(batch, features={**batch.features, "logits_to_keep": wanted})
        self.model.capture(batch, sides, dtype=self.dtype, head=listener)

    def _last_states(self) -> Tensor:
        states = self.traces[self.depth].states[-1]
        assert states is not None
        return states

    def _named(self, layer: int) -> str:
        return f"layer {layer} of the encoder" if self.is_encoder else f"layer {layer}"

    def _check_joined(self, layer: int, trace: LayerTrace, above: Tensor | None) -> None:
        output = trace.states[-1]
        if above is not None and output is not None and not torch.equal(above, output.to(above.device)):
            reader, between = f"layer {layer + 1}", "the two blocks"
            if layer == self.depth:
                reader, between = "the end of the encoder" if self.is_encoder else "the head", "them"
            raise UnsupportedArchitectureError(
                f"What enters {reader} is not what leaves {self._named(layer)}: something acts between {between} of "
                f"{self.model.name}, through which nothing can be followed yet. Maps of single layers are not affected."
            )

    def _check_source(self, layer: int, trace: LayerTrace, read: Tensor | None) -> Tensor | None:
        """Every layer of a decoder reads the same states of the encoder, and they are what its end outputs."""
        for step in trace.steps:
            if isinstance(step, CrossAttention) and step.source is not None and self._end is not None:
                states = step.source.states
                if read is None:
                    self.model.proof.encoder_end(self._end, states)
                elif not torch.equal(read, states.to(read.device)):
                    raise UnsupportedArchitectureError(
                        f"Layer {layer} reads other states of the encoder than the layers after it in {self.model.name}, "
                        f"so that nothing can be followed from them into the encoder."
                    )
                read = states
        return read


def bytes_of(trace: object) -> int:
    """The memory of the tensors that a trace holds and a model does not (weights are the model's own)."""
    if isinstance(trace, Tensor):
        return trace.numel() * trace.element_size()
    if isinstance(trace, tuple):
        return sum(bytes_of(item) for item in trace)
    if not is_dataclass(trace) or type(trace).__name__ in ("Linear", "LayerNorm", "RmsNorm", "Plain", "Gated"):
        return 0
    skipped = ("output", "projection", "bias")
    return sum(bytes_of(getattr(trace, item.name)) for item in fields(trace) if item.name not in skipped)
