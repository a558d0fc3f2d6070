"""Registries: a class is imported when it is used, and its options are known before."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from inspect import isabstract
from typing import Any

import pytest

from normscope.errors import InputError
from normscope.experiments import EXPERIMENTS
from normscope.methods import METHODS
from normscope.methods.registry import Declaration, Registry

REGISTRIES: list[Registry[Any, Any]] = [METHODS, EXPERIMENTS]
ENTRIES = [(registry, name) for registry in REGISTRIES for name in registry]


@pytest.mark.parametrize(("registry", "name"), ENTRIES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_class_of_a_name_extends_its_declaration_by_no_option(registry: Registry[Any, Any], name: str) -> None:
    declared, kind = registry.declaration(name), registry[name]
    assert issubclass(kind, declared) and kind is not declared
    assert not isabstract(kind)
    assert declared.defaults() == kind.defaults() == {field.name: field.default for field in fields(kind())}


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.what)
def test_every_class_with_a_computation_is_declared(registry: Registry[Any, Any]) -> None:
    """A class that nothing lists would never be found; `rollout` is what a method of maps becomes, not a method to name."""
    kinds = list(registry.values())
    for kind in kinds:
        found = vars(import_module(kind.module)).values()
        named = [
            each for each in found if isinstance(each, type) and issubclass(each, Declaration) and not isabstract(each)
        ]
        unlisted = [each for each in named if each.__module__ == kind.module and each not in kinds]
        assert [each.name for each in unlisted] in ([], ["rollout"])


def test_declarations_are_known_without_the_libraries_that_compute() -> None:
    imports = "import sys, normscope.methods, normscope.experiments"
    program = f"{imports}; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


def test_a_name_is_found_in_any_case_and_an_unknown_one_is_refused_with_the_nearest() -> None:
    assert EXPERIMENTS.listed_name(" Word_Split ") == "word-split"
    with pytest.raises(InputError, match=r"no experiment 'word-splt'\. Did you mean 'word-split'\? Experiments: disp"):
        EXPERIMENTS.listed_name("word-splt")


def test_an_experiment_is_approximable_with_its_rank_options_alone() -> None:
    for name, kind in EXPERIMENTS.items():
        assert not kind().ranks_only, name
        assert kind(**kind.rank_options).ranks_only == bool(kind.rank_options), name
