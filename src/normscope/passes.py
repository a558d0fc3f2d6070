"""One pass: sequences through the model in batches, each layer handed to the measures as it is captured, and proved.

No result is computed from a trace that fails its proof, or returned if its parts do not add up to the model's own states
within the tolerance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import Progress

from normscope.capture import LONG, Side, rows_together
from normscope.capture.heads import HeadListener
from normscope.chain.joint_gates import Counting
from normscope.chain.measure import AnyMeasure, CaptureDepth, Measure, Request, StackRequest, Variables, query_positions
from normscope.chain.trace import CrossAttention, LayerTrace
from normscope.errors import CompletenessError, UnsupportedArchitectureError
from normscope.estimate.planning import costs, lengths_of
from normscope.families.spec import Stack
from normscope.inputs import Batch, TokenSequence
from normscope.models.model import Model

Tell = Callable[[int, int], None]
"""A callback that receives the number of layers done, over all sequences, and their total, before the next begins. It may
raise to cancel the pass."""

_SHOW_PROGRESS_FROM = 16

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Results:
    """The results of the measures of one stack, for one sequence."""

    layers: Sequence[int]
    by_measure: Mapping[AnyMeasure, Any]
    worst_error: float
    """The worst completeness error of any layer and component, NaN if no measure follows parts."""

    def __getitem__(self, measure: Measure[Any, _Result]) -> _Result:
        return self.by_measure[measure]

    def variables(self) -> Variables:
        """The variables of all measures in the sequence's dataset."""
        return {k: v for measure, result in self.by_measure.items() for k, v in measure.variables(result).items()}


@dataclass(frozen=True)
class Measured:
    """One sequence after the pass: the positions of its queries, and the results of its stacks."""

    sequence: TokenSequence
    positions: list[int]
    main: Results
    encoder: Results | None


class Pass:
    """A request applied to a model."""

    def __init__(self, model: Model, request: Request) -> None:
        self.model, self.request = model, request
        self.dtype = request.arithmetic(model.weight_dtype)

    def over(
        self, sequences: Sequence[TokenSequence], *, progress: bool | None = None, tell: Tell | None = None
    ) -> list[Measured]:
        """Every sequence measured, in their order."""
        measured: dict[int, Measured] = {}
        positions = [query_positions(self.request.queries, len(item.target or item)) for item in sequences]
        with _counter(self._costs(sequences), self._layers_per_sequence(), progress, tell) as count:
            for batch in self.model.batches(sequences):
                folds = self._folds(batch, positions, count)
                for index in batch.indices:
                    main, *encoder = (fold.results(index) for fold in folds)
                    measured[index] = Measured(sequences[index], positions[index], main, next(iter(encoder), None))
        return [measured[index] for index in range(len(sequences))]

    def _costs(self, sequences: Sequence[TokenSequence]) -> list[float]:
        """The work of each sequence, for the progress bar: a long one takes the time of many short ones."""
        return costs(self.model, self.request, lengths_of(sequences))

    def _layers_per_sequence(self) -> int:
        encoder = self.request.encoder
        return len(self.request.main.layers) + (0 if encoder is None else len(encoder.layers))

    def _folds(self, batch: Batch, positions: list[list[int]], count: Callable[[int], None]) -> list[_Fold]:
        """Run a batch through the model; returns the results of its measures, first of the main stack, then of the
        encoder."""
        family, request = self.model.family, self.request
        rows = None if request.queries is None else positions
        folds = [_Fold(self.model, family.stack, request.main, batch, rows, count, request.baseline)]
        sides = [folds[0].side(batch.lengths)]
        if family.encoder is not None:
            sides = [folds[0].side(batch.target_lengths, batch.lengths)]
            if request.encoder is not None:
                folds.append(_Fold(self.model, family.encoder, request.encoder, batch, None, count, request.baseline))
                sides.append(folds[1].side(batch.lengths))
        self._capture(batch, sides, folds[0])
        return folds

    def _capture(self, batch: Batch, sides: Sequence[Side], main: _Fold) -> None:
        """The pass itself. What a decoder reads must be what its encoder outputs, token by token."""
        if self.model.family.encoder is None:
            self.model.capture(batch, sides, dtype=self.dtype)
            return
        lengths = {"lengths": batch.target_lengths, "encoder_lengths": batch.lengths}
        encoder = HeadListener(self.model.module, self.model.family, **lengths, dtype=self.dtype, head=False)
        self.model.capture(batch, sides, dtype=self.dtype, head=encoder)
        for index, end in zip(batch.indices, encoder.encoder_ends(), strict=True):
            if index in main.sources:
                self.model.proof.encoder_end(end, main.sources[index])


@dataclass
class _Fold:
    """The measures of one stack over the layers of one batch."""

    model: Model
    stack: Stack
    request: StackRequest
    batch: Batch
    rows: list[list[int]] | None
    count: Callable[[int], None]
    baseline: Counting | None = None
    states: dict[tuple[int, AnyMeasure], Any] = field(default_factory=dict)
    worst: dict[int, float] = field(default_factory=dict[int, float])
    begun: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    sources: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    """The states of the encoder that the first cross-attention of each sequence reads."""

    @cached_property
    def reach(self) -> CaptureDepth:
        components = self.stack.topology_of(self.model.config).components()
        return reduce(CaptureDepth.__or__, (measure.reach(components) for measure in self.request.measures))

    def side(self, lengths: Sequence[int], source_lengths: Sequence[int] | None = None) -> Side:
        long = max(lengths) >= LONG and all(measure.by_rows for measure in self.request.measures)
        blocks = partial(self._blocks, lengths) if long else None
        components = self.reach.components
        return Side(self.stack, lengths, self.request.layers, self._consume, source_lengths, components, blocks)

    def _blocks(self, lengths: Sequence[int], sequence: int) -> list[torch.Tensor]:
        """The query rows of a sequence that are computed together, where its attention weights are never stored."""
        index, length = self.batch.indices[sequence], lengths[sequence]
        rows = torch.tensor(range(length) if self.rows is None else self.rows[index], device="cpu")
        return list(rows.split(rows_together(length)))

    def results(self, place: int) -> Results:
        """The results of the measures for one sequence."""
        finished = {measure: measure.finish(self.states.pop((place, measure))) for measure in self.request.measures}
        for measure in self.request.measures:
            finished |= measure.also(finished[measure])
        return Results(self.request.layers, finished, self.worst.get(place, float("nan")))

    def _consume(self, layer: int, sequence: int, trace: LayerTrace) -> None:
        index = self.batch.indices[sequence]
        begins = (index, layer) not in self.begun
        if begins:
            self.begun.add((index, layer))
            self.count(index)
            self._note_source(index, layer, trace)
        if self.rows is not None and len(trace.queries) == trace.length:
            trace = trace.select(torch.tensor(self.rows[index], device=trace.queries.device))
        # Further blocks of query rows have the same values.
        self.model.proof.layer(trace, self._named(layer), self.reach.components, values=begins)
        if self.baseline is not None:
            trace = self.baseline.applied(trace)
        for measure in self.request.measures:
            started = (index, measure) in self.states
            before = self.states[index, measure] if started else measure.start()
            self.states[index, measure] = measure.add(before, layer, trace)
            self._prove(index, layer, measure)

    def _note_source(self, index: int, layer: int, trace: LayerTrace) -> None:
        """Every layer of a decoder reads the same states of the encoder."""
        for step in trace.steps:
            if isinstance(step, CrossAttention) and step.source is not None:
                read = self.sources.setdefault(index, step.source.states)
                if not torch.equal(read, step.source.states.to(read.device)):
                    raise UnsupportedArchitectureError(
                        f"Layer {layer} of {self.model.name} reads other states of the encoder than the layers before it: "
                        f"whether they are those of the encoder's tokens is not known."
                    )

    def _named(self, layer: int) -> str:
        of_encoder = self.stack is self.model.family.encoder
        return f"layer {layer} of the encoder" if of_encoder else f"layer {layer}"

    def _prove(self, index: int, layer: int, measure: AnyMeasure) -> None:
        for scope, errors in measure.errors(self.states[index, measure], layer).items():
            worst = float(errors.amax())
            tolerance = max(self.model.tolerance, measure.tolerance)
            if not worst <= tolerance:  # also when it is NaN
                raise CompletenessError(
                    f"In {self._named(layer)} the parts do not add up to the model's own state after {scope}: relative "
                    f"error {worst:.2e}, tolerance {tolerance:.0e} for {self.model.facts['dtype']} weights. "
                    f"The maps would be wrong, so there are none. The family {self.model.family.name!r} "
                    f"does not describe this model, or the model computes with less precision than its weights."
                )
            self.worst[index] = max(worst, self.worst.get(index, 0.0))


@contextmanager
def _counter(
    costs: Sequence[float], layers: int, progress: bool | None, tell: Tell | None
) -> Generator[Callable[[int], None]]:
    """A function to call at every layer of every sequence: it shows the progress and tells whoever wants to know.

    The bar advances by the work that a sequence is, so that the time it still shows is that of the sequences to come.
    """
    shown = progress if progress is not None else len(costs) >= _SHOW_PROGRESS_FROM and sys.stderr.isatty()
    with Progress(console=Console(stderr=True), disable=not shown, transient=True) as bar:
        task = bar.add_task("Analysing", total=sum(costs))
        done = 0

        def count(index: int) -> None:
            nonlocal done
            if tell is not None:
                tell(done, len(costs) * layers)
            done += 1
            bar.advance(task, costs[index] / layers)

        yield count
