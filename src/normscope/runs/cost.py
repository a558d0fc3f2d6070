"""Estimates of the cost of a run, before the work starts.

`announce_costs` is about the experiments that run the model themselves: the number of model calls, and the time that they
take, extrapolated from one real sequence of median length. `cost_of` counts a whole run from the configuration of a model,
before its weights are read, so that the cost of several models is known before any of them is loaded.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console

from normscope.analyzer import Analyzer
from normscope.chain.measure import Request, StackRequest
from normscope.corpora import Problems
from normscope.estimate.estimate import Estimate, Length, duration
from normscope.estimate.planning import asked_of, plan
from normscope.experiments import ModelFacts
from normscope.experiments.faithfulness.base import Trial
from normscope.experiments.observer import special_ids
from normscope.runs.driver import Driver, plan_of
from normscope.runs.settings import Settings

_WORTH_TIMING = 8
"""With fewer sequences than this, timing one of them first would be a large part of the work."""


def announce_costs(driver: Driver, *, printed: bool) -> dict[str, dict[str, object]]:
    """The model calls and seconds to expect of every experiment that runs the model itself.

    Times a few sequences of median length, and writes to standard error, only if the estimate is printed.
    """
    trials = [experiment for experiment in driver.settings.experiments if isinstance(experiment, Trial)]
    items = [item for shard in driver.spool.shards(lambda index: not driver.shards.done(index)) for item in shard.items]
    items = [] if not trials else sorted(items, key=lambda item: item.length)
    costs: dict[str, dict[str, object]] = {}
    for trial in trials if items else []:
        calls = sum(trial.calls(driver.facts, item.length) for item in items)
        seconds: float | None = None
        if printed and len(items) >= _WORTH_TIMING:
            trial.examine(driver.analyzer, items[0], driver.settings.seed)  # warm-up
            first = max(0, len(items) // 2 - trial.timed // 2)
            middle = items[first : first + trial.timed]
            started = time.perf_counter()
            trial.examine_all(driver.analyzer, middle, driver.settings.seed)
            timed = sum(trial.calls(driver.facts, item.length) for item in middle)
            seconds_per_call = (time.perf_counter() - started) / timed
            seconds = round(seconds_per_call * calls, 1)
        costs[trial.name] = {"sequences": len(items), "calls": calls, "unit": trial.unit, "seconds": seconds}
        if printed:
            Console(stderr=True, highlight=False).print(_sentence(trial.name, costs[trial.name]))
    return costs


def _sentence(name: str, cost: dict[str, Any]) -> str:
    seconds = cost["seconds"]
    time_needed = "" if seconds is None else f", about {duration(seconds)} in one process"
    return f"{name}: {cost['sequences']} sequences, about {cost['calls']:,} {cost['unit']}{time_needed}."


@dataclass(frozen=True)
class RunCost:
    """The cost of a run of one model: the bytes of its weights, the number of sequences and tokens, the operations of all
    analyses, the seconds in one process (`None`: not known), and the model calls of the experiments that run it."""

    weights: int
    sequences: int
    tokens: int
    flops: float
    seconds: float | None
    calls: dict[str, int]


def cost_of(settings: Settings, analyzer: Analyzer, device: torch.device | None = None) -> RunCost:
    """The cost of a run, for an analyzer that may be without weights; seconds need a device, whose speed is measured."""
    own = analyzer if settings.stack is None else analyzer.of_stack(settings.stack)
    facts = ModelFacts.of_analyzer(own, settings.stack)
    for item in settings.experiments:
        item.check(own)
    planned = plan_of(settings, analyzer, facts)
    forms = list(planned.forms())
    trials = [experiment for experiment in settings.experiments if isinstance(experiment, Trial)]
    lengths = _lengths(settings, own) if forms or trials else []
    estimates: list[Estimate] = []
    for form in forms if lengths else []:
        request = Request(StackRequest(form.measures, facts.layers), dtype=planned.dtype)
        estimates.append(plan(own, asked_of(own, request), lengths, device=device))
    read = [length.source or length.tokens for length in lengths]
    return RunCost(
        sum(weight.numel() * weight.element_size() for weight in analyzer.model.parameters()),
        len(read),
        sum(read),
        sum((estimate.flops for estimate in estimates), 0.0),
        None if device is None or trials else sum((estimate.seconds or 0.0 for estimate in estimates), 0.0),
        {trial.name: sum(trial.calls(facts, tokens) for tokens in read) for trial in trials},
    )


def _lengths(settings: Settings, analyzer: Analyzer) -> list[Length]:
    """The lengths of all sequences of the corpus, after reading and tokenizing it."""
    if settings.corpus is None:
        return []
    corpus = settings.corpus.fitting(analyzer.longest)
    items = corpus.items(analyzer.tokenizer, Problems(corpus.bad_rows), special_ids(analyzer))
    return [Length(i.length) if i.target is None else Length(len(i.target), i.length) for i in items]
