"""What the trials came to: lines for the terminal, the counts with their goals, and the page `docs/architectures.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import transformers

from architectures.trial import TASKS, Trial
from normscope.families import supported_models
from normscope.families.refused import has_attention, refused_models

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"

GOALS = {"causal": 90, "masked": 85, "encoder-decoder": 70, "image": 80}
"""The share of the types that can be built, in per cent, that should be analysed."""

Results = Mapping[str, Sequence[Trial]]

_SHORT = 160


def line(trial: Trial) -> str:
    """A trial in a line."""
    error = "" if trial.error is None else f"{trial.error:.1e}"
    return f"{trial.task:16} {trial.class_name:42} {trial.outcome:10} {error:8} {_one_line(trial.reason)}".rstrip()


def faults(results: Results) -> list[str]:
    """What is wrong or crashes: there must be none."""
    return [
        f"{model_type}: {line(trial)}"
        for model_type, trials in results.items()
        for trial in trials
        if trial.outcome in ("wrong", "crashed")
    ]


def unknown(results: Results) -> list[str]:
    """Types that are neither described nor refused with a reason."""
    return [
        f"{model_type}: describe it in a family, or say in normscope.families.refused why it is not analysed"
        for model_type, trials in results.items()
        if model_type not in supported_models() and model_type not in refused_models() and not is_analysed(trials)
    ]


def is_analysed(trials: Sequence[Trial]) -> bool:
    """Whether a class of a type is analysed."""
    return any(trial.outcome == "analysed" for trial in trials)


def counts(results: Results) -> str:
    """How many classes of each task can be built, and how many of these are analysed, as a Markdown table."""
    rows = [["task", "listed", "can be built", "analysed", "share", "goal"], ["---"] * 6]
    for task, goal in GOALS.items():
        outcomes = Counter(
            trial.outcome
            for model_type, trials in results.items()
            for trial in trials
            if trial.task == task and (task != "image" or has_attention(model_type))
        )
        built = outcomes.total() - outcomes["not built"]
        share = f"{100 * outcomes['analysed'] / max(1, built):.0f} %"
        rows.append([task, *map(str, (outcomes.total(), built, outcomes["analysed"])), share, f"{goal} %"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def not_built(results: Results) -> str:
    """The types of which no class that is counted can be built, by task."""
    kept: dict[str, list[str]] = {task: [] for task in GOALS}
    for model_type, trials in results.items():
        for trial in trials:
            if trial.task in kept and trial.outcome == "not built" and has_attention(model_type):
                kept[trial.task].append(f"`{model_type}`")
    return "; ".join(f"{', '.join(names)} ({task})" for task, names in kept.items() if names)


def write(results: Results) -> None:
    """Write the page."""
    described = {name: trials for name, trials in results.items() if name in supported_models() or is_analysed(trials)}
    others = [name for name in supported_models() if name not in described]
    refused = {name: trials for name, trials in results.items() if name not in described}
    text = _TEMPLATE.format(
        transformers=transformers.__version__,
        torch=torch.__version__.split("+")[0],
        tasks=", ".join(TASKS),
        counts=counts(results),
        not_built=not_built(results),
        analysed_count=len(described) + len(others),
        analysed="\n".join(_analysed(name, trials) for name, trials in described.items()),
        others=", ".join(f"`{name}`" for name in others),
        refused_count=len(refused),
        refused="\n".join(_refused(name, trials) for name, trials in refused.items()),
    )
    temporary = PAGE.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(PAGE)


def _analysed(model_type: str, trials: Sequence[Trial]) -> str:
    done = [trial for trial in trials if trial.outcome == "analysed"]
    errors = [trial.error for trial in done if trial.error is not None]
    worst = f"{max(errors):.0e}" if errors else ""
    left = "; ".join(f"`{each.class_name}`: {_one_line(each.reason)}" for each in trials if each.outcome != "analysed")
    classes = ", ".join(f"`{name}`" for name in dict.fromkeys(trial.class_name for trial in done))
    family = supported_models().get(model_type)
    how = " | by itself" if family is None else f"{family.name} | by hand"
    return f"| `{model_type}` | {how} | {classes} | {worst} | {left} |"


def _refused(model_type: str, trials: Sequence[Trial]) -> str:
    tasks = ", ".join(dict.fromkeys(trial.task for trial in trials if trial.task != "bare"))
    return f"| `{model_type}` | {tasks} | {refused_models().get(model_type, 'not known')} |"


def _one_line(text: str) -> str:
    whole = " ".join(text.split()).replace("|", "\\|")
    return whole if len(whole) <= _SHORT else whole[:_SHORT].rsplit(" ", 1)[0] + " …"


_TEMPLATE = """# Every architecture of transformers

Generated by `make coverage` with transformers {transformers} and PyTorch {torch}. A tiny random model of every type that
transformers registers goes through the battery of [`normscope.testing`](families.md), and its class for each task ({tasks})
through that of its head. What is analysed agrees with a float64 oracle that materialises all vectors, and with the model's
own states and logits; what is not is refused with a sentence. Nothing is wrong, and nothing crashes.

{counts}

A type counts as built if its default configuration, with every size made small, gives a model that runs. Image classifiers
without attention are not counted. Not built, mostly since they do not run with a text alone, are {not_built}.

## Analysed

{analysed_count} types. The worst error is the largest relative error of a state after any component, or of a logit.

| type | family | described | classes tried | worst error | not tried, or refused |
| --- | --- | --- | --- | --- | --- |
{analysed}

Described too, as parts of other models: {others}.

## Refused

{refused_count} types.

| type | tasks | why |
| --- | --- | --- |
{refused}
"""
