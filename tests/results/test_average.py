"""Averages of analyses: exact means by position, word or label, with errors, saved and shown like any other analysis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_architectures import BART, ids, tiny
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import normscope as ns
from normscope.errors import InputError, SelectionError

TEXTS = ["The opera singer caught a bubble.", "The train driver lost a ticket.", "The young doctor read a letter."]


def one(found: Any) -> ns.Analysis:
    assert isinstance(found, ns.Analysis)
    return found


@pytest.fixture(scope="module")
def several(analyzer: Any) -> list[ns.Analysis]:
    return analyzer.analyze(TEXTS, heads=True, projections=True)


def test_maps_ratios_and_projections_are_means_with_the_worst_error_of_all(several: list[ns.Analysis]) -> None:
    mean = ns.average(several)
    for name in ("map", "mixing_ratio", "head_map", "projection", "projection_bias", "head_projection"):
        stacked = np.stack([each.dataset[name].values for each in several]).astype(np.float64)
        largest = np.nanmax(abs(stacked))
        assert np.nanmax(abs(mean.dataset[name].values - stacked.mean(0))) < 1e-6 * largest, name
    maps = np.stack([each.map("AttnRes").values for each in several]).astype(np.float64)
    expected = maps.std(0, ddof=1) / np.sqrt(len(several))
    assert np.abs(mean.standard_error("AttnRes").values - expected).max() < 1e-6 * maps.max()
    assert mean.completeness.values.tolist() == np.max([each.completeness.values for each in several], 0).tolist()
    half = np.stack([each.map("AttnResW").values for each in several]).mean(0)
    assert np.abs(mean.map("AttnResW").values - half).max() < 1e-6


def test_an_average_says_what_it_is_of_and_is_an_analysis_like_any_other(
    several: list[ns.Analysis], tmp_path: Path
) -> None:
    mean = ns.average(several)
    assert mean.tokens == [
        "[CLS]",
        "the",
        "opera/train/young",
        "singer/driver/doctor",
        "caught/lost/read",
        "a",
        "bubble/ticket/letter",
        ".",
        "[SEP]",
    ]
    assert mean.attrs["averaged"] == 3 and json.loads(mean.attrs["averaged_texts"]) == TEXTS
    assert mean.text.startswith("mean of 3 texts: The opera singer") and repr(mean).startswith(
        "Analysis(mean of 3 texts, 9 tokens"
    )
    again = ns.open(mean.save(tmp_path / "mean.nc"))
    assert again.tokens == mean.tokens and np.array_equal(again.standard_error().values, mean.standard_error().values)
    page = mean.save(tmp_path / "mean.html")
    assert "opera/train/young" in page.read_text(encoding="utf-8")
    assert mean.save(tmp_path / "mean.svg").read_text().startswith("<?xml")
    assert mean.top(1, query=2)["key_token"].item() and mean.without_special_tokens().tokens[0] == "the"
    with pytest.raises(SelectionError, match="no standard errors"):
        several[0].standard_error()


def test_words_are_averaged_where_tokens_differ_in_number(analyzer: Any) -> None:
    texts = ["The singer came unbelievably late.", "The driver came very late."]
    found = analyzer.analyze(texts, scopes="Attn")
    with pytest.raises(InputError, match="different numbers of tokens"):
        ns.average(found)
    mean = ns.average([each.words() for each in found])
    expected = np.mean([each.words().map("Attn").values for each in found], 0)
    assert np.abs(mean.map("Attn").values - expected).max() < 1e-5 * expected.max()
    assert "unbelievably/very" in mean.tokens


def _kind(token: str) -> str:
    if token.startswith("["):
        return "special"
    if token == "a":
        return "a"
    return "word" if token.isalnum() else "mark"


def test_labels_gather_tokens_of_texts_of_any_length(analyzer: Any) -> None:
    found = analyzer.analyze(["It rained.", "The opera singer caught a bubble, or two."], scopes="Attn")

    def kind(analysis: ns.Analysis) -> list[str]:
        return [_kind(token) for token in analysis.tokens]

    mean = ns.average(found, labels=kind)
    assert mean.tokens == ["special", "word", "mark", "a"] and mean.attrs["unit"] == "label"
    values = mean.map("Attn").sel(layer=2).values
    first, second = ([np.array([name == label for name in kind(each)]) for label in mean.tokens] for each in found)
    maps = [each.map("Attn").sel(layer=2).values.astype(np.float64) for each in found]

    def block(text: int, query: np.ndarray, key: np.ndarray) -> float:
        return float(maps[text][np.ix_(query, key)].sum(1).mean())

    assert values[1, 2] == pytest.approx((block(0, first[1], first[2]) + block(1, second[1], second[2])) / 2, rel=1e-5)
    assert values[1, 3] == pytest.approx(block(1, second[1], second[3]), rel=1e-5)  # the other text has none
    assert np.isnan(mean.standard_error("Attn").sel(layer=2).values[1, 3])
    lists = ns.average(found, labels=[kind(each) for each in found])
    assert np.array_equal(lists.map("Attn").values, mean.map("Attn").values)


def test_causal_maps_stay_missing_above_the_diagonal() -> None:
    model = ns.load(tiny("gpt2", AutoModelForCausalLM))
    mean = ns.average([one(model.analyze(ids(5, 6, 7))), one(model.analyze(ids(8, 6, 9)))])
    assert np.isnan(mean.map("Attn").values[0][np.triu_indices(3, 1)]).all()
    assert np.isfinite(mean.map("Attn").values[0][np.tril_indices(3)]).all()


def test_both_stacks_of_an_encoder_decoder_are_averaged() -> None:
    model = ns.load(tiny("bart", AutoModelForSeq2SeqLM, **BART))
    found = [one(model.analyze(ids(*source), decoder_text=ids(8, 9))) for source in ((5, 6, 7), (9, 4, 3))]
    mean = ns.average(found)
    expected = np.nanmean([each.encoder.map("Attn").values for each in found], 0)
    assert np.abs(mean.encoder.map("Attn").values - expected).max() < 1e-5 * expected.max()
    assert mean.encoder.attrs["averaged"] == 2


def test_what_cannot_be_averaged_is_refused_in_a_sentence(analyzer: Any, several: list[ns.Analysis]) -> None:
    other = ns.load(tiny("gpt2", AutoModelForCausalLM)).analyze(ids(5, 6, 7))
    cases: list[tuple[list[Any], dict[str, Any], str]] = [
        ([], {}, "two analyses or more, not of 0"),
        (several[:1], {}, "two analyses or more, not of 1"),
        ([several[0], other], {}, "differ in model"),
        ([several[0], analyzer.analyze(TEXTS[1], layers=[1, 2], heads=True, projections=True)], {}, "different layers"),
        ([several[0], analyzer.analyze(TEXTS[1], scopes="Attn")], {}, "different scopes"),
        ([several[0], several[1].words()], {}, "differ in unit"),
        ([analyzer.analyze(TEXTS[0], queries=1), analyzer.analyze(TEXTS[1], queries=2)], {}, "other rows"),
        (several, {"labels": [["a"]]}, "labels for 1 analyses, and 3"),
        (several, {"labels": [["a"], ["b"], ["c"]]}, "has 9 tokens, and 1 labels"),
    ]
    for given, options, says in cases:
        with pytest.raises(InputError, match=says):
            ns.average(given, **options)


def test_only_analyses_are_averaged(analyzer: Any, several: list[ns.Analysis], unchecked_types: None) -> None:
    explanation: Any = analyzer.explain(TEXTS[0], direction="state")
    with pytest.raises(InputError, match="number 1 is no analysis"):
        ns.average([several[0], explanation])
