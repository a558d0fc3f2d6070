"""The registry of methods: what there is, and what becomes of names and options that there are not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest

import normscope as ns
from methods.samples import IDS, double
from normscope.methods import Gives, Method, Propagated, available_methods, layer_method, method


def test_every_method_says_what_it_is() -> None:
    names = [each.name for each in available_methods()]
    assert len(set(names)) == len(names)
    for each in available_methods():
        for text in (each.summary, each.quantity, each.cost, each.operations, each.paper):
            assert text.strip(), each.name
        assert "\n" not in each.summary


def test_the_methods_of_layers_are_those_that_users_compare() -> None:
    names = {each.name for each in available_methods("layer maps")}
    assert names == {
        *("norms", "projections", "propagated", "attention-rollout", "globenc", "alti", "value-zeroing"),
        "contribution-weights",
    }


def test_a_name_is_read_in_any_case_and_punctuation() -> None:
    assert method("Value_Zeroing").name == method("value zeroing").name == "value-zeroing"


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ns.InputError, match=r"no method 'globec'\. Did you mean 'globenc'\? Methods: pull-back, "):
        method("globec")
    with pytest.raises(ns.InputError, match="no method 'lime'"):
        double("bert").analyze(IDS, method="lime")


def test_options_are_the_fields_of_a_method() -> None:
    assert method("propagated", bias="norm", first=2) == Propagated(bias="norm", first=2)
    assert method("propagated").options == {"bias": "apart", "first": 1, "max_memory": None}
    with pytest.raises(ns.InputError, match="'alti' has no option 'bias': it has none"):
        method("alti", bias="norm")
    with pytest.raises(ns.InputError, match="'propagated' has no option 'share': it has bias, first, max_memory"):
        method("propagated", share="norm")


@dataclass(frozen=True)
class _Guess(Method):
    name: ClassVar[str] = "guess"
    gives: ClassVar[Gives] = "attribution"


def test_a_method_of_the_other_kind_is_refused_with_where_to_use_it() -> None:
    with pytest.raises(
        ns.InputError, match=r"'guess' gives an attribution, not layer maps: use `explain`, or one of norms"
    ):
        layer_method(_Guess())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("alti", {"scopes": "Attn"}),
        ("globenc", {"heads": True}),
        ("value-zeroing", {"value_bias": "bias"}),
        ("propagated", {"projections": True}),
        ("attention-rollout", {"scopes": "AttnW"}),
        ("projections", {"value_bias": "bias"}),
    ],
)
def test_options_of_norms_that_a_method_does_not_take_are_refused(name: str, options: dict[str, object]) -> None:
    (option,) = options
    with pytest.raises(ns.InputError, match=f"{name!r} does not take {option}"):
        double("bert").analyze(IDS, method=name, **options)  # type: ignore[arg-type]


def test_a_result_says_method_options_and_quantity() -> None:
    analyzer = double("bert")
    for each in available_methods("layer maps"):
        analysis = analyzer.analyze(IDS, method=each.name)
        scope = analysis.scopes[-1]
        assert analysis.method == each.name
        assert analysis.map(scope).attrs["quantity"] == (each.quantity if each.name != "norms" else "weight")
        assert ("method_options" in analysis.attrs) == bool(each.options)
    options = json.loads(analyzer.analyze(IDS, method=Propagated(bias="norm")).attrs["method_options"])
    assert options == {"bias": "norm", "first": 1, "max_memory": None}
