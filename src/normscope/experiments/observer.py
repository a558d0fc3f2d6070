"""One pass: every sequence analysed once for all experiments that look at the same form of it, masked or as it is.

`observe` is what an engine calls for a handful of sequences: partial results come out, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from normscope.analysis import Analysis
from normscope.corpora.item import Item, masked
from normscope.errors import InputError
from normscope.experiments.alignment import AlignedPair
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation
from normscope.experiments.exact import Moments
from normscope.experiments.partial import Partial
from normscope.experiments.statistics import Statistic
from normscope.inputs import TokenSequence, with_targets
from normscope.run import Request, Run
from normscope.scopes import resolve_all
from normscope.trace import LayerTrace

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_GROUP_BYTES = 192 * 2**20
"""About how much memory the maps of sequences that are analysed together may take."""

Masking = Literal["paper", "all", "none"]
"""Mask tokens for the experiments whose paper does, for all, or for none."""

COMPLETENESS = "completeness"
"""The name under which the completeness errors of a run are kept, beside those of the experiments."""


@dataclass(frozen=True)
class Plan:
    """What is to be done with every sequence: the experiments, and the needs of each form of the sequence.

    Without a mask token (`mask_id`) nothing is masked. `dtype` is that of the decomposition's arithmetic.
    """

    experiments: tuple[Experiment, ...]
    model: ModelFacts
    mask_id: int | None
    mask_token: str
    seed: int
    masking: Masking = "paper"
    value_bias: str = "token"
    dtype: torch.dtype | None = None

    def masks(self, needs: Needs) -> bool:
        """Whether an experiment with these needs is shown masked sequences."""
        if self.mask_id is None or self.masking == "none" or not needs.corpus:
            return False
        return needs.masked or self.masking == "all"

    def forms(self) -> Iterator[tuple[Needs, list[Experiment]]]:
        """The experiments that share a form of the sequence, with all that they need of it."""
        wanted = [(experiment, experiment.needs(self.model)) for experiment in self.experiments]
        for is_masked in (False, True):
            chosen = [(e, n) for e, n in wanted if n.corpus and self.masks(n) == is_masked]
            if chosen:
                needs = reduce(Needs.with_, (needs for _, needs in chosen))
                yield replace(needs, masked=is_masked), [experiment for experiment, _ in chosen]


def observe(analyzer: Analyzer, plan: Plan, items: Sequence[Item]) -> dict[str, Partial]:
    """What some sequences add to every experiment, and the completeness errors of their analyses."""
    found = {experiment.name: Partial() for experiment in plan.experiments} | {COMPLETENESS: Partial()}
    for needs, chosen in plan.forms():
        for group in _groups(items, plan, needs):
            for observation in _observations(analyzer, plan, needs, group):
                errors = observation.analysis.completeness.values.max(keepdims=True)
                proof = Partial(moments={"worst": Moments.once(errors)})
                found[COMPLETENESS] = found[COMPLETENESS].merge(proof)
                for experiment in chosen:
                    partial = experiment.observe(observation, plan.model)
                    found[experiment.name] = found[experiment.name].merge(partial)
    return found


def _groups(items: Sequence[Item], plan: Plan, needs: Needs) -> Iterator[list[Item]]:
    """The sequences in their order, as many at a time as memory takes."""
    heads = 64 if needs.heads else 0
    group: list[Item] = []
    size = 0
    for item in items:
        keys = item.length + (0 if item.target is None else len(item.target))
        cost = 4 * len(plan.model.layers) * (len(needs.scopes) + heads) * keys * keys
        if group and size + cost > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(item)
        size += cost
    if group:
        yield group


def _observations(analyzer: Analyzer, plan: Plan, needs: Needs, group: list[Item]) -> Iterator[Observation]:
    if needs.masked:
        if plan.mask_id is None:
            raise InputError(f"{plan.model.name} has no mask token. Run without masking (--masking none).")
        group = [masked(item, plan.mask_id, plan.mask_token, plan.seed) for item in group]
    statistics = _Statistics(needs.statistics)
    analyses = _analyses(analyzer, plan, needs, group, statistics)
    for place, (item, analysis) in enumerate(zip(group, analyses, strict=True)):
        yield Observation(
            analysis,
            number=item.number,
            token_ids=item.token_ids if item.target is None else None,
            statistics=statistics.of(place),
            entities=item.entities,
            pair=_pair(item),
        )


def _analyses(
    analyzer: Analyzer, plan: Plan, needs: Needs, group: list[Item], statistics: _Statistics
) -> list[Analysis]:
    request = Request(
        scopes=resolve_all(needs.scopes or analyzer.scopes[:1], analyzer.scopes),
        layers=analyzer.layers,
        queries=None,
        value_bias=plan.value_bias,
        dtype=plan.dtype,
        maps=needs.maps,
        heads=needs.heads,
    )
    run = Run(analyzer, request, statistics.note if needs.statistics else None)
    return [Analysis(dataset) for dataset in run.datasets(_sequences(analyzer, group), progress=False)]


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
    return with_targets(sources, encoding, analyzer.model, analyzer.tokenizer, analyzer.longest, truncate=False)


def _pair(item: Item) -> AlignedPair | None:
    if item.gold is None or item.source_words is None or item.target_words is None:
        return None
    return AlignedPair(item.source_words, item.target_words, item.gold)


class _Statistics:
    """Computes the statistics asked for as traces go by."""

    def __init__(self, wanted: tuple[Statistic, ...]) -> None:
        self.wanted = wanted
        self.found: dict[tuple[int, Statistic], dict[int, np.ndarray]] = {}

    def note(self, place: int, layer: int, trace: LayerTrace) -> None:
        for statistic in self.wanted:
            self.found.setdefault((place, statistic), {})[layer] = statistic.compute(trace)

    def of(self, place: int) -> Mapping[Statistic, np.ndarray]:
        """The statistics of one sequence, `[layer, ...]` each."""
        return {
            statistic: np.stack([layers[layer] for layer in sorted(layers)])
            for statistic in self.wanted
            for layers in [self.found[place, statistic]]
        }
