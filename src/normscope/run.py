"""One run: sequences through the model in batches, each layer decomposed as it is captured, proved, and put into a dataset.

Owns the proof: no result leaves here whose parts do not add up to the model's own states within the tolerance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import xarray as xr
from rich.console import Console
from rich.progress import Progress

from normscope import schema
from normscope.capture import capture
from normscope.decompose import LayerResult, decompose, mixing_ratios
from normscope.errors import CompletenessError, InputError, SelectionError
from normscope.inputs import Batch, TokenSequence, batches
from normscope.trace import LayerTrace

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The completeness error above which a result is refused, by the dtype of the model's own arithmetic."""

_SHOW_PROGRESS_FROM = 16


@dataclass(frozen=True)
class Request:
    """What is asked of every sequence, already checked against the model."""

    scopes: list[str]
    layers: list[int]
    queries: int | Sequence[int] | None
    value_bias: str
    dtype: torch.dtype | None
    maps: bool
    heads: bool = False

    def __post_init__(self) -> None:
        if self.value_bias not in ("token", "bias"):
            raise InputError(f"value_bias is 'token' or 'bias', not {self.value_bias!r}.")
        if self.dtype not in (None, torch.float32, torch.float64):
            raise InputError(f"The decomposition runs in torch.float32 or torch.float64, not {self.dtype}.")

    def positions(self, length: int) -> list[int]:
        """The query positions of a sequence of some length."""
        if self.queries is None:
            return list(range(length))
        asked = [self.queries] if isinstance(self.queries, int) else list(self.queries)
        for position in asked:
            if not -length <= position < length:
                raise SelectionError(
                    f"There is no query {position}: the input has {length} tokens, 0 to {length - 1} (or -{length} to -1)."
                )
        if not asked:
            raise SelectionError(f"No query was asked for: the input has {length} tokens.")
        return [position % length for position in asked]


Observer = Callable[[int, int, LayerTrace], None]
"""Told the place of a sequence in the list, the layer (from 1) and its trace, before the trace is decomposed."""


class Run:
    """A request applied to a model. An observer sees every trace, for statistics that a result does not hold."""

    def __init__(self, analyzer: Analyzer, request: Request, observer: Observer | None = None) -> None:
        self.analyzer, self.request, self.observer = analyzer, request, observer
        weights = analyzer.weight_dtype
        self.dtype = request.dtype or torch.promote_types(weights, torch.float32)

    def datasets(self, sequences: list[TokenSequence], *, progress: bool | None) -> list[xr.Dataset]:
        """One dataset per sequence, in their order."""
        positions = [self.request.positions(len(sequence)) for sequence in sequences]
        found: dict[int, xr.Dataset] = {}
        for batch in self._batches(sequences, progress=progress):
            for place, results in self._results(batch, positions).items():
                sequence = sequences[place]
                facts = {**self.analyzer.facts, "text": sequence.text, "value_bias": self.request.value_bias}
                found[place] = schema.build(results, sequence, positions[place], {"self": sequence}, facts)
        return [found[place] for place in range(len(sequences))]

    def _batches(self, sequences: list[TokenSequence], *, progress: bool | None) -> Iterator[Batch]:
        model = self.analyzer.model
        pad_id = getattr(model.config, "pad_token_id", None) or 0
        shown = progress if progress is not None else len(sequences) >= _SHOW_PROGRESS_FROM and sys.stderr.isatty()
        with Progress(console=Console(stderr=True), disable=not shown, transient=True) as bar:
            task = bar.add_task("Analysing", total=len(sequences))
            for batch in batches(sequences, pad_id, model.device):
                yield batch
                bar.advance(task, len(batch.places))

    def _results(self, batch: Batch, positions: list[list[int]]) -> dict[int, dict[int, LayerResult]]:
        """For every place of a batch, the result of every layer."""
        found: dict[int, dict[int, LayerResult]] = {place: {} for place in batch.places}

        def consume(layer: int, sequence: int, trace: LayerTrace) -> None:
            place = batch.places[sequence]
            if self.observer is not None:
                self.observer(place, layer, trace)
            result = self._decompose(trace, positions[place])
            self._prove(layer, result)
            found[place][layer] = result

        capture(
            self.analyzer.model,
            self.analyzer.family,
            batch.features,
            batch.lengths,
            self.request.layers,
            consume,
            dtype=self.dtype,
            value_bias=self.request.value_bias == "bias",
        )
        return found

    def _decompose(self, trace: LayerTrace, positions: list[int]) -> LayerResult:
        request = self.request
        if request.queries is not None:
            trace = trace.select(torch.tensor(positions, device=trace.queries.device))
        if request.maps:
            return decompose(trace, request.scopes, heads=request.heads)
        return mixing_ratios(trace, request.scopes)

    def _prove(self, layer: int, result: LayerResult) -> None:
        for scope, errors in result.errors.items():
            worst = float(errors.amax())
            if not worst <= self.analyzer.tolerance:  # also when it is NaN
                raise CompletenessError(
                    f"In layer {layer} the parts do not add up to the model's own state after {scope}: relative error "
                    f"{worst:.2e}, tolerance {self.analyzer.tolerance:.0e} for {self.analyzer.facts['dtype']} weights. "
                    f"The maps would be wrong, so there are none. The family {self.analyzer.family.name!r} "
                    f"does not describe this model, or the model computes with less precision than its weights."
                )
