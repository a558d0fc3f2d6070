"""The proof that a trace is what the model did: no result is computed from a trace that fails it.

Every component is computed again from the model's own states before it, and has to give the model's own state after it, for
every query: values from the states that the attention reads, what attention and feed-forward add, residuals, norms, and the
steps of a head. Each is compared by itself, so that the roundings of one do not excuse another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.fold import Point, Rules, forward
from normscope.chain.head_trace import (
    Activate,
    Average,
    Concatenate,
    EncoderEnd,
    HeadStep,
    HeadTrace,
    Pick,
    PickEach,
    Products,
    Rescale,
    Scale,
    Shift,
)
from normscope.chain.rounding import Computed, attended, entering_neurons, fed_forward, softmax_of, values_from
from normscope.chain.scores import Scores
from normscope.chain.trace import Attention, FeedForward, LayerTrace, Linear, Normalise, OwnFeedForward
from normscope.errors import CompletenessError
from normscope.pullback.head import narrowed
from normscope.scopes import scopes_of

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The completeness error of a whole chain above which a result is refused, by the dtype of the model's own arithmetic.

Here the roundings of all components come together. That of float64 leaves room for norms that compute in float32 whatever
the weights are (DeBERTa, Llama).
"""

LIMIT = {torch.float64: 1e-5, torch.float32: 2.0**-15, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""The same for one component, relative to the numbers that it rounds.

In half precision that is four roundings (the unit roundoff is 2^-11 and 2^-8): the components of all registered
architectures stay below one and a half. Float32 leaves room for sums of thousands of numbers in another order, and float64
for norms in float32.
"""


@dataclass(frozen=True)
class Proof:
    """How the traces of a model are checked: its name and that of its family, for messages, and the dtype in which it
    computes."""

    model: str
    family: str
    dtype: torch.dtype

    def layer(self, trace: LayerTrace, place: str, components: int | None = None, *, values: bool = True) -> None:
        """Prove one layer up to some number of components. The values of its attentions may have been proved before."""
        _Layer(self, trace, place, len(trace.components) if components is None else components, values).run()

    def head(self, trace: HeadTrace, labels: Sequence[int]) -> None:
        """Prove a head, from the states that leave the last layer to the logits of some labels."""
        computed = _Head(self).follow(narrowed(trace.steps, list(labels)), Computed.from_model(trace.states))
        logits = trace.logits[:, list(labels)].to(computed.value)
        self.same(computed, logits, "The logits are not", "the task head", groups=len(labels))

    def embedding(self, trace: HeadTrace) -> None:
        """Prove the way from the states that leave the last layer to an embedding, all of it."""
        computed = _Head(self).follow(trace.steps, Computed.from_model(trace.states))
        self.same(computed, trace.logits.to(computed.value), "The embedding is not", "the pooling")

    def encoder_end(self, end: EncoderEnd, read: Float[Tensor, "token d"]) -> None:
        """Prove what acts between an encoder's last block and the states that a decoder reads."""
        computed = _Head(self).follow(end.steps, Computed.from_model(end.states))
        self.same(computed, read.to(end.states.device), "What the decoder reads is not", "the end of the encoder")

    def same(self, computed: Computed, own: Tensor, what: str, of: str, groups: int = 1) -> None:
        """Compare; refuse a difference that is not rounding."""
        least, limit = torch.finfo(self.dtype).tiny, LIMIT[self.dtype]
        errors = computed.error(own, least, groups, limit)
        worst = float(errors.amax()) if errors.numel() else 0.0
        if not worst <= limit:  # also when it is NaN
            raise CompletenessError(
                f"{what} what {of} makes of the model's own states before it: relative error {worst:.2e}, where rounding "
                f"explains {limit:.0e} for {str(self.dtype).removeprefix('torch.')} weights. The result would be wrong, so "
                f"there is none. The family {self.family!r} does not describe {self.model}, or something changes what its "
                f"modules output."
            )


class _Layer(Rules[Computed]):
    """The chain of a block computed again. After every state that the model shows, it continues from the model's own."""

    def __init__(self, proof: Proof, trace: LayerTrace, place: str, components: int, values: bool) -> None:
        self.proof, self.trace, self.place, self.values = proof, trace, place, values
        named = [index + 1 for index, step in enumerate(trace.steps) if step.name]
        self.end = named[min(components, len(named)) - 1] if components else 0
        self.scopes = iter(scopes_of(trace.components, weights=False))

    def run(self) -> None:
        point = Point(Computed.from_model(self.trace.hidden))
        for step, state in zip(self.trace.steps[: self.end], self.trace.states[: self.end], strict=True):
            point = forward(point, step, self)
            scope = next(self.scopes) if step.name else ""
            if state is not None:
                self._same(point.value, state, f"the state after {scope} is not", step.name)
                point = replace(point, value=Computed.from_model(state))

    def _same(self, computed: Computed, own: Tensor, what: str, of: str, groups: int = 1) -> None:
        self.proof.same(computed, own, f"In {self.place} {what}", of, groups)

    def attention(self, step: Attention, value: Computed) -> Computed:
        self._prove_values(step)
        if step.scores is not None:
            self._prove_scores(step, step.scores)
        return attended(step)

    def normalise(self, step: Normalise, value: Computed) -> Computed:
        self._same(value, step.state_before, "what a norm reads is not", "the component before it")
        return Computed.from_model(step.state_before).normalised(step.norm)

    def feed_forward(self, step: FeedForward, value: Computed) -> Computed:
        entering = value.multiplied_out()
        self._prove_neurons(step, entering)
        return fed_forward(step, entering.value)

    def own_feed_forward(self, step: OwnFeedForward, value: Computed) -> Computed:
        self._prove_neurons(step, self._read_by(step))
        return value + fed_forward(step, step.hidden)

    def _prove_values(self, step: Attention) -> None:
        """A sum over keys does not show which key a value belongs to: each is computed again from its own key's
        state."""
        if not self.values:
            return
        if step.source is None:
            raise ValueError("Values are proved in traces alone that were captured below attention.")
        computed, own = values_from(step.source, step.shared), step.values.transpose(0, 1).flatten(1)
        self._same(computed, own, f"the values of {step.name} are not", "the projection", len(step.values))

    def _prove_scores(self, step: Attention, scores: Scores) -> None:
        """Credit for queries and keys is right only if the weights are computed from these, and from nothing else."""
        heads = len(step.weights)
        computed, own = softmax_of(scores), step.weights.transpose(0, 1).flatten(1)
        self._same(computed, own, f"the weights of {step.name} are not", "the softmax of queries and keys", heads)

    def _prove_neurons(self, step: FeedForward, entering: Computed) -> None:
        for expert in step.experts:
            for computed, own in zip(entering_neurons(expert, entering), expert.pre_activations, strict=True):
                self._same(computed, own, "what enters the neurons is not", "the first matrix of the feed-forward")

    def _read_by(self, step: OwnFeedForward) -> Computed:
        if step.norm is not None:
            normalised = Computed.from_model(step.norm.state_before).normalised(step.norm.norm)
            self._same(normalised, step.hidden, "what the feed-forward reads is not", "the norm before it")
        return Computed.from_model(step.hidden)


@dataclass(frozen=True)
class _Head:
    """One walk along the steps of a head. Where the model shows the input of a step, the walk continues from there."""

    proof: Proof

    def follow(self, steps: Sequence[HeadStep], rows: Computed) -> Computed:
        for step in steps:
            rows = self._after(step, rows)
        return rows

    def _after(self, step: HeadStep, rows: Computed) -> Computed:
        match step:
            case Linear():
                return rows.linear(step, groups=len(step.weight))
            case Normalise():
                return self._shown(rows, step.state_before, "a norm of the head").normalised(step.norm)
            case Activate():
                entering = self._shown(rows, step.state_before.to(rows.value), "an activation of the head")
                return Computed.from_model(step.activation.function(entering.value))
            case Shift():
                return rows.plus(step.bias.to(rows.value))
            case Scale() | Rescale():
                return rows * (step.factor if isinstance(step, Scale) else step.factors[:, None])
            case Pick() | PickEach():
                return _picked(step, rows)
            case Average():
                branches = [self.follow(branch, rows) for branch in step.branches]
                return sum(branches[1:], branches[0]) * (1 / len(branches))
            case Concatenate():
                branches = [self.follow(branch, rows) for branch in step.branches]
                values, rounded = ([getattr(each, name) for each in branches] for name in ("value", "rounded"))
                return Computed(torch.cat(values, -1), torch.cat(rounded, -1))
            case Products():
                return self._products(step, rows)

    def _shown(self, rows: Computed, own: Tensor, reader: str) -> Computed:
        self.proof.same(rows, own, f"What {reader} reads is not", "the step before it")
        return Computed.from_model(own)

    def _products(self, step: Products, rows: Computed) -> Computed:
        labels: list[Computed] = []
        for pair in step.pairs:
            for factor in pair:
                self.proof.same(
                    self.follow(factor.steps, rows), factor.output, "A factor of the logits is not", "the head"
                )
            products = pair[0].output * pair[1].output
            value = products.sum(-1, keepdim=True)
            labels.append(Computed(value, value.abs() + products.norm(dim=-1, keepdim=True)))
        return Computed(torch.cat([x.value for x in labels], -1), torch.cat([x.rounded for x in labels], -1))


def _picked(step: Pick | PickEach, rows: Computed) -> Computed:
    if isinstance(step, PickEach):
        value, rounded = (each.gather(0, step.sources[None]) for each in (rows.value, rows.rounded))
        return Computed(value, rounded)
    weights = step.weights[:, :, None]
    picked = rows[step.sources.flatten()]
    value, rounded = (each.unflatten(0, step.sources.shape) for each in (picked.value, picked.rounded))
    return Computed((weights * value).sum(1), (weights.abs() * rounded).sum(1))
