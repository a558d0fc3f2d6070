"""What families read off a configuration: the number of blocks, and the longest input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, final

Config = Any
"""A Hugging Face configuration: its attributes depend on the architecture, so it stays untyped."""


def positions_from_zero(config: Config) -> int | None:
    """The longest input of a model with a table of positions."""
    return getattr(config, "max_position_embeddings", None)


def positions_after_padding(config: Config) -> int | None:
    """As RoBERTa counts: positions start after the padding index."""
    return config.max_position_embeddings - config.pad_token_id - 1


def unlimited(_: Config) -> None:
    """Positions are relative or computed, so that no table limits the input."""


def hidden_layers(config: Config) -> int:
    """The number of blocks a forward pass goes through."""
    return config.num_hidden_layers


@final
@dataclass(frozen=True)
class ConfigField:
    """What a configuration, or one inside of it, has under a name: `depth=ConfigField("text_config.n_layers")`."""

    name: str

    def __call__(self, config: Config) -> Any:
        return attrgetter(self.name)(config)


def image_config(config: Config) -> Config:
    """What says how large images and patches are: the configuration of the image tower where there are several."""
    return getattr(config, "vision_config", config)


# ---- Norms of a block: what each does to a state, and the module that does it.


@final
@dataclass(frozen=True)
class LayerNormPart:
    """Centres and scales; with or without weight and bias."""

    module: str
    component: ClassVar[str] = "Ln"


@final
@dataclass(frozen=True)
class FixedLayerNormPart:
    """Centres and scales with neither weight nor bias, by an epsilon that its module does not tell."""

    module: str
    epsilon: float
    component: ClassVar[str] = "Ln"


@final
@dataclass(frozen=True)
class RmsNormPart:
    """Scales by the root of the mean square, with or without a weight."""

    module: str
    component: ClassVar[str] = "Ln"


@final
@dataclass(frozen=True)
class UnitRmsNormPart:
    """The same with a weight that counts from one: `1 + w` (Gemma)."""

    module: str
    component: ClassVar[str] = "Ln"


@final
@dataclass(frozen=True)
class UnitLayerNormPart:
    """Centres and scales, with a weight that counts from one: `1 + w` (Nemotron)."""

    module: str
    component: ClassVar[str] = "Ln"


NormPart = LayerNormPart | FixedLayerNormPart | RmsNormPart | UnitRmsNormPart | UnitLayerNormPart


# ---- Value projections: where the values of an attention lie among the outputs of the module that makes them.


@final
@dataclass(frozen=True)
class SplitHeads:
    """A value projection of its own, the (possibly grouped) heads side by side."""

    module: str


@final
@dataclass(frozen=True)
class ScaledHeads:
    """The same, multiplied by a number that the block holds at the path `scale`."""

    module: str
    scale: str


@final
@dataclass(frozen=True)
class FusedTail:
    """A projection to all queries, then all keys, then all values: the values are its last outputs."""

    module: str


@final
@dataclass(frozen=True)
class FusedPerHead:
    """A projection head by head (or group by group), in each of which the value comes last."""

    module: str


@final
@dataclass(frozen=True)
class FusedShards:
    """A projection shard by shard (they were for several devices), in each of which the values are the second of three."""

    module: str
    shards: int


@final
@dataclass(frozen=True)
class FusedPerHeadWithBias:
    """The same without a bias, which is a parameter of its own."""

    module: str
    bias: str


@final
@dataclass(frozen=True)
class LatentPerHead:
    """Values made of a narrow latent state: the first outputs of `down`, normalised, go through `module` to every head's key
    and value, of which the value comes last (DeepSeek)."""

    module: str
    down: str
    norm: NormPart


@final
@dataclass(frozen=True)
class FusedRange:
    """A projection of several things at once, in equal `blocks`: the values are `width` outputs of each, from `start` on,
    multiplied by `factor`."""

    module: str
    start: int
    width: int
    blocks: int = 1
    factor: float = 1.0


@final
@dataclass(frozen=True)
class SequenceFirst:
    """The same from a module that outputs `[token, batch, ...]`, with the tokens before the batch."""

    value: SplitHeads

    @property
    def module(self) -> str:
        """The module that makes the values."""
        return self.value.module


@final
@dataclass(frozen=True)
class SideBySide:
    """Several projections of the same states, each for heads of its own, which the attention puts side by side."""

    modules: tuple[str, ...]

    @property
    def module(self) -> str:
        """The first of them."""
        return self.modules[0]


@final
@dataclass(frozen=True)
class PairedHeads:
    """A value projection of its own, whose heads come in pairs: a head has the values of one of the first half, and next to
    them those of its partner in the second (DiffLlama)."""

    module: str


@final
@dataclass(frozen=True)
class NormedHeads:
    """A value projection of its own, after which the values of every head are divided by the root of their mean square, by
    the module `norm`, which has no weight (Gemma 4)."""

    module: str
    norm: str


@final
@dataclass(frozen=True)
class WholeState:
    """The state itself, as `module` reads it: there is no projection."""

    module: str


Value = (
    SplitHeads
    | WholeState
    | PairedHeads
    | NormedHeads
    | SequenceFirst
    | SideBySide
    | ScaledHeads
    | FusedTail
    | FusedPerHead
    | FusedShards
    | FusedPerHeadWithBias
    | LatentPerHead
    | FusedRange
)


@final
@dataclass(frozen=True)
class NamedActivation:
    """An activation that no module holds: the block calls it by the name that it has in transformers."""

    name: str


# ---- Attentions: how the weights and values of one come into sight, and where its output projection is.


@final
@dataclass(frozen=True)
class HeadGate:
    """A factor for each query and head: `activation` (a name of `torch.nn.functional`) of what `module` outputs.

    It is a constant of the forward pass, like the attention weights, and belongs to them.
    """

    module: str
    activation: str


@final
@dataclass(frozen=True)
class ChannelGate:
    """A factor for each query and channel of what the heads output: `activation` (a name of `torch.nn.functional`, or what
    transformers calls it) of the outputs of a module, where `source` finds them as it finds values. Without an
    `activation`, the outputs themselves.

    It is a constant of the forward pass, like the attention weights, but no part of them.
    """

    source: Value
    activation: str | NamedActivation | None = "sigmoid"


@final
@dataclass(frozen=True)
class ContextNormPart:
    """An RMS norm of what the heads output, before the output projection: of each head if its weight is that wide, else of
    all channels, or of groups of them, whose width is the attribute `group_width` of the module.

    It may also multiply by a gate, its second input: `gate` is that gate's activation (a name of `torch.nn.functional`),
    and with `gated_first` the norm comes after the gate.
    """

    module: str
    gate: str | None = None
    gated_first: bool = False
    group_width: str | None = None


@final
@dataclass(frozen=True)
class Difference:
    """Weights that are those of the first half of the heads, minus a learned number times those of the second half.

    The number is made of the vectors `lambda_q1` to `lambda_k2` and the number `lambda_init` of `module`; what the heads
    output is multiplied by `1 - lambda_init` after their norm (DiffLlama).
    """

    module: str


@final
@dataclass(frozen=True)
class DispatchedAttention:
    """Attention that goes through the attention interface of transformers, which shows its weights and values.

    `norm` is the one between the block's input and what the attention reads, if there is one, and `gate` what its heads
    are multiplied by before the output projection. An attention is `probed` if its eager function does not output all
    that its values are multiplied by: its weights are then what that function makes of the identity as values.
    `output_norm` is a norm between the heads and the output projection.
    `layer_scale` is the path of a vector that multiplies what the output projection outputs. With a `difference`, two
    heads make one. What it reads is multiplied by `entering` first.
    """

    module: str
    value: Value
    output: str
    norm: NormPart | None = None
    gate: HeadGate | ChannelGate | None = None
    difference: Difference | None = None
    probed: bool = False
    layer_scale: str | None = None
    output_norm: ContextNormPart | None = None
    entering: float = 1.0
    component: ClassVar[str] = "Attn"


@final
@dataclass(frozen=True)
class DispatchedCrossAttention:
    """The same from a decoder to the encoder's tokens. Its values are read off the encoder's output, without a norm."""

    module: str
    value: Value
    output: str
    norm: ClassVar[None] = None
    component: ClassVar[str] = "Cross"


def all_heads(config: Config) -> int:
    """As many value heads as attention heads."""
    return config.num_attention_heads


@final
@dataclass(frozen=True)
class HookedAttention:
    """Attention that computes by itself: `weights` names the module that outputs its weights (its dropout, or the
    attention module as the second of its outputs), and the values are read off their projection.

    `zeroed` names an argument of the module `weights` that eager attention counts twice and other attention once.
    `output_bias` names a bias that is added to what `output` outputs, where that has none of its own.
    """

    weights: str
    value: Value
    output: str
    norm: NormPart | None = None
    value_heads: Callable[[Config], int] = all_heads
    zeroed: str | None = None
    output_bias: str | None = None
    component: ClassVar[str] = "Attn"


@final
@dataclass(frozen=True)
class ProbedAttention:
    """Attention that computes by itself and shows no weights: in blocks, in windows, by landmarks, or just without a trace.

    It need only be linear in its values; `layer_scale` is as for other attentions. Its weights are what reaches `output`
    when `module` is run again with the identity in the place of the values. A `fused` one is a call of PyTorch's
    `multi_head_attention_forward`, which gets the weights of its projections, so that these are never called. What the
    heads output may go through an `activation`, whose slopes are then factors of each query and channel. With
    `unit_context`, it is divided by its length, by a call of `torch.nn.functional.normalize` that comes after so many others
    in the module; the weights are divided by the same.
    """

    module: str
    value: SplitHeads | SequenceFirst | SideBySide | FusedTail | FusedPerHead
    output: str
    norm: NormPart | None = None
    heads: Callable[[Config], int] = all_heads
    layer_scale: str | None = None
    fused: bool = False
    activation: str | None = None
    unit_context: int | None = None
    component: ClassVar[str] = "Attn"


@final
@dataclass(frozen=True)
class ProbedCrossAttention:
    """The same from a decoder to the encoder's tokens."""

    module: str
    value: SplitHeads
    output: str
    heads: Callable[[Config], int] = all_heads
    norm: ClassVar[None] = None
    component: ClassVar[str] = "Cross"


@final
@dataclass(frozen=True)
class ShortConvolution:
    """A causal convolution of every channel of its own, and its `activation` (a name of `torch.nn.functional`).

    The values' channels are its last ones, or its first ones. Without an activation, it is linear. `gate` finds factors of
    what enters it, token by token, as it finds values.
    """

    module: str
    activation: str | None = "silu"
    values_first: bool = False
    gate: ChannelGate | None = None


@final
@dataclass(frozen=True)
class GridConvolution:
    """A convolution of every channel of its own over the rows and columns of an image's tokens, and its `activation`, a
    module of the block. The output of a token has as much of each of its neighbours as the kernel says."""

    module: str
    activation: str


@final
@dataclass(frozen=True)
class DecayedProducts:
    """Weights that are products of queries and keys, `exp(-decay)` times as much with every token between them (lightning
    attention).

    `projection` outputs query, key and value of every head, before their `activation` (a name of `torch.nn.functional`);
    `decay` is the path of a number for each head.
    """

    projection: str
    decay: str
    activation: str


@final
@dataclass(frozen=True)
class ChannelScan:
    """A recurrence whose weights differ by channel (Mamba-1, RG-LRU): the name of the function that mixes `hidden_states`.

    Every channel is a head. Arguments are `[batch, token, channel]`, or with `channels_first` `[batch, channel, token]`.
    `without` names arguments that the function may do without, since what they do is described as another part. A dotted
    name is that of a method of a submodule. With `gates_values`, what is mixed was multiplied by factors of its own token.
    """

    name: str
    channels_first: bool = False
    without: tuple[str, ...] = ()
    gates_values: bool = False


@final
@dataclass(frozen=True)
class LinearMixer:
    """A mixer that is linear in its values once all else is fixed: the gated delta rule, a state space, a convolution.

    `function` is the name, in the file of the mixer `module`, of the function that mixes the argument `values`
    (`[batch, token, head, channel]`); its effective weights are what it makes of the identity as values. It may also be a
    formula, where the model has no such function. Without one, every token keeps what the `convolution` brings. Values go
    through the activation of the convolution, or of the formula. The rest is as for an attention.
    """

    module: str
    function: str | DecayedProducts | ChannelScan | None
    value: Value
    output: str
    heads: int
    values: str = "value"
    norm: NormPart | None = None
    convolution: ShortConvolution | GridConvolution | None = None
    gate: ChannelGate | None = None
    output_norm: ContextNormPart | None = None
    entering: float = 1.0
    component: ClassVar[str] = "Attn"

    @property
    def function_name(self) -> str | None:
        """The name of the function that mixes, if there is one."""
        if isinstance(self.function, ChannelScan):
            return self.function.name
        return self.function if isinstance(self.function, str) else None


@final
@dataclass(frozen=True)
class FourierMixing:
    """The real part of a Fourier transform over tokens and channels, which `output` gives out: two heads of the whole state,
    with cosines and sines of both as their weights and output matrices (FNet)."""

    output: str
    norm: ClassVar[None] = None
    component: ClassVar[str] = "Attn"

    @property
    def value(self) -> WholeState:
        """What it reads."""
        return WholeState(self.output)


@final
@dataclass(frozen=True)
class AttentionBesideMixer:
    """An attention and a mixer that read the same states, whose outputs add up, multiplied by their `factors` (Falcon-H1).

    The heads of both are the heads of one.
    """

    attention: DispatchedAttention
    mixer: LinearMixer
    factors: tuple[float, float] = (1.0, 1.0)
    component: ClassVar[str] = "Attn"

    @property
    def norm(self) -> NormPart | None:
        """What makes the states that both read."""
        return self.attention.norm

    @property
    def value(self) -> Value:
        """Where the values of the attention are."""
        return self.attention.value

    @property
    def output(self) -> str:
        """The output projection of the attention."""
        return self.attention.output


CrossPart = DispatchedCrossAttention | ProbedCrossAttention
"""Attention from a decoder to the encoder's tokens."""

ProbedPart = ProbedAttention | ProbedCrossAttention
"""Attention that is run again to see its weights."""

AttentionPart = (
    DispatchedAttention
    | HookedAttention
    | ProbedAttention
    | FourierMixing
    | LinearMixer
    | AttentionBesideMixer
    | CrossPart
)


def attentions_in(chain: Iterable[object]) -> list[AttentionPart]:
    """The attentions and mixers among the parts of a chain, those that are side by side one by one."""
    parts = [part for part in chain if isinstance(part, AttentionPart)]
    return [
        each
        for part in parts
        for each in ((part.attention, part.mixer) if isinstance(part, AttentionBesideMixer) else (part,))
    ]


# ---- Feed-forwards: plain, gated, and mixtures of experts, after the attention or parallel to it.


@final
@dataclass(frozen=True)
class PlainPart:
    """`second(activation(first(x)))`, times a vector at the path `layer_scale` where there is one."""

    first: str
    activation: str | NamedActivation
    second: str
    layer_scale: str | None = None
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class GatedPart:
    """`down(activation(gate(x)) * up(x))`, times a vector at the path `layer_scale` where there is one.

    What the neurons hold may go through an RMS norm, `inner_norm`, before the last matrix, and `gate(x)` may be multiplied
    by `gate_factor`.
    """

    gate: str
    up: str
    activation: str | NamedActivation
    down: str
    layer_scale: str | None = None
    inner_norm: RmsNormPart | None = None
    gate_factor: float = 1.0
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class FusedGatedPart:
    """The same with one projection for both, the activated half first."""

    gate_and_up: str
    activation: str
    down: str
    layer_scale: str | None = None
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class ExpertsPart:
    """A few experts for each token, picked and weighed by a router; their weights are stacked, `[expert, out, in]`.

    `module` gives the output; `experts` is called with the states, the router's choices and their weights.
    """

    module: str
    experts: str
    activation: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class TransposedExpertsPart:
    """The same with the weights stacked `[expert, in, out]` (Aria)."""

    module: str
    experts: str
    activation: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class ClampedExpertsPart:
    """The experts of GPT-OSS: weights `[expert, in, out]`, gate and up interleaved, both clamped, one added to up."""

    module: str
    experts: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class FlatExpertsPart:
    """The experts of DBRX: `w1` (gate), `v1` (up) and `w2` (down, transposed) of all experts below each other."""

    module: str
    experts: str
    activation: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class InputScaledExpertsPart:
    """The experts of Llama 4: weights `[expert, in, out]`, and the router's weight multiplies what an expert reads.

    `router` outputs the weights of all experts, `[token, expert]`, zero for those that are not chosen.
    """

    module: str
    experts: str
    router: str
    activation: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class PlainExpertsPart:
    """Experts that are plain networks, each a module `expert_0`, `expert_1`, ... of `experts`, with the same parts inside.

    `experts` is called with the states, the experts of each token (as a mask `[token, 1, expert]` if `masked`, otherwise as
    numbers `[token, choice]`) and their weights, which are multiplied by `factor`.
    """

    module: str
    experts: str
    inside: PlainPart
    masked: bool = False
    factor: float = 1.0
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class UngatedExpertsPart:
    """Experts that are plain networks, their weights stacked as `up_proj` and `down_proj`, `[expert, out, in]`."""

    module: str
    experts: str
    activation: str
    component: ClassVar[str] = "Ff"


RoutedPart = (
    PlainExpertsPart
    | UngatedExpertsPart
    | ExpertsPart
    | TransposedExpertsPart
    | ClampedExpertsPart
    | FlatExpertsPart
    | InputScaledExpertsPart
)


@final
@dataclass(frozen=True)
class SharedExpertsPart:
    """Experts and a network that serves every token, its weight one or the sigmoid of what `gate` outputs.

    The network lies inside the module of the experts, which adds the two, or the block adds them. The experts may be
    multiplied by `routed_factor` before that, and the sum by `factor`.
    """

    routed: ExpertsPart | TransposedExpertsPart | InputScaledExpertsPart | UngatedExpertsPart
    shared: GatedPart | FusedGatedPart | PlainPart
    gate: str | None = None
    routed_factor: float = 1.0
    factor: float = 1.0
    component: ClassVar[str] = "Ff"

    @property
    def output(self) -> str:
        """The module that outputs what the shared network adds."""
        return self.shared.second if isinstance(self.shared, PlainPart) else self.shared.down


FeedForwardPart = PlainPart | GatedPart | FusedGatedPart | RoutedPart | SharedExpertsPart


@final
@dataclass(frozen=True)
class BesideAttention:
    """A feed-forward that reads the query's own token, through `norm`, while attention reads all of them."""

    norm: NormPart
    feed_forward: FeedForwardPart
    component: ClassVar[str] = "Ff"
