"""The pull-back of one input: a captured pass through the whole model, then one way back, checked at every layer.

Knows captures and the mathematics of `pullback`; which values are explained is `question`'s concern, and how the result
looks is `explanation`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.capture import module_between
from normscope.chain.trace import CrossAttention, LayerTrace
from normscope.errors import CompletenessError
from normscope.explain.model_values import refuse_module_between
from normscope.explain.question import Answer, Question
from normscope.explain.recording import PullRequest, Recording
from normscope.explain.sinks import received
from normscope.inputs import TokenSequence
from normscope.models.model import Model
from normscope.options import Weights
from normscope.pullback import (
    FlowPullBack,
    LayerFlow,
    PulledLayer,
    PulledStates,
    StatesPullBack,
    pull_back_end,
    pull_back_layer,
)


@dataclass
class StackFlow:
    """What flows through the layers of one stack, from its last layer to its first.

    `after_last[t, k]` is the relevance of token `k` after the last layer; `errors` are the relative errors of conservation
    there and before every layer passed. `received` is the attention that tokens get, `state_norms` those of what enters.
    """

    after_last: Float[Tensor, "target token"]
    layers: list[LayerFlow] = field(default_factory=list[LayerFlow])
    errors: list[Float[Tensor, " target"]] = field(default_factory=list[Tensor])
    causal: bool = False
    received: list[Float[Tensor, " token"]] = field(default_factory=list[Tensor])
    state_norms: list[Float[Tensor, " token"]] = field(default_factory=list[Tensor])


@dataclass(frozen=True)
class PassedLayer:
    """One layer passed on the way back: covectors below it, what entered it, and the attention that its tokens get.

    The trace is that of the whole layer, where there was one; the flow is there if it was requested.
    """

    below: PulledStates
    hidden: Float[Tensor, "token d"]
    received: Float[Tensor, " token"]
    causal: bool
    trace: LayerTrace | None = None
    flow: LayerFlow | None = None

    @staticmethod
    def of(
        pulled: PulledLayer,
        hidden: Float[Tensor, "token d"],
        received: Float[Tensor, " token"],
        causal: bool,
        trace: LayerTrace | None = None,
    ) -> PassedLayer:
        """With what flows through it."""
        below = PulledStates(pulled.covector, pulled.source, pulled.flow.bias.sum(-1), pulled.flow.routed)
        return PassedLayer(below, hidden, received, causal, trace, pulled.flow)


LayersBack = Iterable[tuple[int, Callable[[Float[Tensor, "target token d"]], PassedLayer]]]
"""Layers from the last to the first, each with what pulls covectors back through it."""


def kept_layers(recording: Recording, weights: Weights, *, keep: bool) -> LayersBack:
    """The layers of a recording, by a rule for attention weights; with `keep` they can be gone through again."""
    for layer, trace in recording.back(keep=keep):
        yield layer, partial(_through_trace, trace, weights)


def _through_trace(trace: LayerTrace, weights: Weights, covector: Float[Tensor, "target token d"]) -> PassedLayer:
    pulled = StatesPullBack(covector, weights)
    pulled.add(trace)
    return PassedLayer(pulled.finish(), trace.hidden, received(trace), trace.causal, trace)


def flowing_layers(recording: Recording) -> LayersBack:
    """The layers of a recording, with all that flows through each."""
    for layer, trace in recording.back():
        yield layer, partial(_flowing_through, trace, recording.request)


def _flowing_through(trace: LayerTrace, request: PullRequest, covector: Float[Tensor, "target token d"]) -> PassedLayer:
    if request.edges or request.head_edges:
        pulled = pull_back_layer(trace, covector, head_edges=request.head_edges, weights=request.weights)
    else:
        flowing = FlowPullBack(covector, request.weights)
        flowing.add(trace)
        pulled = flowing.finish_layer()
    return PassedLayer.of(pulled, trace.hidden, received(trace), trace.causal, trace)


@dataclass(frozen=True)
class StackShares:
    """The shares `[t, k]` of what enters a stack, the largest relative error of conservation on the way, and the attention
    that tokens get, layer by layer from the first."""

    relevance: Float[Tensor, "target token"]
    errors: Float[Tensor, " target"]
    received: list[Float[Tensor, " token"]]
    causal: bool


@dataclass(frozen=True)
class Pulled:
    """The pull-back of an input: the values explained, by the model's own logits, and the flow through each stack.

    `end_bias` is what the head (and an encoder's end) adds whatever the tokens are.
    """

    answers: list[Answer]
    logits: Float[Tensor, "row label"]
    values: Float[Tensor, " target"]
    end_bias: Float[Tensor, " target"]
    main: StackFlow
    encoder: StackFlow | None


def pull_back(model: Model, sequence: TokenSequence, question: Question, request: PullRequest) -> Pulled:
    """Explain the values that a question is about, exactly, in one way back."""
    check_joined_blocks(model)
    recording = Recording(model, sequence, request)
    played = recording.play(question)
    way = Way(model, played.values, played.sizes, played.pulled.bias)
    main = way.down(flowing_layers(recording), "layer", played.pulled.covector, played.head.states)
    encoder, end_bias = None, played.pulled.bias
    if way.source is not None:
        end = recording.encoder_end
        covector, added = pull_back_end(end, way.source)
        end_bias, way.source = end_bias + added.to(end_bias.device), None
        way.leave(added, main.layers[-1].relevance.sum(-1))
        encoder = way.down(flowing_layers(recording.of_encoder()), "encoder layer", covector, end.states)
    return Pulled(played.answers, played.head.logits, way.values, end_bias, main, encoder)


def check_joined_blocks(model: Model) -> None:
    """Raise if something acts between two blocks of a model, through which nothing can be followed."""
    for stack in (model.family.stack, model.family.encoder):
        refuse_module_between(model, None if stack is None else module_between(model.module, stack))


@dataclass
class Way:
    """The way back through the stacks. `outside` is what has left the tokens of the stack so far: biases, other stacks, and
    what stays with attention weights, which is `routed` alone.

    `sizes` are those of the numbers that the values are sums or differences of. What is known of a value as a whole lies on
    the device of `values`; covectors and `source` go from layer to layer, to the device of each.
    """

    model: Model
    values: Float[Tensor, " target"]
    sizes: Float[Tensor, " target"]
    outside: Float[Tensor, " target"]
    source: Float[Tensor, "target key d"] | None = None
    routed: Float[Tensor, " target"] = field(init=False)

    def __post_init__(self) -> None:
        self.routed = torch.zeros_like(self.outside)

    def down(
        self, layers: LayersBack, name: str, covector: Float[Tensor, "target token d"], states: Float[Tensor, "token d"]
    ) -> StackFlow:
        """Through the layers of a stack, from the states that leave it to those that enter it."""
        flow = self.begin(name, covector, states)
        for layer, pull in layers:
            passed = pull(covector)
            covector = passed.below.covector
            self.note(flow, f"before {name} {layer}", passed)
        return flow

    def begin(
        self, name: str, covector: Float[Tensor, "target token d"], states: Float[Tensor, "token d"]
    ) -> StackFlow:
        """What flows out of the states that leave a stack."""
        products = covector * states
        # A value that happens to be near zero is no surer than the products that it is the sum of.
        self.sizes = torch.maximum(self.sizes, products.flatten(1).norm(dim=-1).to(self.sizes.device))
        flow = StackFlow(products.sum(-1))
        flow.errors.append(self._proved(f"after the last {name}", flow.after_last))
        return flow

    def note(self, flow: StackFlow, place: str, passed: PassedLayer) -> None:
        """Add a layer to what flows through its stack; raises if it does not conserve the values."""
        assert passed.flow is not None
        self.leave(passed.below.bias)
        self.route(passed.below.routed)
        flow.layers.append(passed.flow)
        flow.causal = passed.causal
        flow.received.append(passed.received)
        flow.state_norms.append(passed.hidden.norm(dim=-1))
        self._add_source(passed.below.source)
        flow.errors.append(self._proved(place, passed.flow.relevance, passed.trace))

    def shares(
        self, layers: LayersBack, name: str, covector: Float[Tensor, "target token d"], states: Float[Tensor, "token d"]
    ) -> StackShares:
        """The same for the shares of what enters the stack alone: nothing is kept of the layers in between."""
        relevance = (covector * states).sum(-1)
        errors, attention, causal = [self._proved(f"after the last {name}", relevance)], list[Tensor](), False
        for layer, pull in layers:
            passed = pull(covector)
            covector = passed.below.covector
            self.leave(passed.below.bias)
            self.route(passed.below.routed)
            relevance = (covector * passed.hidden).sum(-1)
            self._add_source(passed.below.source)
            errors.append(self._proved(f"before {name} {layer}", relevance, passed.trace))
            attention.append(passed.received)
            causal = passed.causal
        largest = torch.stack([each.to(self.values.device) for each in errors]).amax(0)
        return StackShares(relevance.to(self.values.device), largest, attention[::-1], causal)

    def _add_source(self, source: Float[Tensor, "target key d"] | None) -> None:
        """Count what a layer takes from an encoder."""
        if source is not None:
            before = self.source
            self.source = source if before is None else before.to(source.device) + source

    def leave(self, *shares: Float[Tensor, " target"]) -> None:
        """Count what has left the tokens of the stack."""
        for share in shares:
            self.outside = self.outside + share.to(self.outside.device)

    def route(self, share: Float[Tensor, " target"]) -> None:
        """Count what stays with attention weights."""
        self.routed = self.routed + share.to(self.routed.device)
        self.leave(share)

    def _proved(
        self, place: str, relevance: Float[Tensor, "target token"], trace: LayerTrace | None = None
    ) -> Float[Tensor, " target"]:
        """How far relevance and biases are from the value, relative to all that flows; raises above the tolerance.

        A difference of large logits has their rounding, so no finer agreement is required.
        """
        relevance, elsewhere = relevance.to(self.values.device), self.outside
        if self.source is not None and trace is not None:
            elsewhere = elsewhere + (self.source * _encoder_states(trace)).sum((1, 2)).to(elsewhere.device)
        size = relevance.abs().sum(-1) + elsewhere.abs()
        errors = (relevance.sum(-1) + elsewhere - self.values).abs() / torch.maximum(size, self.sizes)
        worst = float(errors.amax())
        if not worst <= self.model.tolerance:
            raise CompletenessError(
                f"{place.capitalize()} the tokens' relevance and the biases do not add up to the model's own value: "
                f"relative error {worst:.2e}, tolerance {self.model.tolerance:.0e} for "
                f"{self.model.facts['dtype']} weights. The explanation would be wrong, so there is none."
            )
        return errors


def _encoder_states(trace: LayerTrace) -> Float[Tensor, "key d"]:
    """The encoder's states as a decoder's layer reads them."""
    source = next(step.source for step in trace.steps if isinstance(step, CrossAttention))
    assert source is not None
    return source.states
