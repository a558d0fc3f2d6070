"""Traces of blocks: which tensor of the model plays which role in the chain, with one network for each expert in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from normscope.capture.values import projected_values, value_source
from normscope.capture.view import SequenceView
from normscope.capture.weights import BlockWeights
from normscope.chain.activations import clamped_swish
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
    Residual,
    Scale,
    SelfAttention,
    SequentialFeedForward,
    Shared,
    Step,
)
from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import (
    AttentionPart,
    BesideAttention,
    ClampedExpertsPart,
    Config,
    DispatchedAttention,
    DispatchedCrossAttention,
    ExpertsPart,
    FeedForwardPart,
    FixedLayerNormPart,
    ForkPart,
    FusedGatedPart,
    GatedPart,
    HookedAttention,
    LayerNormPart,
    Part,
    PlainPart,
    ResidualPart,
    RmsNormPart,
    ScalePart,
    SharedExpertsPart,
    UnitRmsNormPart,
)
from normscope.models.devices import weights_at_hand


def experts_path(part: Part) -> str | None:
    """The submodule that is called with the choices of a router and their weights, if a part has one."""
    match part:
        case ExpertsPart() | ClampedExpertsPart():
            return part.experts
        case SharedExpertsPart():
            return part.routed.experts
        case _:
            return None


def experts_of(part: ExpertsPart | ClampedExpertsPart, read: BlockWeights, view: SequenceView) -> tuple[Expert, ...]:
    """The experts that serve a sequence, each with its rows and weights. Router weights are constants of the pass."""
    hidden, choices, weights = view.routing(part.experts)
    experts: list[Expert] = []
    with weights_at_hand(read.block.get_submodule(part.experts)):  # fetched once for all experts
        for number in choices.unique().tolist():
            rows, choice = torch.where(choices == number)
            network = _network(part, read, number)
            pre_activations = tuple(_apply(linear, hidden[rows]) for linear in (network.gate, network.up))
            experts.append(Expert(network, rows, weights[rows, choice], pre_activations))
    return tuple(experts)


def _network(part: ExpertsPart | ClampedExpertsPart, read: BlockWeights, expert: int) -> Gated:
    return _stacked(part, read, expert) if isinstance(part, ExpertsPart) else _interleaved(part, read, expert)


def _stacked(part: ExpertsPart, read: BlockWeights, expert: int) -> Gated:
    gate, up = _of(part, read, "gate_up_proj", expert).chunk(2)
    down = Linear(_of(part, read, "down_proj", expert))
    return Gated(Linear(gate), Linear(up), read.activation(part.activation), down)


def _interleaved(part: ClampedExpertsPart, read: BlockWeights, expert: int) -> Gated:
    weight = _of(part, read, "gate_up_proj", expert).T
    bias = _of(part, read, "gate_up_proj_bias", expert)
    limit = float(read.attribute(f"{part.experts}.limit"))
    return Gated(
        gate=Linear(weight[::2], bias[::2]),
        up=Linear(weight[1::2], bias[1::2]),
        activation=clamped_swish(float(read.attribute(f"{part.experts}.alpha")), limit),
        down=Linear(_of(part, read, "down_proj", expert).T, _of(part, read, "down_proj_bias", expert)),
        up_offset=1.0,
        up_limit=limit,
    )


def _of(part: ExpertsPart | ClampedExpertsPart, read: BlockWeights, name: str, expert: int) -> Tensor:
    return read.slice_of(f"{part.experts}.{name}", expert)


def _apply(linear: Linear, vectors: Tensor) -> Tensor:
    product = vectors @ linear.weight.T
    return product if linear.bias is None else product + linear.bias


# ---- From the description of a block, its weights and what was captured of a call, to the trace of each sequence.
#
# Knows which tensor of the model plays which role in the chain, and nothing of what is computed with them.


def watched_modules(part: Part) -> tuple[str, ...]:
    """The submodules whose input and output a part needs."""
    match part:
        case ForkPart() | ScalePart() | ResidualPart():
            return ()
        case DispatchedAttention() | DispatchedCrossAttention():
            return (part.output,)
        case HookedAttention():
            return (part.weights, part.value.module, part.output)
        case LayerNormPart() | FixedLayerNormPart() | RmsNormPart() | UnitRmsNormPart():
            return (part.module,)
        case PlainPart():
            return (part.first, part.second)
        case GatedPart():
            return (part.gate, part.up, part.down)
        case FusedGatedPart():
            return (part.gate_and_up, part.down)
        case ExpertsPart() | ClampedExpertsPart():
            return (part.module, part.experts)
        case SharedExpertsPart():
            gate = () if part.gate is None else (part.gate,)
            return (*watched_modules(part.routed), *watched_modules(part.shared), *gate)
        case BesideAttention():
            return (part.norm.module, *watched_modules(part.feed_forward))


@dataclass(frozen=True)
class TraceBuilder:
    """Builds the traces of a block's calls from its description and weights.

    `whole` is whether the chain goes to the end of the block, and not just as far as requested.
    """

    chain: Sequence[Part]
    whole: bool
    weights: BlockWeights
    config: Config
    causal: bool
    below_attention: bool
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
        whole = self.trace(view)
        for rows in blocks:
            yield self._with_weights(whole, view, rows.to(view.device))

    def _with_weights(self, whole: LayerTrace, view: SequenceView, rows: Tensor) -> LayerTrace:
        trace = whole.select(rows)
        steps = list(trace.steps)
        for index, (part, step) in enumerate(zip(self.chain, steps, strict=True)):
            if isinstance(step, Attention) and isinstance(part, DispatchedAttention | DispatchedCrossAttention):
                cross = isinstance(part, DispatchedCrossAttention)
                weights = view.row_weights(part.module, rows, source=cross)
                if self.causal and not cross:
                    later = torch.arange(view.length, device=rows.device) > rows[:, None]
                    self._check_causal(bool((weights * later).any()))
                steps[index] = replace(step, weights=weights)
        return replace(trace, steps=tuple(steps))

    def _step(self, part: Part, view: SequenceView) -> Step:
        match part:
            case ForkPart():
                return Fork()
            case ScalePart():
                return Scale(part.factor)
            case ResidualPart():
                return Residual()
            case LayerNormPart() | FixedLayerNormPart() | RmsNormPart() | UnitRmsNormPart():
                return Normalise(self.weights.norm(part), state_before=view.input(part.module))
            case DispatchedAttention() | DispatchedCrossAttention() | HookedAttention():
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
            case ForkPart() | ScalePart() | BesideAttention():
                return None
            case DispatchedAttention() | DispatchedCrossAttention() | HookedAttention():
                return view.output(part.output)
            case LayerNormPart() | FixedLayerNormPart() | RmsNormPart() | UnitRmsNormPart():
                return view.output(part.module)
            case PlainPart():
                return view.output(part.second)
            case GatedPart() | FusedGatedPart():
                return view.output(part.down)
            case ExpertsPart() | ClampedExpertsPart():
                return view.output(part.module)
            case SharedExpertsPart():
                return view.output(part.routed.module)
            case ResidualPart():
                return self._state_after_residual(index, view)

    def _state_after_residual(self, index: int, view: SequenceView) -> Tensor | None:
        """After a residual connection, the state is the input of the next part."""
        following = [part for part in self.chain[index + 1 :] if not isinstance(part, ForkPart)]
        if not following or isinstance(following[0], AttentionPart):
            return None
        return view.input(watched_modules(following[0])[0])

    # ---- attention -----------------------------------------------------------------------------------------------------

    def _attention(self, part: AttentionPart, view: SequenceView) -> Attention:
        cross = isinstance(part, DispatchedCrossAttention)
        if isinstance(part, HookedAttention):
            weights = view.weights(part.weights)
            values = self._values(part, view)
        else:
            weights, values = view.attention(part.module, source=cross)
        if self.causal and not cross and not view.is_long:
            self._check_causal(bool(weights.triu(1).any()))
        groups, _, d_head = values.shape
        heads = len(weights)
        source = value_source(part, self.weights, view, values, heads) if self.below_attention else None
        linear = self.weights.linear(part.output)
        return (CrossAttention if cross else SelfAttention)(
            weights=weights,
            values=values.repeat_interleave(heads // groups, dim=0),
            output=linear.weight.T.reshape(heads, d_head, -1),
            bias=linear.bias,
            source=source,
            shared=self.shared,
        )

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
                network = Plain(read.linear(part.first), read.activation(part.activation), read.linear(part.second))
                return (_for_all(network, view.output(part.first)),)
            case GatedPart():
                gate, up = read.linear(part.gate), read.linear(part.up)
                network = Gated(gate, up, read.activation(part.activation), read.linear(part.down))
                return (_for_all(network, view.output(part.gate), view.output(part.up)),)
            case FusedGatedPart():
                gate, up = _halves(read.linear(part.gate_and_up))
                network = Gated(gate, up, read.activation(part.activation), read.linear(part.down))
                return (_for_all(network, *view.output(part.gate_and_up).chunk(2, dim=-1)),)
            case ExpertsPart() | ClampedExpertsPart():
                return experts_of(part, read, view)
            case SharedExpertsPart():
                return (*experts_of(part.routed, read, view), self._shared_expert(part, view))

    def _shared_expert(self, part: SharedExpertsPart, view: SequenceView) -> Expert:
        (expert,) = self._feed_forward(part.shared, view)
        return expert if part.gate is None else replace(expert, weights=view.output(part.gate).sigmoid().squeeze(-1))

    def _own_feed_forward(self, part: BesideAttention, view: SequenceView) -> OwnFeedForward:
        """Checks what completeness cannot: a feed-forward that also read the attention would add up just as well."""
        hidden, norm = view.input(watched_modules(part.feed_forward)[0]), part.norm.module
        if not (torch.equal(view.input(norm), view.hidden) and torch.equal(view.output(norm), hidden)):
            raise UnsupportedArchitectureError(
                f"The feed-forward does not read what {norm} makes of the block's input, "
                f"so attention and feed-forward are not side by side as the family says."
            )
        normalise = Normalise(self.weights.norm(part.norm), state_before=view.hidden)
        return OwnFeedForward(self._feed_forward(part.feed_forward, view), hidden=hidden, norm=normalise)


def _for_all(network: Network, *pre_activations: Tensor) -> Expert:
    """A network that is applied to every query, with weight one."""
    z = pre_activations[0]
    return Expert(network, torch.arange(len(z), device=z.device), z.new_ones(len(z)), pre_activations)


def _halves(linear: Linear) -> tuple[Linear, Linear]:
    first, second = linear.weight.chunk(2)
    if linear.bias is None:
        return Linear(first), Linear(second)
    return Linear(first, linear.bias.chunk(2)[0]), Linear(second, linear.bias.chunk(2)[1])
