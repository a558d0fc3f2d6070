"""What the experiments that ask the model itself will cost, said before the work starts: model calls, and about how long.

The time is that of one real sequence of middle length, taken to the others by their numbers of calls.
"""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console

from normscope.corpus_run.driver import Driver
from normscope.experiments.faithfulness.base import Trial
from normscope.planner.estimate import duration

_WORTH_TIMING = 8
"""With fewer sequences than this, timing one of them first would be a good part of the work."""


def announced(driver: Driver, *, aloud: bool) -> dict[str, dict[str, Any]]:
    """The model calls and seconds to expect of every experiment that asks the model itself, also said on standard error.

    Only what is said aloud is worth timing.
    """
    trials = [experiment for experiment in driver.settings.experiments if isinstance(experiment, Trial)]
    items = [item for shard in driver.spool.shards(lambda index: not driver.shards.done(index)) for item in shard.items]
    items = [] if not trials else sorted(items, key=lambda item: item.length)
    costs: dict[str, dict[str, Any]] = {}
    for trial in trials if items else []:
        calls = sum(trial.calls(driver.facts, item.length) for item in items)
        seconds: float | None = None
        if aloud and len(items) >= _WORTH_TIMING:
            trial.examine(driver.analyzer, items[0], driver.settings.seed)  # what is slow only once
            middle = items[len(items) // 2]
            started = time.perf_counter()
            trial.examine(driver.analyzer, middle, driver.settings.seed)
            each = (time.perf_counter() - started) / trial.calls(driver.facts, middle.length)
            seconds = round(each * calls, 1)
        costs[trial.name] = {"sequences": len(items), "calls": calls, "unit": trial.unit, "seconds": seconds}
        if aloud:
            Console(stderr=True, highlight=False).print(_sentence(trial.name, costs[trial.name]))
    return costs


def _sentence(name: str, cost: dict[str, Any]) -> str:
    seconds = cost["seconds"]
    time_needed = "" if seconds is None else f", about {duration(seconds)} in one process"
    return f"{name}: {cost['sequences']} sequences, about {cost['calls']:,} {cost['unit']}{time_needed}."
