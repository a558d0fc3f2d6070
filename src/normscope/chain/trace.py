"""What one Transformer block did to one sequence: its chain of components with the tensors they used.

These are plain data, the meeting point of the two halves of normscope: `capture` fills them from a Hugging Face model,
`decompose` (and the `oracle`) compute with them. No mathematics and no Hugging Face here. Component names and shapes
are those of the method: `query` rows, `key` columns, `d` the hidden size, `f` the neurons.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.activations import Activation
from normscope.chain.scores import Scores
from normscope.errors import UnsupportedArchitectureError

QueryRows = slice | Int[Tensor, " row"]
"""Part of the query rows: a stretch of them, or their numbers in any order."""


def stretch(rows: Int[Tensor, " row"]) -> QueryRows:
    """The rows as a stretch, if they are one: nothing is copied then."""
    first, last = (int(rows[0]), int(rows[-1])) if len(rows) else (0, -1)
    if last - first + 1 != len(rows) or not torch.equal(rows, torch.arange(first, last + 1, device=rows.device)):
        return rows
    return slice(first, last + 1)


# ---- weights -----------------------------------------------------------------------------------------------------------


class Shared:
    """What follows from the weights of a block alone, kept for all sequences that go through it together."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], tuple[tuple[Tensor, ...], Tensor]] = {}

    def once(self, key: tuple[int, ...], of: tuple[Tensor, ...], make: Callable[[], Tensor]) -> Tensor:
        """The result of `make` for the weights `of`, computed the first time, and again only for other weights."""
        kept = self._kept.get(key)
        if kept is None or not all(
            one is other or torch.equal(one, other) for one, other in zip(kept[0], of, strict=True)
        ):
            kept = self._kept[key] = (of, make())
        return kept[1]


@dataclass(frozen=True)
class Linear:
    """The affine map `x -> x @ weight.T + bias`."""

    weight: Float[Tensor, "outputs inputs"]
    bias: Float[Tensor, " outputs"] | None = None
    shared: Shared = field(default_factory=Shared, compare=False, repr=False)


@dataclass(frozen=True)
class LayerNorm:
    """Centre, divide by the standard deviation (biased), scale by `weight`, shift by `bias`."""

    weight: Float[Tensor, " d"]
    bias: Float[Tensor, " d"] | None
    epsilon: float


@dataclass(frozen=True)
class RmsNorm:
    """Divide by the root of the mean square, scale by `weight` (which already holds the `1 +` of Gemma), shift by none."""

    weight: Float[Tensor, " d"]
    epsilon: float


Norm = LayerNorm | RmsNorm


@dataclass(frozen=True)
class Plain:
    """A feed-forward network `second(activation(first(x)))`."""

    first: Linear
    activation: Activation
    second: Linear


@dataclass(frozen=True)
class Gated:
    """A feed-forward network `down(activation(gate(x)) * (up(x) + up_offset))`, with `up(x)` clamped to `up_limit`."""

    gate: Linear
    up: Linear
    activation: Activation
    down: Linear
    up_offset: float = 0.0
    up_limit: float = math.inf


Network = Plain | Gated


# ---- steps of a chain --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fork:
    """The current decomposition also takes the bypass, until the next `Residual` adds it back.

    `around` are the steps that it goes through on the way: norms and scales (prepared, in whatever form a fold wants them).
    """

    around: tuple[Any, ...] = ()
    name: ClassVar[str] = ""


@dataclass(frozen=True)
class Normalise:
    """LN: normalise by the deviation of the model's own state just before it."""

    norm: Norm
    state_before: Float[Tensor, "query d"]
    name: ClassVar[str] = "Ln"

    def select(self, rows: QueryRows) -> Normalise:
        """The same for some of the query rows."""
        return replace(self, state_before=self.state_before[rows])


@dataclass(frozen=True)
class ValueSource:
    """What values are computed from: `values[h, k] = (steps applied to states[k]) @ projection[h].T + bias[h]`.

    `states` are the block's input, or for a cross-attention the encoder's output; `steps` are the norm before the
    attention, where it has one, and whatever else comes before the value projection. Values may be clipped to `limit`.
    Where a short convolution and its activation make the values, every tap of it is a group of heads, and what the
    projection makes is multiplied by `slopes`, before `offset` (of the convolution's bias) is added. Values that are
    normalised head by head have slopes too.
    """

    states: Float[Tensor, "key d"]
    steps: tuple[Normalise | Linear, ...]
    projection: Float[Tensor, "head d_head inputs"]
    bias: Float[Tensor, "head d_head"] | None
    limit: float = math.inf
    slopes: Float[Tensor, "tap_head key d_head"] | None = None
    offset: Float[Tensor, "tap_head key d_head"] | None = None

    def first_keys(self, count: int) -> ValueSource:
        """The same for some number of keys, from the first."""
        steps = (step.select(slice(count)) if isinstance(step, Normalise) else step for step in self.steps)
        slopes, offset = (None if each is None else each[:, :count] for each in (self.slopes, self.offset))
        return replace(self, states=self.states[:count], steps=tuple(steps), slopes=slopes, offset=offset)

    def sloped(
        self, projected: Float[Tensor, "*batch head constant d_head"]
    ) -> Float[Tensor, "*batch tap_head key d_head"]:
        """The output of the projection, for every tap, times the slopes if there are any."""
        if self.slopes is None:
            return projected
        taps = len(self.slopes) // len(self.projection)
        return projected.repeat(*[1] * (projected.dim() - 3), taps, 1, 1) * self.slopes

    @property
    def constant(self) -> Float[Tensor, "tap_head constant d_head"] | None:
        """The share of the values that the projection and the convolution add for any token."""
        bias = None if self.bias is None else self.sloped(self.bias[:, None])
        if bias is None or self.offset is None:
            return self.offset if bias is None else bias
        return bias + self.offset


@dataclass(frozen=True)
class ContextNorm:
    """An RMS norm of the output of a mixer, before or after (`gated_first`) it is gated. Its weight is in the output.

    The channels of all heads are divided into `groups`, each with a deviation of its own: that of the model's state.
    """

    epsilon: float
    groups: int
    gated_first: bool
    deviations: Float[Tensor, "head query channel"]


@dataclass(frozen=True)
class Gating:
    """How gates are computed: `activation` applied to `entering`, for every head and query, by channel or as a whole.

    The first `ungated` heads have no gates.
    """

    activation: Activation
    entering: Float[Tensor, "head query channel"]
    ungated: int = 0


@dataclass(frozen=True)
class Attention(ABC):
    """`part[i, j] = sum_h weights[h, i, j] * values[h, j] @ output[h]`, and `bias[i] = bias`.

    `source` is known only if the capture went below attention. The outputs of the heads may be multiplied by `gates`
    and normalised before the output matrix. Both are constants of the pass, as the weights are. Any mixer that is
    linear in its values has this form, with weights of either sign. A short convolution before it, of `taps` taps,
    makes every tap a group of heads: `weights[tap, h, i, j]` is the mixer's own weight of `j + tap`, and all taps share
    the output matrix. `gating` says how gates are computed, including those in the weights. If they take a share of
    what they let through, `beside` is that share, which is the query's own. `scores` are what the weights are computed
    from, if that was captured too.
    """

    weights: Float[Tensor, "tap_head query key"]
    values: Float[Tensor, "tap_head key d_head"]
    output: Float[Tensor, "head d_head d"]
    bias: Float[Tensor, " d"] | None
    source: ValueSource | None = None
    shared: Shared = field(default_factory=Shared, compare=False, repr=False)
    gates: Float[Tensor, "head query d_head"] | None = None
    norm: ContextNorm | None = None
    taps: int = 1
    scores: Scores | None = None
    gating: Gating | None = None
    beside: Float[Tensor, "query d"] | None = None
    name: ClassVar[str]

    @abstractmethod
    def keys(self, trace: LayerTrace) -> slice:
        """Where its keys lie among all keys of a trace: the sequence's own tokens first, then the encoder's."""

    def select(self, rows: QueryRows) -> Attention:
        """The same for some of the query rows."""
        return self.with_weights(self.weights[:, rows], rows)

    def with_weights(self, weights: Float[Tensor, "tap_head row key"], rows: QueryRows) -> Attention:
        """The same for some of the query rows, with their weights."""
        gates = None if self.gates is None else self.gates[:, rows]
        norm = None if self.norm is None else replace(self.norm, deviations=self.norm.deviations[:, rows])
        scores = None if self.scores is None else self.scores.select(rows)
        gating = None if self.gating is None else replace(self.gating, entering=self.gating.entering[:, rows])
        beside = None if self.beside is None else self.beside[rows]
        return replace(self, weights=weights, gates=gates, norm=norm, gating=gating, beside=beside, scores=scores)

    def first_keys(self, count: int) -> Attention:
        """The same for some number of keys, from the first."""
        source = None if self.source is None else self.source.first_keys(count)
        scores = None if self.scores is None else self.scores.first_keys(count)
        weights, values = self.weights[..., :count], self.values[:, :count]
        return replace(self, weights=weights, values=values, source=source, scores=scores)

    @property
    def mixing_weights(self) -> Float[Tensor, "head query key"]:
        """The factors of each token's values, without the contributions of earlier tokens by a convolution."""
        return self.weights[: len(self.output)]

    @cached_property
    def factors(self) -> Float[Tensor, "head query channel"] | None:
        """The factor of each query's and head's context: one number, or one for each channel."""
        if self.norm is None:
            return self.gates
        return 1 / self.norm.deviations if self.gates is None else self.gates / self.norm.deviations

    def summed_taps(
        self, by_tap: Float[Tensor, "*batch tap_head query width"]
    ) -> Float[Tensor, "*batch head query width"]:
        """The sum over the taps of a convolution, head by head."""
        return by_tap if self.taps == 1 else by_tap.unflatten(-3, (self.taps, -1)).sum(-4)

    def through_output(self, context: Float[Tensor, "tap_head query d_head"]) -> Float[Tensor, "query d"]:
        """The outputs of the heads (or a share of them), gated and normalised, through the output matrix."""
        context = self.summed_taps(context)
        if self.factors is not None:
            context = context * self.factors
        return context.transpose(0, 1).flatten(1) @ self.output.flatten(0, 1)

    def back_from_output(
        self, covector: Float[Tensor, "target query d"]
    ) -> Float[Tensor, "target tap_head query d_head"]:
        """Covectors at the output, pulled back to the outputs of the heads."""
        flat = covector @ self.output.flatten(0, 1).T
        by_head = flat.unflatten(-1, self.output.shape[:2]).transpose(1, 2)
        if self.factors is not None:
            by_head = by_head * self.factors
        return by_head if self.taps == 1 else by_head.repeat(1, self.taps, 1, 1)

    @property
    def linear_source(self) -> ValueSource:
        """The source of the values, if it is affine, so that it can be followed."""
        if self.beside is not None:
            raise UnsupportedArchitectureError(
                "Gates that share in what they let through (gates='joint') are not followed below attention: norms and "
                "mixing ratios alone have them."
            )
        if self.source is None:
            raise ValueError("This trace was not captured below attention, so that nothing can be followed there.")
        if not math.isinf(self.source.limit):
            raise UnsupportedArchitectureError(
                f"The values of the attention are not what their projection outputs: they are clipped to "
                f"{self.source.limit:.3g}, so they cannot be followed below attention."
            )
        return self.source

    @property
    def value_bias(self) -> Float[Tensor, "tap_head constant d_head"] | None:
        """The share of `values` that the value projection adds for any token: one for all keys, or one for each."""
        return self.linear_source.constant


@final
@dataclass(frozen=True)
class SelfAttention(Attention):
    """ATTN: the keys are the sequence's own tokens."""

    name: ClassVar[str] = "Attn"

    def keys(self, trace: LayerTrace) -> slice:
        return slice(0, trace.length)


@final
@dataclass(frozen=True)
class CrossAttention(Attention):
    """CROSS: the keys are the encoder's tokens."""

    name: ClassVar[str] = "Cross"

    def keys(self, trace: LayerTrace) -> slice:
        return slice(trace.length, trace.length + trace.source_length)


@dataclass(frozen=True)
class Residual:
    """RES: add back the decomposition that the last `Fork` set aside."""

    name: ClassVar[str] = "Res"


@dataclass(frozen=True)
class Scale:
    """Multiply the branch by a constant, one for all channels or one for each.

    It is not a component, so it has no name, except where it stands for a norm that this layer does not have.
    """

    factor: float | Float[Tensor, " d"]
    name: str = ""


@dataclass(frozen=True)
class Expert:
    """A network, the query rows that it serves, and the weight of its output for each."""

    network: Network
    rows: Int[Tensor, " row"]
    weights: Float[Tensor, " row"]
    pre_activations: tuple[Float[Tensor, "row f"], ...]
    """The inputs of the activation: one tensor for a plain network, gate and up for a gated one."""
    scales: Float[Tensor, " row"] | None = None
    """The factor of the states that enter, for networks without a bias before their activation; 1 if `None`."""
    baselines: tuple[Float[Tensor, "row f"], ...] | None = None
    """The baseline of integrated gradients, if it is not zero: the input of the activation without any token."""


@dataclass(frozen=True)
class FeedForward(ABC):
    """FF: one network for all queries (`rows` and `weights` say so), or a mixture of experts with a few queries each."""

    experts: tuple[Expert, ...]
    name: ClassVar[str] = "Ff"

    @abstractmethod
    def select(self, rows: QueryRows) -> FeedForward:
        """The same for some of the query rows."""


@final
@dataclass(frozen=True)
class SequentialFeedForward(FeedForward):
    """FF after the attention: it reads the state that the chain has reached."""

    def select(self, rows: QueryRows) -> SequentialFeedForward:
        count = max((1 + int(expert.rows.max()) for expert in self.experts if len(expert.rows)), default=0)
        return replace(self, experts=_select_experts(self.experts, rows, count))


@final
@dataclass(frozen=True)
class OwnFeedForward(FeedForward):
    """FF parallel to the attention: it reads only the query's own token, `hidden`, and adds to the output of attention.
    `norm` maps the block's input to `hidden`; `None` if they are the same.
    """

    hidden: Float[Tensor, "query d"]
    norm: Normalise | None = None

    def select(self, rows: QueryRows) -> OwnFeedForward:
        experts = _select_experts(self.experts, rows, len(self.hidden))
        norm = None if self.norm is None else self.norm.select(rows)
        return replace(self, experts=experts, hidden=self.hidden[rows], norm=norm)


Wiring = Fork | Residual | Scale
"""Steps that open, close and scale branches, without transforming a state."""

Transformation = Attention | Normalise | FeedForward
"""Steps that transform what they read."""

Step = Wiring | Transformation

Component = TypeVar("Component")


def map_components(
    change: Callable[..., Component], *chains: Sequence[Step | Component]
) -> tuple[Wiring | Component, ...]:
    """The chain with every component changed, also those around a branch, and its wiring as it is.

    Of several chains of the same wiring, `change` takes the components that correspond to each other.
    """
    return tuple(_changed(change, steps) for steps in zip(*chains, strict=True))


def _changed(change: Callable[..., Component], steps: tuple[Any, ...]) -> Wiring | Component:
    if isinstance(steps[0], Fork):
        return Fork(map_components(change, *(fork.around for fork in steps)))
    return steps[0] if isinstance(steps[0], Residual | Scale) else change(*steps)


@dataclass(frozen=True)
class LayerTrace:
    """One block, one sequence: the block's input, its steps, and the model's own state after each step.

    `states[k]` is `None` where the model does not expose the state (a `Fork` and a `Scale` have none of their own).
    `queries` are the positions of the rows that are followed; keys are always all positions, or, if `causal`, those up to
    the query. `source_length` is the number of encoder tokens, for a block with cross-attention.
    """

    hidden: Float[Tensor, "query d"]
    queries: Int[Tensor, " query"]
    steps: tuple[Step, ...]
    states: tuple[Float[Tensor, "query d"] | None, ...]
    length: int
    causal: bool = False
    source_length: int = 0

    @property
    def components(self) -> list[str]:
        """Names of the steps that are components, in chain order."""
        return [step.name for step in self.steps if step.name]

    def select(self, rows: QueryRows, after: int = -1) -> LayerTrace:
        """The same trace for some of its query rows; the steps up to `after` are done with and lose their states."""

        def selected(step: Transformation) -> Transformation:
            return step.select(rows)

        first = after + 1
        return replace(
            self,
            hidden=self.hidden[rows],
            queries=self.queries[rows],
            steps=(*self.steps[:first], *map_components(selected, self.steps[first:])),
            states=(*[None] * first, *(None if state is None else state[rows] for state in self.states[first:])),
        )


def _select_experts(experts: tuple[Expert, ...], rows: QueryRows, count: int) -> tuple[Expert, ...]:
    every = torch.arange(count, device=experts[0].rows.device)
    if isinstance(rows, slice) and len(experts) == 1 and torch.equal(experts[0].rows, every):  # it serves all rows
        return (_of_places(experts[0], every[: len(every[rows])], rows),)
    numbers = every[rows] if isinstance(rows, slice) else rows
    selected = (_select_expert(expert, numbers) for expert in experts)
    return tuple(expert for expert in selected if len(expert.rows))


def _select_expert(expert: Expert, rows: Int[Tensor, " row"]) -> Expert:
    """`rows` in their order; where an expert serves row `rows[k]`, the new row is `k`."""
    new_row, old_place = (rows[:, None] == expert.rows[None, :]).nonzero(as_tuple=True)
    return _of_places(expert, new_row, old_place)


def _of_places(expert: Expert, new_rows: Int[Tensor, " row"], places: QueryRows) -> Expert:
    """What an expert has at some places of its own, for rows with other numbers."""
    return replace(
        expert,
        rows=new_rows,
        weights=expert.weights[places],
        pre_activations=tuple(z[places] for z in expert.pre_activations),
        scales=None if expert.scales is None else expert.scales[places],
        baselines=None if expert.baselines is None else tuple(z[places] for z in expert.baselines),
    )
