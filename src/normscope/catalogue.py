"""Experiments and methods by name, with the defaults of their options: what can be said of them before they are loaded.

The classes are what counts, and a test holds this list to them. Importing them takes seconds, and a misspelt name should
be refused at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from normscope.errors import InputError, listing, unknown


@dataclass(frozen=True)
class ExperimentEntry:
    """The options of an experiment, those by which it uses the ranks of maps alone, and whether it reads a corpus."""

    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by_ranks: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reads_corpus: bool = True


_MASKED = {"masked": True}
_WAYS = {"correlations": ("pearson",), "normalisations": ("none",)}
_GROUPS = {
    "unit": "type",
    "axis": "column",
    "distance": "signed",
    "resamples": 10000,
    "sides": "two",
    "level": 0.05,
    "correction": "none",
}

EXPERIMENTS: dict[str, ExperimentEntry] = {
    "dispersion": ExperimentEntry(),
    "categories": ExperimentEntry(),
    "weight-vs-norm": ExperimentEntry(),
    "sinks": ExperimentEntry({"massive": 5.0}),
    "frequency": ExperimentEntry(),
    "alignment": ExperimentEntry({"setting": "both", "eos": "both", "links": "best", "examples": 3}),
    "mixing-ratio": ExperimentEntry(_MASKED),
    "mixing-frequency": ExperimentEntry({"masked": False}),
    "expansion-rate": ExperimentEntry({"form": "affine"}, reads_corpus=False),
    "scope-similarity": ExperimentEntry({**_WAYS, **_MASKED}, by_ranks={"correlations": ("spearman",)}),
    "ff-amplification": ExperimentEntry(
        {
            "axis": "column",
            "top": 10,
            "minimum_count": 2,
            "same_type": True,
            "special_tokens": True,
            "kinds": ("ff", "group", "ln"),
        }
    ),
    "word-split": ExperimentEntry(_GROUPS),
    "entities": ExperimentEntry(_GROUPS),
    "ff-norms": ExperimentEntry(_MASKED),
    "outlier-dimensions": ExperimentEntry({"fraction": 0.01, **_WAYS, **_MASKED}),
    "evidence": ExperimentEntry({"methods": ("all",), "order": "signed", "reference": "pull-back", "special": False}),
    "deletion": ExperimentEntry(
        {
            "methods": ("all",),
            "removals": ("mask", "drop", "mean"),
            "steps": 20,
            "beam": 3,
            "reference": "pull-back",
        }
    ),
    "agreement": ExperimentEntry({"methods": ("all",), "level": "both", "own": False}),
    "shapley": ExperimentEntry({"exact": 10, "pairs": 32, "queries": 4, "bias": "both", "cells": 20}),
    "redundancy": ExperimentEntry({"heads": True, "correlation": "pearson", "normalisation": "none"}),
}

METHODS: dict[str, dict[str, Any]] = {
    "pull-back": {},
    "decompx": {"bias": "absdot"},
    "alti-logit": {},
    "gradient-norm": {},
    "gradient-x-input": {},
    "integrated-gradients": {"steps": 50},
    "leave-one-out": {"removal": "auto"},
    "random": {"seed": 0},
    "norms": {},
    "projections": {},
    "propagated": {"bias": "apart", "first": 1, "max_memory": None},
    "attention-rollout": {},
    "globenc": {"normalise": False},
    "alti": {},
    "value-zeroing": {},
    "contribution-weights": {},
}

FOLLOWING = "pull-back"
"""The method that follows what flows through the layers, and so single heads."""

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def experiment_name(name: str) -> str:
    """The name of an experiment as it is listed; raises with those that exist."""
    known = name.strip().lower()
    if known not in EXPERIMENTS:
        raise InputError(unknown(f"There is no experiment {name!r}", name, "Experiments", EXPERIMENTS))
    return known


def refuse_experiment_options(name: str, given: Mapping[str, Any]) -> None:
    """Refuse options that an experiment does not have."""
    known = EXPERIMENTS[experiment_name(name)].options
    for option in given:
        if option not in known:
            raise InputError(unknown(f"{name} has no option {option!r}", option, "Its options", known))


def exact_experiments(asked: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Those of some experiments, given with their options, that need more than the ranks of maps."""
    return [
        name
        for name, options in asked.items()
        if not EXPERIMENTS[name].by_ranks or not EXPERIMENTS[name].by_ranks.items() <= options.items()
    ]


def refuse_exact_experiments(names: Sequence[str], approximate: str) -> None:
    """Approximate maps are for experiments that look at ranks alone; these do not."""
    if names:
        allowed = [
            f"{name} with {option}={','.join(value)}"
            for name, entry in EXPERIMENTS.items()
            for option, value in entry.by_ranks.items()
        ]
        raise InputError(
            f"{listing(names)}: exact values are needed, and approximate={approximate!r} (--approximate) was asked "
            f"for. It is for experiments that use the ranks of maps alone: {listing(allowed)}. Leave it out, or run these "
            f"apart."
        )


def folded(name: str) -> str:
    """The name of a method in the letters in which it is listed."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def refuse_method(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a method that does not exist, and options that it does not have."""
    if folded(name) not in METHODS:
        raise InputError(unknown(f"There is no method {name!r}", name, "Methods", METHODS))
    refuse_method_options(folded(name), METHODS[folded(name)], options)


def refuse_method_options(name: str, known: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse options that a method with these defaults does not have, or values of another kind."""
    for option, value in options.items():
        if option not in known:
            there_are = f"it has {listing(known)}" if known else "it has none"
            raise InputError(f"The method {name!r} has no option {option!r}: {there_are}.")
        wanted = type(known[option])
        fits = type(value) is wanted or (wanted is float and type(value) is int)
        if wanted in _WORDS and not fits:
            raise InputError(f"The option {option!r} of the method {name!r} is {_WORDS[wanted]}, not {value!r}.")


def read_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Options of a method from texts, `option=value`: numbers and truth values are read as such."""
    options: dict[str, Any] = {}
    for pair in pairs:
        option, separator, value = pair.partition("=")
        if not separator:
            raise InputError(f"An option of a method is written name=value, not {pair!r}.")
        options[option.strip()] = _value(value)
    return options


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
