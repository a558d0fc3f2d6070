"""Traces of blocks: which tensor of the model plays which role in the chain.

From the description of a block, its weights and a captured call, to the trace of each sequence. What is computed with
traces is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from normscope.capture.absent import absent
from normscope.capture.experts import experts_of
from normscope.capture.gates import watched_in_gates, with_gates, with_slopes
from normscope.capture.mixers import mixed
from normscope.capture.scores import WantedScores, scores_of
from normscope.capture.side_by_side import side_by_side
from normscope.capture.values import projected_values, projections, value_source
from normscope.capture.view import SequenceView
from normscope.capture.weights import BlockWeights
from normscope.chain.linear import deviation
from normscope.chain.scores import Scores
from normscope.chain.trace import (
    Attention,
    CrossAttention,
    Expert,
    Fork,
    Gated,
    LayerTrace,
    Linear,
    Network,
    Normalise,
    OwnFeedForward,
    Plain,
    QueryRows,
    Residual,
    Scale,
    SelfAttention,
    SequentialFeedForward,
    Shared,
    Step,
    ValueSource,
    stretch,
)
from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import (
    NO_FEED_FORWARD,
    NO_NORM,
    AbsentPart,
    AttentionBesideMixer,
    AttentionPart,
    BesideAttention,
    ClampedExpertsPart,
    Config,
    CrossPart,
    DispatchedAttention,
    DispatchedCrossAttention,
    ExpertsPart,
    FeedForwardPart,
    FixedLayerNormPart,
    FlatExpertsPart,
    ForkPart,
    FourierMixing,
    FusedGatedPart,
    GatedPart,
    GridConvolution,
    HeadGate,
    HookedAttention,
    InputScaledExpertsPart,
    LayerNormPart,
    LinearMixer,
    PairedHeads,
    Part,
    PlainExpertsPart,
    PlainPart,
    ProbedAttention,
    ProbedCrossAttention,
    ProbedPart,
    ResidualPart,
    RmsNormPart,
    ScalePart,
    SharedExpertsPart,
    StretchPart,
    TransposedExpertsPart,
    UngatedExpertsPart,
    UnitLayerNormPart,
    UnitRmsNormPart,
)


def watched_modules(part: Part) -> tuple[str, ...]:
    """The submodules whose input and output a part needs."""
    match part:
        case ScalePart() | StretchPart() | ResidualPart() | AbsentPart():
            return ()
        case ForkPart():
            return tuple(path for each in part.around for path in watched_modules(each))
        case (
            DispatchedAttention()
            | DispatchedCrossAttention()
            | HookedAttention()
            | ProbedAttention()
            | ProbedCrossAttention()
            | FourierMixing()
            | LinearMixer()
            | AttentionBesideMixer()
        ):
            return _watched_in_attention(part)
        case LayerNormPart() | FixedLayerNormPart() | RmsNormPart() | UnitRmsNormPart() | UnitLayerNormPart():
            return (part.module,)
        case PlainPart():
            return (part.first, part.second)
        case GatedPart():
            norm = () if part.inner_norm is None else (part.inner_norm.module,)
            return (part.gate, part.up, part.down, *norm)
        case FusedGatedPart():
            return (part.gate_and_up, part.down)
        case (
            ExpertsPart()
            | TransposedExpertsPart()
            | ClampedExpertsPart()
            | FlatExpertsPart()
            | InputScaledExpertsPart()
            | PlainExpertsPart()
            | UngatedExpertsPart()
        ):
            return (part.module, part.router if isinstance(part, InputScaledExpertsPart) else part.experts)
        case SharedExpertsPart():
            gate = () if part.gate is None else (part.gate,)
            return (*watched_modules(part.routed), *watched_modules(part.shared), *gate)
        case BesideAttention():
            return (part.norm.module, *watched_modules(part.feed_forward))


def _watched_in_attention(part: AttentionPart) -> tuple[str, ...]:
    match part:
        case AttentionBesideMixer():
            return (*_watched_in_attention(part.attention), *_watched_in_attention(part.mixer))
        case HookedAttention():
            return (part.weights, part.value.module, part.output)
        case FourierMixing():
            return (part.output,)
        case ProbedAttention() | ProbedCrossAttention():
            activation = getattr(part, "activation", None)
            return (*projections(part.value), *(() if activation is None else (activation,)), part.output)
        case DispatchedAttention(gate=HeadGate(module=gate)):
            return (part.output, gate)
        case DispatchedCrossAttention():
            return (part.output,)
        case DispatchedAttention():
            return (part.output, *watched_in_gates(part))
        case LinearMixer():
            grid = (part.convolution.module,) if isinstance(part.convolution, GridConvolution) else ()
            return (part.output, part.value.module, *watched_in_gates(part), *grid)


TracesOfRows = Callable[[Iterable[Tensor]], Iterator[LayerTrace]]
"""The traces of blocks of query rows of a long sequence."""

_NO_LENGTH = 1e-12
"""The least length by which `torch.nn.functional.normalize` divides."""


@dataclass(frozen=True)
class TraceBuilder:
    """Builds the traces of a block's calls from its description and weights.

    `whole` is whether the chain goes to the end of the block, and not just as far as requested; `scores` is whether
    attentions also have the queries and keys of their weights, where these are known or everywhere. `up_to_last`: in the
    trace of a block of rows, causal attention has the keys up to the last of these rows alone.
    """

    chain: Sequence[Part]
    whole: bool
    weights: BlockWeights
    config: Config
    causal: bool
    below_attention: bool
    scores: WantedScores = "no"
    up_to_last: bool = False
    shared: Shared = field(default_factory=Shared)

    def trace(self, view: SequenceView) -> LayerTrace:
        """The trace of one sequence of the batch, without its padding."""
        return LayerTrace(
            hidden=view.hidden,
            queries=torch.arange(view.length, device=view.device),
            steps=tuple(self._step(part, view) for part in self.chain),
            states=tuple(self._state_after(index, view) for index in range(len(self.chain))),
            length=view.length,
            causal=self.causal,
            source_length=view.source_length,
        )

    def traces_of_rows(self, view: SequenceView, blocks: Iterable[Tensor]) -> Iterator[LayerTrace]:
        """The traces of blocks of query rows of a long sequence, with the attention weights of one block at a time."""
        yield from self.by_rows(view)(blocks)

    def by_rows(self, view: SequenceView) -> TracesOfRows:
        """What gives these traces later. It keeps the tensors of the trace alone, and what its weights are made of."""
        whole, kept = self.trace(view), view.for_rows(self._read_with_rows())

        def traces(blocks: Iterable[Tensor]) -> Iterator[LayerTrace]:
            for rows in blocks:
                yield self._with_weights(whole, kept, rows.to(kept.device))

        return traces

    def _read_with_rows(self) -> list[str]:
        """The modules whose outputs are read for the weights of rows: gates of heads."""
        dispatched = (part for part in self.chain if isinstance(part, DispatchedAttention))
        return [part.gate.module for part in dispatched if isinstance(part.gate, HeadGate)]

    def _with_weights(self, whole: LayerTrace, view: SequenceView, rows: Tensor) -> LayerTrace:
        chosen = stretch(rows)
        trace = whole.select(chosen)
        steps = list(trace.steps)
        for index, (part, step) in enumerate(zip(self.chain, steps, strict=True)):
            if isinstance(step, Attention) and isinstance(part, DispatchedAttention | DispatchedCrossAttention):
                causal = self.causal and not isinstance(part, DispatchedCrossAttention)
                keys = 1 + int(rows.max()) if self.up_to_last and causal else step.values.shape[1]
                weights = self._weighed(part, view.row_weights(part.module, chosen, keys), view, chosen)
                if causal:
                    first = 1 + int(rows.min())
                    later = torch.arange(first, keys, device=rows.device) > rows[:, None]
                    self._check_causal(bool((weights[:, :, first:] * later).any()))
                steps[index] = replace(step.first_keys(keys), weights=weights)
        return replace(trace, steps=tuple(steps))

    def _step(self, part: Part, view: SequenceView) -> Step:
        match part:
            case ForkPart():
                return Fork(tuple(self._step(each, view) for each in part.around))
            case ScalePart(factor=str(path)):
                return Scale(float(self.weights.parameter(path)))
            case ScalePart():
                return Scale(float(part.factor))
            case StretchPart():
                return Scale(self.weights.parameter(part.parameter))
            case AbsentPart():
                return absent(part.component, view, below=self.below_attention)
            case ResidualPart():
                return Residual()
            case LayerNormPart() | FixedLayerNormPart() | RmsNormPart() | UnitRmsNormPart() | UnitLayerNormPart():
                states = view.input(part.module)
                return Normalise(self.weights.norm(part, states), state_before=states)
            case (
                DispatchedAttention()
                | DispatchedCrossAttention()
                | HookedAttention()
                | ProbedAttention()
                | ProbedCrossAttention()
                | FourierMixing()
                | LinearMixer()
                | AttentionBesideMixer()
            ):
                return self._attention(part, view)
            case BesideAttention():
                return self._own_feed_forward(part, view)
            case _:
                return SequentialFeedForward(self._feed_forward(part, view))

    def _state_after(self, index: int, view: SequenceView) -> Tensor | None:
        """The model's own state after a part, if it can be captured; after the last part, it is the block's output."""
        if self.whole and index == len(self.chain) - 1:
            return view.block_output
        match part := self.chain[index]:
            case ForkPart() | ScalePart() | StretchPart() | AbsentPart() | BesideAttention():
                return None
            case (
                DispatchedAttention()
                | DispatchedCrossAttention()
                | HookedAttention()
                | ProbedAttention()
                | ProbedCrossAttention()
                | FourierMixing()
                | LinearMixer()
            ):
                output, bias = self._scaled(part, view.output(part.output)), getattr(part, "output_bias", None)
                return output if bias is None else output + self.weights.parameter(bias)
            case AttentionBesideMixer(attention, mixer, factors):
                first, second = (view.output(each.output) for each in (attention, mixer))
                return factors[0] * first + factors[1] * second
            case LayerNormPart() | FixedLayerNormPart() | RmsNormPart() | UnitRmsNormPart() | UnitLayerNormPart():
                return view.output(part.module)
            case PlainPart():
                return self._scaled(part, view.output(part.second))
            case GatedPart() | FusedGatedPart():
                return self._scaled(part, view.output(part.down))
            case (
                ExpertsPart()
                | TransposedExpertsPart()
                | ClampedExpertsPart()
                | FlatExpertsPart()
                | InputScaledExpertsPart()
                | PlainExpertsPart()
                | UngatedExpertsPart()
            ):
                return view.output(part.module)
            case SharedExpertsPart():
                routed = view.output(part.routed.module)
                inside = part.output.startswith(f"{part.routed.module}.")
                return routed if inside else routed + view.output(part.output)
            case ResidualPart():
                return self._state_after_residual(index, view)

    def _scaled(self, part: AttentionPart | PlainPart | GatedPart | FusedGatedPart, output: Tensor) -> Tensor:
        path = getattr(part, "layer_scale", None)
        return output if path is None else output * self.weights.parameter(path)

    def _state_after_residual(self, index: int, view: SequenceView) -> Tensor | None:
        """After a residual connection, the state is the input of the next part."""
        following = [part for part in self.chain[index + 1 :] if not isinstance(part, ForkPart)]
        while following and following[0] == NO_NORM:
            del following[0]
        if following[:1] == [NO_FEED_FORWARD] and self.whole:
            return view.block_output
        if not following or isinstance(following[0], AttentionPart | AbsentPart):
            return None
        return view.input(watched_modules(following[0])[0])

    # ---- attention -----------------------------------------------------------------------------------------------------

    def _attention(self, part: AttentionPart, view: SequenceView) -> Attention:
        if isinstance(part, AttentionBesideMixer):
            both = self._attention(part.attention, view), self._mixer(part.mixer, view)
            return side_by_side(*both, part.factors, self.shared)
        if isinstance(part, LinearMixer):
            return self._mixer(part, view)
        if isinstance(part, FourierMixing):
            return self._fourier(part, view)
        cross = isinstance(part, CrossPart)
        if isinstance(part, HookedAttention):
            weights = view.weights(part.weights)
            values = self._values(part, view)
        elif isinstance(part, ProbedPart):
            weights = view.probed(part.module, source=cross)
            d_head = view.input(part.output).shape[-1] // len(weights)
            values = projected_values(part, self.weights, view, len(weights), d_head)
            if getattr(part, "unit_context", None) is not None:
                weights = weights / torch.linalg.vector_norm(weights @ values, dim=-1, keepdim=True).clamp(
                    min=_NO_LENGTH
                )
        else:
            weights, values = view.attention(part.module, source=cross)
            weights = self._weighed(part, weights, view)
            if isinstance(part.value, PairedHeads):
                groups, _, d_head = values.shape
                values = projected_values(part, self.weights, view, groups // 2, 2 * d_head)
        if self.causal and not cross and not view.is_long:
            self._check_causal(bool(weights.triu(1).any()))
        groups, _, d_head = values.shape
        heads = len(weights)
        source = value_source(part, self.weights, view, values, heads) if self.below_attention else None
        linear = self.weights.linear(part.output, getattr(part, "layer_scale", None))
        scores = self._scores(part, view, weights) if isinstance(part, DispatchedAttention) else None
        attention = (CrossAttention if cross else SelfAttention)(
            weights=weights,
            values=values.repeat_interleave(heads // groups, dim=0),
            output=linear.weight.T.reshape(heads, d_head, -1),
            bias=self._output_bias(part, linear),
            source=source,
            shared=self.shared,
            scores=scores,
        )
        if isinstance(part, ProbedAttention) and part.activation is not None:
            return with_slopes(attention, self.weights.activation(part.activation), view.input(part.activation))
        return with_gates(attention, part, self.weights, view) if isinstance(part, DispatchedAttention) else attention

    def _weighed(
        self, part: AttentionPart, weights: Tensor, view: SequenceView, rows: QueryRows | None = None
    ) -> Tensor:
        """Weights `[head, row, key]` with their gates, or as differences of those of two heads."""
        if isinstance(part, DispatchedAttention) and part.difference is not None:
            first, second = weights.chunk(2)
            return first - self.weights.share_of_second_heads(part.difference) * second
        return _gated(part, weights, view, rows)

    def _scores(self, part: DispatchedAttention, view: SequenceView, weights: Tensor) -> Scores | None:
        """The queries and keys of the weights; `None` where they are not known, unless they are required."""
        if self.scores == "no":
            return None
        try:
            if part.difference is not None:
                raise UnsupportedArchitectureError(
                    "Weights that are differences of two softmaxes have no scores of one."
                )
            return scores_of(part, self.weights, view, None if view.is_long else weights)
        except UnsupportedArchitectureError:
            if self.scores == "required":
                raise
            return None

    def _mixer(self, part: LinearMixer, view: SequenceView) -> Attention:
        linear = self.weights.linear(part.output)
        output = linear.weight.T.unflatten(0, (part.heads, -1))
        found = mixed(part, self.weights, view, output.shape[1], below=self.below_attention)
        self._check_causal(bool(found.weights[: part.heads].triu(1).any()))
        attention = SelfAttention(
            weights=found.weights,
            values=found.values,
            output=output,
            bias=linear.bias,
            source=found.source,
            shared=self.shared,
            taps=len(found.values) // part.heads,
        )
        return with_gates(attention, part, self.weights, view)

    def _fourier(self, part: FourierMixing, view: SequenceView) -> Attention:
        states = view.input(part.output)
        length, width = states.shape
        (cosines, sines), output = _waves(length, states), torch.stack(_waves(width, states))
        both = torch.eye(width, dtype=states.dtype, device=states.device).expand(2, -1, -1)
        source = ValueSource(view.hidden, (), both, None) if self.below_attention else None
        values = states.expand(2, -1, -1)
        return SelfAttention(torch.stack([cosines, -sines]), values, output, None, source, self.shared)

    def _output_bias(self, part: AttentionPart, linear: Linear) -> Tensor | None:
        own = part.output_bias if isinstance(part, HookedAttention) else None
        return linear.bias if own is None else self.weights.parameter(own)

    @staticmethod
    def _check_causal(looks: bool) -> None:
        if looks:
            raise UnsupportedArchitectureError("Attention looks at later tokens, but the family says it is causal.")

    def _values(self, part: HookedAttention, view: SequenceView) -> Tensor:
        """`[group, key, d_head]` from the output of the value projection."""
        groups = part.value_heads(self.config)
        output = self.weights.linear(part.output).weight
        d_head = output.shape[1] // len(view.weights(part.weights))
        return projected_values(part, self.weights, view, groups, d_head)

    # ---- feed-forward --------------------------------------------------------------------------------------------------

    def _feed_forward(self, part: FeedForwardPart, view: SequenceView) -> tuple[Expert, ...]:
        read = self.weights
        match part:
            case PlainPart():
                second = read.linear(part.second, part.layer_scale)
                network = Plain(read.linear(part.first), read.activation(part.activation), second)
                return (_for_all(network, view.output(part.first)),)
            case GatedPart():
                gate, up = _scaled(part.gate_factor, read.linear(part.gate)), read.linear(part.up)
                network = Gated(gate, up, read.activation(part.activation), read.linear(part.down, part.layer_scale))
                expert = _for_all(network, part.gate_factor * view.output(part.gate), view.output(part.up))
                return (expert if part.inner_norm is None else self._normalised_inside(part.inner_norm, expert, view),)
            case FusedGatedPart():
                gate, up = _halves(read.linear(part.gate_and_up))
                network = Gated(gate, up, read.activation(part.activation), read.linear(part.down, part.layer_scale))
                return (_for_all(network, *view.output(part.gate_and_up).chunk(2, dim=-1)),)
            case (
                ExpertsPart()
                | TransposedExpertsPart()
                | ClampedExpertsPart()
                | FlatExpertsPart()
                | InputScaledExpertsPart()
                | PlainExpertsPart()
                | UngatedExpertsPart()
            ):
                return experts_of(part, read, view)
            case SharedExpertsPart():
                routed = [
                    _times(part.routed_factor * part.factor, each) for each in experts_of(part.routed, read, view)
                ]
                return (*routed, _times(part.factor, self._shared_expert(part, view)))

    def _normalised_inside(self, norm: RmsNormPart, expert: Expert, view: SequenceView) -> Expert:
        """A norm of the neurons: its weight is folded into the last matrix, its deviations into the weights of the
        network's output."""
        states, network = view.input(norm.module), expert.network
        assert isinstance(network, Gated)
        inside = self.weights.norm(norm, states)
        if network.down.bias is not None:
            raise UnsupportedArchitectureError("A network with a norm inside and a bias behind it is not described.")
        down = Linear(network.down.weight * inside.weight)
        return replace(expert, network=replace(network, down=down), weights=1 / deviation(inside, states))

    def _shared_expert(self, part: SharedExpertsPart, view: SequenceView) -> Expert:
        (expert,) = self._feed_forward(part.shared, view)
        return expert if part.gate is None else replace(expert, weights=view.output(part.gate).sigmoid().squeeze(-1))

    def _own_feed_forward(self, part: BesideAttention, view: SequenceView) -> OwnFeedForward:
        """Checks what completeness does not show: a feed-forward that also read the attention would add up just as well."""
        hidden, norm = view.input(watched_modules(part.feed_forward)[0]), part.norm.module
        if not (torch.equal(view.input(norm), view.hidden) and torch.equal(view.output(norm), hidden)):
            raise UnsupportedArchitectureError(
                f"The feed-forward does not read what {norm} makes of the block's input, "
                f"so attention and feed-forward are not side by side as the family says."
            )
        normalise = Normalise(self.weights.norm(part.norm, view.hidden), state_before=view.hidden)
        return OwnFeedForward(self._feed_forward(part.feed_forward, view), hidden=hidden, norm=normalise)


def _gated(part: AttentionPart, weights: Tensor, view: SequenceView, rows: QueryRows | None = None) -> Tensor:
    """Weights `[head, row, key]` with the gate of each head and query, where there is one."""
    if not isinstance(part, DispatchedAttention) or not isinstance(part.gate, HeadGate):
        return weights
    gates = getattr(torch.nn.functional, part.gate.activation)(view.output(part.gate.module))
    if gates.shape[-1] != len(weights):
        raise UnsupportedArchitectureError(
            f"{part.gate.module} has {gates.shape[-1]} outputs for {len(weights)} heads: its gates differ inside of a head, "
            f"so that they are no factors of attention weights."
        )
    return weights * (gates if rows is None else gates[rows]).T[:, :, None]


def _scaled(factor: float, linear: Linear) -> Linear:
    if factor == 1:
        return linear
    return Linear(factor * linear.weight, None if linear.bias is None else factor * linear.bias)


def _times(factor: float, expert: Expert) -> Expert:
    return expert if factor == 1 else replace(expert, weights=factor * expert.weights)


def _waves(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of a discrete Fourier transform, `[frequency, place]`."""
    places = torch.arange(count, device=like.device)
    angles = torch.outer(places, places).remainder(count).double() * (2 * math.pi / count)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _for_all(network: Network, *pre_activations: Tensor) -> Expert:
    """A network that is applied to every query, with weight one."""
    z = pre_activations[0]
    return Expert(network, torch.arange(len(z), device=z.device), z.new_ones(len(z)), pre_activations)


def _halves(linear: Linear) -> tuple[Linear, Linear]:
    first, second = linear.weight.chunk(2)
    if linear.bias is None:
        return Linear(first), Linear(second)
    return Linear(first, linear.bias.chunk(2)[0]), Linear(second, linear.bias.chunk(2)[1])
