"""Corpus runs: all experiments of the papers on plain text, relative to the full maps of the same texts, and what each
experiment adds to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from measuring import MINILM, SUBJECT, Column, Row, Section, spent

import normscope as ns
from normscope.corpora import Corpus, Item, Problems, bundled
from normscope.experiments import ModelFacts, Observation, Partial, experiment
from normscope.experiments.base import Experiment
from normscope.experiments.observer import Plan, observe
from normscope.methods.norms import Decomposition
from normscope.methods.resolve import measure_layers

OF_TEXT = (
    *("dispersion", "categories", "weight-vs-norm", "frequency", "mixing-ratio", "mixing-frequency"),
    *("expansion-rate", "scope-similarity", "ff-amplification", "word-split", "ff-norms", "outlier-dimensions"),
)
"""The experiments that plain text is enough for."""


def rows(quick: bool) -> Iterator[Row]:
    tokens, sequences = (128, 2) if quick else (510, 1)
    analyzer = ns.load()
    corpus = Corpus(str(bundled()), unit="packed", max_tokens=tokens, limit=sequences)
    items = list(corpus.items(analyzer.tokenizer, Problems()))
    plan = plan_of(analyzer)
    spending = dict.fromkeys(OF_TEXT, 0.0)
    timed = replace(plan, experiments=tuple(_timed(each, spending) for each in plan.experiments))
    before = spent(lambda: full_maps(analyzer, items))
    papers = spent(lambda: observe(analyzer, timed, items))
    one_form = spent(lambda: observe(analyzer, replace(plan, masking="none"), items))
    maps = (before + spent(lambda: full_maps(analyzer, items))) / 2
    labels = dict(model=MINILM, tokens=tokens)
    yield labels | dict(what="full maps, of one form of the text", seconds=maps, ratio=1.0)
    yield _beside(labels, "all experiments, masked and plain text as in the papers", papers, maps, forms=2)
    yield _beside(labels, "all experiments, plain text (--masking none)", one_form, maps, forms=1)
    for name, seconds in sorted(spending.items(), key=lambda pair: -pair[1]):
        yield labels | dict(what=f"... of which statistics of {name}", seconds=seconds, share=100 * seconds / papers)


def plan_of(analyzer: ns.Analyzer) -> Plan:
    """All experiments of text, with tokens masked for those whose paper does so."""
    experiments = tuple(experiment(name) for name in OF_TEXT)
    tokenizer = analyzer.tokenizer
    assert tokenizer is not None
    return Plan(experiments, ModelFacts.of_analyzer(analyzer), tokenizer.mask_token_id, str(tokenizer.mask_token), 0)


def full_maps(analyzer: ns.Analyzer, items: list[Item]) -> None:
    measure_layers(analyzer, [item.sequence for item in items], [Decomposition(maps=tuple(analyzer.scopes))])


def _beside(labels: Row, what: str, seconds: float, maps: float, forms: int) -> Row:
    return labels | dict(what=what, forms=forms, seconds=seconds, ratio=seconds / maps, of_forms=seconds / maps / forms)


def _timed(each: Experiment, spending: dict[str, float]) -> Experiment:
    """The same experiment with its `observe` timed."""

    class Timed(type(each)):
        def observe(self, observation: Observation, model: ModelFacts) -> Partial:
            started = time.process_time()
            partial = super().observe(observation, model)
            spending[each.name] += time.process_time() - started
            return partial

    return Timed(**each.options())


SECTION = Section(
    "Corpus runs: time relative to the full maps of the same texts",
    (
        *SUBJECT,
        Column("what", "what"),
        Column("seconds", "time", "{:.2f} s"),
        Column("ratio", "relative to the maps of one form", "{:.2f}x"),
        Column("forms", "forms of the text"),
        Column("of_forms", "relative to the maps of all its forms", "{:.2f}x"),
        Column("share", "of the run", "{:.1f} %"),
    ),
    rows,
    drawn="of_forms",
)
