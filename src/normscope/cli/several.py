"""Several models in one command: their folders, the cost of each, and the runs, one after the other.

A model that fails does not stop the others: its error is repeated at the end, and the exit code is that of the first model
that failed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from normscope.cli.checks import check_folder
from normscope.cli.console import complain, say, working
from normscope.errors import CompletenessError, InputError, NormscopeError, listing, unknown
from normscope.models.options import ModelOptions
from normscope.models.source import is_folder
from normscope.paths import SETTINGS, kind

if TYPE_CHECKING:
    from normscope.runs import RunCost
    from normscope.runs.settings import Settings

RECIPES = ("kobayashi-2024",)
"""The lists of models that come with normscope: text files in `recipes`."""

_OTHER = re.compile(r"[^\w.-]+")
"""Characters that are replaced in the name of a folder."""


# ---- which models, and where -------------------------------------------------------------------------------------------


def several_models(models: Sequence[str], listed: str | None, out: str) -> dict[str, str] | None:
    """The models by the folders of their runs; `None` if there is one, and its folder is the one that was named."""
    names = [*models, *([] if listed is None else _listed(listed))]
    if listed is None and len(names) < 2:
        return None
    _check_unique(names)
    check_folder(out)
    if kind(Path(out) / SETTINGS, "read") is not None:
        raise InputError(
            f"{out!r} is the folder of one run, and several models have a folder each inside it. Choose another one (--out)."
        )
    return {f"{out.rstrip('/')}/{folder}": name for folder, name in zip(folder_names(names), names, strict=True)}


def _listed(name: str) -> list[str]:
    """The models of a list: one that comes with normscope, or a file's; lines that begin with # are comments."""
    if name in RECIPES:
        from importlib.resources import files  # slow to import, and not needed by --help

        text = (files("normscope.cli") / "recipes" / f"{name}.txt").read_text(encoding="utf-8")
    elif kind(name, "read") == "a file":
        text = _read(Path(name))
    else:
        raise InputError(unknown(f"There is no file and no list of models {name!r}", name, "Lists", RECIPES))
    lines = [line.strip() for line in text.splitlines()]
    models = [line for line in lines if line and not line.startswith("#")]
    if not models:
        raise InputError(f"The list {name!r} names no model: write a folder or hub name on each line.")
    return models


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The list of models {str(path)!r} cannot be read: {error}.") from error


def _check_unique(names: Sequence[str]) -> None:
    counts = Counter(str(Path(name).resolve()) if is_folder(name) else name for name in names)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise InputError(f"Name each model once: {listing(twice)} is named {counts[twice[0]]} times.")


def folder_names(models: Sequence[str]) -> list[str]:
    """A folder name for each model: the last part of its own name, with as many parts before it as make all unique."""
    parts = [
        [part for part in str(_whole(model)).replace("\\", "/").split("/") if part not in ("", ".")] for model in models
    ]
    most = max(map(len, parts), default=1)
    for count in range(1, most + 1):
        names = [_OTHER.sub("-", "-".join(path[-count:])) for path in parts]
        if len({name.casefold() for name in names}) == len(names):
            return names
    return [f"{number}-{_OTHER.sub('-', path[-1])}" for number, path in enumerate(parts, 1)]


def _whole(model: str) -> str | Path:
    return Path(model).resolve() if is_folder(model) else model


# ---- cost and work -----------------------------------------------------------------------------------------------------


def run_several(
    sources: Mapping[str, ModelOptions], settings: Settings, run_one: Callable[[ModelOptions, str], None]
) -> None:
    """Report the cost of all models, by their folders, and run one after the other; exits with a code if one failed."""
    _announce(sources, settings)
    failed: dict[str, NormscopeError] = {}
    for number, (folder, source) in enumerate(sources.items(), 1):
        say(f"Model {number} of {len(sources)}: {source.model}, in {folder}", "bold")
        try:
            run_one(source, folder)
        except NormscopeError as error:
            failed[folder] = error
            complain(error)
    done = [folder for folder in sources if folder not in failed]
    if done:
        say(f"All in one report: normscope report {' '.join(done)}")
    if failed:
        say(f"{len(failed)} of {len(sources)} models failed, and the same command tries them again:", "yellow")
        for folder, error in failed.items():
            say(f"{sources[folder].model}: {error}", "yellow")
        first = next(iter(failed.values()))
        raise typer.Exit(1 if isinstance(first, CompletenessError) else 2)


def _announce(sources: Mapping[str, ModelOptions], settings: Settings) -> None:
    """Report the cost of each model; if it cannot be counted, the reason."""
    costs: dict[str, RunCost] = {}
    unknown_costs: dict[str, NormscopeError] = {}
    with working("Counting what the models will take", "models") as on_progress:
        for index, (folder, source) in enumerate(sources.items()):
            on_progress(index, len(sources))
            try:
                costs[folder] = _cost(source, settings)
            except NormscopeError as error:
                unknown_costs[folder] = error
    if costs:
        _show(costs)
    for folder, error in unknown_costs.items():
        say(f"{folder}: the cost is not known. {error}", "yellow")
    if any(kind(Path(folder) / SETTINGS, "read") is not None for folder in sources):
        say("What is finished in these folders is not computed again.")


def _cost(source: ModelOptions, settings: Settings) -> RunCost:
    import torch

    from normscope.analyzer import Analyzer
    from normscope.runs import cost_of

    known = torch.device(str(source.device or "cpu")) if source.device_map is None else None
    return cost_of(settings, Analyzer.without_weights(source), known)


def _show(costs: Mapping[str, RunCost]) -> None:
    """A line for each model, and one for all, to standard error."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from normscope.estimate.estimate import duration, quantity, size

    def time(seconds: Iterable[float | None]) -> str:
        known = [value for value in seconds if value is not None]
        return f"about {duration(sum(known))}" if known else "not known"

    trials = list(dict.fromkeys(name for cost in costs.values() for name in cost.calls))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("folder", overflow="fold")
    for heading in ("weights", "sequences", "tokens", "operations", "time", *(f"{name}: calls" for name in trials)):
        table.add_column(heading, justify="right")
    for folder, cost in costs.items():
        calls = [f"{cost.calls.get(name, 0):,}" for name in trials]
        counts = (size(cost.weights), f"{cost.sequences:,}", f"{cost.tokens:,}", quantity(cost.flops, "flop"))
        table.add_row(*map(Text, (folder, *counts, time([cost.seconds]), *calls)))
    console = Console(stderr=True, highlight=False)
    console.print(table)
    total = quantity(sum(cost.flops for cost in costs.values()), "flop")
    say(f"All together: {total}, {time(cost.seconds for cost in costs.values())} in one process.")
