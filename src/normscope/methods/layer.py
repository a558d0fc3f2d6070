"""Methods that give maps of every layer, for `Analyzer.analyze(..., method=)`: what each measures, and by which measure.

How a map is computed is in `measures`; here is only what a method is called, what it means, and which options it takes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from normscope.decompose.propagate import BiasShare
from normscope.errors import InputError, SelectionError, listing
from normscope.measures import Decomposition, Measure
from normscope.measures.alti import AltiMaps
from normscope.measures.approximated import Approximate
from normscope.measures.contribution import ContributionWeights
from normscope.measures.globenc import GlobEncMaps
from normscope.measures.projection import Projections
from normscope.measures.propagated import PropagatedNorms
from normscope.measures.value_zeroing import ValueZeroing
from normscope.methods.base import Gives, Method
from normscope.options import FeedForwardBaseline, ValueBias
from normscope.results.schema import NORMS
from normscope.scopes import CROSS_WEIGHTS, HALF_ATTENTION_WEIGHTS, Scope, basis


@dataclass(frozen=True)
class MapRequest:
    """What is asked of one stack: scopes that it has (`given` if the user named them), heads, and how biases count."""

    scopes: tuple[Scope, ...]
    given: bool = False
    heads: bool = False
    value_bias: ValueBias = "token"
    projections: bool = False
    layers: Sequence[int] = ()
    approximate: Approximate | None = None
    ff_baseline: FeedForwardBaseline = "zero"


@dataclass(frozen=True)
class LayerMethod(Method):
    """A method whose results are maps of layers."""

    gives: ClassVar[Gives] = "layer maps"
    across_layers: ClassVar[bool] = False
    """Whether maps follow the states from an earlier layer, so that all layers between are needed, and all queries."""

    @abstractmethod
    def measures(self, request: MapRequest) -> list[Measure[Any, Any]]:
        """What to compute for a request."""

    @property
    def scope(self) -> Scope | None:
        """The scope that a rollout takes by default, where it is not the only one."""
        return None

    @property
    def facts(self) -> dict[str, str | int]:
        return super().facts if self.scope is None else {**super().facts, "scope": str(self.scope)}

    def layers_needed(self, asked: Sequence[int]) -> Sequence[int]:
        """The layers to go through for the maps of those asked for."""
        return asked


@dataclass(frozen=True)
class Norms(LayerMethod):
    """Norms of the parts at every scope: the method of normscope itself."""

    name: ClassVar[str] = NORMS
    summary: ClassVar[str] = "the norm of the vector that a token put into a state, at every scope of a layer"
    quantity: ClassVar[str] = "norm"
    cost: ClassVar[str] = "one product of n x n vectors with the feed-forward's second matrix in every layer"
    operations: ClassVar[str] = "2 L n^2 F d"
    paper: ClassVar[str] = "Kobayashi et al. 2020, 2021, 2024"
    passes_per_token: ClassVar[bool] = True

    def measures(self, request: MapRequest) -> list[Measure[Any, Any]]:
        norms = Decomposition(
            maps=request.scopes, heads=request.heads, value_bias=request.value_bias, approximate=request.approximate
        )
        if not request.projections:
            return [norms]
        return [norms, Projections(_projected(request), request.heads)]


@dataclass(frozen=True)
class ProjectionsMethod(LayerMethod):
    """Projections alone, without the norms and their price."""

    name: ClassVar[str] = "projections"
    summary: ClassVar[str] = (
        "the share of a token in a state: signed, adding up to 1 with the bias, per head at every scope"
    )
    quantity: ClassVar[str] = "projection"
    signed: ClassVar[bool] = True
    cost: ClassVar[str] = "about a backward pass for each scope; no product of n x n vectors"
    operations: ClassVar[str] = "4 L S n F d for S scopes after the feed-forward"
    paper: ClassVar[str] = "normscope"

    def measures(self, request: MapRequest) -> list[Measure[Any, Any]]:
        _refuse(self, request, takes=("scopes", "heads", "ff_baseline"))
        return [Projections(_projected(request), request.heads, alone=True)]


@dataclass(frozen=True)
class AttentionRollout(LayerMethod):
    name: ClassVar[str] = "attention-rollout"
    summary: ClassVar[str] = (
        "half attention weights (mean over heads), half identity, multiplied over layers by `rollout`"
    )
    quantity: ClassVar[str] = "weight"
    cost: ClassVar[str] = "a forward pass that shows its attention weights"
    operations: ClassVar[str] = "2 L n^3"
    paper: ClassVar[str] = "Abnar & Zuidema 2020"

    @property
    def scope(self) -> Scope:
        return HALF_ATTENTION_WEIGHTS

    def measures(self, request: MapRequest) -> list[Measure[Any, Any]]:
        _refuse(self, request, takes=("heads",))
        weights = (basis(HALF_ATTENTION_WEIGHTS), CROSS_WEIGHTS)
        return [Decomposition(maps=tuple(s for s in request.scopes if s in weights), heads=request.heads)]


@dataclass(frozen=True)
class GlobEnc(LayerMethod):
    """`normalise`: whether a rollout divides rows by their sums first. The authors multiply the norms as they are."""

    normalise: bool = False

    name: ClassVar[str] = "globenc"
    summary: ClassVar[str] = "norms of the parts through a whole layer, with the feed-forward's output left out"
    quantity: ClassVar[str] = "norm"
    cost: ClassVar[str] = "less than a forward pass for short texts: the parts stay factored"
    operations: ClassVar[str] = "2 L (n^2 H^2 + n H^2 d)"
    paper: ClassVar[str] = "Modarressi et al. 2022"

    def measures(self, request: MapRequest) -> list[Measure[Any, Any]]:
        _refuse(self, request)
        return [GlobEncMaps()]


@dataclass(frozen=True)
class Alti(LayerMethod):
    name: ClassVar[str] = "alti"
    summary: ClassVar[str] = (
        "how much closer (L1) a part brings the state after attention and residual, as a share of the row"
    )
    quantity: ClassVar[str] = AltiMaps.quantity
    cost: ClassVar[str] = "every part as a vector, tile by tile"
    operations: ClassVar[str] = "2 L n^2 H d"
    paper: ClassVar[str] = "Ferrando et al. 2022"

    def measures(self, request: MapRequest) -> list[Measure[Any, Any]]:
        _refuse(self, request)
        return [AltiMaps()]


@dataclass(frozen=True)
class ValueZeroingMethod(LayerMethod):
    name: ClassVar[str] = "value-zeroing"
    summary: ClassVar[str] = (
        "how far a layer's output turns (cosine) without a token's value vector, as a share of the row"
    )
    quantity: ClassVar[str] = ValueZeroing.quantity
    cost: ClassVar[str] = "the feed-forward once for every pair of tokens: about n forward passes"
    operations: ClassVar[str] = "4 L n^2 F d (gated: 6)"
    paper: ClassVar[str] = "Mohebbi et al. 2023"
    passes_per_token: ClassVar[bool] = True

    def measures(self, request: MapRequest) -> list[Measure[Any, Any]]:
        _refuse(self, request)
        return [ValueZeroing()]


@dataclass(frozen=True)
class ContributionWeightsMethod(LayerMethod):
    name: ClassVar[str] = "contribution-weights"
    summary: ClassVar[str] = (
        "attention weight x size of the transformed value x cosine with the attention's output; signed"
    )
    quantity: ClassVar[str] = ContributionWeights.quantity
    signed: ClassVar[bool] = True
    cost: ClassVar[str] = "less than a forward pass"
    operations: ClassVar[str] = "2 L (n^2 d + n d^2)"
    paper: ClassVar[str] = "the projection of Kobayashi et al. 2020's vectors on their sum"

    @property
    def scope(self) -> Scope:
        return Scope("Attn")

    def measures(self, request: MapRequest) -> list[Measure[Any, Any]]:
        _refuse(self, request, takes=("heads",))
        return [ContributionWeights(request.heads)]


@dataclass(frozen=True)
class Propagated(LayerMethod):
    """The parts of the inputs carried through all layers.

    `bias` is kept `"apart"`, or shared out over the tokens by `"absdot"`, `"norm"` or `"equal"`, as DecompX does. `first` is
    the layer whose inputs are followed. `max_memory` (bytes) limits the vectors that are carried at once.
    """

    bias: BiasShare = "apart"
    first: int = 1
    max_memory: int | None = None

    name: ClassVar[str] = "propagated"
    summary: ClassVar[str] = "the norm of the vector that an input token put into a state through all layers so far"
    quantity: ClassVar[str] = "norm"
    cost: ClassVar[str] = "about n forward passes of n tokens; half of that for causal models"
    operations: ClassVar[str] = "4 L n^2 (F d + d^2) (gated: 6 F d)"
    paper: ClassVar[str] = "Modarressi et al. 2023 (DecompX)"
    passes_per_token: ClassVar[bool] = True
    across_layers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.bias not in get_args(BiasShare):
            raise InputError(f"bias is one of {listing(get_args(BiasShare))}, not {self.bias!r}.")
        if self.max_memory is not None and self.max_memory <= 0:
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

    def measures(self, request: MapRequest) -> list[Measure[Any, Any]]:
        _refuse(self, request, takes=("ff_baseline",))
        return [PropagatedNorms(request.layers[0], request.layers[-1], self.bias, self.max_memory)]


def _projected(request: MapRequest) -> tuple[Scope, ...]:
    scopes = tuple(scope for scope in request.scopes if scope.quantity == "norm")
    if request.given and not scopes:
        raise SelectionError(
            f"There are no projections at {listing(request.scopes)}: attention weights are not vectors."
        )
    return scopes


def _refuse(method: LayerMethod, request: MapRequest, *, takes: Sequence[str] = ()) -> None:
    """Refuse the options of norms that a method does not take."""
    given = {
        "scopes": request.given,
        "heads": request.heads,
        "value_bias": request.value_bias != "token",
        "projections": request.projections,
        "approximate": request.approximate is not None,
        "ff_baseline": request.ff_baseline != "zero",
    }
    for option, is_given in given.items():
        if is_given and option not in takes:
            raise InputError(
                f"The method {method.name!r} does not take {option}: leave it out, or use method={NORMS!r}."
            )
