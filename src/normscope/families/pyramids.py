"""Pyramids: vision models whose tokens are merged from stage to stage, each stage a stack with tokens of its own.

| trap | where |
|---|---|
| attention looks inside of windows, shifted in every other block | Swin, Swin v2, Donut |
| the norms come after the branches | Swin v2 |
| the number of heads differs from stage to stage | all |
| there is no norm after the last block | Donut |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from normscope.families.spec import (
    BranchNorm,
    Config,
    Family,
    LayerNormPart,
    PlainPart,
    PreNorm,
    ProbedAttention,
    SplitHeads,
    Stack,
    Stage,
    Topology,
    unlimited,
)


@dataclass(frozen=True)
class _Of:
    """One number of a list in the configuration, that of a stage."""

    name: str
    stage: int

    def __call__(self, config: Config) -> int:
        return int(getattr(config, self.name)[self.stage])


@dataclass(frozen=True)
class _SwinStages:
    """The stages of a Swin Transformer: a token of each is as wide as two of the stage before it."""

    topology: Callable[[int], Topology]

    def __call__(self, config: Config) -> list[Stage]:
        patch, count = config.patch_size, len(config.depths)
        size = patch if isinstance(patch, int) else patch[0]
        return [Stage(index + 1, count, self.stack(index), size * 2**index) for index in range(count)]

    def stack(self, index: int) -> Stack:
        """The blocks of a stage."""
        depth = _Of("depths", index)
        return Stack(f"encoder.layers.{index}.blocks.*", self.topology(index), depth=depth, windows="attention")


def _swin_topology(stage: int) -> PreNorm:
    return PreNorm(
        attention=ProbedAttention(
            "attention",
            SplitHeads("attention.v_proj"),
            "attention.o_proj",
            norm=LayerNormPart("layernorm_before"),
            heads=_Of("num_heads", stage),
        ),
        feed_forward_norm=LayerNormPart("layernorm_after"),
        feed_forward=PlainPart("mlp.fc1", "mlp.activation_fn", "mlp.fc2"),
    )


_NETWORK = PlainPart("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense")


def _bert_attention(stage: int) -> ProbedAttention:
    return ProbedAttention(
        "attention", SplitHeads("attention.self.value"), "attention.output.dense", heads=_Of("num_heads", stage)
    )


def _swinv2_topology(stage: int) -> BranchNorm:
    return BranchNorm(
        _bert_attention(stage), LayerNormPart("layernorm_before"), _NETWORK, LayerNormPart("layernorm_after")
    )


def _donut_topology(stage: int) -> PreNorm:
    attention = replace(_bert_attention(stage), norm=LayerNormPart("layernorm_before"))
    return PreNorm(attention, LayerNormPart("layernorm_after"), _NETWORK)


def _blocks_of_all_stages(config: Config) -> int:
    return sum(config.depths)


def _family(name: str, *types: str, topology: Callable[[int], Topology]) -> Family:
    everything = Stack("encoder.layers.*.blocks.*", topology(0), depth=_blocks_of_all_stages, windows="attention")
    return Family(name, types, everything, longest=unlimited, reads="image", pyramid=_SwinStages(topology))


SWIN = _family("swin", "swin", topology=_swin_topology)
SWINV2 = _family("swinv2", "swinv2", topology=_swinv2_topology)
DONUT = _family("donut-swin", "donut-swin", topology=_donut_topology)

FAMILIES = (SWIN, SWINV2, DONUT)
