"""The sizes of a model's blocks, from its modules; these have sizes on the meta device, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from normscope.capture import blocks_of
from normscope.chain.trace import Attention, FeedForward, Gated, LayerTrace, OwnFeedForward
from normscope.errors import ModelError
from normscope.families.spec import (
    NO_FEED_FORWARD,
    AttentionBesideMixer,
    AttentionPart,
    BesideAttention,
    ClampedExpertsPart,
    Config,
    ExpertsPart,
    FeedForwardPart,
    FlatExpertsPart,
    FourierMixing,
    FusedGatedPart,
    GatedPart,
    InputScaledExpertsPart,
    LinearMixer,
    Part,
    PlainExpertsPart,
    PlainPart,
    ProbedPart,
    RoutedPart,
    SharedExpertsPart,
    Stack,
    TransposedExpertsPart,
    UngatedExpertsPart,
)


class UnknownSizeError(ModelError):
    """The sizes of a model's modules are unknown, so its work cannot be counted."""


@dataclass(frozen=True)
class BlockSizes:
    """What the work of one block depends on.

    `values` is the width of all value vectors of a token together (heads times head size). `neurons` is the number of
    those that act on one token, and `branches` is 2 for a gated network. `parameters` are those that one token goes
    through. `beside` is whether the feed-forward reads the query's own token alone.
    """

    d: int
    heads: int
    values: int
    neurons: int
    branches: int
    parameters: int
    beside: bool = False
    experts: int = 1


def blocks_in(model: PreTrainedModel, stack: Stack) -> list[BlockSizes]:
    """The sizes of every layer of a stack."""
    blocks, topologies = blocks_of(model, stack), stack.topologies(model.config)
    try:
        return [_sizes(blocks[i % len(blocks)], topology.chain(), model) for i, topology in enumerate(topologies)]
    except (AttributeError, StopIteration) as error:
        raise UnknownSizeError(
            f"The sizes of {type(model).__name__} cannot be read from its modules: {error}."
        ) from error


def sizes_of_trace(trace: LayerTrace) -> BlockSizes:
    """The sizes that maps of a traced block depend on; what only its forward pass depends on is left out."""
    attention = next(step for step in trace.steps if isinstance(step, Attention))
    heads, d_head, d = attention.output.shape
    feed_forward = next((step for step in trace.steps if isinstance(step, FeedForward)), None)
    if feed_forward is None:
        return BlockSizes(d, heads, heads * d_head, 0, 1, 0, False, 1)
    network = feed_forward.experts[0].network
    output, branches = (network.down, 2) if isinstance(network, Gated) else (network.second, 1)
    beside = isinstance(feed_forward, OwnFeedForward)
    neurons = output.weight.shape[1]
    return BlockSizes(d, heads, heads * d_head, neurons, branches, 0, beside, len(feed_forward.experts))


def _sizes(block: nn.Module, chain: tuple[Part, ...], model: PreTrainedModel) -> BlockSizes:
    d, heads, values = _mixing(block, chain, model)
    everything = sum(parameter.numel() for parameter in block.parameters())
    feed_forward = next((part for part in chain if part.component == "Ff" and part != NO_FEED_FORWARD), None)
    if feed_forward is None:
        return BlockSizes(d, heads, values, 0, 1, everything, False, 1)
    beside = isinstance(feed_forward, BesideAttention)
    network = feed_forward.feed_forward if isinstance(feed_forward, BesideAttention) else feed_forward
    assert isinstance(network, FeedForwardPart)
    neurons, branches, experts = _network(block, network, model.config)
    idle = everything - _dense_parameters(block) if experts > 1 else 0
    active = everything - idle + (experts > 1) * (1 + branches) * neurons * d
    return BlockSizes(d, heads, values, neurons, branches, active, beside, experts)


def _mixing(block: nn.Module, chain: tuple[Part, ...], model: PreTrainedModel) -> tuple[int, int, int]:
    """The width of states, and the heads and values of the attention or mixer; one of each that does nothing, without it."""
    attention = next((part for part in chain if isinstance(part, AttentionPart)), None)
    if attention is None:
        return int(model.config.get_text_config().hidden_size), 1, 1
    if isinstance(attention, FourierMixing):
        raise UnknownSizeError(
            f"{type(model).__name__} mixes tokens by a Fourier transform, whose work is not counted."
        )
    if isinstance(attention, AttentionBesideMixer):
        both = [_mixing(block, (each,), model) for each in (attention.attention, attention.mixer)]
        heads = sum(each[1] for each in both)
        return both[0][0], heads, heads * max(values // count for _, count, values in both)
    d, values = _shape(block.get_submodule(attention.output))
    return d, _heads(attention, model), values


def _heads(attention: AttentionPart, model: PreTrainedModel) -> int:
    if isinstance(attention, LinearMixer):
        return attention.heads
    if isinstance(attention, ProbedPart):
        return attention.heads(model.config)
    return int(model.config.get_text_config().num_attention_heads)


def _shape(module: nn.Module) -> tuple[int, int]:
    """Outputs and inputs of a linear layer, including one that packs its matrix."""
    if isinstance(module, Conv1D):
        inputs, outputs = module.weight.shape
        return int(outputs), int(inputs)
    sizes: Any = module
    if isinstance(module, nn.Conv1d):
        return module.out_channels, module.in_channels
    return int(sizes.out_features), int(sizes.in_features)


def _network(block: nn.Module, part: FeedForwardPart, config: object) -> tuple[int, int, int]:
    """Neurons that act on one token, branches, and the number of networks for a token."""
    match part:
        case PlainPart():
            return _shape(block.get_submodule(part.second))[1], 1, 1
        case GatedPart():
            return _shape(block.get_submodule(part.down))[1], 2, 1
        case FusedGatedPart():
            return _shape(block.get_submodule(part.down))[1], 2, 1
        case (
            ExpertsPart()
            | TransposedExpertsPart()
            | ClampedExpertsPart()
            | FlatExpertsPart()
            | InputScaledExpertsPart()
            | PlainExpertsPart()
            | UngatedExpertsPart()
        ):
            return _expert_neurons(block, part, config)
        case SharedExpertsPart():
            routed, branches, experts = _expert_neurons(block, part.routed, config)
            return routed + _shape(block.get_submodule(part.output))[1], branches, experts + 1


def _expert_neurons(block: nn.Module, part: RoutedPart, config: Config) -> tuple[int, int, int]:
    if isinstance(part, PlainExpertsPart):
        return _shape(block.get_submodule(f"{part.experts}.expert_0.{part.inside.second}"))[1], 1, 2
    stacked: Any = block.get_submodule(part.experts)
    branches = 2
    if isinstance(part, FlatExpertsPart):
        neurons = int(stacked.mlp.w1.shape[0]) // int(stacked.num_experts)
    elif isinstance(part, UngatedExpertsPart):
        neurons, branches = int(stacked.up_proj.shape[1]), 1
    else:
        neurons = int(stacked.gate_up_proj.shape[1 if isinstance(part, ExpertsPart) else 2]) // 2
    chosen = int(getattr(config.get_text_config(), "num_experts_per_tok", 1))
    return chosen * neurons, branches, max(2, chosen)


def _dense_parameters(block: nn.Module) -> int:
    """Parameters that every token goes through: all except the stacked ones of experts."""
    return sum(parameter.numel() for parameter in block.parameters() if parameter.dim() < 3)


_BYTES_KEPT, _STATES_KEPT = 3 * 2**28, 11
"""The memory for traces of long inputs that are kept; and about how many states such a trace has for every token."""


def kept_of_long(blocks: Sequence[BlockSizes], token: int) -> list[int]:
    """The bytes of the traces that fit into the memory, block by block from the first, for an explanation of a long input:
    these blocks are not run again on the way back. `token` is the bytes of one number for every token."""
    sizes = [token * (_STATES_KEPT * block.d + 2 * block.neurons) for block in blocks]
    return [size for size, all_so_far in zip(sizes, accumulate(sizes), strict=True) if all_so_far <= _BYTES_KEPT]
