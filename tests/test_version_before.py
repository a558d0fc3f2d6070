"""Files and tables of version 0.1 are read, and its maps reproduced, by every version after it.

Both computed in float64, so that they agree on every processor. Random weights are drawn in float64 too: those of float32
differ in their last digits from one instruction set to another.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.tiny_architectures import BART, ids, tiny
from transformers import AutoModelForSeq2SeqLM

import normscope as ns

BEFORE = Path(__file__).parent / "data" / "version-0.1"
TEXT = "The opera singer caught a soap bubble."


def assert_same(analysis: ns.Analysis, before: ns.Analysis) -> None:
    assert analysis.tokens == before.tokens
    assert analysis.scopes == before.scopes
    for name in ("map", "head_map", "mixing_ratio"):
        values, truth = analysis.dataset[name], before.dataset[name]
        assert values.dims == truth.dims
        np.testing.assert_allclose(values.values, truth.values, rtol=1e-9, atol=1e-9)


def test_maps_of_the_embedded_model_are_those_of_version_0_1() -> None:
    analysis = ns.load(dtype=torch.float64).analyze(TEXT, heads=True, layers=[1, 2, 6])
    assert_same(analysis, ns.open(BEFORE / "minilm.nc"))


def test_maps_of_an_encoder_and_a_decoder_are_those_of_version_0_1() -> None:
    model = tiny("bart", AutoModelForSeq2SeqLM, dtype=torch.float64, **BART)
    analysis = ns.load(model).analyze(ids(5, 6, 7, 8, 2), decoder_text=ids(9, 10, 2), heads=True)
    assert isinstance(analysis, ns.Analysis)
    before = ns.open(BEFORE / "bart.nc")
    assert_same(analysis, before)
    assert_same(analysis.encoder, before.encoder)


@pytest.mark.parametrize("name", ["minilm.nc", "bart.nc"])
def test_a_file_of_version_0_1_shows_the_worst_component_and_its_method(name: str, tmp_path: Path) -> None:
    before = ns.open(BEFORE / name)
    errors = before.dataset["component_error"]
    assert errors.dims == ("checked_scope", "layer")
    assert (before.completeness == errors.max("checked_scope")).all()
    assert before.method == "norms"
    assert ns.open(before.save(tmp_path / name)).dataset.identical(before.dataset)
