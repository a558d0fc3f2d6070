"""Exact decomposition of one block's hidden states into one vector per input token, and the norms of those vectors.

Pure PyTorch on tensors. `decompose` walks the chain of a `LayerTrace`; the carriers (`sums`, `factored`, `dense`) hold the
decomposition in the cheapest form that is still exact at each point. How the tensors came about is `capture`'s concern.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.decompose.approximation import Approximation, Reached
from normscope.decompose.carrier import SELF, SOURCE, Carrier, OpenCarrier
from normscope.decompose.dense import Dense
from normscope.decompose.factored import Factored
from normscope.decompose.linear import deviation, sloped
from normscope.decompose.sampling import Later
from normscope.decompose.sums import OTHERS, SOURCE_TOKENS, Summed, Sums
from normscope.errors import UnsupportedArchitectureError
from normscope.scopes import scopes_of, weights_scope
from normscope.trace import (
    Attention,
    CrossAttention,
    FeedForward,
    Fork,
    LayerTrace,
    Norm,
    Normalise,
    OwnFeedForward,
    QueryRows,
    Residual,
    Scale,
)

__all__ = ["Approximation", "LayerResult", "Reached", "decompose", "mixing_ratios"]


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
        """The same layer with further query rows."""

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


def decompose(
    trace: LayerTrace,
    scopes: Sequence[str],
    *,
    ratios: Sequence[str] = (),
    heads: bool = False,
    value_bias: str = "token",
    approximation: Approximation | None = None,
    without: Mapping[str, Int[Tensor, " dimension"]] | None = None,
) -> LayerResult:
    """Maps and mixing ratios at `scopes`, and ratios alone at further ones; the chain is followed only as far as needed.

    `value_bias="bias"` counts the value projection's bias with the bias, not with the `"token"`; it needs a trace that was
    captured below attention. With an `approximation`, maps from the feed-forward on are approximate. `without` names sets of
    dimensions that are left out of the norms after the feed-forward, for further maps from the same parts.
    """
    walk = _Walk(trace, maps=scopes, ratios=(*scopes, *ratios), heads=heads, value_bias=value_bias)
    walk.approximation, walk.without = approximation, dict(without or {})
    return walk.run(Factored(sums=Sums.of_tokens(trace.hidden, trace.queries)))


def mixing_ratios(trace: LayerTrace, scopes: Sequence[str], *, value_bias: str = "token") -> LayerResult:
    """Mixing ratios alone, by the cheap route: a few vectors per query at every scope, and never a map."""
    walk = _Walk(trace, maps=(), ratios=scopes, heads=False, value_bias=value_bias)
    return walk.run(Summed(sums=Sums.of_tokens(trace.hidden, trace.queries)))


class _Walk:
    """One pass along a chain, noting down what is asked for at each scope."""

    def __init__(
        self, trace: LayerTrace, *, maps: Sequence[str], ratios: Sequence[str], heads: bool, value_bias: str
    ) -> None:
        self.trace, self.maps, self.ratios, self.heads = trace, maps, ratios, heads
        self.bias_apart = value_bias == "bias"
        self.approximation: Approximation | None = None
        self.without: dict[str, Tensor] = {}
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
        self._follow(carrier, [], self.trace, slice(None), start=0)
        return self.result

    def _follow(
        self, carrier: Carrier, bypasses: list[OpenCarrier], trace: LayerTrace, rows: QueryRows, start: int
    ) -> None:
        """Resume from the step `start`. `rows` are those of the whole trace that `carrier` and `trace` hold."""
        for index in range(start, self.end):
            state = trace.states[index]
            match step := trace.steps[index]:
                case Fork():
                    bypasses = [*bypasses, _opened(carrier)]
                    continue
                case Attention():
                    carrier = _opened(carrier).attend(step, causal=trace.causal, bias_apart=self.bias_apart)
                    self._note_attention(step, carrier)
                case Residual():
                    *bypasses, bypass = bypasses
                    carrier = carrier.add(bypass)
                case Scale():
                    carrier = carrier.scaled(step.factor)
                case Normalise():
                    carrier = carrier.normalise(step.norm, deviation(step.norm, step.state_before))
                case OwnFeedForward():
                    own = Sums.of_tokens(step.hidden, trace.queries).feed_forward(sloped(step))
                    carrier = carrier.add(Summed(sums=own))
                case FeedForward():
                    for tile, result in self._tiles(_opened(carrier), step, self._later(index, bypasses)):
                        tiled = trace.select(tile, after=index)
                        self._note(index, result, state if state is None else state[tile], tile)
                        self._note_without(result, tile)
                        self._follow(result, [bypass.select(tile) for bypass in bypasses], tiled, tile, index + 1)
                    return
            self._note(index, carrier, state, rows)

    def _tiles(self, carrier: OpenCarrier, step: FeedForward, later: Later) -> Iterator[tuple[slice, Carrier]]:
        if self.approximation is None or not isinstance(carrier, Factored):
            return carrier.feed_forward(sloped(step))
        if self.approximation.products is not None:
            return carrier.feed_forward(sloped(step), self.approximation.products)
        return carrier.approximate_feed_forward(sloped(step), self.approximation, later)

    def _later(self, index: int, bypasses: list[OpenCarrier]) -> Later:
        """The norms after a step, as far as the walk goes, and which of the bypasses join where."""
        norms: list[Norm] = []
        joined: list[tuple[int, OpenCarrier]] = []
        waiting = list(bypasses)
        for step in self.trace.steps[index + 1 : self.end]:
            if isinstance(step, Normalise):
                norms.append(step.norm)
            elif isinstance(step, Residual) and waiting:
                joined.append((len(norms), waiting.pop()))
        return Later(tuple(norms), tuple(joined))

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
        scope, mean = weights_scope(step.name), step.weights.mean(0)
        kind = SOURCE if isinstance(step, CrossAttention) else SELF
        if scope in self.maps or (scope in self.ratios and kind == SELF):
            self._note_scope(scope)
        if scope in self.ratios and kind == SELF:
            own = mean[self.everything, self.trace.queries]
            self.result.mixing[scope] = 1 - own / mean.sum(-1)  # with attention sinks, weights do not sum to one
        if scope in self.maps:
            self._write_map(scope, kind, mean, slice(None))
        if self.heads:
            by_head = {scope: step.weights, step.name: carrier.groups[0].head_norms()}
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
        """Keys after the query, which do not exist for a causal model, marked as missing."""
        if kind == SOURCE or not self.trace.causal:
            return values
        after = torch.arange(values.shape[-1], device=values.device) > self.trace.queries[rows][:, None]
        return values.masked_fill(after, math.nan)


def _opened(carrier: Carrier) -> OpenCarrier:
    """The carrier, if any component may follow it."""
    if isinstance(carrier, OpenCarrier):
        return carrier
    raise UnsupportedArchitectureError(
        "The chain of this block has an attention, a feed-forward or a residual branch after its feed-forward. "
        "Maps exist only for blocks in which the feed-forward is the last of these."
    )


def _source_share(sums: Sums) -> Float[Tensor, " query"]:
    """How the mixing ratio divides between encoder tokens and other tokens of the sequence, by the norms of their sums."""
    others, source = sums.rows[OTHERS].norm(dim=-1), sums.rows[SOURCE_TOKENS].norm(dim=-1)
    return source / (others + source)


def _scope_after_each_step(trace: LayerTrace) -> list[str]:
    """The scope that ends with each step; empty where the step is no component."""
    scopes = iter(scopes_of(trace.components, weights=False))
    return [next(scopes) if step.name else "" for step in trace.steps]
