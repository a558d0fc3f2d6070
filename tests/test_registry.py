"""Registries: a class is imported when it is used, and its options are known before."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

import pytest

from normscope.errors import InputError
from normscope.experiments import EXPERIMENTS
from normscope.methods import METHODS
from normscope.methods.registry import Registry

REGISTRIES: list[Registry[Any]] = [METHODS, EXPERIMENTS]
ENTRIES = [(registry, name) for registry in REGISTRIES for name in registry]

_DEPTH = 2


@dataclass(frozen=True)
class _Base:
    first: int = 1
    second: tuple[str, ...] = ("a",)
    label: ClassVar[str] = "base"


@dataclass(frozen=True)
class Sample(_Base):
    """A class whose defaults are written in every way that is read."""

    second: tuple[str, ...] = (*("b", "c"), "d")
    third: float = -0.5
    depth: int = _DEPTH

    name = "sample"
    base_label: ClassVar[str] = _Base.label
    table: ClassVar[dict[str, tuple[str, ...]]] = {"second": ("b",)}


SAMPLES: Registry[_Base] = Registry("sample", {"sample": f"{__name__}:Sample", "another": f"{__name__}:Sample"})


@pytest.mark.parametrize(("registry", "name"), ENTRIES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_options_read_from_the_source_are_the_fields_of_the_class(registry: Registry[Any], name: str) -> None:
    assert registry.declaration(name).options == {field.name: field.default for field in fields(registry[name])}


CONSTANTS = {
    "method": ("name", "summary", "quantity", "signed", "cost", "operations", "paper", "gives"),
    "experiment": ("name", "paper", "shows", "summary", "reads_corpus", "rank_options"),
}
"""What the command line reads of a class before it imports it."""


@pytest.mark.parametrize(("registry", "name"), ENTRIES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_constants_read_from_the_source_are_those_of_the_class(registry: Registry[Any], name: str) -> None:
    declaration, kind = registry.declaration(name), registry[name]
    for constant in CONSTANTS[registry.what]:
        assert declaration.constant(constant) == getattr(kind, constant)


def test_defaults_are_read_from_bases_constants_and_nested_literals() -> None:
    declaration = SAMPLES.declaration("sample")
    assert declaration.options == {"first": 1, "second": ("b", "c", "d"), "third": -0.5, "depth": 2}
    assert declaration.options == {
        field.name: field.default for field in fields(Sample) if field.default is not MISSING
    }
    assert declaration.constant("label") == declaration.constant("base_label") == "base"
    assert declaration.constant("table") == {"second": ("b",)}
    assert declaration.constant("nothing", 3) == 3
    with pytest.raises(AttributeError, match="Sample declares no 'nothing'"):
        declaration.constant("nothing")


def test_a_class_that_is_registered_under_another_name_is_refused() -> None:
    assert SAMPLES["sample"] is Sample
    with pytest.raises(TypeError, match="Sample is registered as the sample 'another', but its name is 'sample'"):
        SAMPLES["another"]


def test_a_name_is_found_in_any_case_and_an_unknown_one_is_refused_with_the_nearest() -> None:
    assert EXPERIMENTS.listed_name(" Word_Split ") == "word-split"
    with pytest.raises(InputError, match=r"no experiment 'word-splt'\. Did you mean 'word-split'\? Experiments: disp"):
        EXPERIMENTS.listed_name("word-splt")


def test_an_experiment_is_approximable_with_its_rank_options_alone() -> None:
    for name, kind in EXPERIMENTS.items():
        assert not kind().ranks_only, name
        assert kind(**kind.rank_options).ranks_only == bool(kind.rank_options), name
