"""What maps of every layer have in common: how they are measured, filled tile by tile, proved and stored.

The parts after the attentions of a block are formed as vectors, one tile of queries after another, never all n x n of them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.fold import Point, fold
from normscope.chain.linear import passed_around
from normscope.chain.measure import Errors, LayerMeasure, Variables
from normscope.chain.trace import (
    Attention,
    Fork,
    LayerTrace,
    Normalise,
    QueryRows,
    Residual,
)
from normscope.decompose.carriers import Carrier, CarrierRules, Sums
from normscope.decompose.dense import TILE_VECTORS, Dense
from normscope.decompose.factored import Factored
from normscope.decompose.key_groups import SOURCE
from normscope.results import schema
from normscope.scopes import ATTENTIONS, Scope


@dataclass
class LayerMaps:
    """The maps of one layer by scope, those of single heads, and the relative errors of the proof."""

    maps: dict[str, Float[Tensor, "query key"]] = field(default_factory=dict)
    heads: dict[str, Float[Tensor, "head query key"]] = field(default_factory=dict)
    errors: dict[str, Float[Tensor, " query"]] = field(default_factory=dict)


class MapMeasure(LayerMeasure[LayerMaps]):
    """Maps of every layer by itself, of a quantity that is not the norm of parts at the model's own scopes."""

    quantity: ClassVar[str]

    @abstractmethod
    def of_layer(self, trace: LayerTrace) -> LayerMaps: ...

    def errors(self, state: dict[int, LayerMaps], layer: int) -> Errors:
        return state[layer].errors

    def variables(self, result: Mapping[int, LayerMaps]) -> Variables:
        layers = list(result.values())
        scopes = [Scope(scope) for scope in layers[0].maps]
        dimensions = ("scope", "layer", "query", "key")
        variables: Variables = {
            "scope": [str(scope) for scope in scopes],
            schema.MAP: (dimensions, by_scope([layer.maps for layer in layers], scopes), {"quantity": self.quantity}),
        }
        if layers[0].heads:
            variables |= head_variables([layer.heads for layer in layers], self.quantity)
        return variables | error_variables([layer.errors for layer in layers])


class KeyMap:
    """A map over the keys of both groups that is filled tile by tile; what is never written is missing (NaN)."""

    def __init__(self, trace: LayerTrace) -> None:
        self._trace = trace
        keys = trace.length + trace.source_length
        self.values: Float[Tensor, "query key"] = trace.hidden.new_full((len(trace.queries), keys), math.nan)

    def write(self, kind: int, rows: QueryRows, values: Float[Tensor, "row key"]) -> None:
        """The cells of one group of keys, from its first key on; keys after the query of a causal model stay missing."""
        start = self._trace.length if kind == SOURCE else 0
        if kind != SOURCE and self._trace.causal:
            keys = torch.arange(values.shape[-1], device=values.device)
            values = values.masked_fill(keys > self._trace.queries[rows][:, None], math.nan)
        self.values[rows, start : start + values.shape[-1]] = values.to(self.values.dtype)

    def shares(self) -> Float[Tensor, "query key"]:
        """The map with rows that add up to 1; a row of zeros stays as it is."""
        sums = self.values.nansum(-1, keepdim=True)
        return self.values / torch.where(sums == 0, 1, sums)


# ---- results as variables of a dataset ---------------------------------------------------------------------------------


def by_scope(tables: Sequence[Mapping[str, Tensor]], scopes: Sequence[Scope]) -> np.ndarray:
    """`[scope, layer, ...]`, NaN where a table has nothing for a scope, or a layer fewer heads than another."""
    arrays = [{scope: table[scope].cpu().numpy() for scope in scopes if scope in table} for table in tables]
    every = [array for of_layer in arrays for array in of_layer.values()]
    shape = np.max([array.shape for array in every], axis=0)
    values = np.full((len(scopes), len(tables), *shape), np.nan, every[0].dtype)
    for index, scope in enumerate(scopes):
        for layer, of_layer in enumerate(arrays):
            if scope in of_layer:
                values[(index, layer, *map(slice, of_layer[scope].shape))] = of_layer[scope]
    return values


def head_variables(tables: Sequence[Mapping[str, Tensor]], quantity: str = "norm") -> Variables:
    """The maps of single heads, from one table by scope for each layer."""
    scopes = [Scope(scope) for scope in tables[0]]
    maps = by_scope(tables, scopes)
    return {
        "head_scope": [str(scope) for scope in scopes],
        "head": np.arange(1, 1 + maps.shape[2]),
        schema.HEAD_MAP: (("head_scope", "layer", "head", "query", "key"), maps, {"quantity": quantity}),
    }


def error_variables(tables: Sequence[Errors]) -> Variables:
    """The completeness error after every component that was followed, and the worst of them; one table for each layer."""
    scopes = list(dict.fromkeys(scope for table in tables for scope in table))
    # A layer that does not have a component of the others shows no state after it.
    worst = [[float(table[scope].amax()) if scope in table else math.nan for table in tables] for scope in scopes]
    errors = np.array(worst, next(error for table in tables for error in table.values()).cpu().numpy().dtype)
    return {
        "checked_scope": [str(scope) for scope in scopes],
        schema.COMPONENT_ERROR: (("checked_scope", "layer"), errors),
        schema.COMPLETENESS: ("layer", np.fmax.reduce(errors, axis=0)),
    }


# ---- places in the chain, and states -----------------------------------------------------------------------------------


def scope_through(components: Sequence[str], end: int) -> Scope:
    """The scope of the first `end` components."""
    return Scope.of(components[:end])


def components_to_attentions(components: Sequence[str]) -> int:
    """How many components of a whole chain reach through the last attention, its residual, and a norm of both after that.

    A block whose chain ends with a norm has its norms after the residuals; any other has them inside the branches.
    """
    last = max(index for index, component in enumerate(components) if component in ATTENTIONS)
    residual = components.index("Res", last)
    return residual + (2 if components[-1] == "Ln" else 1)


def place_after_attentions(trace: LayerTrace) -> int:
    """The same as a number of steps of a trace, which may have been captured no further."""
    last = max(index for index, step in enumerate(trace.steps) if isinstance(step, Attention))
    residual = next(index for index in range(last, len(trace.steps)) if isinstance(trace.steps[index], Residual))
    has_norm = residual + 1 < len(trace.steps) and isinstance(trace.steps[residual + 1], Normalise)
    return residual + (2 if has_norm else 1)


def place_of(trace: LayerTrace, components: int) -> int:
    """The number of steps that end with some number of components."""
    named = [index + 1 for index, step in enumerate(trace.steps) if step.name]
    return named[components - 1]


def state_after(trace: LayerTrace, end: int) -> Float[Tensor, "query d"]:
    """The model's own state; where it does not show it, the state after the residual without what the residual adds."""
    state = trace.states[end - 1]
    if state is not None:
        return state
    after = next(shown for shown in trace.states[end:] if shown is not None)
    forks = [index for index, step in enumerate(trace.steps[:end]) if isinstance(step, Fork)]
    before = [shown for shown in trace.states[: forks[-1]] if shown is not None]
    fork = trace.steps[forks[-1]]
    assert isinstance(fork, Fork)
    return after - passed_around(fork, before[-1] if before else trace.hidden)


def relative_error(value: Float[Tensor, "query d"], truth: Float[Tensor, "query d"]) -> Float[Tensor, " query"]:
    """How far a state is from the model's own, relative to its norm."""
    return (value - truth).norm(dim=-1) / truth.norm(dim=-1)


# ---- parts as vectors --------------------------------------------------------------------------------------------------


def carried(trace: LayerTrace, end: int) -> Factored:
    """The decomposition after the first `end` steps, none of which is a feed-forward of what attention brought."""
    start = Point[Carrier](Factored.of_tokens(trace))
    carrier = fold(trace.steps[:end], CarrierRules(causal=trace.causal), start).value
    assert isinstance(carrier, Factored)
    return carrier


def tiles(carrier: Factored) -> Iterator[tuple[slice, Dense]]:
    """All parts as vectors, tile by tile."""
    count = len(carrier.sums.queries)
    height = max(1, TILE_VECTORS // max(1, sum(len(group.weights) for group in carrier.groups)))
    for start in range(0, count, height):
        rows = slice(start, min(start + height, count))
        yield rows, _expanded(carrier.select(rows))


def _expanded(carrier: Factored) -> Dense:
    sums = carrier.sums
    visible = [group.visible() for group in carrier.groups]
    ends = list(accumulate(visible, initial=0))
    extents = {group.kind: slice(*ends[index : index + 2]) for index, group in enumerate(carrier.groups)}
    parts = sums.rows.new_zeros(ends[-1], *sums.rows.shape[1:])
    nothing = Sums(torch.zeros_like(sums.rows), sums.queries)
    return Dense(sums=nothing, parts=parts, extents=extents).add(carrier)
