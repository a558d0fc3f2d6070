"""Models whose blocks lie on different devices give what they give on one. The devices are pretended, the numbers real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from support.pretended_devices import PretendedDevices, block_by_block, spread
from support.rule_model import sizes, tokenizer
from support.tiny_architectures import BART, GROUPED, GROUPED_EXPERTS
from support.tiny_heads import tiny_head
from support.tiny_models import shaken
from transformers import LlamaForCausalLM, PreTrainedModel

import normscope as ns
from normscope import capture, passes
from normscope.methods import available_methods
from normscope.runs import run

IDS = {"input_ids": [[5, 6, 7, 8, 9, 10, 4]]}
READ = {"input_ids": [[2, 5, 9, 10, 11]]}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", {}),
    "llama": ("LlamaForCausalLM", {**GROUPED, "num_hidden_layers": 3}),
    "gemma2": ("Gemma2ForCausalLM", {"final_logit_softcapping": 0.7}),
    "mixtral": ("MixtralForCausalLM", GROUPED_EXPERTS),
    "bart": ("BartForConditionalGeneration", BART),
    "roberta": ("RobertaForSequenceClassification", {}),
}
"""Post-norm, pre-norm and gated, a vocabulary's logits that are capped, experts, an encoder-decoder, a classifier."""


def _seldom(*names: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


def _model(name: str) -> PreTrainedModel:
    class_name, changes = MODELS[name]
    return tiny_head(name, class_name, torch.float64, **changes)


def _analyze(analyzer: ns.Analyzer, **options: Any) -> dict[str, Any]:
    target = None if analyzer.family.encoder is None else READ
    analysis: Any = analyzer.analyze(IDS, **{"decoder_text": target, **options})
    stacks = {"": analysis, **({"encoder": analysis.encoder} if analysis.has_encoder else {})}
    return {f"{stack} {name}": array for stack, each in stacks.items() for name, array in each.dataset.items()}


def _explain(analyzer: ns.Analyzer, **options: Any) -> dict[str, Any]:
    read = None if analyzer.family.encoder is None else READ["input_ids"][0]
    at = 3 if "MaskedLM" in type(analyzer.model).__name__ else None
    explanation: Any = analyzer.explain(IDS, decoder_text=read, at=at, **options)
    return {f"{node.path} {name}": array for node in explanation.tree.subtree for name, array in node.dataset.items()}


def _same(ask: Callable[[ns.Analyzer], dict[str, Any]], model: PreTrainedModel, set_aside: Sequence[str] = ()) -> None:
    """What is requested of a model on one device and of one that is spread is the same but for the order of sums."""
    expected = ask(ns.load(deepcopy(model), tokenizer()))
    device_map = block_by_block(model)
    with spread(model, {**device_map, **{name: "cpu" for name in device_map if name.endswith(tuple(set_aside))}}):
        assert any(parameter.is_meta for parameter in model.parameters()) == bool(set_aside)
        given = ask(ns.load(model, tokenizer()))
    assert expected.keys() == given.keys()
    for name, array in expected.items():
        if np.issubdtype(array.dtype, np.floating):
            np.testing.assert_allclose(given[name], array, rtol=1e-12, atol=1e-15, err_msg=name)
        else:
            np.testing.assert_array_equal(given[name], array, err_msg=name)


def test_pretended_devices_refuse_what_real_ones_refuse() -> None:
    with PretendedDevices():
        one, other = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
        for wrong in (
            lambda: one + other,
            lambda: one @ torch.ones(2),
            lambda: torch.equal(one, other),
            lambda: torch.stack([one.sum(), other.sum()]),
            lambda: one[torch.tensor([0], device="cuda:1")],
        ):
            with pytest.raises(RuntimeError, match="to be on the same device, but found"):
                wrong()
        with pytest.raises(TypeError, match="can't convert cuda:0 device"):
            one.numpy()
        assert (one * torch.tensor(2.0) + other.to(one))[torch.tensor([0])].cpu().numpy().tolist() == [3.0]


@pytest.mark.parametrize("name", ["bert", "llama", "bart", *_seldom("gemma2", "mixtral", "roberta")])
def test_maps_of_a_spread_model_are_those_of_one_device(name: str) -> None:
    _same(lambda analyzer: _analyze(analyzer, heads=True, projections=True, value_bias="bias"), _model(name))


def test_mixing_ratios_of_a_spread_model_are_those_of_one_device() -> None:
    _same(lambda analyzer: {"ratios": analyzer.mixing_ratios(IDS, decoder_text=READ)}, _model("bart"))


@pytest.mark.parametrize("approximate", ["fast", *_seldom("slopes", "sketch", "patterns")])
def test_approximate_maps_of_a_spread_model_are_those_of_one_device(approximate: str) -> None:
    _same(lambda analyzer: _analyze(analyzer, approximate=approximate, queries=[0, 3, -1]), _model("llama"))


@pytest.mark.parametrize("method", [each.name for each in available_methods("layer maps")])
@pytest.mark.parametrize("name", ["llama", *_seldom("bart")])
def test_every_kind_of_map_of_a_spread_model_is_that_of_one_device(name: str, method: str) -> None:
    _same(lambda analyzer: _analyze(analyzer, method=method), _model(name))


@pytest.mark.parametrize("name", ["bert", "llama", "bart", *_seldom("gemma2", "mixtral", "roberta")])
def test_explanations_of_a_spread_model_are_those_of_one_device(name: str) -> None:
    _same(lambda analyzer: _explain(analyzer, heads=True), _model(name))


@pytest.mark.parametrize("name", ["bart", *_seldom("llama", "bert")])
def test_explanations_in_little_memory_of_a_spread_model_are_those_of_one_device(name: str) -> None:
    _same(lambda analyzer: _explain(analyzer, max_memory=1), _model(name))


@pytest.mark.parametrize("method", [*(each.name for each in available_methods("attribution")), "globenc"])
@pytest.mark.parametrize("name", ["llama", *_seldom("bart")])
def test_every_attribution_of_a_spread_model_is_that_of_one_device(name: str, method: str) -> None:
    if (name, method) == ("bart", "decompx"):
        pytest.skip("DecompX carries parts through one stack of layers.")
    _same(lambda analyzer: _explain(analyzer, method=method), _model(name))


def test_long_inputs_of_a_spread_model_are_those_of_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "LONG", 2)
    monkeypatch.setattr(capture, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(capture, "_PAIRS_AT_ONCE", 2)
    for name in ("llama", "bert"):
        _same(lambda analyzer: _analyze(analyzer, queries=[1, 2, -1]), _model(name))


def test_what_a_spread_decoder_generates_is_what_it_generates_on_one_device() -> None:
    _same(lambda analyzer: _analyze(analyzer, decoder_text=None, scopes="AttnRes"), _model("bart"))


@pytest.mark.parametrize("name", ["mixtral", *_seldom("llama", "bart")])
def test_weights_that_are_set_aside_are_fetched_when_they_are_read(name: str) -> None:
    names = ("layers.1", "embed_tokens", "shared", "norm", "lm_head")

    def ask(analyzer: ns.Analyzer) -> dict[str, Any]:
        explained, mapped = _explain(analyzer), _analyze(analyzer, method="propagated")
        return {**_analyze(analyzer), **explained, **{f"propagated{key}": array for key, array in mapped.items()}}

    _same(ask, _model(name), names)


def test_the_fingerprint_of_a_spread_model_is_that_of_its_weights() -> None:
    model = _model("llama")
    expected = ns.load(deepcopy(model)).facts["fingerprint"]
    with spread(model, {**block_by_block(model), "model.layers.1": "cpu"}):
        assert ns.load(model).facts["fingerprint"] == expected


def test_a_spread_model_is_not_moved() -> None:
    model = _model("llama")
    with (
        spread(model, block_by_block(model)),
        pytest.raises(ns.ModelError, match=r"spread over cuda:0, cuda:1, cuda:2"),
    ):
        ns.load(model, device="cpu")


def test_experiments_on_a_spread_model_give_the_tables_of_one_device() -> None:
    names = [
        "mixing-ratio",
        "weight-vs-norm",
        "scope-similarity",
        "ff-norms",
        "expansion-rate",
        "shapley",
        "redundancy",
    ]
    options = {"shapley": {"queries": 2, "exact": 3, "pairs": 4}}

    def ask(analyzer: ns.Analyzer) -> dict[str, Any]:
        result = run(names, model=analyzer, corpus=["one two key three four", "six one good"], options=options)
        columns = [
            (name, column, table[column]) for name, table in result.tables.items() for column in table.column_names
        ]
        return {f"{name} {column}": values.to_numpy() for name, column, values in columns}

    _same(ask, shaken(LlamaForCausalLM(sizes(layers=3, heads=3, hidden=12, neurons=20)), 0.4).double())
