"""The analyzer end to end, on the real embedded model and on tiny ones: what comes back, and what is refused."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from support.tiny_models import ENCODERS, padded, tiny, token_ids

import normscope as ns

TEXT = "The cat sat on the unaffable mat."
TOKENS = ["[CLS]", "the", "cat", "sat", "on", "the", "una", "##ffa", "##ble", "mat", ".", "[SEP]"]
SCOPES = ["AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes", "AttnResLnFfResLn"]


@pytest.fixture(scope="module")
def full(analyzer: ns.Analyzer) -> ns.Analysis:
    """Everything there is about one text."""
    return analyzer.analyze(TEXT, heads=True)


# ---- the published contract --------------------------------------------------------------------------------------------


def test_a_real_model_is_complete_to_five_digits_after_every_component(full: ns.Analysis) -> None:
    assert full.completeness.dims == ("layer",)
    assert float(full.completeness.max()) < 1e-5
    errors = full.dataset["component_error"]
    assert errors["checked_scope"].values.tolist() == SCOPES[1:]
    assert float(errors.max()) < 1e-5
    assert bool((errors.max("checked_scope") == full.completeness).all())


def test_layers_and_heads_are_numbered_from_one(full: ns.Analysis) -> None:
    assert full.layers == [1, 2, 3, 4, 5, 6]
    assert full.dataset["head"].values.tolist() == list(range(1, 13))


def test_scopes_come_in_the_order_in_which_maps_grow_with_the_derived_one_last(full: ns.Analysis) -> None:
    assert full.scopes == [*SCOPES, "AttnResW"]


def test_the_analyzer_knows_its_layers_scopes_and_limits(analyzer: ns.Analyzer) -> None:
    assert analyzer.layers == [1, 2, 3, 4, 5, 6]
    assert analyzer.scopes == SCOPES
    assert (analyzer.longest, analyzer.tolerance, analyzer.weight_dtype) == (512, 1e-4, torch.float32)


def test_a_map_is_layer_by_query_by_key(full: ns.Analysis) -> None:
    for scope in full.scopes:
        values = full.map(scope)
        assert values.dims == ("layer", "query", "key")
        assert values.shape == (6, 12, 12)
        assert values.name == scope
        assert bool((values >= 0).all())


def test_one_layer_is_selected_by_its_number(full: ns.Analysis) -> None:
    third = full.map("AttnResLnFfResLn").sel(layer=3)
    assert third.dims == ("query", "key")
    np.testing.assert_array_equal(third, full.map("AttnResLnFfResLn").values[2])


def test_maps_of_heads_are_layer_by_head_by_query_by_key(full: ns.Analysis) -> None:
    for scope in ("AttnW", "Attn"):
        values = full.map(scope, heads=True)
        assert values.dims == ("layer", "head", "query", "key")
        assert values.shape == (6, 12, 12, 12)


def test_attention_weights_are_the_mean_over_heads_and_rows_sum_to_one(full: ns.Analysis) -> None:
    np.testing.assert_allclose(full.map("AttnW"), full.map("AttnW", heads=True).mean("head"), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(full.map("AttnW").sum("key"), 1, rtol=1e-5)


def test_the_norm_of_a_sum_over_heads_is_at_most_the_sum_of_norms(full: ns.Analysis) -> None:
    together, apart = full.map("Attn"), full.map("Attn", heads=True).sum("head")
    assert bool((together <= apart * (1 + 1e-5)).all())
    assert float((apart - together).max()) > 0.01


def test_a_mixing_ratio_is_layer_by_query_and_between_zero_and_one(full: ns.Analysis) -> None:
    for scope in full.scopes:
        ratio = full.mixing_ratio(scope)
        assert ratio.dims == ("layer", "query")
        assert bool(((ratio > 0) & (ratio < 1)).all())


def test_tokens_name_the_rows_and_columns(full: ns.Analysis) -> None:
    assert full.tokens == TOKENS
    assert full.map("Attn")["query_token"].values.tolist() == TOKENS
    assert full.map("Attn")["key"].values.tolist() == list(range(12))


def test_a_result_says_where_it_came_from(analyzer: ns.Analyzer, full: ns.Analysis) -> None:
    assert full.attrs == {
        "schema_version": 2,
        "method": "norms",
        "model": "all-MiniLM-L6-v2",
        "model_type": "bert",
        "family": "bert",
        "revision": "",
        "fingerprint": analyzer.facts["fingerprint"],
        "dtype": "float32",
        "tolerance": 1e-4,
        "normscope_version": version("normscope"),
        "torch_version": version("torch"),
        "transformers_version": version("transformers"),
        "text": TEXT,
        "value_bias": "token",
        "ff_baseline": "zero",
        "whole_layer": "AttnResLnFfResLn",
    }


def test_the_real_model_agrees_with_its_own_attention_output(analyzer: ns.Analyzer, full: ns.Analysis) -> None:
    """An independent truth: what the model itself returns from a plain call with eager attention."""
    model, tokenizer = analyzer.model, analyzer.tokenizer
    assert tokenizer is not None
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(**tokenizer(TEXT, return_tensors="pt"), output_attentions=True).attentions
    model.set_attn_implementation(before)
    np.testing.assert_allclose(full.map("AttnW", heads=True), torch.cat(attentions), rtol=1e-4, atol=1e-6)


def test_the_same_text_gives_the_same_numbers_again(analyzer: ns.Analyzer, full: ns.Analysis) -> None:
    assert analyzer.analyze(TEXT, heads=True).dataset.identical(full.dataset)


def test_float64_arithmetic_hardly_changes_a_real_result(analyzer: ns.Analyzer, full: ns.Analysis) -> None:
    wide = analyzer.analyze(TEXT, dtype=torch.float64)
    np.testing.assert_allclose(full.dataset["map"], wide.dataset["map"], rtol=1e-4, atol=1e-6)


# ---- parts of it -------------------------------------------------------------------------------------------------------


def assert_part_of(part: xr.Dataset, whole: xr.Dataset) -> None:
    """Every number of a part is in the whole, under the same labels."""
    shared = {str(name): part[name].values for name in ("scope", "layer", "query") if name in part.dims}
    for name in ("map", "mixing_ratio"):
        expected = whole[name].sel({dimension: labels for dimension, labels in shared.items()})
        np.testing.assert_allclose(part[name], expected, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"scopes": "Attn"}, {"scope": 1}),
        ({"scopes": ["AttnResLnFfResLn", "AttnRes"]}, {"scope": 2}),
        ({"layers": 3}, {"layer": 1}),
        ({"layers": [6, 2, 2]}, {"layer": 2}),
        ({"queries": 0}, {"query": 1}),
        ({"queries": [5, 0]}, {"query": 2}),
        ({"queries": -1, "layers": [1, 2], "scopes": "AttnResLnFf"}, {"query": 1, "layer": 2, "scope": 1}),
    ],
)
def test_a_part_that_is_asked_for_is_that_part_of_the_whole(
    analyzer: ns.Analyzer, full: ns.Analysis, options: dict[str, Any], sizes: dict[str, int]
) -> None:
    part = analyzer.analyze(TEXT, **options).dataset
    assert {name: part.sizes[name] for name in sizes} == sizes
    assert part.sizes["key"] == 12
    assert_part_of(part, full.dataset)


@pytest.mark.parametrize("model_type", ENCODERS)
def test_selected_queries_layers_and_scopes_of_a_batch_are_those_of_the_whole(model_type: str) -> None:
    analyzer, inputs = ns.load(tiny(model_type, num_hidden_layers=3)), padded(token_ids(6, 4))
    whole = analyzer.analyze(inputs)
    some = analyzer.analyze(inputs, queries=[-1, 1], layers=[2, 3], scopes=["AttnW", "AttnResLn", "AttnResLnFfRes"])
    for part, complete in zip(some, whole, strict=True):
        assert part.dataset["query"].values.tolist() == [len(complete.tokens) - 1, 1]
        assert_part_of(part.dataset, complete.dataset)


def test_queries_may_be_counted_from_the_end_and_keep_their_order(analyzer: ns.Analyzer) -> None:
    part = analyzer.analyze(TEXT, queries=[-1, 2], layers=1, scopes="Attn")
    assert part.dataset["query_token"].values.tolist() == ["[SEP]", "cat"]
    assert part.tokens == TOKENS


def test_the_half_identity_of_selected_queries_is_on_their_own_keys(analyzer: ns.Analyzer, full: ns.Analysis) -> None:
    part = analyzer.analyze(TEXT, queries=[3, 1], scopes="AttnW")
    expected = full.map("AttnResW").sel(query=[3, 1])
    np.testing.assert_allclose(part.map("AttnResW"), expected, rtol=1e-5, atol=1e-7)
    assert float(part.map("AttnResW").isel(layer=0, query=0).sel(key=3)) >= 0.5


def test_without_heads_there_are_no_maps_of_heads(analyzer: ns.Analyzer) -> None:
    analysis = analyzer.analyze(TEXT, layers=1, scopes="Attn")
    assert "head_map" not in analysis.dataset
    with pytest.raises(ns.SelectionError, match="heads=True"):
        analysis.map("Attn", heads=True)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("attn-w", ["AttnW"]),
        ("ATTN-N", ["Attn"]),
        ("AttnResLnFf-N", ["AttnResLnFf"]),
        (["attnresln", "Attn_W"], ["AttnW", "AttnResLn"]),
    ],
)
def test_scopes_may_be_called_as_the_papers_call_them(analyzer: ns.Analyzer, asked: Any, found: list[str]) -> None:
    assert analyzer.analyze(TEXT, layers=1, scopes=asked).dataset["scope"].values.tolist() == found


# ---- mixing ratios -----------------------------------------------------------------------------------------------------


def test_mixing_ratios_alone_are_those_of_the_analysis(analyzer: ns.Analyzer, full: ns.Analysis) -> None:
    ratios = analyzer.mixing_ratios(TEXT)
    assert ratios.dims == ("scope", "layer", "query")
    assert ratios["scope"].values.tolist() == SCOPES
    np.testing.assert_allclose(ratios, full.dataset["mixing_ratio"], rtol=1e-4, atol=1e-6)
    assert float(ratios["completeness"].max()) < 1e-5
    assert ratios.attrs["text"] == TEXT


@pytest.mark.parametrize("model_type", ENCODERS)
def test_mixing_ratios_of_every_family_agree_with_its_analysis(model_type: str) -> None:
    analyzer, inputs = ns.load(tiny(model_type)), padded(token_ids(6, 1, 4))
    for ratios, analysis in zip(analyzer.mixing_ratios(inputs), analyzer.analyze(inputs), strict=True):
        np.testing.assert_allclose(ratios, analysis.dataset["mixing_ratio"], rtol=1e-4, atol=1e-6)


def test_mixing_ratios_of_a_list_are_a_list_and_may_be_a_part(analyzer: ns.Analyzer, full: ns.Analysis) -> None:
    short, long = analyzer.mixing_ratios(["a cat", TEXT], layers=[2, 5], scopes="AttnRes")
    assert (short.shape, long.shape) == ((1, 2, 4), (1, 2, 12))
    expected = full.mixing_ratio("AttnRes").sel(layer=[2, 5])
    np.testing.assert_allclose(long.sel(scope="AttnRes"), expected, rtol=1e-4, atol=1e-6)


def test_a_single_token_mixes_with_nothing() -> None:
    ratios = ns.load(tiny("bert")).mixing_ratios(torch.tensor([[7]]))
    np.testing.assert_allclose(ratios, 0, atol=1e-6)


# ---- options -----------------------------------------------------------------------------------------------------------


def test_the_value_bias_changes_maps_only_where_it_is_asked_to() -> None:
    analyzer, inputs = ns.load(tiny("bert")), torch.tensor(token_ids(5))
    token, bias = analyzer.analyze(inputs), analyzer.analyze(inputs, value_bias="bias")
    assert (token.attrs["value_bias"], bias.attrs["value_bias"]) == ("token", "bias")
    np.testing.assert_array_equal(token.map("AttnW"), bias.map("AttnW"))
    assert float(np.abs(token.map("Attn") - bias.map("Attn")).max()) > 1e-2
    assert float(bias.completeness.max()) < 1e-5


def test_nothing_is_printed_unless_progress_is_asked_for(
    analyzer: ns.Analyzer, capsys: pytest.CaptureFixture[str]
) -> None:
    analyzer.analyze(["a cat"] * 20, scopes="AttnW", layers=1)
    assert capsys.readouterr() == ("", "")
    analyzer.analyze(["a cat"] * 20, scopes="AttnW", layers=1, progress=True)
    assert capsys.readouterr().out == ""


# ---- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["Wrong", "", "AttnResLnFfResLnFf", ["Attn", "Wrong"], "CrossW"])
def test_an_unknown_scope_is_refused_with_those_that_exist(analyzer: ns.Analyzer, scope: Any) -> None:
    with pytest.raises(
        ns.ScopeError, match=r"There is no scope '.*' here\..* Available scopes: AttnW, Attn, .*ResLn, AttnResW\."
    ):
        analyzer.analyze(TEXT, scopes=scope)


def test_no_scope_at_all_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.ScopeError, match=r"No scope was requested\. Available scopes: AttnW"):
        analyzer.analyze(TEXT, scopes=[])


@pytest.mark.parametrize("layer", [0, 7, -1, [1, 7]])
def test_an_unknown_layer_is_refused_with_those_that_exist(analyzer: ns.Analyzer, layer: Any) -> None:
    for ask in (analyzer.analyze, analyzer.mixing_ratios):
        with pytest.raises(ns.SelectionError, match=r"no layer -?\d: all-MiniLM-L6-v2 has layers 1 to 6"):
            ask(TEXT, layers=layer)


def test_no_layer_at_all_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.SelectionError, match="No layer was requested"):
        analyzer.analyze(TEXT, layers=[])


@pytest.mark.parametrize("query", [12, -13, [0, 12]])
def test_a_query_out_of_range_is_refused_with_the_range(analyzer: ns.Analyzer, query: Any) -> None:
    with pytest.raises(ns.SelectionError, match=r"no query -?1\d: the input has 12 tokens, 0 to 11 \(or -12 to -1\)"):
        analyzer.analyze(TEXT, queries=query)


def test_a_query_must_exist_in_every_input_of_a_list(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.SelectionError, match="no query 5: the input has 4 tokens"):
        analyzer.analyze([TEXT, "a cat"], queries=5)


def test_no_query_at_all_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.SelectionError, match="No query was requested: the input has 12 tokens"):
        analyzer.analyze(TEXT, queries=[])


def test_a_head_map_beyond_the_attention_is_refused_with_where_heads_exist(full: ns.Analysis) -> None:
    for scope in ("AttnRes", "AttnResLnFfResLn", "AttnResW"):
        with pytest.raises(ns.SelectionError, match=rf"Heads are separate only at AttnW, Attn; at {scope}"):
            full.map(scope, heads=True)


@pytest.mark.usefixtures("unchecked_types")
def test_an_unknown_place_for_the_value_bias_is_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match=r"\(value_bias\) counts with token, bias, not with 'nowhere'"):
        analyzer.analyze(TEXT, value_bias="nowhere")  # type: ignore[arg-type]


def test_every_error_is_a_normscope_error_and_bad_input_a_value_error(analyzer: ns.Analyzer) -> None:
    for error in (ns.InputError, ns.ModelError, ns.CompletenessError, ns.FileError):
        assert issubclass(error, ns.NormscopeError)
    with pytest.raises(ValueError, match="no layer 9"):
        analyzer.analyze(TEXT, layers=9)


def test_traces_are_what_the_public_oracle_takes(analyzer: ns.Analyzer, full: ns.Analysis) -> None:
    traces = analyzer.traces(TEXT)
    assert len(traces) == len(analyzer.layers)
    for layer, trace in enumerate(traces[:2], start=1):
        for scope, truth in ns.oracle(trace).items():
            values = full.map(scope).sel(layer=layer).values
            np.testing.assert_allclose(values, truth.map.numpy(), rtol=1e-4, atol=1e-5)
