"""What analyses and explanations have in common: what was read, strongest numbers, tables, files, and how they show."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.chat_model import chat_analyzer
from support.tiny_architectures import BART, T5, tiny
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import normscope as ns
from normscope.results.base import Result

TEXT = "The opera singer caught the unaffable mat."
IDS = {"input_ids": [[5, 6, 7, 3]]}


@pytest.fixture(scope="module")
def analysis(analyzer: ns.Analyzer) -> ns.Analysis:
    return analyzer.analyze(TEXT, heads=True)


@pytest.fixture(scope="module")
def explanation(analyzer: ns.Analyzer) -> ns.Explanation:
    return analyzer.explain(TEXT, direction="state", at=3)


@pytest.fixture(scope="module")
def several() -> ns.Explanation:
    """Three values of a causal model."""
    return ns.load(tiny("llama", AutoModelForCausalLM).double().eval()).explain(IDS, target=[3, 4, 8])


@pytest.fixture(params=["bart", "t5"], scope="module")
def translated(request: pytest.FixtureRequest) -> ns.Explanation:
    sizes: dict[str, Any] = {"bart": BART, "t5": T5}[request.param]
    return ns.load(tiny(request.param, AutoModelForSeq2SeqLM, **sizes).double().eval()).explain(IDS, target=[8, 6])


# ---- one base ----------------------------------------------------------------------------------------------------------


def test_both_results_are_one_kind_of_thing(analysis: ns.Analysis, explanation: ns.Explanation) -> None:
    for result in (analysis, explanation):
        assert isinstance(result, Result)
        assert result.text == TEXT and result.tokens[3] == "singer" and not result.has_encoder
        with pytest.raises(ns.SelectionError, match="There is no encoder here"):
            _ = result.encoder


@pytest.fixture(scope="module")
def similarity(analyzer: ns.Analyzer) -> ns.Similarity:
    return analyzer.similarity("The opera singer.", "A mat.", pooling="mean")


@pytest.fixture(scope="module")
def answer() -> ns.Answer:
    return chat_analyzer().explain_answer(context=["Marta lives in Lisbon.", "Noor lives in Oslo."], answer="Lisbon")


def test_similarities_and_answers_have_the_same_base(
    similarity: ns.Similarity, answer: ns.Answer, analysis: ns.Analysis, tmp_path: Path
) -> None:
    other = analysis.save(tmp_path / "analysis.nc")
    for result in (similarity, answer):
        own = type(result)
        assert isinstance(result, Result) and result.attrs["model"]
        assert float(result.completeness) < 1e-5 and len(result.top(k=1)) == 1 and len(result.to_pandas()) > 1
        assert own.from_tree(result.tree).value == own.open(result.save(tmp_path / "result.nc")).value == result.value
        assert "iframe" in str(result._repr_html_())
        with pytest.raises(ns.FileError, match=f"holds an Analysis, but an? {own.__name__} was requested"):
            own.open(other)
        with pytest.raises(TypeError, match="scope"):
            result.show(scope="Attn")


def test_the_text_of_ids_is_that_of_their_tokens(analyzer: ns.Analyzer) -> None:
    ids = {"input_ids": [[101, 1996, 3850, 102]]}
    assert analyzer.analyze(ids, scopes="AttnW").text == "the opera"
    assert ns.load(tiny("bert")).analyze(IDS, scopes="AttnW").text == "5 6 7 3"


def test_a_file_is_opened_as_what_it_is(analysis: ns.Analysis, explanation: ns.Explanation, tmp_path: Path) -> None:
    kinds: list[tuple[Result, type[Result], type[Result]]] = [
        (analysis, ns.Analysis, ns.Explanation),
        (explanation, ns.Explanation, ns.Analysis),
    ]
    for result, own, other in kinds:
        path = result.save(tmp_path / "result.nc")
        assert own.open(path).tokens == result.tokens
        with pytest.raises(ns.FileError, match=f"holds an {own.__name__}, but an {other.__name__} was requested"):
            other.open(path)


# ---- the default scope and choices by token ----------------------------------------------------------------------------


def test_without_a_scope_the_whole_layer_is_meant(analysis: ns.Analysis, tmp_path: Path) -> None:
    whole = "AttnResLnFfResLn"
    assert analysis.default_scope == whole
    for ask in (analysis.map, analysis.normalised, analysis.mixing_ratio, analysis.mixing_shares):
        assert ask().equals(ask(whole)) and ask().name == whole  # type: ignore[operator]
    assert analysis.plot(layer=2).axes[0].get_title() == analysis.plot(whole, layer=2).axes[0].get_title()
    assert analysis.save(tmp_path / "map.svg", layer=2).read_text().startswith("<?xml")


def test_it_is_as_much_as_was_analysed_or_the_scope_of_the_method(analyzer: ns.Analyzer) -> None:
    assert analyzer.analyze("A text.", scopes=["AttnRes", "Attn"]).map().name == "AttnRes"
    assert analyzer.analyze("A text.", method="alti").map().name == "AttnResLn"


def test_with_heads_it_is_the_last_scope_at_which_they_are_separate(analysis: ns.Analysis) -> None:
    assert analysis.map(heads=True).name == "Attn"
    assert analysis.top(3, head=2)["scope"].tolist() == ["Attn"] * 3
    assert analysis.plot(head=2, layer=1) is not None


@pytest.mark.parametrize("query", ["singer", "Singer", " singer", 3, -9])
def test_a_row_is_chosen_by_its_token_or_its_position(analysis: ns.Analysis, query: Any) -> None:
    assert analysis.map("Attn", query=query).equals(analysis.map("Attn").isel(query=3))
    row = analysis.map("Attn", layer=2, query=query)
    assert row.dims == ("key",) and row.equals(analysis.map("Attn").sel(layer=2).isel(query=3))
    assert analysis.normalised("Attn", "column", layer=2, query=query).equals(
        analysis.normalised("Attn", "column").sel(layer=2).isel(query=3)
    )
    assert analysis.mixing_ratio(query=query).equals(analysis.mixing_ratio().isel(query=3))
    assert set(analysis.top(query=query)["query_token"]) == {"singer"}


def test_a_token_that_is_not_there_or_not_alone_is_refused_with_what_to_do(analysis: ns.Analysis) -> None:
    with pytest.raises(
        ns.SelectionError, match=r"No query is the token 'sinegr'. Did you mean 'singer'\? Tokens: \[CLS\]"
    ):
        analysis.map("Attn", query="sinegr")
    with pytest.raises(ns.SelectionError, match=r"'the' occurs 2 times: choose by position \(1, 5\)"):
        analysis.map("Attn", query="the")
    with pytest.raises(
        ns.SelectionError, match=r"The word 'unaffable' is not one token here: choose one of 'una' at 6, '##ffa'"
    ):
        analysis.map("Attn", query="unaffable")
    with pytest.raises(ns.SelectionError, match=r"There is no layer 9 here. Analysed layers: 1, 2"):
        analysis.map("Attn", layer=9)


def test_queries_are_analysed_by_their_tokens(analyzer: ns.Analyzer, analysis: ns.Analysis) -> None:
    for queries in ("singer", ["singer"], [3]):
        chosen = analyzer.analyze(TEXT, queries=queries, scopes="Attn")
        np.testing.assert_allclose(chosen.map("Attn"), analysis.map("Attn").isel(query=[3]), rtol=1e-4, atol=1e-6)
    mixed = analyzer.analyze(TEXT, queries=["singer", -1, "opera"], scopes="Attn")
    assert mixed.dataset["query"].values.tolist() == [3, len(analysis.tokens) - 1, 2]
    texts = ["The singer sang.", "A very good singer."]
    each = analyzer.analyze(texts, queries="singer", scopes="Attn")
    assert [int(item.dataset["query"].item()) for item in each] == [2, 4]
    with pytest.raises(ns.SelectionError, match="No query is the token 'bubble'"):
        analyzer.analyze(TEXT, queries="bubble", scopes="Attn")
    with pytest.raises(ns.InputError, match="out= streams the norm maps of one input"):
        analyzer.analyze(texts, queries="singer", scopes="Attn", out="maps.zarr")


def test_a_state_is_explained_at_a_token_by_its_name(analyzer: ns.Analyzer, explanation: ns.Explanation) -> None:
    assert analyzer.explain(TEXT, direction="state", at="singer").attribution.equals(explanation.attribution)
    with pytest.raises(ns.SelectionError, match=r"'the' occurs 2 times: choose by position \(1, 5\)"):
        analyzer.explain(TEXT, direction="state", at="the")
    with pytest.raises(ns.SelectionError, match="No token is the token 'bubble'"):
        analyzer.explain(TEXT, direction="state", at="bubble")


# ---- both spellings ----------------------------------------------------------------------------------------------------


def test_both_spellings_of_normalise_are_taken_everywhere(analysis: ns.Analysis, tmp_path: Path) -> None:
    british, american = ({name: "row"} for name in ("normalise", "normalize"))
    assert analysis.normalized("Attn").equals(analysis.normalised("Attn"))
    calls: list[Any] = [
        lambda **how: analysis.top(3, **how),
        lambda **how: analysis.to_pandas("Attn", **how),
        lambda **how: pd.DataFrame([analysis.save(tmp_path / "map.csv", scope="Attn", **how).read_text()]),
    ]
    for call in calls:
        assert call(**british).equals(call(**american)) and not call(**british).equals(call())
    assert analysis.rollout("AttnRes", normalize=False).equals(analysis.rollout("AttnRes", normalise=False))  # type: ignore[call-arg]
    assert analysis.plot("Attn", 1, normalize="row") is not None
    with pytest.raises(ns.InputError, match="got 'normalise' twice, also as 'normalize'"):
        analysis.plot("Attn", 1, **british, **american)


# ---- strongest numbers and tables --------------------------------------------------------------------------------------


def test_the_strongest_cells_come_first_without_a_tokens_own_part(analysis: ns.Analysis) -> None:
    top = analysis.top(5, "Attn", 2)
    values = analysis.map("Attn", layer=2).values.copy()
    np.fill_diagonal(values, -np.inf)
    assert top["value"].tolist() == np.sort(values.ravel())[::-1][:5].tolist()
    with_own = analysis.top(1, "AttnResLn", 2, own=True)
    assert with_own["query"].item() == with_own["key"].item()
    assert analysis.top()["layer"].unique().tolist() == [analysis.layers[-1]]
    for wrong in (0, -1):
        with pytest.raises(ns.InputError, match="At least one"):
            analysis.top(wrong)


def test_tables_hold_what_files_do(analysis: ns.Analysis, explanation: ns.Explanation, tmp_path: Path) -> None:
    for result in (analysis, explanation):
        saved = pd.read_parquet(result.save(tmp_path / "table.parquet"))
        pd.testing.assert_frame_equal(result.to_pandas(), saved, check_dtype=False)
    assert len(analysis.to_pandas()) == analysis.dataset["map"].size
    assert analysis.to_pandas("Attn", layer=2, normalise="row")["value"].sum() == pytest.approx(
        len(analysis.tokens), rel=1e-5
    )


def test_the_strongest_tokens_of_a_value_and_of_all_together(
    several: ns.Explanation, explanation: ns.Explanation
) -> None:
    top = explanation.top(3)
    assert top["attribution"].abs().is_monotonic_decreasing and len(top) == 3
    assert top["token"].iloc[0] == explanation.tokens[int(abs(explanation.attribution).argmax("token"))]
    together = several.top(99)
    assert together["attribution"].sum() == pytest.approx(sum(several.values) - sum(several.biases))
    one = several.top(99, target=1)
    assert one["attribution"].sum() == pytest.approx(several.values[1] - several.biases[1])
    assert len(one) < len(together), "a token that was not read yet has no share"
    with pytest.raises(ns.SelectionError, match=r"There is no value 3 \(target\)"):
        several.top(target=3)


def test_edges_of_a_flow_are_a_table(explanation: ns.Explanation) -> None:
    flow = explanation.flow(0.5)
    assert flow.to_pandas()["value"].tolist() == [edge.value for edge in flow]
    assert flow.top(2)["value"].abs().tolist() == sorted((abs(edge.value) for edge in flow), reverse=True)[:2]


# ---- values ------------------------------------------------------------------------------------------------------------


def test_value_and_bias_are_arrays_of_the_shape_of_the_attribution_without_its_tokens(
    explanation: ns.Explanation, several: ns.Explanation
) -> None:
    for result, dims in ((explanation, ()), (several, ("target",))):
        assert result.value.dims == result.bias.dims == dims
        rest = result.attribution.sum("token") + result.bias - result.value
        assert rest.dims == dims and float(abs(rest).max()) < 1e-4
    assert [float(explanation.value)] == explanation.values and [float(explanation.bias)] == explanation.biases
    assert several.value.values.tolist() == several.values and f"{explanation.value:.1f}" == "1.0"


def test_the_encoder_of_an_explanation_is_one_that_adds_up_to_its_own_part(
    translated: ns.Explanation, tmp_path: Path
) -> None:
    encoder = translated.encoder
    assert isinstance(encoder, ns.Explanation) and not encoder.has_encoder
    assert encoder.targets == translated.targets and len(encoder.tokens) == len(IDS["input_ids"][0])
    rest = encoder.attribution.sum("token") + encoder.bias - encoder.value
    assert float(abs(rest).max()) < 1e-6 and float(abs(encoder.value).max()) > 1e-6
    assert encoder.edges(1).shape == (2, 4, 4) and encoder.relevance.dims == ("target", "layer", "token")
    assert encoder.flow(0.5).tokens == encoder.tokens and encoder.top(2).shape[0] == 2
    opened = ns.open(encoder.save(tmp_path / "encoder.nc"))
    assert opened.values == encoder.values
    assert ns.open(translated.save(tmp_path / "both.nc")).encoder.values == encoder.values


def test_the_encoders_dataset_is_still_reached_by_its_variables(translated: ns.Explanation) -> None:
    with pytest.warns(DeprecationWarning, match=r"use Explanation.encoder.dataset\[...\]"):
        assert translated.encoder["edges"].equals(translated.encoder.dataset["edges"])
    for call in (lambda **given: translated.edges(1, **given), lambda **given: translated.flow(0.5, **given).edges):
        with pytest.warns(DeprecationWarning, match="keyword 'encoder' of .* is deprecated"):
            call(encoder=True)


def test_a_method_that_follows_nothing_has_the_encoders_shares(translated: ns.Explanation) -> None:
    analyzer = ns.load(tiny("bart", AutoModelForSeq2SeqLM, **BART).double().eval())
    explanation = analyzer.explain(IDS, target=[8, 6], method="gradient-x-input")
    encoder = explanation.encoder
    np.testing.assert_allclose(encoder.values, encoder.attribution.sum("token"))
    assert not encoder.adds_up
    np.testing.assert_allclose(explanation.attribution.values[:, -4:], encoder.attribution.values)


# ---- showing -----------------------------------------------------------------------------------------------------------


def test_results_show_themselves_on_a_terminal(
    analysis: ns.Analysis, explanation: ns.Explanation, capsys: pytest.CaptureFixture[str]
) -> None:
    analysis.show()
    assert capsys.readouterr().out.startswith(f"AttnResLnFfResLn, layer {analysis.layers[-1]}: norm of the part")
    analysis.show(scope="Attn", layer=[1, 2], normalize="row")
    shown = capsys.readouterr().out
    assert "Attn, layer 1: share of the row" in shown and "Attn, layer 2: share of the row" in shown
    explanation.show()
    assert "singer" in capsys.readouterr().out
    with pytest.raises(
        TypeError, match=r"show\(\) got an unexpected keyword argument 'scoope'. Did you mean 'scope'\?"
    ):
        analysis.show(scoope="Attn")
    with pytest.raises(TypeError, match=r"show\(\) got an unexpected keyword argument 'scope'"):
        explanation.show(scope="Attn")


def test_results_show_themselves_in_a_notebook(analysis: ns.Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[Any] = []
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=displayed.append))
    analysis.show()
    assert displayed == [analysis]
