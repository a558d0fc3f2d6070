"""Old names keep working for one minor version, and say what to use instead."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from typing import Any, cast

import pytest
import torch
from support.tiny_models import shaken
from transformers import BertConfig, BertModel

import normscope as ns
from normscope.deprecated import MOVED_MODULES
from normscope.request import AnalysisRequest, ExplainRequest

IDS = torch.tensor([[5, 6, 7]])


@pytest.fixture(scope="module")
def analyzer() -> ns.Analyzer:
    return ns.load(
        shaken(
            BertModel(
                BertConfig(
                    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
                )
            )
        )
    )


@pytest.mark.parametrize(("old", "new"), MOVED_MODULES.items())
def test_a_module_that_has_moved_is_imported_under_its_old_name_with_a_warning(old: str, new: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is deprecated.*: use {new}"):
        assert import_module(old) is import_module(new)


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("from normscope.selection import select_map", "normscope.selection is deprecated"),
        ("from normscope.explain import Flow", "normscope.explain.Flow is deprecated"),
        ("import normscope; normscope.families()", "families is deprecated"),
    ],
)
def test_the_warning_names_the_line_that_uses_the_old_name(line: str, warning: str) -> None:
    code = f"import warnings; warnings.simplefilter('always', DeprecationWarning)\n\n{line}\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"<string>:3: DeprecationWarning: {warning}" in done.stderr


@pytest.mark.parametrize("name", ["Explanation", "Flow"])
def test_results_are_still_found_in_their_old_package(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"use normscope.results.{name.lower()}.{name}"):
        assert getattr(import_module("normscope.explain"), name).__name__ == name


def test_functions_are_still_called_by_their_old_names() -> None:
    with pytest.warns(DeprecationWarning, match="families is deprecated.*: use supported_models"):
        assert ns.families() == ns.supported_models()
    with pytest.warns(DeprecationWarning, match="register is deprecated.*: use register_family"):
        bert = ns.supported_models()["bert"]
        assert ns.register(bert) is bert
    with pytest.warns(DeprecationWarning, match="methods is deprecated.*: use available_methods"):
        assert import_module("normscope.methods").methods() == ns.available_methods()


def test_keywords_are_still_taken_by_their_old_names(analyzer: ns.Analyzer) -> None:
    calls: list[tuple[int, int]] = []
    old: dict[str, Any] = {"tell": lambda done, total: calls.append((done, total))}
    with pytest.warns(DeprecationWarning, match="keyword 'tell' of analyze is deprecated.*: use 'on_progress'"):
        analyzer.analyze(IDS, **old)
    assert calls
    with pytest.warns(DeprecationWarning, match="keyword 'words' of estimate is deprecated.*: use 'pretokenized'"):
        assert cast(Any, analyzer).estimate(3, timed=False, words=False) == analyzer.estimate(3, timed=False)


def test_a_keyword_given_by_its_old_and_its_new_name_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="analyze got 'pretokenized' twice, also by its old name 'words'"):
        cast(Any, analyzer).analyze(IDS, words=True, pretokenized=False)


def test_the_signature_shows_every_option_with_its_default() -> None:
    for call, request in ((ns.Analyzer.analyze, AnalysisRequest), (ns.Analyzer.explain, ExplainRequest)):
        shown = inspect.signature(call).parameters
        assert {name: shown[name].default for name in vars(request())} == vars(request())


def test_an_unknown_keyword_is_refused_by_name(analyzer: ns.Analyzer) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'scope'"):
        cast(Any, analyzer).analyze(IDS, scope="Attn")
