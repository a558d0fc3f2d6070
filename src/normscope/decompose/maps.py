"""Maps and mixing ratios of one layer: a fold of a carrier along the chain, with the requested numbers noted at every scope.

Up to the feed-forward there is one factored carrier for all queries. The feed-forward expands it tile by tile, and the rest
of the chain is followed for each tile. The walk can also stop at the feed-forward (`FeedForwardInput`) and continue from
there several times: exactly or approximately, for all queries or for a sample (`Branches`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.fold import Point, forward
from normscope.chain.linear import LinearisedNetwork, linearised
from normscope.chain.trace import (
    Attention,
    CrossAttention,
    FeedForward,
    LayerTrace,
    Norm,
    Normalise,
    QueryRows,
    Residual,
    SequentialFeedForward,
)
from normscope.decompose.approximate.request import Approximation, Reached
from normscope.decompose.approximate.sketch import RestOfChain
from normscope.decompose.carriers import OTHERS, SOURCE_TOKENS, Carrier, CarrierRules, OpenCarrier, Sums, opened
from normscope.decompose.dense import PLAIN, Dense, Multiplication, Projected
from normscope.decompose.factored import Factored
from normscope.decompose.key_groups import SELF, SOURCE
from normscope.errors import UnsupportedArchitectureError
from normscope.options import ValueBias
from normscope.scopes import Scope, scopes_of, weights_scope


@dataclass
class LayerResult:
    """The numbers of one layer, by scope.

    Maps have the sequence's own tokens as keys and then the encoder's, NaN where a key does not exist at that scope.
    `source_mixing` is the share of the mixing ratio that comes from the encoder's tokens; `errors` are the relative
    completeness errors of each query; `heads` are maps of each head; `without` are maps after the feed-forward without some
    dimensions, by the name of these; `reached` says how good approximate maps are. `scopes` are those with a map or a ratio,
    as they follow each other in the chain.
    """

    scopes: list[str] = field(default_factory=list)
    maps: dict[str, Float[Tensor, "query key"]] = field(default_factory=dict)
    mixing: dict[str, Float[Tensor, " query"]] = field(default_factory=dict)
    source_mixing: dict[str, Float[Tensor, " query"]] = field(default_factory=dict)
    heads: dict[str, Float[Tensor, "head query key"]] = field(default_factory=dict)
    errors: dict[str, Float[Tensor, " query"]] = field(default_factory=dict)
    without: dict[str, Float[Tensor, "query key"]] = field(default_factory=dict)
    reached: Reached | None = None

    def followed_by(self, other: LayerResult) -> LayerResult:
        """The same layer with more query rows."""

        def joined(first: dict[str, Tensor], second: dict[str, Tensor], dimension: int = 0) -> dict[str, Tensor]:
            return {name: torch.cat([values, second[name]], dimension) for name, values in first.items()}

        reached = (
            self.reached if other.reached is None or self.reached is None else self.reached.worse_of(other.reached)
        )
        return LayerResult(
            self.scopes,
            joined(self.maps, other.maps),
            joined(self.mixing, other.mixing),
            joined(self.source_mixing, other.source_mixing),
            joined(self.heads, other.heads, 1),
            joined(self.errors, other.errors),
            joined(self.without, other.without),
            reached,
        )

    @property
    def reached_or_exact(self) -> Reached:
        return self.reached or Reached(Approximation(), {}, {})

    def copy(self) -> LayerResult:
        """A copy that can be extended while this one stays unchanged."""
        tables = {name: dict(value) for name, value in vars(self).items() if isinstance(value, dict)}
        return replace(self, scopes=list(self.scopes), **tables)


# ---- One pass along the chain of a block, noting the requested numbers at each scope.


@dataclass(frozen=True)
class FeedForwardInput:
    """A walk that has reached a feed-forward, the step `index`: its input and its bypasses."""

    index: int
    trace: LayerTrace
    carrier: OpenCarrier
    bypasses: tuple[OpenCarrier, ...]

    @cached_property
    def networks(self) -> list[LinearisedNetwork]:
        step = self.trace.steps[self.index]
        assert isinstance(step, FeedForward)
        return linearised(step)

    def select(self, rows: QueryRows) -> FeedForwardInput:
        """The same for some of the query rows."""
        trace = self.trace.select(rows, after=self.index - 1)
        bypasses = tuple(bypass.select(rows) for bypass in self.bypasses)
        return FeedForwardInput(self.index, trace, self.carrier.select(rows), bypasses)


@dataclass(frozen=True)
class LayerRequest:
    """What is noted along the chain of a layer: maps at `maps`, mixing ratios at these and at `ratios`, maps of `heads`.

    `value_bias="bias"` counts the value projection's bias with the bias, not with the `"token"`; it needs a trace that was
    captured below attention.
    """

    maps: tuple[Scope, ...] = ()
    ratios: tuple[Scope, ...] = ()
    heads: bool = False
    value_bias: ValueBias = "token"


class Walk:
    """One pass along a chain, noting down what is requested at each scope.

    `without` names sets of dimensions that are left out of the norms after the feed-forward, for further maps.
    """

    def __init__(
        self,
        trace: LayerTrace,
        request: LayerRequest,
        without: Mapping[str, Int[Tensor, " dimension"]] | None = None,
    ) -> None:
        self.trace, self.maps, self.heads = trace, request.maps, request.heads
        self.ratios = (*request.maps, *request.ratios)
        self.rules = CarrierRules(trace.causal, request.value_bias == "bias")
        self.without = dict(without or {})
        self.result = LayerResult()
        self.everything = torch.arange(len(trace.queries), device=trace.queries.device)
        self.scope_after = _scope_after_each_step(trace)
        # Attention weights alone still go through the attention, so that they too are proved against the model.
        self.end = 1 + max(index for index, step in enumerate(trace.steps) if self._needed(index, step))

    def _needed(self, index: int, step: object) -> bool:
        return self.scope_after[index] in self.ratios or (
            isinstance(step, Attention) and weights_scope(step.name) in self.ratios
        )

    def run(self, carrier: OpenCarrier) -> LayerResult:
        self._follow(Point(carrier), self.trace, slice(None), start=0)
        return self.result

    def until_feed_forward(self, carrier: OpenCarrier) -> FeedForwardInput | None:
        """Stop at the first feed-forward that reads the state which the chain has reached, if there is one."""
        return self._until_feed_forward(Point(carrier), self.trace, slice(None), start=0)

    def branch(self) -> Walk:
        """A walk that continues from here, while this one stays where it is."""
        other = copy.copy(self)
        other.result = self.result.copy()
        return other

    def go_on(self, entering: FeedForwardInput, tiles: Iterator[tuple[slice, Carrier]]) -> None:
        """Continue after a feed-forward with its output, tile by tile."""
        index, trace = entering.index, entering.trace
        state = trace.states[index]
        for tile, result in tiles:
            self._note(index, result, state if state is None else state[tile], tile)
            self._note_without(result, tile)
            bypasses = tuple(bypass.select(tile) for bypass in entering.bypasses)
            self._follow(Point(result, bypasses), trace.select(tile, after=index), tile, index + 1)

    def _follow(self, point: Point[Carrier], trace: LayerTrace, rows: QueryRows, start: int) -> None:
        """Resume from the step `start`. `rows` are those of the whole trace that `point` and `trace` hold."""
        entering = self._until_feed_forward(point, trace, rows, start)
        if entering is not None:
            self.go_on(entering, entering.carrier.feed_forward(entering.networks))

    def _until_feed_forward(
        self, point: Point[Carrier], trace: LayerTrace, rows: QueryRows, start: int
    ) -> FeedForwardInput | None:
        for index in range(start, self.end):
            step = trace.steps[index]
            if isinstance(step, SequentialFeedForward):
                return FeedForwardInput(index, trace, opened(point.value), tuple(map(opened, point.bypasses)))
            point = forward(point, step, self.rules)
            if isinstance(step, Attention):
                self._note_attention(step, opened(point.value))
            self._note(index, point.value, trace.states[index], rows)
        return None

    def rest_of_chain(self, entering: FeedForwardInput) -> RestOfChain:
        """The norms after a feed-forward, as far as the walk goes, and which of the bypasses join where."""
        norms: list[Norm] = []
        joined: list[tuple[int, OpenCarrier]] = []
        waiting = list(entering.bypasses)
        for step in self.trace.steps[entering.index + 1 : self.end]:
            if isinstance(step, Normalise):
                norms.append(step.norm)
            elif isinstance(step, Residual) and waiting:
                joined.append((len(norms), waiting.pop()))
        return RestOfChain(tuple(norms), tuple(joined))

    def _note(self, index: int, carrier: Carrier, state: Tensor | None, rows: QueryRows) -> None:
        scope, sums = self.scope_after[index], carrier.sums
        if state is not None:
            self._write(self.result.errors, scope, sums.error_against(state), rows)
        if scope not in self.ratios:
            return
        self._note_scope(scope)
        self._write(self.result.mixing, scope, sums.mixing_ratio(), rows)
        if len(sums.rows) > SOURCE_TOKENS:
            self._write(self.result.source_mixing, scope, _source_share(sums) * sums.mixing_ratio(), rows)
        if scope in self.maps:
            for kind, norms in carrier.maps().items():
                self._write_map(scope, kind, norms, rows)

    def _note_without(self, carrier: Carrier, rows: QueryRows) -> None:
        for name, dimensions in self.without.items():
            if not isinstance(carrier, Dense):
                raise UnsupportedArchitectureError(
                    "Dimensions can be left out of exact maps after a feed-forward only."
                )
            for kind, norms in carrier.maps_without(dimensions).items():
                self._write_map_into(self.result.without, name, kind, norms, rows)

    def _note_attention(self, step: Attention, carrier: OpenCarrier) -> None:
        scope, mean = weights_scope(step.name), step.mixing_weights.mean(0)
        kind = SOURCE if isinstance(step, CrossAttention) else SELF
        if scope in self.maps or (scope in self.ratios and kind == SELF):
            self._note_scope(scope)
        if scope in self.ratios and kind == SELF:
            sizes = mean.abs()  # weights of a linear mixer have either sign
            own = sizes[self.everything, self.trace.queries]
            self.result.mixing[scope] = 1 - own / sizes.sum(-1)  # with attention sinks, weights do not sum to one
        if scope in self.maps:
            self._write_map(scope, kind, mean, slice(None))
        if self.heads:
            by_head = {scope: step.mixing_weights, step.name: carrier.groups[0].head_norms()}
            self.result.heads |= {name: self._over_all_keys(kind, values) for name, values in by_head.items()}

    def _note_scope(self, scope: str) -> None:
        if scope not in self.result.scopes:
            self.result.scopes.append(scope)

    def _write(self, into: dict[str, Tensor], scope: str, values: Tensor, rows: QueryRows) -> None:
        if scope not in into:
            into[scope] = values.new_empty(len(self.everything))
        into[scope][rows] = values

    def _write_map(self, scope: str, kind: int, norms: Float[Tensor, "row key"], rows: QueryRows) -> None:
        self._write_map_into(self.result.maps, scope, kind, norms, rows)

    def _write_map_into(
        self, maps: dict[str, Tensor], name: str, kind: int, norms: Float[Tensor, "row key"], rows: QueryRows
    ) -> None:
        if name not in maps:
            keys = self.trace.length + self.trace.source_length
            maps[name] = norms.new_full((len(self.everything), keys), math.nan)
        start = self.trace.length if kind == SOURCE else 0
        maps[name][rows, start : start + norms.shape[1]] = self._marked(kind, norms, rows)

    def _over_all_keys(
        self, kind: int, values: Float[Tensor, "head query key"]
    ) -> Float[Tensor, "head query every_key"]:
        """Maps of one group of keys among the keys of all groups."""
        marked = self._marked(kind, values, slice(None))
        before, after = (self.trace.length, 0) if kind == SOURCE else (0, self.trace.source_length)
        return torch.nn.functional.pad(marked, (before, after), value=math.nan)

    def _marked(self, kind: int, values: Tensor, rows: QueryRows) -> Tensor:
        """Marks keys after the query as missing, since they do not exist in a causal model."""
        if kind == SOURCE or not self.trace.causal:
            return values
        after = torch.arange(values.shape[-1], device=values.device) > self.trace.queries[rows][:, None]
        return values.masked_fill(after, math.nan)


def _source_share(sums: Sums) -> Float[Tensor, " query"]:
    """How the mixing ratio divides between encoder tokens and other tokens of the sequence, by the norms of their sums."""
    others, source = sums.rows[OTHERS].norm(dim=-1), sums.rows[SOURCE_TOKENS].norm(dim=-1)
    return source / (others + source)


def _scope_after_each_step(trace: LayerTrace) -> list[str]:
    """The scope that ends with each step; empty where the step is no component."""
    scopes = iter(scopes_of(trace.components, weights=False))
    return [next(scopes) if step.name else "" for step in trace.steps]


# ---- Branches from a feed-forward on: exact or approximate, for all queries or for a sample of them.
#
# What they have in common is computed once: the chain up to there, and what every key puts into the neurons.


class Branches:
    """A walk up to the feed-forward, and every continuation that is requested."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.entering = walk.until_feed_forward(Factored.of_tokens(walk.trace))

    def result(self, approximation: Approximation | None = None) -> LayerResult:
        """Everything that was requested, for all queries."""
        walk = self.walk.branch()
        if self.entering is not None:
            walk.go_on(self.entering, self._tiles(walk, self.entering, approximation))
        return walk.result

    def sample(
        self, rows: Int[Tensor, " row"], scopes: Sequence[str], approximation: Approximation | None = None
    ) -> dict[str, Float[Tensor, "row key"]]:
        """The maps of some queries at scopes from the feed-forward on."""
        if self.entering is None:
            return {scope: self.walk.result.maps[scope][rows] for scope in scopes}
        entering = self.entering.select(rows)
        walk = Walk(entering.trace, LayerRequest(tuple(Scope(scope) for scope in scopes)))
        walk.go_on(entering, self._tiles(walk, entering, approximation))
        return walk.result.maps

    def _tiles(
        self, walk: Walk, entering: FeedForwardInput, approximation: Approximation | None
    ) -> Iterator[tuple[slice, Carrier]]:
        carrier, networks = entering.carrier, entering.networks
        assert isinstance(carrier, Factored)
        if approximation is None or approximation.products is not None:
            multiply = PLAIN if approximation is None else Multiplication(approximation.products)
            return carrier.feed_forward(networks, multiply, self._projected)
        return carrier.approximate_feed_forward(networks, approximation, walk.rest_of_chain(entering), self._projected)

    @cached_property
    def _projected(self) -> Projected | None:
        """The parts of every key at the neurons, if one network serves all queries."""
        assert self.entering is not None
        networks = self.entering.networks
        return Projected(self.entering.carrier.groups, networks[0]) if len(networks) == 1 else None
