"""The manifest of a run: what was asked, what was found on the way, and what was really done with the sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from normscope.corpus_run.driver import Driver
from normscope.experiments import Experiment, Outcome
from normscope.experiments.base import Approximated
from normscope.experiments.observer import Plan


def manifest_of(
    driver: Driver, record: dict[str, Any], outcomes: Mapping[str, Outcome], seconds: float
) -> dict[str, Any]:
    """The manifest, but for the names of written tables and figures."""
    worst = driver.completeness.moments.get("worst")
    experiments = driver.settings.experiments
    masking = {item.name: _masking(item, driver.plan) for item in experiments}
    return {
        "settings": record,
        "model": driver.analyzer.facts,
        "sequences": driver.spool.sequences,
        "tokens": driver.spool.tokens,
        "rows_left_out_or_changed": driver.problems.counts,
        "problems": driver.problems.examples,
        "worst_completeness_error": None if worst is None else float(worst.maximum()[0]),
        "approximate": None
        if driver.approximated is None
        else {**asdict(driver.approximated), "note": str(driver.approximated)},
        "masked": any(each["masked"] for each in masking.values()),
        "threads": torch.get_num_threads(),
        "seconds": round(seconds, 1),
        "experiments": {
            item.name: {
                **masking[item.name],
                "notes": _unmasked(item, driver.plan) + outcomes[item.name].notes,
                "columns": {**item.columns, **(Approximated.columns if driver.approximated is not None else {})},
            }
            for item in experiments
        },
    }


def _unmasked(item: Experiment, plan: Plan) -> list[str]:
    """A note where tokens should have been masked and could not be."""
    needs = item.needs(plan.model)
    if not needs.masked or plan.masks(needs) or plan.masking == "none":
        return []
    return [f"No tokens were masked, as the paper does: {_cannot_mask(plan)}."]


def _cannot_mask(plan: Plan) -> str:
    if plan.mask_id is None:
        return f"{plan.model.name} has no mask token"
    return f"{plan.model.name} is causal and not trained on masked tokens (--masking all masks them all the same)"


def _masking(item: Experiment, plan: Plan) -> dict[str, Any]:
    """Whether an experiment was shown masked sequences, and why (not)."""
    needs = item.needs(plan.model)
    if not needs.corpus:
        reason = "it reads no sequences"
    elif plan.masks(needs):
        reason = "asked for all experiments" if plan.masking == "all" else "as in the paper"
    elif plan.masking == "none":
        reason = "masking was switched off"
    elif needs.masked:
        reason = f"the paper masks tokens, but {_cannot_mask(plan)}"
    else:
        reason = "the experiment masks no tokens"
    return {"masked": plan.masks(needs), "masking": reason}
