"""What a measure is: a fold over the layers of one sequence, how far it needs the capture to go, and what a pass
computes.

The pass over a model (`passes`) starts a measure for each sequence, hands it the trace of every layer as it is captured, and
lets it finish. A measure that needs all layers at once, such as a pull-back, keeps their traces and works when it finishes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.joint_gates import Counting
from normscope.chain.trace import LayerTrace
from normscope.errors import InputError, SelectionError
from normscope.options import position_of, whole_numbers

State = TypeVar("State")


Result = TypeVar("Result")


LayerValue = TypeVar("LayerValue")


Variable = (
    tuple[str | tuple[str, ...], np.ndarray]
    | tuple[str | tuple[str, ...], np.ndarray, dict[str, str]]
    | np.ndarray
    | list[str]
)
"""A variable of a dataset with its dimensions and, where they matter, its attributes; or a coordinate, by its values."""

Variables = dict[str, Variable]
"""Variables and coordinates of a dataset by name, as xarray takes them."""

Errors = Mapping[str, Float[Tensor, " query"]]
"""Relative completeness errors of every query, by the scope after which they were measured."""


@dataclass(frozen=True)
class CaptureDepth:
    """How far a capture goes: through `components` of the chain (`None`: all)."""

    components: int | None = None

    def __or__(self, other: CaptureDepth) -> CaptureDepth:
        """As far as both need."""
        counts = (self.components, other.components)
        return CaptureDepth(None if None in counts else max(count for count in counts if count is not None))


class Measure(ABC, Generic[State, Result]):
    """A quantity to compute from the layers of one sequence, in order. Subclasses are frozen dataclasses."""

    @property
    def by_rows(self) -> bool:
        """Whether it takes the trace of a layer in blocks of query rows, one after the other."""
        return False

    def reach(self, components: Sequence[str]) -> CaptureDepth:
        """How far along a chain of components it needs the trace."""
        return CaptureDepth()

    @abstractmethod
    def start(self) -> State:
        """The state before the first layer of a sequence."""

    @abstractmethod
    def add(self, state: State, layer: int, trace: LayerTrace) -> State:
        """The state after one more layer (numbered from 1)."""

    @abstractmethod
    def finish(self, state: State) -> Result:
        """Its result, after the last layer."""

    @property
    def tolerance(self) -> float:
        """The completeness error that is allowed because less precise arithmetic was requested."""
        return 0.0

    def errors(self, state: State, layer: int) -> Errors:
        """How exactly the parts of a layer just added make up the model's own states, where it follows parts."""
        return {}

    def also(self, result: Result) -> Mapping[AnyMeasure, Any]:
        """The results of other measures that it computes as well."""
        return {}

    def variables(self, result: Result) -> Variables:
        """Its variables in the dataset of a sequence."""
        return {}


AnyMeasure = Measure[Any, Any]
"""A measure of any state and result, such as one of several that a pass takes."""


class LayerMeasure(Measure[dict[int, LayerValue], dict[int, LayerValue]], Generic[LayerValue]):
    """A measure of every layer by itself."""

    @abstractmethod
    def of_layer(self, trace: LayerTrace) -> LayerValue:
        """The value of one layer."""

    def start(self) -> dict[int, LayerValue]:
        return {}

    def add(self, state: dict[int, LayerValue], layer: int, trace: LayerTrace) -> dict[int, LayerValue]:
        return {**state, layer: self.of_layer(trace)}

    def finish(self, state: dict[int, LayerValue]) -> dict[int, LayerValue]:
        return dict(sorted(state.items()))


class ArrayMeasure(Measure[dict[int, np.ndarray], np.ndarray]):
    """An array of every layer, `[layer, ...]` in the end."""

    @abstractmethod
    def of_layer(self, trace: LayerTrace) -> np.ndarray:
        """The array of one layer."""

    def start(self) -> dict[int, np.ndarray]:
        return {}

    def add(self, state: dict[int, np.ndarray], layer: int, trace: LayerTrace) -> dict[int, np.ndarray]:
        return {**state, layer: self.of_layer(trace)}

    def finish(self, state: dict[int, np.ndarray]) -> np.ndarray:
        return np.stack([state[layer] for layer in sorted(state)])


@dataclass(frozen=True)
class KeptTraces(LayerMeasure[LayerTrace]):
    """The trace of every layer, down to what its values are made of."""

    def of_layer(self, trace: LayerTrace) -> LayerTrace:
        return trace


# ---- requests: what a pass measures ------------------------------------------------------------------------------------


def query_positions(queries: int | Sequence[int] | None, length: int) -> list[int]:
    """The positions of the queries requested (default all) in a sequence of this length."""
    if queries is None:
        return list(range(length))
    asked = whole_numbers(queries, "A query")
    if not asked:
        raise SelectionError(f"No query was requested: the input has {length} tokens.")
    return [position_of(position, length, "query") for position in asked]


def check_arithmetic(dtype: torch.dtype | None) -> None:
    """Refuse arithmetic in which nothing is decomposed."""
    if not any(dtype is known for known in (None, torch.float32, torch.float64)):
        raise InputError(f"The decomposition runs in torch.float32 or torch.float64, not {dtype!r:.60}.")


@dataclass(frozen=True)
class StackRequest:
    """What is measured in one stack: the measures, already checked against the model, and the layers.

    Equal measures run once.
    """

    measures: Sequence[AnyMeasure]
    layers: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "measures", tuple(dict.fromkeys(self.measures)))


@dataclass(frozen=True)
class Request:
    """What is requested for every sequence: for the main stack and for the encoder, for which queries, in which
    arithmetic, and where the integrated gradients of feed-forwards start, if not at zero."""

    main: StackRequest
    encoder: StackRequest | None = None
    queries: int | Sequence[int] | None = None
    dtype: torch.dtype | None = None
    baseline: Counting | None = None

    def __post_init__(self) -> None:
        check_arithmetic(self.dtype)

    @property
    def rows(self) -> int | None:
        """How many queries of each sequence are requested; all without a number."""
        return None if self.queries is None else len(whole_numbers(self.queries, "A query"))

    def arithmetic(self, weights: torch.dtype) -> torch.dtype:
        """The dtype of the decomposition, for a model with weights of a given dtype."""
        return self.dtype or torch.promote_types(weights, torch.float32)
