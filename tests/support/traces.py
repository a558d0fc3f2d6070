"""Random traces of every topology, made from tensors alone.

A `Block` is a small Transformer block written in plain PyTorch: each method runs one component on the model's state and
notes down the step and the state, as a capture would. A topology is the order in which the methods are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional

from normscope.chain.activations import GELU, QUICK_GELU, RELU, SILU, TANH_GELU, Activation, by_secant, clamped_swish
from normscope.chain.trace import (
    Attention,
    CrossAttention,
    Expert,
    Fork,
    Gated,
    LayerNorm,
    LayerTrace,
    Linear,
    Network,
    Norm,
    Normalise,
    OwnFeedForward,
    Plain,
    Residual,
    RmsNorm,
    Scale,
    SelfAttention,
    SequentialFeedForward,
    Step,
    ValueSource,
)

SIGMOID = by_secant("Sigmoid", torch.nn.Sigmoid())
"""The one activation here with `g(0) != 0`."""


@dataclass(frozen=True)
class Shape:
    """Sizes and options of a block. `d` need not be `heads * d_head`."""

    tokens: int = 7
    heads: int = 3
    d_head: int = 4
    d: int = 10
    neurons: int = 14
    source: int = 5
    causal: bool = False
    sink: bool = False
    """Whether attention rows sum to less than 1."""
    value_bias: str = "token"
    """What the value bias is counted with when the block is decomposed."""
    dtype: torch.dtype = torch.float32


@dataclass
class Block:
    """A block in the making: `state` is where the model is, `steps` and `states` what was noted down."""

    shape: Shape
    random: torch.Generator
    hidden: Tensor = field(init=False)
    state: Tensor = field(init=False)
    steps: list[Step] = field(default_factory=list)
    states: list[Tensor | None] = field(default_factory=list)
    bypasses: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hidden = self.normal(self.shape.tokens, self.shape.d)
        self.state = self.hidden

    # ---- weights ----

    def normal(self, *size: int) -> Tensor:
        # Drawn in float64, so that traces of both types are the same up to rounding.
        return torch.randn(*size, generator=self.random, dtype=torch.float64).to(self.shape.dtype)

    def uniform(self, *size: int) -> Tensor:
        return torch.rand(*size, generator=self.random, dtype=torch.float64).to(self.shape.dtype)

    def linear(self, inputs: int, outputs: int, *, bias: bool = True, gain: float = 1.0) -> Linear:
        weight = self.normal(outputs, inputs) * (gain / inputs**0.5)
        return Linear(weight, self.normal(outputs) * 0.5 if bias else None)

    def layer_norm(self) -> LayerNorm:
        return LayerNorm(1 + 0.3 * self.normal(self.shape.d), 0.3 * self.normal(self.shape.d), 1e-5)

    def rms_norm(self) -> RmsNorm:
        return RmsNorm(1 + 0.3 * self.normal(self.shape.d), 1e-6)

    def plain(self, activation: Activation) -> Plain:
        d, neurons = self.shape.d, self.shape.neurons
        return Plain(self.linear(d, neurons, gain=2), activation, self.linear(neurons, d))

    def gated(self, activation: Activation, *, bias: bool = False) -> Gated:
        d, neurons = self.shape.d, self.shape.neurons
        gate, up = (self.linear(d, neurons, bias=bias, gain=2) for _ in range(2))
        return Gated(gate, up, activation, self.linear(neurons, d, bias=bias))

    # ---- components ----

    def done(self, step: Step, state: Tensor) -> None:
        self.steps.append(step)
        self.states.append(state)
        self.state = state

    def fork(self) -> None:
        self.steps.append(Fork())
        self.states.append(None)
        self.bypasses.append(self.state)

    def residual(self) -> None:
        self.done(Residual(), self.state + self.bypasses.pop())

    def scale(self, factor: float) -> None:
        self.steps.append(Scale(factor))
        self.states.append(None)
        self.state = self.state * factor

    def normalise(self, norm: Norm) -> None:
        self.done(Normalise(norm, self.state), run_norm(norm, self.state))

    def attend(self, norm: Norm | None = None) -> None:
        """Attention to the tokens themselves, through the norm that pre-norm models have before it."""
        self._attend(SelfAttention, self.state, norm, causal=self.shape.causal)

    def cross(self) -> None:
        """Attention to the encoder's tokens."""
        self._attend(CrossAttention, self.normal(self.shape.source, self.shape.d), None, causal=False)

    def _attend(self, kind: type[Attention], states: Tensor, norm: Norm | None, *, causal: bool) -> None:
        shape = self.shape
        tokens = states if norm is None else run_norm(norm, states)
        heads, d_head, queries, keys = shape.heads, shape.d_head, shape.tokens, len(tokens)
        scores = 2 * self.normal(heads, queries, keys)
        if causal:
            after = torch.ones(queries, keys, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(after, -torch.inf)
        weights = scores.softmax(-1)
        if shape.sink:
            weights = weights * self.uniform(heads, queries, 1)
        value, output = self.linear(shape.d, heads * d_head), self.linear(heads * d_head, shape.d)
        values = run_linear(value, tokens).view(keys, heads, d_head).transpose(0, 1).contiguous()
        context = (weights @ values).transpose(0, 1).reshape(queries, heads * d_head)
        assert value.bias is not None
        source = ValueSource(
            states,
            () if norm is None else (Normalise(norm, states),),
            value.weight.view(heads, d_head, shape.d),
            value.bias.view(heads, d_head),
        )
        by_head = output.weight.T.reshape(heads, d_head, shape.d).contiguous()
        self.done(kind(weights, values, by_head, output.bias, source), run_linear(output, context))

    def feed_forward(self, network: Network) -> None:
        out, pre_activations = run_network(network, self.state)
        self.done(SequentialFeedForward((self._only_expert(network, pre_activations),)), out)

    def own_feed_forward(self, network: Network, norm: Norm) -> None:
        """A feed-forward that reads the block's input while attention does."""
        hidden = run_norm(norm, self.hidden)
        out, pre_activations = run_network(network, hidden)
        experts = (self._only_expert(network, pre_activations),)
        self.done(OwnFeedForward(experts, hidden, Normalise(norm, self.hidden)), self.state + out)

    def _only_expert(self, network: Network, pre_activations: tuple[Tensor, ...]) -> Expert:
        rows = torch.arange(self.shape.tokens)
        return Expert(network, rows, torch.ones(len(rows), dtype=self.shape.dtype), pre_activations)

    def mixture(self, networks: Sequence[Network], chosen: int, shared: Network | None = None) -> None:
        """Every query has a few experts, with weights that need not sum to 1; some experts may have no query."""
        weights, choice = self.uniform(self.shape.tokens, len(networks)).topk(chosen, dim=-1)
        out, experts = torch.zeros_like(self.state), list[Expert]()
        for index, network in enumerate(networks):
            rows, place = (choice == index).nonzero(as_tuple=True)
            expert_out, pre_activations = run_network(network, self.state[rows])
            out[rows] += weights[rows, place, None] * expert_out
            experts.append(Expert(network, rows, weights[rows, place], pre_activations))
        if shared is not None:
            shared_out, pre_activations = run_network(shared, self.state)
            gate = self.uniform(self.shape.tokens)
            out += gate[:, None] * shared_out
            experts.append(replace(self._only_expert(shared, pre_activations), weights=gate))
        self.done(SequentialFeedForward(tuple(experts)), out)

    def trace(self) -> LayerTrace:
        shape = self.shape
        crossing = any(isinstance(step, CrossAttention) for step in self.steps)
        return LayerTrace(
            hidden=self.hidden,
            queries=torch.arange(shape.tokens),
            steps=tuple(self.steps),
            states=tuple(self.states),
            length=shape.tokens,
            causal=shape.causal,
            source_length=shape.source if crossing else 0,
        )


def run_linear(linear: Linear, x: Tensor) -> Tensor:
    return functional.linear(x, linear.weight, linear.bias)


def run_norm(norm: Norm, x: Tensor) -> Tensor:
    if isinstance(norm, LayerNorm):
        return functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.epsilon)
    return functional.rms_norm(x, x.shape[-1:], norm.weight, norm.epsilon)


def run_network(network: Network, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Its output and its pre-activations."""
    if isinstance(network, Plain):
        z = run_linear(network.first, x)
        return run_linear(network.second, network.activation.function(z)), (z,)
    a, u = run_linear(network.gate, x), run_linear(network.up, x)
    factor = u.clamp(-network.up_limit, network.up_limit) + network.up_offset
    return run_linear(network.down, network.activation.function(a) * factor), (a, u)


# ---- topologies ------------------------------------------------------------------------------------------------------


def post_norm(block: Block, activation: Activation = GELU) -> None:
    block.fork()
    block.attend()
    block.residual()
    block.normalise(block.layer_norm())
    block.fork()
    block.feed_forward(block.plain(activation))
    block.residual()
    block.normalise(block.layer_norm())


def pre_norm(block: Block) -> None:
    block.fork()
    block.attend(block.layer_norm())
    block.residual()
    block.fork()
    block.normalise(block.layer_norm())
    block.feed_forward(block.plain(TANH_GELU))
    block.residual()


def gated_pre_norm(block: Block, activation: Activation = SILU, *, bias: bool = False) -> None:
    block.fork()
    block.attend(block.rms_norm())
    block.residual()
    block.fork()
    block.normalise(block.rms_norm())
    block.feed_forward(block.gated(activation, bias=bias))
    block.residual()


def sandwich(block: Block) -> None:
    block.fork()
    block.attend(block.rms_norm())
    block.normalise(block.rms_norm())
    block.residual()
    block.fork()
    block.normalise(block.rms_norm())
    block.feed_forward(block.gated(TANH_GELU))
    block.normalise(block.rms_norm())
    block.residual()


def norm_on_branch(block: Block) -> None:
    block.fork()
    block.attend()
    block.normalise(block.rms_norm())
    block.residual()
    block.fork()
    block.feed_forward(block.gated(SILU))
    block.normalise(block.rms_norm())
    block.residual()


def parallel(block: Block) -> None:
    block.fork()
    block.attend(block.layer_norm())
    block.own_feed_forward(block.plain(GELU), block.layer_norm())
    block.residual()


def cross_post_norm(block: Block) -> None:
    block.fork()
    block.attend()
    block.residual()
    block.normalise(block.layer_norm())
    block.fork()
    block.cross()
    block.residual()
    block.normalise(block.layer_norm())
    block.fork()
    block.feed_forward(block.plain(GELU))
    block.residual()
    block.normalise(block.layer_norm())


def cross_pre_norm(block: Block) -> None:
    block.fork()
    block.attend(block.rms_norm())
    block.residual()
    block.fork()  # the norm before the cross-attention only shapes its weights
    block.cross()
    block.residual()
    block.fork()
    block.normalise(block.rms_norm())
    block.feed_forward(block.gated(TANH_GELU))
    block.residual()


def scaled_pre_norm(block: Block) -> None:
    block.fork()
    block.attend(block.rms_norm())
    block.scale(0.3)
    block.residual()
    block.fork()
    block.normalise(block.rms_norm())
    block.feed_forward(block.gated(SILU))
    block.scale(0.3)
    block.residual()


def shared_mixture(block: Block) -> None:
    """Experts of which the last serves every query, with a weight of its own."""
    block.fork()
    block.attend(block.rms_norm())
    block.residual()
    block.fork()
    block.normalise(block.rms_norm())
    block.mixture([block.gated(SILU) for _ in range(4)], chosen=2, shared=block.gated(SILU))
    block.residual()


def mixture(block: Block) -> None:
    block.fork()
    block.attend(block.rms_norm())
    block.residual()
    block.fork()
    block.normalise(block.rms_norm())
    block.mixture([block.gated(SILU) for _ in range(9)], chosen=2)
    block.residual()


def clamped_mixture(block: Block) -> None:
    """As GPT-OSS, with limits so low that many neurons reach them."""
    block.fork()
    block.attend(block.rms_norm())
    block.residual()
    block.fork()
    block.normalise(block.rms_norm())
    networks = [block.gated(clamped_swish(1.702, limit=2.0), bias=True) for _ in range(3)]
    block.mixture([replace(network, up_offset=1.0, up_limit=1.0) for network in networks], chosen=2)
    block.residual()


def plain_mixture(block: Block) -> None:
    block.fork()
    block.attend(block.layer_norm())
    block.residual()
    block.fork()
    block.normalise(block.layer_norm())
    block.mixture([block.plain(SIGMOID), block.plain(RELU), block.plain(QUICK_GELU)], chosen=2)
    block.residual()


Topology = Callable[[Block], None]

TOPOLOGIES: dict[str, Topology] = {
    topology.__name__: topology
    for topology in (
        post_norm,
        pre_norm,
        gated_pre_norm,
        sandwich,
        norm_on_branch,
        parallel,
        cross_post_norm,
        cross_pre_norm,
        scaled_pre_norm,
        mixture,
        shared_mixture,
        clamped_mixture,
        plain_mixture,
    )
}


def make_trace(topology: str | Topology, shape: Shape = Shape(), seed: int = 0) -> LayerTrace:  # noqa: B008
    """A random block of a topology, run on a random sequence."""
    block = Block(shape, torch.Generator().manual_seed(seed))
    (TOPOLOGIES[topology] if isinstance(topology, str) else topology)(block)
    return block.trace()
