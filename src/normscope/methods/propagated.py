"""Propagated norm maps (the object of DecompX): norms of the parts carried from the inputs through all layers, proved.

Vectors are carried one tile of input tokens after another, each through all layers, so that memory holds one tile and the
blocks, never the n x n vectors of a layer (but where biases are shared out, which needs all tokens at once).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.measure import AnyMeasure, Errors, Measure, Variables
from normscope.chain.trace import LayerTrace
from normscope.decompose.propagate import Block, Columns, Vectors, starting_vectors
from normscope.errors import CompletenessError, InputError, SelectionError, UnsupportedArchitectureError, listing
from normscope.explain.task import Asked, Attributed, read_off
from normscope.methods import declared
from normscope.methods.layer import LayerMethod, MapRequest, refuse_options
from normscope.methods.maps import by_scope, error_variables
from normscope.methods.prediction import SharesOnly
from normscope.options import BiasShare, whole_number
from normscope.results import schema
from normscope.scopes import Scope

TILE_VECTORS = 4096
"""How many vectors are carried at once where nothing limits the memory: enough to keep the matrix products busy."""


WORKING_COPIES = 5
"""How many times the vectors of a tile are held at once inside a block, at most."""


@dataclass
class PropagatedLayer:
    """The parts of the inputs after one layer: their norms, that of the bias, and the sum of them all.

    `state` is the model's own.
    """

    map: Float[Tensor, "query key"]
    bias: Float[Tensor, " query"]
    total: Float[Tensor, "query d"]
    state: Float[Tensor, "query d"]

    @property
    def error(self) -> Float[Tensor, " query"]:
        """How far the sum is from the state, relative to the sizes of all that is summed: large parts may cancel."""
        return (self.total - self.state).norm(dim=-1) / (self.map.nansum(-1) + self.bias)


@dataclass
class Propagation:
    """The blocks so far; after the last of them, what was carried through each."""

    scope: str = ""
    blocks: list[Block] = field(default_factory=list[Block])
    layers: list[PropagatedLayer] = field(default_factory=list[PropagatedLayer])


@dataclass(frozen=True)
class PropagatedNorms(Measure[Propagation, Propagation]):
    """Norm maps `[layer, query, input token]` from the states that enter layer `first` to those after each up to `last`.

    The method's memory limits the vectors of a tile. A decoder's inputs are its own tokens and the encoder's states.
    """

    first: int
    last: int
    method: Propagated

    def start(self) -> Propagation:
        return Propagation()

    def add(self, state: Propagation, layer: int, trace: LayerTrace) -> Propagation:
        if state.blocks:
            _refuse_gap(layer, state.blocks[-1], trace)
        state.scope = Scope.of(trace.components)
        state.blocks.append(Block(trace))
        if layer == self.last:
            state.layers, state.blocks = self._carried(state.blocks), []
        return state

    def errors(self, state: Propagation, layer: int) -> Errors:
        """Of all layers at once, after the last."""
        return {f"{state.scope} of layer {self.first + place}": each.error for place, each in enumerate(state.layers)}

    def finish(self, state: Propagation) -> Propagation:
        return state

    def variables(self, result: Propagation) -> Variables:
        scope, layers = Scope(result.scope), result.layers
        maps = by_scope([{scope: each.map} for each in layers], [scope])
        biases = by_scope([{scope: each.bias} for each in layers], [scope])
        return {
            "scope": [str(scope)],
            schema.MAP: (("scope", "layer", "query", "key"), maps, {"quantity": "norm"}),
            schema.BIAS_NORM: (("scope", "layer", "query"), biases, {"quantity": "norm"}),
            **error_variables([{scope: each.error} for each in layers]),
        }

    def _carried(self, blocks: Sequence[Block]) -> list[PropagatedLayer]:
        layers = [_empty(block) for block in blocks]
        for columns in self._tiles(blocks[0]):
            vectors, memory = starting_vectors(blocks[0], columns)
            for block, layer in zip(blocks, layers, strict=True):
                vectors = block.carry(vectors, memory, columns, self.method.bias)
                _note(layer, vectors, columns)
        if blocks[0].causal:
            for layer in layers:
                rows, keys = torch.ones_like(layer.map).nonzero(as_tuple=True)
                after = (keys > rows) & (keys < blocks[0].length)
                layer.map[rows[after], keys[after]] = torch.nan
        return layers

    def _tiles(self, block: Block) -> Iterator[Columns]:
        """The input tokens, some at a time and never of both groups, and what belongs to none of them."""
        every = block.length + block.source_length
        if self.method.bias != "apart":
            self._refuse_too_many(block, every)
            yield Columns(range(every), bias=True)
            return
        width = self._width(block)
        for group in (range(block.length), range(block.length, every)):
            for start in range(group.start, group.stop, width):
                yield Columns(range(start, min(start + width, group.stop)))
        yield Columns(range(0), bias=True)

    def _width(self, block: Block) -> int:
        if self.method.max_memory is None:
            return max(1, TILE_VECTORS // block.length)
        return max(1, self.method.max_memory // _bytes_of_a_column(block))

    def _refuse_too_many(self, block: Block, every: int) -> None:
        needed = every * _bytes_of_a_column(block)
        if self.method.max_memory is not None and needed > self.method.max_memory:
            raise InputError(
                f"bias={self.method.bias!r} shares biases out over all {every} tokens at once, which takes {needed} bytes, "
                f"but max_memory is {self.method.max_memory}: give it more, or keep the bias separate (bias='apart')."
            )


def _bytes_of_a_column(block: Block) -> int:
    return WORKING_COPIES * block.input.numel() * block.input.element_size()


def _empty(block: Block) -> PropagatedLayer:
    assert block.output is not None
    states = block.output
    zero = torch.zeros_like(states)
    keys = block.length + block.source_length
    return PropagatedLayer(states.new_zeros(len(states), keys), zero[:, 0].clone(), zero, states)


def _note(layer: PropagatedLayer, vectors: Vectors, columns: Columns) -> None:
    first = len(layer.state) - len(vectors)
    norms = torch.linalg.vector_norm(vectors, dim=-1)
    layer.map[first:, columns.tokens.start : columns.tokens.stop] = norms[:, : len(columns.tokens)]
    if columns.bias:
        layer.bias[:] = norms[:, -1]
    layer.total[first:] += vectors.sum(1)


def _refuse_gap(layer: int, before: Block, trace: LayerTrace) -> None:
    if before.output is None or not torch.equal(before.output.to(trace.hidden.device), trace.hidden):
        raise UnsupportedArchitectureError(
            f"What enters layer {layer} is not what leaves layer {layer - 1}: something acts between the two blocks, "
            f"through which nothing can be carried yet. Maps of single layers are not affected."
        )


@dataclass(frozen=True)
class Propagated(declared.Propagated, LayerMethod):
    """The parts of the inputs carried through all layers.

    `bias` is kept `"apart"`, or shared out over the tokens by `"absdot"`, `"norm"` or `"equal"`, as DecompX does. `first` is
    the layer whose inputs are followed. `max_memory` (bytes) limits the vectors that are carried at once.
    """

    across_layers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.bias not in get_args(BiasShare):
            raise InputError(f"bias is one of {listing(get_args(BiasShare))}, not {self.bias!r}.")
        if self.max_memory is not None and whole_number(self.max_memory, "max_memory, in bytes,") <= 0:
            raise InputError(f"max_memory is a number of bytes above 0, not {self.max_memory}.")

    @property
    def facts(self) -> dict[str, str | int]:
        return {**super().facts, "value_bias": "bias", "from_layer": self.first}

    def layers_needed(self, asked: Sequence[int]) -> Sequence[int]:
        if not asked:
            return asked
        if not 1 <= self.first <= min(asked):
            raise SelectionError(f"Layer {min(asked)} cannot be reached from the inputs of layer {self.first}.")
        return range(self.first, max(asked) + 1)

    def measures(self, request: MapRequest) -> list[AnyMeasure]:
        refuse_options(self, request, takes=("ff_baseline",))
        return [PropagatedNorms(request.layers[0], request.layers[-1], self)]


# ---- DecompX -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DecompX(declared.DecompX, SharesOnly):
    """The parts of the inputs carried through all layers and contracted with the output row, biases shared out on the way.

    `bias="apart"` is the pull-back, at a higher price. The head's own bias is shared out once, at the end.
    """

    through_slopes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.bias not in get_args(BiasShare):
            raise InputError(f"The bias is shared out by {listing(get_args(BiasShare))}, not by {self.bias!r}.")

    def attribute(self, asked: Asked) -> Attributed:
        if asked.sequence.target is not None:
            raise UnsupportedArchitectureError(
                "DecompX carries parts through one stack of layers, and this model has an encoder and a decoder. "
                "pull-back goes through both."
            )
        played, recording = read_off(asked.within(None))
        blocks = [Block(trace) for _, trace in recording.back()][::-1]
        columns = Columns(range(blocks[0].length), bias=True)
        vectors, _ = starting_vectors(blocks[0], columns)
        for block in blocks:
            vectors = block.carry(vectors, None, columns, self.bias)
        contracted = torch.einsum("tqd,qcd->tc", played.pulled.covector, vectors)
        shares, bias = contracted[:, :-1], contracted[:, -1] + played.pulled.bias
        if self.bias != "apart":
            shares, bias = _shared_out(shares, bias, self.bias)
        sizes = torch.maximum(shares.abs().sum(-1) + bias.abs(), played.values.abs())
        errors = (shares.sum(-1) + bias - played.values).abs() / sizes
        if not float(errors.amax()) <= asked.model.tolerance:
            raise CompletenessError(
                f"By DecompX the tokens' shares do not add up to the model's own value: relative error "
                f"{float(errors.amax()):.2e}, tolerance {asked.model.tolerance:.0e}. There is no explanation."
            )
        return Attributed(played.answers, played.head.logits, played.values, shares, None, bias, errors)


def _shared_out(
    shares: Float[Tensor, "target token"], bias: Float[Tensor, " target"], by: BiasShare
) -> tuple[Float[Tensor, "target token"], Float[Tensor, " target"]]:
    """What is left of the biases at the logit, shared out by the sizes of the tokens' shares, or equally."""
    weights = (shares != 0).to(shares.dtype) if by == "equal" else shares.abs()
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, 1, total)
    return shares + weights * bias[:, None], bias * (total[:, 0] == 0)
