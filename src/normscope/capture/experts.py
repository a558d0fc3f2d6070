"""Mixtures of experts: from stacked weights and a router's choices to one network per expert in use."""

from __future__ import annotations

import torch
from torch import Tensor

from normscope.capture.view import SequenceView
from normscope.capture.weights import BlockWeights
from normscope.chain.activations import clamped_swish
from normscope.chain.rounding import first_matrices
from normscope.chain.trace import Expert, Gated, Linear, Network, Plain
from normscope.families.spec import (
    BesideAttention,
    ClampedExpertsPart,
    ExpertsPart,
    FlatExpertsPart,
    InputScaledExpertsPart,
    Part,
    PlainExpertsPart,
    RoutedPart,
    SharedExpertsPart,
    TransposedExpertsPart,
    UngatedExpertsPart,
)
from normscope.models.devices import weights_at_hand


def experts_path(part: Part) -> str | None:
    """The submodule that is called with the choices of a router and their weights, where a part has one."""
    match part:
        case (
            ExpertsPart()
            | TransposedExpertsPart()
            | ClampedExpertsPart()
            | FlatExpertsPart()
            | PlainExpertsPart()
            | UngatedExpertsPart()
        ):
            return part.experts
        case SharedExpertsPart():
            return experts_path(part.routed)
        case BesideAttention():
            return experts_path(part.feed_forward)
        case _:
            return None


def experts_of(part: RoutedPart, read: BlockWeights, view: SequenceView) -> tuple[Expert, ...]:
    """The experts that serve a sequence, each with its rows and weights. Router weights are constants of the pass."""
    if isinstance(part, InputScaledExpertsPart):
        return _input_scaled(part, read, view)
    if isinstance(part, PlainExpertsPart):
        return _plain(part, read, view)
    hidden, choices, weights = view.routing(part.experts)
    experts: list[Expert] = []
    with weights_at_hand(read.block.get_submodule(part.experts)):  # fetched once for all experts
        for number in choices.unique().tolist():
            rows, place = torch.where(choices == number)
            network = _network(part, read, number)
            pre_activations = tuple(_apply(linear, hidden[rows]) for linear in first_matrices(network))
            experts.append(Expert(network, rows, weights[rows, place], pre_activations))
    return tuple(experts)


def _input_scaled(part: InputScaledExpertsPart, read: BlockWeights, view: SequenceView) -> tuple[Expert, ...]:
    hidden, scales = view.input(part.module), view.output(part.router)
    experts: list[Expert] = []
    with weights_at_hand(read.block.get_submodule(part.experts)):
        for number in scales.any(0).nonzero().flatten().tolist():
            rows = scales[:, number].nonzero().flatten()
            network, factors = _transposed(part, read, number), scales[rows, number]
            entering = hidden[rows] * factors[:, None]
            pre_activations = tuple(_apply(linear, entering) for linear in (network.gate, network.up))
            experts.append(Expert(network, rows, torch.ones_like(factors), pre_activations, scales=factors))
    return tuple(experts)


def _plain(part: PlainExpertsPart, read: BlockWeights, view: SequenceView) -> tuple[Expert, ...]:
    hidden, choices, weights = view.routing(part.experts)
    count = int(read.attribute(f"{part.experts}.num_experts"))
    numbers = torch.arange(count, device=choices.device)
    chosen = choices[:, None] if part.masked else choices[:, :, None] == numbers
    of_experts = part.factor * (chosen * weights[:, :, None]).sum(1)
    experts: list[Expert] = []
    for number in chosen.any(1).any(0).nonzero().flatten().tolist():
        rows = chosen[:, :, number].any(1).nonzero().flatten()
        first, second = (
            read.linear(f"{part.experts}.expert_{number}.{name}") for name in (part.inside.first, part.inside.second)
        )
        activation = read.activation(f"{part.experts}.expert_{number}.{part.inside.activation}")
        pre_activations = (_apply(first, hidden[rows]),)
        experts.append(Expert(Plain(first, activation, second), rows, of_experts[rows, number], pre_activations))
    return tuple(experts)


def _network(
    part: ExpertsPart | TransposedExpertsPart | ClampedExpertsPart | FlatExpertsPart | UngatedExpertsPart,
    read: BlockWeights,
    expert: int,
) -> Network:
    match part:
        case UngatedExpertsPart():
            up, down = (Linear(_of(part, read, name, expert)) for name in ("up_proj", "down_proj"))
            return Plain(up, read.activation(part.activation), down)
        case ExpertsPart():
            return _stacked(part, read, expert)
        case TransposedExpertsPart():
            return _transposed(part, read, expert)
        case ClampedExpertsPart():
            return _interleaved(part, read, expert)
        case FlatExpertsPart():
            return _flat(part, read, expert)


def _transposed(part: TransposedExpertsPart | InputScaledExpertsPart, read: BlockWeights, expert: int) -> Gated:
    gate, up = _of(part, read, "gate_up_proj", expert).T.chunk(2)
    down = Linear(_of(part, read, "down_proj", expert).T)
    return Gated(Linear(gate), Linear(up), read.activation(part.activation), down)


def _flat(part: FlatExpertsPart, read: BlockWeights, expert: int) -> Gated:
    count = int(read.attribute(f"{part.experts}.num_experts"))
    gate, up, down = (read.rows_of(f"{part.experts}.mlp.{name}", expert, count) for name in ("w1", "v1", "w2"))
    return Gated(Linear(gate), Linear(up), read.activation(part.activation), Linear(down.T))


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


def _of(part: RoutedPart, read: BlockWeights, name: str, expert: int) -> Tensor:
    return read.slice_of(f"{part.experts}.{name}", expert)


def _apply(linear: Linear, vectors: Tensor) -> Tensor:
    product = vectors @ linear.weight.T
    return product if linear.bias is None else product + linear.bias
