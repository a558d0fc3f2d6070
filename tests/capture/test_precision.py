"""Weights of any precision are analysed within their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.tiny_models import capture_with, padded, tiny

import normscope as ns
from normscope.chain.trace import LayerTrace
from normscope.testing.oracle import oracle

from .samples import ONE_OF_EACH_ATTENTION, SEQUENCES

RESULTS = ("map", "mixing_ratio", "completeness")
IN_FLOAT64 = pytest.mark.parametrize("model_type", ["bert", "albert", "mpnet"])


@pytest.mark.parametrize(("dtype", "close"), [(torch.bfloat16, 5e-2), (torch.float16, 1e-2), (torch.float32, 1e-5)])
@ONE_OF_EACH_ATTENTION
def test_weights_of_any_precision_are_analysed_within_their_own(
    model_type: str, dtype: torch.dtype, close: float
) -> None:
    model = tiny(model_type, spread=0.2).to(dtype)
    analysis = ns.load(model).analyze(padded(SEQUENCES[:1]))
    assert float(analysis.completeness.max()) < close
    assert {analysis.dataset[name].dtype for name in RESULTS} == {np.dtype(np.float32)}
    assert analysis.attrs["dtype"] == str(dtype).removeprefix("torch.")


@IN_FLOAT64
def test_float64_weights_are_analysed_in_float64(model_type: str) -> None:
    analysis = ns.load(tiny(model_type).double()).analyze(padded(SEQUENCES[:1]))
    assert float(analysis.completeness.max()) < 1e-12
    assert {analysis.dataset[name].dtype for name in RESULTS} == {np.dtype(np.float64)}
    assert analysis.attrs["dtype"] == "float64"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_maps_of_half_precision_weights_are_near_those_of_the_same_weights_in_float64(dtype: torch.dtype) -> None:
    model = tiny("bert", spread=0.2).to(dtype)
    half = ns.load(model).analyze(padded(SEQUENCES[:1]), layers=1)
    exact = ns.load(model.to(torch.float64)).analyze(padded(SEQUENCES[:1]), layers=1)
    difference = np.abs(half.dataset["map"] - exact.dataset["map"]).max(("query", "key"))
    assert bool((difference < 0.05 * exact.dataset["map"].max(("query", "key"))).all())


@IN_FLOAT64
def test_float64_arithmetic_on_float32_weights_agrees_with_float64_weights(model_type: str) -> None:
    model = tiny(model_type)
    wide = ns.load(model).analyze(padded(SEQUENCES[:1]), dtype=torch.float64)
    assert wide.dataset["map"].dtype == np.float64
    exact = ns.load(model.double()).analyze(padded(SEQUENCES[:1]))
    np.testing.assert_allclose(wide.dataset["map"], exact.dataset["map"], rtol=1e-4, atol=1e-6)


def test_a_float64_model_agrees_with_the_oracle_to_twelve_digits() -> None:
    found: dict[int, LayerTrace] = {}
    model = tiny("bert").double()
    capture_with(model, SEQUENCES[:1], lambda layer, _sequence, trace: found.update({layer: trace}))
    analysis = ns.load(model).analyze(padded(SEQUENCES[:1]))
    for layer, trace in found.items():
        for scope, result in oracle(trace).items():
            np.testing.assert_allclose(analysis.map(scope).sel(layer=layer), result.map, rtol=1e-11, err_msg=scope)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_arithmetic_in_less_than_float32_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ns.InputError, match=rf"float32 or torch\.float64, not {dtype}"):
        ns.load(tiny("bert")).analyze(padded(SEQUENCES), dtype=dtype)
