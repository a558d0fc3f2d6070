"""Decoders with two groups of keys, their encoder, and what a target may be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.tiny_architectures import (
    BART,
    ids,
    tiny,
)
from transformers import (
    AutoModelForSeq2SeqLM,
)

import normscope as ns


@pytest.fixture(scope="module")
def bart() -> ns.Analyzer:
    return ns.load(tiny("bart", AutoModelForSeq2SeqLM, **BART))


def test_a_decoder_has_target_and_source_keys_after_the_cross_attention(bart: ns.Analyzer) -> None:
    analysis = bart.analyze(ids(5, 6, 7, 8, 2), decoder_text=ids(9, 10, 2))
    groups = analysis.dataset["key_group"].values.tolist()
    assert groups == ["target"] * 3 + ["source"] * 5
    assert analysis.tokens == ["1", "9", "10", "5", "6", "7", "8", "2"]
    assert analysis.dataset["query_output_token"].values.tolist() == ["9", "10", "2"]
    exists = ~np.isnan(analysis.dataset["map"].values)
    scopes = analysis.dataset["scope"].values.tolist()
    before, cross, after = (exists[scopes.index(s)] for s in ("AttnResLn", "AttnResLnCross", "AttnResLnCrossRes"))
    assert not before[..., 3:].any()
    assert not cross[..., :3].any() and cross[..., 3:].all()
    assert after[..., 3:].all() and (after[..., :3] == np.tril(np.ones((3, 3), bool))).all()


def test_cross_is_short_for_the_cross_attention_alone(bart: ns.Analyzer) -> None:
    analysis = bart.analyze(ids(5, 6, 2), decoder_text=ids(9, 2), heads=True)
    np.testing.assert_array_equal(analysis.map("Cross").values, analysis.map("AttnResLnCross").values)
    assert analysis.map("CrossW", heads=True).sizes["head"] == 3
    np.testing.assert_allclose(
        analysis.map("CrossW", heads=True).mean("head").values, analysis.map("CrossW").values, rtol=1e-5
    )


def test_the_encoder_has_an_analysis_of_its_own(bart: ns.Analyzer) -> None:
    encoder = bart.analyze(ids(5, 6, 7, 2), decoder_text=ids(9, 2)).encoder
    assert encoder.tokens == ["5", "6", "7", "2"]
    assert encoder.map("AttnResLnFfResLn").shape == (2, 4, 4)
    assert float(encoder.completeness.max()) < 1e-5


def test_only_the_decoder_is_followed_when_only_its_scopes_are_asked_for(bart: ns.Analyzer) -> None:
    analysis = bart.analyze(ids(5, 6, 2), decoder_text=ids(9, 2), scopes="Cross")
    assert analysis.scopes == ["AttnResLnCross"]
    with pytest.raises(ns.SelectionError, match="no encoder here"):
        _ = analysis.encoder


def test_mixing_shares_of_own_others_and_source_add_up(bart: ns.Analyzer) -> None:
    analysis = bart.analyze(ids(5, 6, 2), decoder_text=ids(9, 10, 2))
    shares = analysis.mixing_shares("AttnResLnCrossRes")
    np.testing.assert_allclose(shares.sum("share").values, 1, rtol=1e-6)
    assert (shares.sel(share="source").values > 0).all()
    assert (analysis.mixing_shares("AttnRes").sel(share="source").values == 0).all()


def test_without_a_target_the_model_generates_one(bart: ns.Analyzer) -> None:
    analysis = bart.analyze(ids(5, 6, 7, 2))
    outputs = [int(token) for token in analysis.dataset["query_output_token"].values]
    said = [bart.model.config.decoder_start_token_id]
    while len(said) <= len(outputs):  # the most probable token after those before it
        with torch.no_grad():
            logits = bart.model(torch.tensor([[5, 6, 7, 2]]), decoder_input_ids=torch.tensor([said])).logits
        said.append(int(logits[0, -1].argmax()))
    assert outputs == said[1:]
    assert len(outputs) > 1


def test_a_model_that_cannot_generate_asks_for_the_text_of_its_decoder() -> None:
    with pytest.raises(ns.ModelError, match="decoder_text="):
        ns.load(tiny("bart", **BART)).analyze(ids(5, 6, 2))


def test_inputs_and_decoder_texts_must_be_as_many(bart: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="2 inputs but 1 decoder texts"):
        bart.analyze({"input_ids": [[5, 6], [7, 8]]}, decoder_text=ids(9, 2))


def test_an_encoder_decoder_analysis_survives_saving(bart: ns.Analyzer, tmp_path: Path) -> None:
    analysis = bart.analyze(ids(5, 6, 2), decoder_text=ids(9, 2))
    analysis.save(tmp_path / "both.nc")
    opened = ns.open(tmp_path / "both.nc")
    assert opened.dataset.identical(analysis.dataset)
    assert opened.encoder.dataset.identical(analysis.encoder.dataset)


def test_a_batch_of_pairs_equals_each_pair_alone(bart: ns.Analyzer) -> None:
    sources, targets = [[5, 6, 7, 2], [8, 2, 1, 1]], [[9, 2, 1], [10, 11, 2]]
    both = bart.analyze(
        {"input_ids": sources, "attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0]]},
        decoder_text={"input_ids": targets, "attention_mask": [[1, 1, 0], [1, 1, 1]]},
    )
    alone = [
        bart.analyze(ids(5, 6, 7, 2), decoder_text=ids(9, 2)),
        bart.analyze(ids(8, 2), decoder_text=ids(10, 11, 2)),
    ]
    for one, other in zip(both, alone, strict=True):
        for scope in one.scopes:
            np.testing.assert_allclose(one.map(scope).values, other.map(scope).values, rtol=1e-4, atol=1e-5)
