"""Parts carried through a whole stack of blocks: the contribution of every input token to every state, layer after
layer.

With weights, deviations and slopes fixed a block is affine, so that the vectors of each input token `k` go through it by
themselves, as in one more forward pass without its queries, keys and activations:

    part_l[i, k] = (the linear half of block l applied to part_{l-1}[:, k])[i]

What belongs to no token is one more column, to which the constants are added. Pure mathematics on traces that were captured
below attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.fold import ChainRules, Point, fold, prepared
from normscope.chain.linear import LinearisedNetwork, constant_context, deviation, linearised, scale_, shift
from normscope.chain.trace import (
    Attention,
    CrossAttention,
    FeedForward,
    LayerTrace,
    Norm,
    Normalise,
    OwnFeedForward,
)
from normscope.options import BiasShare
from normscope.pullback.block import composed_values, constant_values

Vectors = Float[Tensor, "query column d"]
"""For some query rows, one vector of every column: an input token each, and perhaps, as the last, what belongs to none."""

Memory = Float[Tensor, "key column d"]
"""The same for the states of an encoder, which a cross-attention reads."""

CHUNK_ELEMENTS = 1 << 21
"""The number of neurons, over all vectors, that a feed-forward holds at a time."""


@dataclass(frozen=True)
class Columns:
    """Some input tokens, numbered through both groups of keys, and whether what belongs to no token is the last column."""

    tokens: range
    bias: bool = False

    def __len__(self) -> int:
        return len(self.tokens) + self.bias


@dataclass(frozen=True)
class _Attending:
    """ATTN, CROSS: `weights` hold what norms before the values divide by; `matrix` is all else on the way to the values."""

    step: Attention
    weights: Float[Tensor, "tap_head query key"]
    matrix: Float[Tensor, "inner d"]
    output: Float[Tensor, "inner d"]
    constant: Float[Tensor, "query d"] | None
    cross: bool

    @staticmethod
    def of(step: Attention) -> _Attending:
        matrix, scale = composed_values(step.linear_source)
        weights = step.weights if scale is None else step.weights * scale
        output, cross = step.output.flatten(0, 1), isinstance(step, CrossAttention)
        return _Attending(step, weights, matrix, output, _constant(step), cross)

    def __call__(self, vectors: Float[Tensor, "key column d"], first: int) -> Vectors:
        """The output of attention for the queries from row `first` on; a self-attention's vectors begin there too."""
        weights = self.weights[:, first:] if self.cross else self.weights[:, first:, first:]
        _, rows, keys = weights.shape
        heads, columns = len(self.step.output), vectors.shape[1]
        values = (vectors @ self.matrix.T).view(keys, columns, heads, -1).permute(2, 0, 1, 3)
        slopes = self.step.linear_source.slopes
        if slopes is not None:
            values = values.repeat(self.step.taps, 1, 1, 1) * slopes[:, -keys:, None]
        context = torch.bmm(weights, values.reshape(len(weights), keys, -1)).view(len(weights), rows, columns, -1)
        if self.step.taps > 1:
            context = context.unflatten(0, (-1, heads)).sum(0)
        if self.step.factors is not None:
            context = context * self.step.factors[:, first:, None]
        return context.permute(1, 2, 0, 3).reshape(rows, columns, -1) @ self.output


def _constant(step: Attention) -> Float[Tensor, "query d"] | None:
    """What reaches every query without belonging to a token: from the biases of values, and from the output bias."""
    values = constant_values(step.linear_source)
    constant = None if values is None else step.through_output(constant_context(step.weights, values))
    if step.bias is None:
        return constant
    return step.bias.expand(step.weights.shape[1], -1) if constant is None else constant + step.bias


@dataclass(frozen=True)
class _Normalising:
    """LN: every vector by itself, with the deviation of the model's own state."""

    norm: Norm
    scale: Float[Tensor, " query"]

    @staticmethod
    def of(step: Normalise) -> _Normalising:
        return _Normalising(step.norm, 1 / deviation(step.norm, step.state_before))


@dataclass(frozen=True)
class _Feeding:
    """FF: its networks with their slopes; if it is parallel, also the norm between the block's input and its own."""

    networks: list[LinearisedNetwork]
    beside: bool
    norm: _Normalising | None

    @staticmethod
    def of(step: FeedForward) -> _Feeding:
        if isinstance(step, OwnFeedForward):
            return _Feeding(linearised(step), True, None if step.norm is None else _Normalising.of(step.norm))
        return _Feeding(linearised(step), False, None)


class Block:
    """One block, ready to carry vectors: made once from its trace, used for every tile of columns."""

    def __init__(self, trace: LayerTrace) -> None:
        self.steps = prepared(trace.steps, attention=_Attending.of, normalise=_Normalising.of, feed_forward=_Feeding.of)
        self.input = trace.hidden
        self.output = trace.states[-1]
        self.memory = next((_memory(step) for step in trace.steps if isinstance(step, CrossAttention)), None)
        self.length, self.source_length, self.causal = trace.length, trace.source_length, trace.causal

    def carry(self, vectors: Vectors, memory: Memory | None, columns: Columns, share: BiasShare = "apart") -> Vectors:
        """The vectors after the block; the rows are the last ones, as many as there are. `memory` is the encoder's side.

        Both may come from another device.
        """
        device = self.input.device
        memory = None if memory is None else memory.to(device)
        return _Carry(self, vectors.to(device), memory, columns.bias, share).run()


def _memory(step: CrossAttention) -> Float[Tensor, "key d"]:
    assert step.source is not None
    return step.source.states


_Prepared = _Attending | _Normalising | _Feeding


class _Carry(ChainRules[Tensor, _Prepared]):
    """Vectors carried along a chain. Where the bias is a column, constants are added to it, and shared out if requested."""

    def __init__(self, block: Block, vectors: Vectors, memory: Memory | None, bias: bool, share: BiasShare) -> None:
        self.block, self.entering, self.memory, self.bias = block, vectors, memory, bias
        self.weigh = None if share == "apart" else _WEIGHTS[share]
        self.first = block.length - len(vectors)

    def run(self) -> Vectors:
        return fold(self.block.steps, self, Point(self.entering)).value

    def transform(self, step: _Prepared, value: Vectors) -> Vectors:
        match step:
            case _Attending():
                return self._attend(step)
            case _Normalising():
                return self._normalise(step, value)
            case _Feeding(beside=True):
                read = self.entering if step.norm is None else self._normalise(step.norm, self.entering)
                return value + self._feed(step, read)
            case _Feeding():
                return self._feed(step, value)

    def add(self, value: Vectors, bypass: Vectors) -> Vectors:
        """The bias of an attention is shared out here, where the token's own vector has been added too."""
        total = value + bypass
        self._share(total)
        return total

    def _attend(self, step: _Attending) -> Vectors:
        if not step.cross:
            brought = step(self.entering, self.first)
        elif self.memory is None:
            brought = torch.zeros_like(self.entering)
        else:
            brought = step(self.memory, self.first)
        if self.bias and step.constant is not None:
            brought[:, -1] += step.constant[self.first :]
        return brought

    def _normalise(self, step: _Normalising, vectors: Vectors) -> Vectors:
        scaled = scale_(step.norm, vectors * step.scale[self.first :, None, None])
        constant = shift(step.norm)
        if self.bias and constant is not None:
            scaled[:, -1] += constant
            self._share(scaled)
        return scaled

    def _feed(self, step: _Feeding, vectors: Vectors) -> Vectors:
        output: Tensor | None = None
        for network in step.networks:
            (served,) = (network.rows >= self.first).nonzero(as_tuple=True)
            rows = network.rows[served] - self.first
            if output is None and len(rows) == len(vectors):
                output = torch.empty_like(vectors)
                self._through(network, vectors, served, lambda chunk, fed, into=output: into.__setitem__(chunk, fed))
            elif len(rows):
                output = torch.zeros_like(vectors) if output is None else output
                self._through(
                    network,
                    vectors[rows],
                    served,
                    lambda chunk, fed, into=output, rows=rows: into.index_add_(0, rows[chunk], fed),
                )
        return torch.zeros_like(vectors) if output is None else output

    def _through(
        self,
        network: LinearisedNetwork,
        vectors: Vectors,
        served: Int[Tensor, " row"],
        write: Callable[[slice, Vectors], object],
    ) -> None:
        """One network, some rows at a time: neurons are several times wider than states."""
        neurons = network.output.weight.shape[1]
        height = max(1, CHUNK_ELEMENTS // (neurons * vectors.shape[1]))
        for start in range(0, len(vectors), height):
            chunk = slice(start, start + height)
            hidden = self._hidden(network, vectors[chunk], served[chunk])
            fed = hidden @ network.output.weight.T
            if self.bias and network.output.bias is not None:
                fed[:, -1] += network.weights[served[chunk], None] * network.output.bias
                self._share(fed)
            write(chunk, fed)

    def _hidden(
        self, network: LinearisedNetwork, vectors: Vectors, served: Int[Tensor, " row"]
    ) -> Float[Tensor, "row column f"]:
        """The vectors at the activated neurons; biases are shared out before the activation, as DecompX does."""
        total: Tensor | None = None
        for linear, slope in zip(network.projections, network.slopes, strict=True):
            entering = vectors @ linear.weight.T
            if self.bias and linear.bias is not None:
                entering[:, -1] += linear.bias
                self._share(entering)
            entering.mul_(slope[served, None])
            total = entering if total is None else total.add_(entering)
        assert total is not None
        if self.bias and bool(network.constant.any()):
            total[:, -1] += network.constant[served]
            self._share(total)
        return total

    def _share(self, vectors: Float[Tensor, "row column width"]) -> None:
        """Where biases are shared out, in place: every token takes its share of the bias' column, and that is empty then."""
        if not self.bias or self.weigh is None:
            return
        tokens, bias = vectors[:, :-1], vectors[:, -1]
        weights = self.weigh(tokens, bias)
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total == 0, 1, total)
        tokens += weights[..., None] * bias[:, None]
        bias *= (total == 0).to(bias.dtype)


def _by_dot_product(tokens: Tensor, bias: Tensor) -> Tensor:
    return (tokens @ bias[..., None])[..., 0].abs()


def _by_norm(tokens: Tensor, _: Tensor) -> Tensor:
    return tokens.norm(dim=-1)


def _equally(tokens: Tensor, _: Tensor) -> Tensor:
    return (tokens != 0).any(-1).to(tokens.dtype)


_WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "absdot": _by_dot_product,
    "norm": _by_norm,
    "equal": _equally,
}


def starting_vectors(block: Block, columns: Columns) -> tuple[Vectors, Memory | None]:
    """What enters the first block: every state is its own token's. Likewise for the encoder's states, if there are any.

    For a causal block, the rows begin with the first token of the columns, since earlier rows are zero.
    """
    own = columns.tokens.start < block.length
    first = columns.tokens.start if block.causal and own else 0
    memory = None if block.memory is None else _diagonal(block.memory, columns, block.length)
    return _diagonal(block.input, columns, 0)[first:], memory


def _diagonal(states: Float[Tensor, "token d"], columns: Columns, offset: int) -> Float[Tensor, "token column d"]:
    vectors = states.new_zeros(len(states), len(columns), states.shape[-1])
    for column, token in enumerate(columns.tokens):
        if 0 <= token - offset < len(states):
            vectors[token - offset, column] = states[token - offset]
    return vectors
