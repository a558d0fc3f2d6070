"""What is asked of every sequence of a pass: measures, layers, queries, and the arithmetic. Numbers are checked here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from normscope.chain.baseline import BiasBaseline
from normscope.errors import InputError, SelectionError
from normscope.measures import Measure
from normscope.options import position_of, whole_numbers


def query_positions(queries: int | Sequence[int] | None, length: int) -> list[int]:
    """The positions of the queries asked for (default all) in a sequence of this length."""
    if queries is None:
        return list(range(length))
    asked = whole_numbers(queries, "A query")
    if not asked:
        raise SelectionError(f"No query was asked for: the input has {length} tokens.")
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

    measures: Sequence[Measure[Any, Any]]
    layers: Sequence[int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "measures", tuple(dict.fromkeys(self.measures)))


@dataclass(frozen=True)
class Request:
    """What is asked of every sequence: of the main stack and of the encoder, for which queries, in which arithmetic, and
    where the integrated gradients of feed-forwards start, if not at zero."""

    main: StackRequest
    encoder: StackRequest | None = None
    queries: int | Sequence[int] | None = None
    dtype: torch.dtype | None = None
    baseline: BiasBaseline | None = None

    def __post_init__(self) -> None:
        check_arithmetic(self.dtype)

    @property
    def rows(self) -> int | None:
        """How many queries of each sequence are asked for; all without a number."""
        return None if self.queries is None else len(whole_numbers(self.queries, "A query"))

    def arithmetic(self, weights: torch.dtype) -> torch.dtype:
        """The dtype of the decomposition, for a model with such weights."""
        return self.dtype or torch.promote_types(weights, torch.float32)
