"""One pass: every sequence analysed once for all experiments that look at the same form of it, masked or as it is.

`observe` is what an engine calls for a handful of sequences: it returns partial results and has no other effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import torch

from normscope.chain.joint_gates import counting
from normscope.chain.measure import AnyMeasure, CaptureDepth
from normscope.corpora.item import Item, masked
from normscope.errors import InputError
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation
from normscope.experiments.faithfulness.base import Trial
from normscope.experiments.links import AlignedPair
from normscope.experiments.partial import Moments, Partial
from normscope.inputs import NO_WORD, TokenSequence, with_targets
from normscope.methods.approximate import approximation
from normscope.methods.norms import Decomposition, joined
from normscope.methods.resolve import measure_layers, refuse_unknown_ids
from normscope.request import RunSettings
from normscope.results.analysis import Analysis
from normscope.results.from_pass import analysis_of
from normscope.scopes import Scope

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_GROUP_BYTES = 192 * 2**20
"""About how much memory the maps of sequences that are analysed together may take."""

_MOST_HEADS = 64
"""How many heads to expect when memory is planned."""

APPROXIMATION = "approximation"
"""The name of the moments of approximate maps: 1 minus their rank correlation with exact ones, and their error."""

COMPLETENESS = "completeness"
"""The name of the partial result with the completeness errors of a run, next to those of the experiments."""


@dataclass(frozen=True)
class Form:
    """A form of the sequences, masked or as they are: what is measured of it, for which experiments."""

    masked: bool
    measures: tuple[AnyMeasure, ...]
    experiments: tuple[Experiment, ...]

    def bytes_of(self, item: Item, layers: int) -> int:
        """About how much memory the maps of a sequence take."""
        keys = item.length + (0 if item.target is None else len(item.target))
        decompositions = [measure for measure in self.measures if isinstance(measure, Decomposition)]
        maps = sum(len(measure.maps) + (_MOST_HEADS if measure.heads else 0) for measure in decompositions)
        return 4 * layers * maps * keys * keys


@dataclass(frozen=True)
class Plan:
    """What is to be done with every sequence: the experiments, and how the decomposition counts and computes.

    Without a mask token (`mask_id`) nothing is masked, and in a causal model, which has never seen one in its training, only
    where masking is requested for all experiments.
    """

    experiments: tuple[Experiment, ...]
    model: ModelFacts
    mask_id: int | None
    mask_token: str
    settings: RunSettings

    @property
    def dtype(self) -> torch.dtype | None:
        """The arithmetic of the decomposition."""
        return None if self.settings.dtype is None else getattr(torch, self.settings.dtype)

    def masks(self, needs: Needs) -> bool:
        """Whether an experiment with these needs is shown masked sequences."""
        if self.mask_id is None or self.settings.masking == "none" or not needs.corpus or needs.asks_model:
            return False
        return self.settings.masking == "all" or (needs.masked and not self.model.causal)

    def forms(self) -> Iterator[Form]:
        """The experiments that share a form of the sequences, with all that they measure of it."""
        needed = [(experiment, experiment.needs(self.model)) for experiment in self.experiments]
        for is_masked in (False, True):
            sharing = [(e, n) for e, n in needed if n.corpus and not n.asks_model and self.masks(n) == is_masked]
            if sharing:
                measures = [measure for _, needs in sharing for measure in needs.measures]
                yield Form(is_masked, tuple(self._proved(measures)), tuple(experiment for experiment, _ in sharing))

    def _proved(self, measures: Sequence[AnyMeasure]) -> list[AnyMeasure]:
        """The measures, each once, and a decomposition that proves the chain as far as any of them looks."""
        components = self.model.scopes[-1].components
        reach = reduce(CaptureDepth.__or__, (measure.reach(components) for measure in measures), CaptureDepth(1))
        proof = Decomposition(ratios=(Scope.of(components[: reach.components]),))
        return joined(self._counted(measure) for measure in (*measures, proof))

    def _counted(self, measure: AnyMeasure) -> AnyMeasure:
        if not isinstance(measure, Decomposition):
            return measure
        return replace(
            measure, value_bias=self.settings.value_bias, approximate=approximation(self.settings.approximate)
        )


def observe(analyzer: Analyzer, plan: Plan, items: Sequence[Item]) -> dict[str, Partial]:
    """What some sequences add to every experiment, and the completeness errors of their analyses."""
    analyzer = analyzer if plan.settings.stack is None else analyzer.of_stack(plan.settings.stack)
    partials = {experiment.name: Partial() for experiment in plan.experiments} | {COMPLETENESS: Partial()}
    for form in plan.forms():
        for group in _groups(items, plan, form):
            for observation in _observations(analyzer, plan, form, group):
                partials[COMPLETENESS] = partials[COMPLETENESS].merge(_proof(observation.analysis))
                for experiment in form.experiments:
                    partial = experiment.observe(observation, plan.model)
                    partials[experiment.name] = partials[experiment.name].merge(partial)
    for trial in [experiment for experiment in plan.experiments if isinstance(experiment, Trial)]:
        partials[trial.name] = trial.examine_all(analyzer, items, plan.settings.seed)
    return partials


def _proof(analysis: Analysis) -> Partial:
    """How exact a sequence is: its worst completeness error and, where maps are approximate, how far they are off."""
    proof = {"worst": Moments.once(analysis.completeness.values.max(keepdims=True))}
    if analysis.approximate is not None:
        missed = 1 - analysis.attrs["approximate_spearman"], analysis.attrs["approximate_error"]
        proof[APPROXIMATION] = Moments.once(np.array(missed))
    return Partial(moments=proof)


def special_ids(analyzer: Analyzer) -> frozenset[int]:
    """The ids of special tokens, from the tokenizer or, without one, from the model's configuration."""
    if analyzer.tokenizer is not None:
        return frozenset(analyzer.tokenizer.all_special_ids)
    config = analyzer.model.config
    stated = [
        getattr(config, f"{name}_token_id", None) for name in ("bos", "eos", "pad", "cls", "sep", "decoder_start")
    ]
    numbers = [number for ids in stated for number in (ids if isinstance(ids, list) else [ids])]
    return frozenset(number for number in numbers if isinstance(number, int))


def check_ids(analyzer: Analyzer, item: Item) -> None:
    """Refuse a sequence with ids that the model does not know."""
    try:
        for sequence in (item.sequence, *([] if item.target is None else [item.target])):
            refuse_unknown_ids(analyzer, sequence)
    except InputError as error:
        raise InputError(f"{item.where}: {error}") from error


def _groups(items: Sequence[Item], plan: Plan, form: Form) -> Iterator[list[Item]]:
    """The sequences in their order, as many at a time as memory takes."""
    group: list[Item] = []
    size = 0
    for item in items:
        cost = form.bytes_of(item, len(plan.model.layers))
        if group and size + cost > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(item)
        size += cost
    if group:
        yield group


def _observations(analyzer: Analyzer, plan: Plan, form: Form, group: list[Item]) -> Iterator[Observation]:
    if form.masked:
        if plan.mask_id is None:
            raise InputError(f"{plan.model.name} has no mask token. Run without masking (--masking none).")
        group = [masked(item, plan.mask_id, plan.mask_token, plan.settings.seed) for item in group]
    start = counting(plan.settings, plan.settings.value_bias)
    measured = measure_layers(analyzer, _sequences(analyzer, group), form.measures, dtype=plan.dtype, start=start)
    for item, results in zip(group, measured, strict=True):
        yield Observation(
            analysis_of(analyzer, results, plan.settings),
            number=item.number,
            seed=plan.settings.seed,
            token_ids=item.token_ids if item.target is None else None,
            results=results.main.by_measure,
            entities=item.entities,
            pair=_pair(item, results.sequence),
        )


def _sequences(analyzer: Analyzer, group: list[Item]) -> list[TokenSequence]:
    """What the model reads; for an encoder-decoder the source, with the target that its decoder is made to read."""
    if analyzer.family.encoder is None:
        return [item.sequence for item in group]
    targets: list[list[int]] = []
    for item in group:
        if item.target is None:
            raise InputError(
                f"{analyzer.name} is an encoder-decoder model: its corpus is sentence pairs (--format pairs)."
            )
        targets.append(item.target.features["input_ids"])
    sources = [item.sequence for item in group]
    encoding = {"input_ids": targets}
    return with_targets(sources, encoding, analyzer.model, analyzer.tokenizer, analyzer.longest)


def _pair(item: Item, read: TokenSequence) -> AlignedPair | None:
    if item.gold is None or item.target is None or item.source_words is None or item.target_words is None:
        return None
    sides = (item.sequence.text, item.source_words), (item.target.text, item.target_words)
    words = [_known_words(text, owners) for text, owners in sides]
    end = len(read.target or ()) - len(item.target_words)  # a target without an end token has a row more, for the end
    target_words = np.pad(item.target_words, (0, end), constant_values=NO_WORD)
    return AlignedPair(item.source_words, target_words, item.gold, *words)


def _known_words(text: str, owners: np.ndarray) -> tuple[str, ...]:
    """The words of a side; none where all that is known of them is their numbers, as in a corpus of token ids."""
    words = tuple(text.split(" "))
    return words if len(words) > owners.max(initial=-1) else ()
