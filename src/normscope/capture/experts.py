"""Mixtures of experts: from stacked weights and a router's choices to one network per expert in use."""

from __future__ import annotations

import torch
from torch import Tensor

from normscope.activations import clamped_swish
from normscope.capture.seen import SequenceView
from normscope.capture.weights import BlockWeights
from normscope.families.spec import ClampedExpertsPart, ExpertsPart, Part, SharedExpertsPart
from normscope.placement import weights_at_hand
from normscope.trace import Expert, Gated, Linear


def experts_path(part: Part) -> str | None:
    """The submodule that is called with the choices of a router and their weights, where a part has one."""
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
            rows, place = torch.where(choices == number)
            network = _network(part, read, number)
            pre_activations = tuple(_apply(linear, hidden[rows]) for linear in (network.gate, network.up))
            experts.append(Expert(network, rows, weights[rows, place], pre_activations))
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
