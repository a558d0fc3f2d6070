"""Pyramids: vision models whose tokens are merged from stage to stage, each stage a stack with tokens of its own.

| trap | where |
|---|---|
| attention looks inside of windows, shifted in every other block | Swin, Swin v2, Donut |
| the norms come after the branches | Swin v2 |
| the number of heads differs from stage to stage | all |
| there is no norm after the last block | Donut |
| a token looks at tokens that a convolution merged, in all stages but the last | PVT, PVT v2, SegFormer |
| a convolution in the feed-forward mixes neighbouring tokens, so that it is a layer of its own | PVT v2, SegFormer |
| there is a class token in the last stage only | PVT |
| the first block of a stage merges its tokens and widens them, so that it belongs to no stage | Hiera |
| tokens lie in the order of the groups that will be merged, and row by row only once all are merged | Hiera |
| batch norms are part of linear layers, and there are no other norms; heads go through an activation | LeViT |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from normscope.families.spec import (
    NO_ATTENTION,
    NO_FEED_FORWARD,
    NO_NORM,
    BranchNorm,
    Config,
    DispatchedAttention,
    Family,
    FusedPerHead,
    FusedTail,
    GridConvolution,
    LayerNormPart,
    LinearMixer,
    MixerAlone,
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


# ---- stages whose attention looks at merged tokens -------------------------------------------------------------------

_MERGED = "its attention looks at keys that a convolution makes of several tokens each, which no component describes"


@dataclass(frozen=True)
class _ReducedStages:
    """The stages of a model whose attention looks at tokens that are merged by the factor `reduction` of their stage.

    `merges` names the list of how many tokens of the stage before it one of a stage is high and wide. Blocks that are `cut`
    have two topologies, one for each half.
    """

    blocks: str
    topologies: Callable[[int], tuple[Topology, ...]]
    reduction: str
    merges: str
    cut: str | None = None
    special: tuple[str, ...] = ()

    def __call__(self, config: Config) -> list[Stage]:
        merged, factors = getattr(config, self.merges), getattr(config, self.reduction)
        count = config.num_encoder_blocks
        last = (False,) * (count - 1) + (True,)
        return [
            Stage(
                number=index + 1,
                count=count,
                stack=self.stack(index),
                pixels=math.prod(merged[: index + 1]),
                special=self.special if last[index] else (),
                refused=_MERGED if factors[index] > 1 or getattr(config, "linear_attention", False) else "",
            )
            for index in range(count)
        ]

    def stack(self, index: int) -> Stack:
        """The blocks of a stage, or their halves."""
        return self._stack(str(index), _Repeated(self.topologies(index), _Of("depths", index)))

    def everything(self) -> Stack:
        """Those of all stages."""
        return self._stack("*", _Repeated(self.topologies(0), _blocks_of_all_stages))

    def _stack(self, stage: str, layers: _Repeated) -> Stack:
        return Stack(self.blocks.format(stage=stage), layers, depth=layers.depth, cut=self.cut)


@dataclass(frozen=True)
class _Repeated:
    """The topologies of the parts of a block, over and over."""

    of_block: tuple[Topology, ...]
    blocks: Callable[[Config], int]

    def __call__(self, config: Config) -> tuple[Topology, ...]:
        return self.of_block * self.blocks(config)

    def depth(self, config: Config) -> int:
        """The number of layers."""
        return len(self(config))


def _convolving_network(norm: str, first: str, activation: str, second: str) -> MixerAlone:
    """A feed-forward with a convolution over neighbouring tokens before its activation."""
    convolution = GridConvolution("mlp.dwconv.dwconv", f"mlp.{activation}")
    value, output = SplitHeads(f"mlp.{first}"), f"mlp.{second}"
    return MixerAlone(LinearMixer("mlp", None, value, output, 1, norm=LayerNormPart(norm), convolution=convolution))


def _probed(stage: int, value: str, output: str) -> ProbedAttention:
    heads = _Of("num_attention_heads", stage)
    return ProbedAttention("attention", SplitHeads(value), output, norm=LayerNormPart("layer_norm_1"), heads=heads)


def _pvt_topologies(stage: int) -> tuple[PreNorm]:
    attention = _probed(stage, "attention.self.value", "attention.output.dense")
    network = PlainPart("mlp.dense1", "mlp.intermediate_act_fn", "mlp.dense2")
    return (PreNorm(attention, LayerNormPart("layer_norm_2"), network),)


def _pvt_v2_topologies(stage: int) -> tuple[MixerAlone, MixerAlone]:
    network = _convolving_network("layer_norm_2", "dense1", "intermediate_act_fn", "dense2")
    return MixerAlone(_probed(stage, "attention.value", "attention.proj")), network


def _segformer_topologies(stage: int) -> tuple[MixerAlone, MixerAlone]:
    norm, value = LayerNormPart("layernorm_before"), SplitHeads("attention.v_proj")
    attention = DispatchedAttention("attention", value, "attention.o_proj", norm=norm)
    return MixerAlone(attention), _convolving_network("layernorm_after", "fc1", "activation_fn", "fc2")


def _reduced(name: str, stages: _ReducedStages) -> Family:
    return Family(name, (name,), stages.everything(), longest=unlimited, reads="image", pyramid=stages)


PVT = _reduced(
    "pvt",
    _ReducedStages(
        blocks="encoder.block.{stage}.*",
        topologies=_pvt_topologies,
        reduction="sequence_reduction_ratios",
        merges="patch_sizes",
        special=("[CLS]",),
    ),
)
PVT_V2 = _reduced(
    "pvt_v2",
    _ReducedStages(
        blocks="encoder.layers.{stage}.blocks.*",
        topologies=_pvt_v2_topologies,
        reduction="sr_ratios",
        merges="strides",
        cut="layer_norm_2",
    ),
)
SEGFORMER = _reduced(
    "segformer",
    _ReducedStages(
        blocks="stages.{stage}.blocks.*",
        topologies=_segformer_topologies,
        reduction="sr_ratios",
        merges="strides",
        cut="layernorm_after",
    ),
)

# ---- stages whose first block merges ---------------------------------------------------------------------------------

_GROUPED = "its tokens do not lie row by row, but in the order of the groups that later stages merge"
_NO_BLOCK_LEFT = "it has a single block, which merges the tokens of the stage before it"


@dataclass(frozen=True)
class _HieraStages:
    """The stages of Hiera: the blocks after the first one of each, which merges tokens unless it is the first of all."""

    def __call__(self, config: Config) -> list[Stage]:
        merges, count = config.num_query_pool, len(config.depths)
        return [
            Stage(
                number=index + 1,
                count=count,
                stack=self.stack(index, config.depths[index]),
                pixels=config.patch_stride[0] * config.query_stride[0] ** min(index, merges),
                refused=self._refused(index, config),
            )
            for index in range(count)
        ]

    def stack(self, index: int, depth: int) -> Stack:
        """The blocks of a stage that all have the same tokens."""
        path = f"encoder.stages.{index}.layers."
        blocks = "|".join(f"{path}{block}" for block in range(1, depth))
        return Stack(blocks or f"{path}*", _hiera_topology(index), depth=_AfterTheFirst(index))

    def _refused(self, index: int, config: Config) -> str:
        all_merged = index == len(config.depths) - 1 == config.num_query_pool
        if not all_merged:
            return _GROUPED
        return "" if config.depths[index] > 1 else _NO_BLOCK_LEFT


@dataclass(frozen=True)
class _AfterTheFirst:
    """The number of blocks of a stage without its first one."""

    stage: int

    def __call__(self, config: Config) -> int:
        return max(1, config.depths[self.stage] - 1)


def _hiera_topology(stage: int) -> PreNorm:
    return PreNorm(
        attention=ProbedAttention(
            "attn",
            FusedTail("attn.qkv"),
            "attn.proj",
            norm=LayerNormPart("layernorm_before"),
            heads=_Of("num_heads", stage),
        ),
        feed_forward_norm=LayerNormPart("layernorm_after"),
        feed_forward=PlainPart("mlp.fc1", "mlp.activation_fn", "mlp.fc2"),
    )


HIERA = Family(
    "hiera",
    ("hiera",),
    Stack("encoder.stages.*.layers.*", _hiera_topology(0), depth=_blocks_of_all_stages),
    longest=unlimited,
    reads="image",
    pyramid=_HieraStages(),
)

# ---- stages without norms --------------------------------------------------------------------------------------------

_MERGING_LAYERS = 16
"""The convolutions that make the first tokens halve an image four times."""


@dataclass(frozen=True)
class _LevitStages:
    """The stages of LeViT: attentions and networks are layers of their own. Those between two stages belong to none."""

    def __call__(self, config: Config) -> list[Stage]:
        strides = [int(merge[5]) for merge in config.down_ops if len(merge) > 1]
        return [
            Stage(
                index + 1, len(config.depths), self.stack(index, config), _MERGING_LAYERS * math.prod(strides[:index])
            )
            for index in range(len(config.depths))
        ]

    def stack(self, index: int, config: Config) -> Stack:
        """The layers of a stage that all have the same tokens."""
        layers = _LevitLayers(index)
        blocks = [f"encoder.stages.{index}.layers.{layer}" for layer in range(layers.depth(config))]
        return Stack("|".join(blocks), layers, depth=layers.depth)


@dataclass(frozen=True)
class _LevitLayers:
    """The topologies of the layers of a stage."""

    stage: int

    def __call__(self, config: Config) -> tuple[PreNorm, ...]:
        attention = ProbedAttention(
            "module",
            FusedPerHead("module.queries_keys_values"),
            "module.projection",
            heads=_Of("num_attention_heads", self.stage),
            activation="module.activation",
        )
        network = PlainPart("module.linear_up", "module.activation", "module.linear_down")
        alone = PreNorm(attention, NO_NORM, NO_FEED_FORWARD), PreNorm(NO_ATTENTION, NO_NORM, network)
        return alone[: self._kinds(config)] * int(config.depths[self.stage])

    def depth(self, config: Config) -> int:
        """The number of layers."""
        return len(self(config))

    def _kinds(self, config: Config) -> int:
        return 2 if config.mlp_ratio[self.stage] > 0 else 1


def _layers_of_levit(config: Config) -> tuple[PreNorm, ...]:
    return tuple(layer for stage in range(len(config.depths)) for layer in _LevitLayers(stage)(config))


def _depth_of_levit(config: Config) -> int:
    return len(_layers_of_levit(config))


LEVIT = Family(
    "levit",
    ("levit",),
    Stack("encoder.stages.*.layers.*", _layers_of_levit, depth=_depth_of_levit),
    longest=unlimited,
    reads="image",
    pyramid=_LevitStages(),
)

# ---- stages with windows -------------------------------------------------------------------------------------------


def _family(name: str, *types: str, topology: Callable[[int], Topology]) -> Family:
    everything = Stack("encoder.layers.*.blocks.*", topology(0), depth=_blocks_of_all_stages, windows="attention")
    return Family(name, types, everything, longest=unlimited, reads="image", pyramid=_SwinStages(topology))


SWIN = _family("swin", "swin", topology=_swin_topology)
SWINV2 = _family("swinv2", "swinv2", topology=_swinv2_topology)
DONUT = _family("donut-swin", "donut-swin", topology=_donut_topology)

FAMILIES = (SWIN, SWINV2, DONUT, PVT, PVT_V2, SEGFORMER, HIERA, LEVIT)
