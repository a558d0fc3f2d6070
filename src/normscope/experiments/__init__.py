"""The experiments of the papers, each one call: list them, make one by name, and run several over a corpus in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any
from warnings import warn

from normscope.catalogue import experiment_name, refuse_experiment_options
from normscope.experiments.alignment import Alignment
from normscope.experiments.amplification import FeedForwardAmplification
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts
from normscope.experiments.categories import Categories
from normscope.experiments.dispersion import Dispersion
from normscope.experiments.expansion import ExpansionRate
from normscope.experiments.faithfulness.agreement import Agreement
from normscope.experiments.faithfulness.deletion import Deletion
from normscope.experiments.faithfulness.evidence import EvidenceExperiment
from normscope.experiments.faithfulness.redundancy import Redundancy
from normscope.experiments.faithfulness.shapley import Shapley
from normscope.experiments.ff_norms import FeedForwardNormsExperiment
from normscope.experiments.frequency import Frequency, MixingFrequency
from normscope.experiments.groups import Entities, WordSplit
from normscope.experiments.mixing import MixingRatio
from normscope.experiments.outlier_dimensions import OutlierDimensions
from normscope.experiments.partial import Partial, merged
from normscope.experiments.scope_similarity import ScopeSimilarity
from normscope.experiments.sinks import Sinks
from normscope.experiments.weight_norm import WeightVersusNorm

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "ModelFacts",
    "Needs",
    "Observation",
    "Outcome",
    "Partial",
    "RunFacts",
    "experiment",
    "merged",
]

EXPERIMENTS: dict[str, type[Experiment]] = {
    kind.name: kind
    for kind in (
        Dispersion,
        Categories,
        WeightVersusNorm,
        Sinks,
        Frequency,
        Alignment,
        MixingRatio,
        MixingFrequency,
        ExpansionRate,
        ScopeSimilarity,
        FeedForwardAmplification,
        WordSplit,
        Entities,
        FeedForwardNormsExperiment,
        OutlierDimensions,
        EvidenceExperiment,
        Deletion,
        Agreement,
        Shapley,
        Redundancy,
    )
}
"""Every experiment by its name."""


def experiment(name: str, options: Mapping[str, Any] | None = None) -> Experiment:
    """An experiment by name, with options; raises with those that exist.

    Examples:
        >>> from normscope.experiments import experiment
        >>> experiment("ff-amplification", {"top": 20}).top
        20
    """
    kind = EXPERIMENTS[experiment_name(name)]
    refuse_experiment_options(name, options or {})
    return kind(**(options or {}))


def __getattr__(name: str) -> object:
    """`run` is now `normscope.runs.run`; by name, since runs import the experiments."""
    if name == "run":
        warn("normscope.experiments.run is now normscope.runs.run.", DeprecationWarning, stacklevel=2)
        return import_module("normscope.runs").run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
