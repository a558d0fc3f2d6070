"""Norms of the parts at every scope, norms of heads and mixing ratios: the decomposition of every layer, with its proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normscope.chain.measure import AnyMeasure, CaptureDepth, Errors, Measure, Variables
from normscope.chain.trace import FeedForward, LayerTrace
from normscope.decompose import Approximation, LayerRequest, LayerResult, Reached, decomposed
from normscope.decompose.dense import PLAIN, Multiplication
from normscope.errors import InputError
from normscope.methods import declared
from normscope.methods.approximate import Approximate, ApproximateLayer
from normscope.methods.layer import LayerMethod, MapRequest
from normscope.methods.maps import by_scope, error_variables, head_variables
from normscope.methods.projections import Projections, projected_scopes
from normscope.methods.vectors import MapWithoutDimensions
from normscope.options import ValueBias
from normscope.results import schema
from normscope.scopes import Scope, components_needed


class DecomposedLayers(dict[int, LayerResult]):
    """The results of all layers in their order, whose maps are parts of one array `[scope, layer, query, key]`."""

    def __init__(self, layers: dict[int, LayerResult]) -> None:
        """Take over what the layers have. They are left empty, so that no map except those of one layer is there twice."""
        super().__init__()
        self.maps: np.ndarray | None = None
        count = len(layers)
        for index, number in enumerate(sorted(layers)):
            result = layers.pop(number)
            self[number] = replace(result, maps=self._taken(result, index, count)) if result.maps else result

    def _taken(self, result: LayerResult, index: int, count: int) -> dict[str, Tensor]:
        """The maps of a layer, moved to its place in the array."""
        if self.maps is None:
            first = next(iter(result.maps.values()))
            self.maps = np.empty((len(result.scopes), count, *first.shape), first.cpu().numpy().dtype)
        maps: dict[str, Tensor] = {}
        for scope, target in zip(result.scopes, self.maps[:, index], strict=True):
            if scope in result.maps:
                target[:] = result.maps[scope].cpu().numpy()
                maps[scope] = torch.from_numpy(target)
            else:
                target[:] = np.nan
        return maps


@dataclass(frozen=True)
class Decomposition(LayerRequest, Measure[dict[int, LayerResult], DecomposedLayers]):
    """The maps, mixing ratios and maps of heads of a `LayerRequest`, for every layer.

    Without maps it takes the cheap route, a few vectors per query. All of it is proved against the model's own states.
    `approximate` makes the maps from the feed-forward on approximate, with a measured error. `without` are maps without some
    dimensions that are taken from the same parts.
    """

    approximate: Approximate | None = None
    without: tuple[MapWithoutDimensions, ...] = ()

    def __post_init__(self) -> None:
        if self.value_bias not in ("token", "bias"):
            raise InputError(f"value_bias is 'token' or 'bias', not {self.value_bias!r}.")

    def reach(self, components: Sequence[str]) -> CaptureDepth:
        # What is left out of a norm depends on the norm after the feed-forward, so that the whole chain is needed.
        reached = None if self.without else components_needed((*self.maps, *self.ratios), components)
        return CaptureDepth(reached)

    def of_layer(self, trace: LayerTrace) -> LayerResult:
        return decomposed(trace, self, {str(measure.fraction): measure.dimensions(trace) for measure in self.without})

    @property
    def by_rows(self) -> bool:
        return True

    def start(self) -> dict[int, LayerResult]:
        return {}

    def finish(self, state: dict[int, LayerResult]) -> DecomposedLayers:
        return DecomposedLayers(state)

    def add(self, state: dict[int, LayerResult], layer: int, trace: LayerTrace) -> dict[int, LayerResult]:
        result = self._result(state, layer, trace)
        return {**state, layer: state[layer].followed_by(result) if layer in state else result}

    def _result(self, state: dict[int, LayerResult], layer: int, trace: LayerTrace) -> LayerResult:
        if self.approximate is None or not self.maps:
            return self.of_layer(trace)
        before = state[layer if layer in state else max(state)].reached if state else None
        return ApproximateLayer(trace, self).result(self.approximate, before)

    @property
    def multiplication(self) -> Multiplication:
        """The arithmetic of the feed-forward's large products."""
        return Multiplication(self.approximate.products) if isinstance(self.approximate, Approximation) else PLAIN

    @property
    def tolerance(self) -> float:
        return self.multiplication.tolerance

    def errors(self, state: dict[int, LayerResult], layer: int) -> Errors:
        return state[layer].errors

    def also(self, result: DecomposedLayers) -> Mapping[AnyMeasure, Any]:
        return {
            measure: np.stack([layer.without[str(measure.fraction)].cpu().numpy() for layer in result.values()])
            for measure in self.without
        }

    def absorbs(self, measure: AnyMeasure) -> bool:
        """Whether it can compute the measure on its way, from the same parts."""
        reaches = any(FeedForward.name in scope.components for scope in self.maps)
        plain = self.value_bias == "token" and self.approximate is None
        return isinstance(measure, MapWithoutDimensions) and reaches and plain

    def joined(self, other: Decomposition) -> Decomposition:
        """One that measures what both do."""
        return replace(
            self,
            maps=_union(self.maps, other.maps),
            ratios=_union(self.ratios, other.ratios),
            heads=self.heads or other.heads,
        )

    def variables(self, result: DecomposedLayers) -> Variables:
        layers = list(result.values())
        scopes = [Scope(scope) for scope in layers[0].scopes]
        variables: Variables = {"scope": [str(scope) for scope in scopes]}
        if result.maps is not None:
            variables[schema.MAP] = (("scope", "layer", "query", "key"), result.maps, {"quantity": "norm"})
        variables |= _ratio_variables(layers, scopes)
        if layers[0].heads:
            variables |= head_variables([layer.heads for layer in layers])
        if layers[0].reached is not None:
            variables |= _approximation_variables([layer.reached_or_exact for layer in layers], scopes)
        return variables | error_variables([layer.errors for layer in layers])


def joined(measures: Iterable[AnyMeasure]) -> list[AnyMeasure]:
    """Every measure once; decompositions that count the same way become one, so that each chain is walked once."""
    decompositions: dict[tuple[ValueBias, Approximate | None], Decomposition] = {}
    others: dict[AnyMeasure, None] = {}
    for measure in measures:
        if isinstance(measure, Decomposition):
            counted = measure.value_bias, measure.approximate
            before = decompositions.get(counted)
            decompositions[counted] = measure if before is None else before.joined(measure)
        else:
            others[measure] = None
    absorbed: list[AnyMeasure] = []
    for decomposition in decompositions.values():
        without = tuple(m for m in others if isinstance(m, MapWithoutDimensions) and decomposition.absorbs(m))
        absorbed.append(replace(decomposition, without=without))
        others = {measure: None for measure in others if measure not in without}
    return [*absorbed, *others]


def _approximation_variables(reached: Sequence[Reached], scopes: Sequence[Scope]) -> Variables:
    """What every layer was approximated by, and what it reached on sampled queries; exact scopes have error 0."""

    def table(values: Sequence[Mapping[str, float]], exact: float) -> tuple[tuple[str, str], np.ndarray]:
        return ("scope", "layer"), np.array([[layer.get(scope, exact) for layer in values] for scope in scopes])

    specs = [layer.approximation for layer in reached]
    products = [spec.products or "" for spec in specs]
    return {
        schema.APPROXIMATION_ERROR: table([layer.error for layer in reached], 0.0),
        schema.APPROXIMATION_SPEARMAN: table([layer.spearman for layer in reached], 1.0),
        schema.APPROXIMATION_NEURONS: ("layer", np.array([spec.neurons for spec in specs])),
        schema.APPROXIMATION_DIRECTIONS: ("layer", np.array([spec.directions or 0 for spec in specs])),
        schema.APPROXIMATION_PATTERNS: ("layer", np.array([spec.patterns or 0 for spec in specs])),
        **({schema.APPROXIMATION_PRODUCTS: ("layer", np.array(products))} if any(products) else {}),
    }


def _union(first: tuple[Scope, ...], second: tuple[Scope, ...]) -> tuple[Scope, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _ratio_variables(layers: Sequence[LayerResult], scopes: Sequence[Scope]) -> Variables:
    variables: Variables = {}
    for name, tables in (
        (schema.MIXING_RATIO, [layer.mixing for layer in layers]),
        (schema.SOURCE_MIXING_RATIO, [layer.source_mixing for layer in layers]),
    ):
        if tables[0]:
            variables[name] = ("scope", "layer", "query"), by_scope(tables, scopes), {"quantity": "mixing ratio"}
    return variables


@dataclass(frozen=True)
class Norms(declared.Norms, LayerMethod):
    """Norms of the parts at every scope: the method of normscope itself."""

    def measures(self, request: MapRequest) -> list[AnyMeasure]:
        if request.conventions.gates != "fixed" and (request.heads or request.projections):
            raise InputError(
                "Gates that share in what they let through (gates='joint') have no share of their own among heads, and no "
                "projections: leave out heads and projections, or use gates='fixed'."
            )
        norms = Decomposition(
            maps=request.scopes,
            heads=request.heads,
            value_bias=request.conventions.value_bias,
            approximate=request.approximate,
        )
        if not request.projections:
            return [norms]
        return [norms, Projections(projected_scopes(request), request.heads)]
