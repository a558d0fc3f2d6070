"""Old names keep working for one minor version, and say what to use instead."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from typing import Any, cast

import pytest
import torch
from support.processes import Processes
from support.tiny_architectures import BART, tiny
from support.tiny_models import shaken
from transformers import AutoModelForSeq2SeqLM, BertConfig, BertModel

import normscope as ns
from normscope.deprecated import MOVED_MODULES
from normscope.inputs import read_inputs
from normscope.methods.norms import Decomposition
from normscope.request import AnalysisRequest, ExplainRequest
from normscope.scopes import Scope

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
def test_the_warning_names_the_line_that_uses_the_old_name(line: str, warning: str, processes: Processes) -> None:
    code = f"import warnings; warnings.simplefilter('always', DeprecationWarning)\n\n{line}\n"
    done = processes.run(code)
    assert f"<string>:3: DeprecationWarning: {warning}" in done.stderr


OLD_KEYWORDS = """
import warnings

import torch
from transformers import BartConfig, BartForConditionalGeneration

import normscope as ns

warnings.simplefilter("always", DeprecationWarning)
sizes = dict(vocab_size=40, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16)
heads = dict(encoder_attention_heads=2, decoder_attention_heads=2, decoder_start_token_id=2)
bart = ns.load(BartForConditionalGeneration(BartConfig(**sizes, **heads)).eval())
ids = {"input_ids": [[5, 6, 2]]}
bart.analyze(ids, target=ids, scopes="AttnW")
bart.explain(ids, target=[5, 6], direction="state")
"""


def test_the_warning_of_an_old_keyword_names_the_line_of_the_call(processes: Processes) -> None:
    done = processes.run(OLD_KEYWORDS)
    assert done.returncode == 0, done.stderr
    assert "<string>:14: DeprecationWarning: The keyword 'target' of analyze is deprecated" in done.stderr
    assert "<string>:15: DeprecationWarning: The keyword 'target' of explain with a direction" in done.stderr


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


# ---- what a decoder reads ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translator() -> ns.Analyzer:
    return ns.load(tiny("bart", AutoModelForSeq2SeqLM, **BART).eval())


READ = {"input_ids": [[5, 6, 7, 2]]}


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("analyze", {"inputs": IDS, "scopes": "AttnW"}),
        ("mixing_ratios", {"inputs": IDS, "scopes": "AttnW"}),
        ("traces", {"inputs": IDS}),
        ("estimate", {"inputs": 3, "timed": False}),
        ("estimate_explanation", {"inputs": 3, "timed": False}),
    ],
)
def test_what_a_decoder_reads_is_still_taken_as_target_with_a_warning(
    translator: ns.Analyzer, call: str, given: dict[str, Any]
) -> None:
    ask = getattr(translator, call)
    new = ask(**given, decoder_text=READ)
    with pytest.warns(DeprecationWarning, match=f"keyword 'target' of {call} is deprecated.*: use 'decoder_text'"):
        old = ask(**given, target=READ)
    if call == "traces":
        assert all(torch.equal(one.hidden, other.hidden) for one, other in zip(old, new, strict=True))
    else:
        assert repr(old) == repr(new)
    with pytest.raises(ns.InputError, match=f"{call} got 'decoder_text' twice, also by its old name 'target'"):
        ask(**given, decoder_text=READ, target=READ)


def test_a_reply_is_what_the_decoder_reads(translator: ns.Analyzer) -> None:
    new = translator.explain(IDS, target=8, decoder_text=[5, 6])
    with pytest.warns(DeprecationWarning, match="keyword 'reply' of explain is deprecated.*: use 'decoder_text'"):
        old = cast(Any, translator).explain(IDS, target=8, reply=[5, 6])
    assert old.values == new.values and old.targets == new.targets
    with pytest.raises(ns.InputError, match="twice, also by its old name 'reply'"):
        cast(Any, translator).explain(IDS, target=8, reply=[5], decoder_text=[5])


def test_the_target_of_a_direction_is_what_the_decoder_reads(translator: ns.Analyzer) -> None:
    new = translator.explain(IDS, decoder_text=[5, 6], direction="state", at=1)
    with pytest.warns(DeprecationWarning, match="'target' of explain with a direction is deprecated"):
        old = translator.explain(IDS, target=[5, 6], direction="state", at=1)
    assert old.values == new.values and old.tokens == new.tokens
    with pytest.raises(ns.InputError, match="A direction takes the place of a target"):
        translator.explain(IDS, target=3, decoder_text=[5, 6], direction="state", at=1)
    with pytest.raises(ns.InputError, match=r"the text that the decoder reads \(decoder_text"):
        translator.explain(IDS, direction="state")


def test_a_model_without_a_decoder_refuses_a_text_for_it(analyzer: ns.Analyzer) -> None:
    for ask in (analyzer.analyze, analyzer.mixing_ratios, analyzer.traces):
        with pytest.raises(ns.InputError, match="has no encoder and decoder: leave out decoder_text"):
            cast(Any, ask)(IDS, decoder_text=READ)
    with pytest.raises(ns.InputError, match="has no encoder and decoder: leave out decoder_text"):
        analyzer.explain(IDS, direction="state", decoder_text=[5])


# ---- keywords ----------------------------------------------------------------------------------------------------------


def test_a_keyword_given_by_its_old_and_its_new_name_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="analyze got 'pretokenized' twice, also by its old name 'words'"):
        cast(Any, analyzer).analyze(IDS, words=True, pretokenized=False)


def test_the_signature_shows_every_option_with_its_default() -> None:
    for call, request in ((ns.Analyzer.analyze, AnalysisRequest), (ns.Analyzer.explain, ExplainRequest)):
        shown = inspect.signature(call).parameters
        assert {name: shown[name].default for name in vars(request())} == vars(request())


@pytest.mark.parametrize(
    ("call", "wrong", "meant"),
    [
        ("analyze", "scope", "scopes"),
        ("analyze", "normalise", None),
        ("mixing_ratios", "layer", "layers"),
        ("explain", "agianst", "against"),
        ("estimate", "time", "timed"),
    ],
)
def test_an_unknown_keyword_is_a_type_error_of_the_call_that_names_the_nearest(
    analyzer: ns.Analyzer, call: str, wrong: str, meant: str | None
) -> None:
    with pytest.raises(TypeError) as raised:
        getattr(analyzer, call)(IDS, **{wrong: 1})
    message = str(raised.value)
    assert message.startswith(f"{call}() got an unexpected keyword argument {wrong!r}.")
    assert "Request" not in message and "self" not in message
    assert (f"Did you mean {meant!r}?" in message) if meant else ("Did you mean" not in message)
    assert "It takes inputs, " in message and "dtype" in message


def test_an_unknown_keyword_of_a_run_is_one_of_run() -> None:
    with pytest.raises(
        TypeError, match=r"^run\(\) got an unexpected keyword argument 'limits'. Did you mean 'limit'\?"
    ):
        cast(Any, ns).run(["mixing-ratio"], corpus=["A text."], limits=3)


def test_what_only_experiments_use_is_still_called_as_a_method(analyzer: ns.Analyzer) -> None:
    old: Any = analyzer
    (sequence,), _ = read_inputs(IDS, None, None)
    ratios = Decomposition(maps=(Scope("Attn"),))
    with pytest.warns(DeprecationWarning, match="Analyzer.measure is deprecated.*use normscope.*measure_layers"):
        (measured,) = old.measure([sequence], [ratios])
    with pytest.warns(DeprecationWarning, match="use normscope.results.from_pass.analysis_of"):
        assert old.analysis_of(measured).scopes == ["Attn"]
    with pytest.warns(DeprecationWarning, match="use normscope.methods.across_layers.maps_by"):
        assert old.maps_by(sequence, ns.method("alti")).method == "alti"
    with pytest.raises(AttributeError, match="'Analyzer' object has no attribute 'analyse'"):
        _ = old.analyse
