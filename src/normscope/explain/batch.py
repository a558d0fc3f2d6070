"""The pull-back of many short inputs at once: one forward pass for a batch, and one reverse pass for all of it.

The traces of a layer are packed side by side. Since nothing passes from one input to another, the covectors of all inputs go
back together as those of one long input, and what flows is cut apart again: each input has a certificate of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.capture import Side
from normscope.capture.heads import HeadListener
from normscope.chain.head_trace import HeadTrace
from normscope.chain.packing import pack
from normscope.chain.trace import LayerTrace
from normscope.errors import UnsupportedArchitectureError
from normscope.explain.pulling import PassedLayer, Pulled, PullRequest, StackFlow, Way, check_joined_blocks
from normscope.explain.question import Question
from normscope.explain.recording import Played
from normscope.explain.sinks import received
from normscope.families.heads import head_of
from normscope.inputs import Batch, TokenSequence
from normscope.models.model import Model
from normscope.pullback import (
    FlowPullBack,
    LayerFlow,
    PulledLayer,
    pull_back_head,
    pull_back_layer,
    sizes_of,
    values_of,
)

TOKENS_AT_ONCE = 512
"""Tokens that are packed together: attention between all of them is small beside the rest."""


def can_batch(model: Model, question: Question, request: PullRequest) -> bool:
    """Whether inputs can be explained together: one stack, padding that changes nothing, and a head of one row per token or
    input."""
    several = question.asks_head and head_of(model.module).task == "multiple-choice"
    one_by_one = model.family.alone or several or request.scores != "no" or request.max_memory is not None
    return model.family.encoder is None and not one_by_one


def groups(sequences: Sequence[TokenSequence]) -> Iterator[list[int]]:
    """The places of sequences that are explained together: of similar length, the longest first."""
    order = sorted(range(len(sequences)), key=lambda place: -len(sequences[place]))
    while order:
        size = max(1, TOKENS_AT_ONCE // len(sequences[order[0]]))
        yield order[:size]
        order = order[size:]


def pull_back_batch(
    model: Model, sequences: Sequence[TokenSequence], questions: Sequence[Question], request: PullRequest
) -> list[Pulled]:
    """The result of each sequence by itself, in their order.

    Raises:
        CannotPackError: if the traces of this model cannot be packed.
    """
    check_joined_blocks(model)
    found: dict[int, Pulled] = {}
    for batch in model.batches(sequences):
        asked = [questions[place] for place in batch.indices]
        found |= zip(batch.indices, _Batch(model, batch, asked, request).pulled(), strict=True)
    return [found[place] for place in range(len(sequences))]


@dataclass
class _Batch:
    model: Model
    batch: Batch
    questions: Sequence[Question]
    request: PullRequest
    traces: dict[int, LayerTrace] = field(default_factory=dict[int, LayerTrace])
    received: dict[int, list[Tensor]] = field(default_factory=dict[int, list[Tensor]])
    waiting: list[LayerTrace] = field(default_factory=list[LayerTrace])

    def __post_init__(self) -> None:
        ends = torch.tensor(self.batch.lengths).cumsum(0).tolist()
        self.places = [slice(end - length, end) for end, length in zip(ends, self.batch.lengths, strict=True)]

    def pulled(self) -> list[Pulled]:
        """The results of all sequences of the batch."""
        heads = self._heads()
        played = [self._played(question, head) for question, head in zip(self.questions, heads, strict=True)]
        ways = [Way(self.model, each.values, each.sizes, each.pulled.bias) for each in played]
        starts = [each.pulled.covector for each in played]
        flows = [
            way.begin("layer", start, each.head.states) for way, start, each in zip(ways, starts, played, strict=True)
        ]
        self._back(starts, ways, flows, torch.cat([head.states for head in heads]))
        return [
            Pulled(each.answers, each.head.logits, way.values, each.pulled.bias, flow, None)
            for each, way, flow in zip(played, ways, flows, strict=True)
        ]

    def _heads(self) -> list[HeadTrace]:
        """One pass: the traces of all layers, packed and proved, and the head of every sequence."""
        model, depth = self.model, self.model.family.stack.depth(self.model.config)
        dtype = self.request.dtype or torch.promote_types(model.weight_dtype, torch.float32)
        listener = None
        if self.questions[0].asks_head:
            listener = HeadListener(model.module, model.family, self.batch.lengths, dtype=dtype)
        side = Side(model.family.stack, self.batch.lengths, range(1, 1 + depth), self._keep)
        model.capture(self.batch, [side], dtype=dtype, head=listener)
        if listener is not None:
            return listener.traces()
        states = self.traces[depth].states[-1]
        assert states is not None
        return [question.head_of(states[place]) for question, place in zip(self.questions, self.places, strict=True)]

    def _keep(self, layer: int, _: int, trace: LayerTrace) -> None:
        self.waiting.append(trace)
        if len(self.waiting) < len(self.places):
            return
        if self.request.tell is not None:
            self.request.tell(layer - 1, self.model.family.stack.depth(self.model.config))
        packed = pack(self.waiting)
        self.received[layer] = [received(each) for each in self.waiting]
        self.waiting = []
        self.model.proof.layer(packed, f"layer {layer}")
        self.traces[layer] = packed if self.request.baseline is None else self.request.baseline.applied(packed)

    def _played(self, question: Question, head: HeadTrace) -> Played:
        answers = question.answers(head.logits)
        targets = [answer.target for answer in answers]
        self.model.proof.head(head, sorted({label for target in targets for label in target.weights}))
        with torch.no_grad():
            return Played(
                answers, head, pull_back_head(head, targets), values_of(head, targets), sizes_of(head, targets)
            )

    def _back(
        self,
        starts: Sequence[Tensor],
        ways: Sequence[Way],
        flows: Sequence[StackFlow],
        above: Float[Tensor, "token d"],
    ) -> None:
        """All inputs together through the layers, from the last to the first; each is proved by itself."""
        count = max(len(start) for start in starts)
        covector = torch.cat([_with_targets(start, count) for start in starts], 1)
        for layer in range(len(self.traces), 0, -1):
            trace = self.traces.pop(layer)
            self._check_joined(layer, trace, above)
            pulled = self._through(trace, covector)
            covector, above = pulled.covector, trace.hidden
            for number, place in enumerate(self.places):
                flow = _cut(pulled.flow, place, len(starts[number]))
                own = PulledLayer(flow, covector[: len(starts[number]), place], None)
                passed = PassedLayer.of(own, trace.hidden[place], self.received[layer][number], trace.causal)
                ways[number].note(flows[number], f"before layer {layer}", passed)

    def _through(self, trace: LayerTrace, covector: Float[Tensor, "target token d"]) -> PulledLayer:
        if self.request.edges or self.request.head_edges:
            return pull_back_layer(trace, covector, head_edges=self.request.head_edges, weights=self.request.weights)
        flowing = FlowPullBack(covector, self.request.weights)
        flowing.add(trace)
        return flowing.finish_layer()

    def _check_joined(self, layer: int, trace: LayerTrace, above: Tensor) -> None:
        output = trace.states[-1]
        if output is not None and not torch.equal(above, output.to(above.device)):
            raise UnsupportedArchitectureError(
                f"What leaves layer {layer} of {self.model.name} is not what enters what comes after it, so that nothing "
                f"can be followed through all layers. Maps of single layers are not affected."
            )


def _with_targets(covector: Float[Tensor, "target token d"], count: int) -> Float[Tensor, "count token d"]:
    """With targets that are zero, where another input has more of them."""
    missing = covector.new_zeros(count - len(covector), *covector.shape[1:])
    return torch.cat([covector, missing])


def _cut(flow: LayerFlow, place: slice, targets: int) -> LayerFlow:
    """What flows through a layer inside of one input."""
    return replace(
        flow,
        relevance=flow.relevance[:targets, place],
        edges=None if flow.edges is None else flow.edges[:targets, place, place],
        heads=flow.heads[:targets, :, place],
        feed_forward=flow.feed_forward[:targets, place],
        bias=flow.bias[:targets, place],
        head_edges=None if flow.head_edges is None else flow.head_edges[:targets, :, place, place],
        looked_at=None if flow.looked_at is None else flow.looked_at[:targets, place],
        routing=None if flow.routing is None else flow.routing[:targets, place, place],
        head_routing=None if flow.head_routing is None else flow.head_routing[:targets, :, place, place],
    )
