"""One run: sequences through the model in batches, each layer decomposed as it is captured, proved, and put into a dataset.

Owns the proof: no result leaves here whose parts do not add up to the model's own states within the tolerance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING

import torch
import xarray as xr
from rich.console import Console
from rich.progress import Progress

from normscope import schema
from normscope.capture import Side, capture_sides
from normscope.decompose import LayerResult, decompose, mixing_ratios
from normscope.errors import CompletenessError, InputError, SelectionError
from normscope.inputs import Batch, TokenSequence, batches
from normscope.scopes import scopes_of, weights_scope
from normscope.trace import LayerTrace

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The completeness error above which a result is refused, by the dtype of the model's own arithmetic.

That of float64 leaves room for norms that compute in float32 whatever the weights are (DeBERTa, Llama).
"""

_SHOW_PROGRESS_FROM = 16


def whole_numbers(asked: int | Sequence[int]) -> list[int]:
    """One number or several, of Python or of numpy, as a list."""
    try:
        return [index(number) for number in (asked if isinstance(asked, Iterable) else [asked])]
    except TypeError as error:
        raise SelectionError(f"Layers and queries are whole numbers, not {asked!r}.") from error


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
    encoder_scopes: list[str] = field(default_factory=list[str])
    encoder_layers: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        if self.value_bias not in ("token", "bias"):
            raise InputError(f"value_bias is 'token' or 'bias', not {self.value_bias!r}.")
        if self.dtype not in (None, torch.float32, torch.float64):
            raise InputError(f"The decomposition runs in torch.float32 or torch.float64, not {self.dtype}.")

    def positions(self, length: int) -> list[int]:
        """The query positions of a sequence of some length."""
        if self.queries is None:
            return list(range(length))
        asked = whole_numbers(self.queries)
        for position in asked:
            if not -length <= position < length:
                raise SelectionError(
                    f"There is no query {position}: the input has {length} tokens, 0 to {length - 1} (or -{length} to -1)."
                )
        if not asked:
            raise SelectionError(f"No query was asked for: the input has {length} tokens.")
        return [position % length for position in asked]


_Results = dict[int, dict[int, LayerResult]]
"""By place of the sequence in the user's list, then by layer."""

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
        return [pair[0] for pair in self.dataset_pairs(sequences, progress=progress)]

    def dataset_pairs(
        self, sequences: list[TokenSequence], *, progress: bool | None
    ) -> list[tuple[xr.Dataset, xr.Dataset | None]]:
        """The same, each with the dataset of the encoder beside that of the decoder, where there is one."""
        found: dict[int, tuple[xr.Dataset, xr.Dataset | None]] = {}
        rows = [self.request.positions(len(sequence.target or sequence)) for sequence in sequences]
        for batch in self._batches(sequences, progress=progress):
            results, encoder_results = self._results(batch, rows)
            for place in batch.places:
                encoder = encoder_results.get(place)
                found[place] = (
                    self._dataset(sequences[place], results[place], rows[place]),
                    None if not encoder else self._encoder_dataset(sequences[place], encoder),
                )
        return [found[place] for place in range(len(sequences))]

    def _dataset(self, sequence: TokenSequence, results: dict[int, LayerResult], rows: list[int]) -> xr.Dataset:
        if sequence.target is None:
            return schema.build(results, sequence, rows, {"self": sequence}, self._facts(sequence.text))
        keys = {"target": sequence.target, "source": sequence}
        facts = {**self._facts(sequence.target.text), "source_text": sequence.text}
        return schema.build(results, sequence.target, rows, keys, facts)

    def _encoder_dataset(self, sequence: TokenSequence, results: dict[int, LayerResult]) -> xr.Dataset:
        return schema.build(results, sequence, range(len(sequence)), {"self": sequence}, self._facts(sequence.text))

    def _facts(self, text: str) -> dict[str, str | int | float]:
        return {**self.analyzer.facts, "text": text, "value_bias": self.request.value_bias}

    def _batches(self, sequences: list[TokenSequence], *, progress: bool | None) -> Iterator[Batch]:
        model = self.analyzer.model
        pad_id = getattr(model.config, "pad_token_id", None) or 0
        shown = progress if progress is not None else len(sequences) >= _SHOW_PROGRESS_FROM and sys.stderr.isatty()
        with Progress(console=Console(stderr=True), disable=not shown, transient=True) as bar:
            task = bar.add_task("Analysing", total=len(sequences))
            for batch in batches(sequences, pad_id, model.device):
                yield batch
                bar.advance(task, len(batch.places))

    def _results(self, batch: Batch, rows: list[list[int]]) -> tuple[_Results, _Results]:
        """For every place of a batch the result of every layer, of the main stack and of the encoder."""
        found: _Results = {place: {} for place in batch.places}
        encoder_found: _Results = {place: {} for place in batch.places}

        def consume(layer: int, sequence: int, trace: LayerTrace) -> None:
            place = batch.places[sequence]
            if self.observer is not None:
                self.observer(place, layer, trace)
            if self.request.queries is not None:
                trace = trace.select(torch.tensor(rows[place], device=trace.queries.device))
            found[place][layer] = self._proved(layer, trace, self.request.scopes)

        def consume_encoder(layer: int, sequence: int, trace: LayerTrace) -> None:
            place = batch.places[sequence]
            encoder_found[place][layer] = self._proved(layer, trace, self.request.encoder_scopes)

        family, request = self.analyzer.family, self.request
        needed = None if self.observer is not None else self._components_needed()
        sides = [Side(family.stack, batch.lengths, request.layers, consume, components=needed)]
        if family.encoder is not None:
            sides = [Side(family.stack, batch.target_lengths, request.layers, consume, batch.lengths, needed)]
            if request.encoder_scopes:
                sides.append(Side(family.encoder, batch.lengths, request.encoder_layers, consume_encoder))
        inputs = {**batch.features, **({"use_cache": False} if family.stack.causal else {})}
        below = request.value_bias == "bias"
        capture_sides(self.analyzer.model, inputs, sides, dtype=self.dtype, below_attention=below)
        return found, encoder_found

    def _components_needed(self) -> int:
        """How far along the chain the scopes asked for reach."""
        components = self.analyzer.family.stack.topology_of(self.analyzer.model.config).components()
        reached = scopes_of(components, weights=False)
        attentions = [weights_scope(component) for component in components]
        return max(
            place + 1
            for place, (scope, weights) in enumerate(zip(reached, attentions, strict=True))
            if scope in self.request.scopes or weights in self.request.scopes
        )

    def _proved(self, layer: int, trace: LayerTrace, scopes: list[str]) -> LayerResult:
        request, bias = self.request, self.request.value_bias
        if request.maps:
            result = decompose(trace, scopes, heads=request.heads, value_bias=bias)
        else:
            result = mixing_ratios(trace, scopes, value_bias=bias)
        self._prove(layer, result)
        return result

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
