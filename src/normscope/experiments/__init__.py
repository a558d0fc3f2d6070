"""The experiments of the papers, each one call: list them, make one by name, and run several over a corpus in one pass.

`EXPERIMENTS` is the only list: a new experiment is a class in a module of this package and one line here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

import lazy_loader

from normscope.errors import InputError, listing, require_corpus_extra, unknown
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

EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    {
        "dispersion": "normscope.experiments.dispersion:Dispersion",
        "categories": "normscope.experiments.categories:Categories",
        "weight-vs-norm": "normscope.experiments.weight_norm:WeightVersusNorm",
        "sinks": "normscope.experiments.sinks:Sinks",
        "frequency": "normscope.experiments.frequency:Frequency",
        "alignment": "normscope.experiments.alignment:Alignment",
        "mixing-ratio": "normscope.experiments.mixing:MixingRatio",
        "mixing-frequency": "normscope.experiments.frequency:MixingFrequency",
        "expansion-rate": "normscope.experiments.expansion:ExpansionRate",
        "scope-similarity": "normscope.experiments.scope_similarity:ScopeSimilarity",
        "ff-amplification": "normscope.experiments.amplification:FeedForwardAmplification",
        "word-split": "normscope.experiments.groups:WordSplit",
        "entities": "normscope.experiments.groups:Entities",
        "ff-norms": "normscope.experiments.ff_norms:FeedForwardNormsExperiment",
        "outlier-dimensions": "normscope.experiments.outlier_dimensions:OutlierDimensions",
        "evidence": "normscope.experiments.faithfulness.evidence:EvidenceExperiment",
        "deletion": "normscope.experiments.faithfulness.deletion:Deletion",
        "agreement": "normscope.experiments.faithfulness.agreement:Agreement",
        "shapley": "normscope.experiments.faithfulness.shapley:Shapley",
        "redundancy": "normscope.experiments.faithfulness.redundancy:Redundancy",
        "similarity": "normscope.experiments.faithfulness.text_similarity:TextSimilarity",
        "answers": "normscope.experiments.faithfulness.answers:Answers",
    },
)
"""Every experiment by name, in the order in which they are listed. The classes are imported when they are used."""

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
    known = EXPERIMENTS.declaration(EXPERIMENTS.listed_name(name)).options
    for option in options:
        if option not in known:
            raise InputError(unknown(f"{name} has no option {option!r}", option, "Its options", known))


def check_approximable(exact: Sequence[str], requested: str) -> None:
    """Raise if there are experiments that need `exact` maps: approximate ones are for those that use their ranks alone."""
    if exact:
        by_ranks = {name: EXPERIMENTS.declaration(name).constant("rank_options") for name in EXPERIMENTS}
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
