"""What the maps of compared methods have in common: a map per scope and layer, its proof, and how both are stored."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.measure import Errors, LayerMeasure
from normscope.chain.trace import LayerTrace, QueryRows
from normscope.decompose.key_groups import SOURCE
from normscope.measures.decomposition import by_scope, error_variables, head_variables
from normscope.results import schema
from normscope.scopes import Scope


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

    def variables(self, result: Mapping[int, LayerMaps]) -> dict[str, Any]:
        layers = list(result.values())
        scopes = [Scope(scope) for scope in layers[0].maps]
        dimensions = ("scope", "layer", "query", "key")
        variables: dict[str, Any] = {
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


def scope_through(components: Sequence[str], end: int) -> Scope:
    """The scope of the first `end` components."""
    return Scope.of(components[:end])
