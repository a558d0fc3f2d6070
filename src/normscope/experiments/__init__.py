"""The experiments of the papers, each one call: list them, make one by name, and run several over a corpus in one pass.

Experiments are listed in `declared`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

import lazy_loader

from normscope.errors import InputError, listing, require_corpus_extra, unknown
from normscope.experiments import declared
from normscope.experiments.declared import DeclaredExperiment
from normscope.methods.registry import Registry

if TYPE_CHECKING:
    from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
    from normscope.experiments.partial import Partial, merged

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "ModelFacts",
    "Needs",
    "Observation",
    "Outcome",
    "Partial",
    "RunFacts",
    "check_approximable",
    "check_experiment_options",
    "experiment",
    "merged",
]

EXPERIMENTS: Registry[Experiment, DeclaredExperiment] = Registry("experiment", declared)
"""Every experiment by name, in the order in which they are declared. The classes are imported when they are used."""

# The classes need torch, which takes seconds to import: a command line knows their names and options without it.
_lazily, _, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["Experiment", "ModelFacts", "Needs", "Observation", "Outcome", "RunFacts"],
        "partial": ["Partial", "merged"],
    },
)


def experiment(name: str, options: Mapping[str, Any] | None = None) -> Experiment:
    """An experiment by name, with options; raises with those that exist.

    Examples:
        >>> from normscope.experiments import experiment
        >>> experiment("ff-amplification", {"top": 20}).top
        20
    """
    check_experiment_options(name, options or {})
    require_corpus_extra("An experiment")
    kind = EXPERIMENTS[EXPERIMENTS.listed_name(name)]
    return kind(**(options or {}))


def check_experiment_options(name: str, options: Mapping[str, object]) -> None:
    """Raise for options that an experiment does not have."""
    known = EXPERIMENTS.declaration(EXPERIMENTS.listed_name(name)).defaults()
    for option in options:
        if option not in known:
            raise InputError(unknown(f"{name} has no option {option!r}", option, "Its options", known))


def check_approximable(exact: Sequence[str], requested: str) -> None:
    """Raise if there are experiments that need `exact` maps: approximate ones are for those that use their ranks alone."""
    if exact:
        by_ranks = {name: EXPERIMENTS.declaration(name).rank_options for name in EXPERIMENTS}
        allowed = [
            f"{name} with {option}={','.join(value)}"
            for name, options in by_ranks.items()
            for option, value in options.items()
        ]
        raise InputError(
            f"{listing(exact)}: exact values are needed, but approximate={requested!r} (--approximate) was requested. "
            f"It is for experiments that use the ranks of maps alone: {listing(allowed)}. Leave it out, or run these "
            f"separately."
        )


def __getattr__(name: str) -> object:
    """`run` is now `normscope.runs.run`; by name, since runs import the experiments."""
    if name == "run":
        warn("normscope.experiments.run is now normscope.runs.run.", DeprecationWarning, stacklevel=2)
        return import_module("normscope.runs").run
    if name in __all__:
        require_corpus_extra("An experiment")
    return _lazily(name)
