"""Propagated norm maps against the definition, against the model's own states, and against the pull-back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import tiny
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

import normscope as ns
from methods.propagated_oracle import propagated
from methods.samples import IDS, asked, assert_close, double, every_model, traces
from normscope.decompose import propagate
from normscope.methods import Propagated
from normscope.methods.propagated import WORKING_COPIES


@every_model
def test_propagated_maps_are_the_norms_of_the_parts_of_the_inputs(name: str) -> None:
    analyzer = double(name)
    analysis = analyzer.analyze(IDS, method="propagated", **asked(analyzer))
    scope = analysis.scopes[0]
    for layer, truth in enumerate(propagated(traces(analyzer)), start=1):
        assert_close(analysis.map(scope).sel(layer=layer), truth.map)
        bias = analysis.dataset["bias_norm"].sel(scope=scope, layer=layer)
        np.testing.assert_allclose(bias.values, truth.bias.norm(dim=-1).numpy(), rtol=1e-5, atol=1e-6)


@every_model
def test_the_parts_of_the_definition_add_up_to_the_models_own_states(name: str) -> None:
    analyzer = double(name)
    kept = traces(analyzer)
    for trace, truth in zip(kept, propagated(kept), strict=True):
        state = trace.states[-1]
        assert state is not None
        torch.testing.assert_close(truth.state, state.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", ["absdot", "norm", "equal"])
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_biases_are_shared_out_as_decompx_does(name: str, bias: Any) -> None:
    analyzer = double(name)
    analysis = analyzer.analyze(IDS, method=Propagated(bias=bias))
    for layer, truth in enumerate(propagated(traces(analyzer), bias), start=1):
        assert_close(analysis.map(analysis.scopes[0]).sel(layer=layer), truth.map)
    np.testing.assert_allclose(analysis.dataset["bias_norm"].values, 0, atol=1e-12)


@pytest.mark.parametrize("bias", ["absdot", "norm", "equal"])
@pytest.mark.parametrize("name", ["llama", "gptj", "gpt_oss", "bart", "t5"])
def test_what_is_shared_out_still_adds_up_to_the_states(name: str, bias: Any) -> None:
    analyzer = double(name)
    analysis = analyzer.analyze(IDS, method=Propagated(bias=bias), **asked(analyzer))
    assert float(analysis.completeness.max()) < analyzer.tolerance
    assert float(analysis.dataset["bias_norm"].max()) < 1e-9


@pytest.mark.parametrize("name", ["bert", "llama", "gptj", "bart"])
def test_maps_go_from_any_layer_to_any_layer(name: str) -> None:
    sizes = {"decoder_layers": 4} if name == "bart" else {"num_hidden_layers": 4}
    sizes |= {"n_layer": 4} if name == "gptj" else {}
    analyzer = double(name, **sizes)
    analysis = analyzer.analyze(IDS, method=Propagated(first=2), layers=[2, 4], **asked(analyzer))
    assert analysis.layers == [2, 4]
    truth = propagated(traces(analyzer)[1:])
    scope = analysis.scopes[0]
    assert_close(analysis.map(scope).sel(layer=2), truth[0].map)
    assert_close(analysis.map(scope).sel(layer=4), truth[2].map)
    with pytest.raises(ns.SelectionError, match="Layer 1 cannot be reached from the inputs of layer 2"):
        analyzer.analyze(IDS, method=Propagated(first=2), layers=[1], **asked(analyzer))


@pytest.mark.parametrize("name", ["bert", "llama", "mixtral", "bart"])
def test_the_memory_changes_nothing_but_the_tiles(name: str) -> None:
    analyzer = double(name)
    whole = analyzer.analyze(IDS, method="propagated", **asked(analyzer))
    scope = whole.scopes[0]
    for columns in (1, 2, 4):
        tokens = 4 if name == "bart" else 6
        memory = columns * WORKING_COPIES * tokens * 24 * 8
        tiled = analyzer.analyze(IDS, method=Propagated(max_memory=memory), **asked(analyzer))
        np.testing.assert_allclose(tiled.map(scope).values, whole.map(scope).values, rtol=1e-5, atol=1e-9)


def test_biases_are_not_shared_out_within_too_little_memory() -> None:
    with pytest.raises(
        ns.InputError, match=r"over all 6 tokens at once, which takes \d+ bytes, but max_memory is 1000"
    ):
        double("bert").analyze(IDS, method=Propagated(bias="norm", max_memory=1000))


@pytest.mark.parametrize(
    ("options", "message"), [({"bias": "cls"}, "bias is one of apart"), ({"max_memory": 0}, "bytes")]
)
@pytest.mark.usefixtures("unchecked_types")
def test_options_that_do_not_exist_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ns.InputError, match=message):
        Propagated(**options)


@pytest.mark.parametrize(
    ("name", "auto"),
    [
        pytest.param("llama", AutoModelForCausalLM, marks=pytest.mark.slow),
        pytest.param("gpt2", AutoModelForCausalLM, marks=pytest.mark.slow),
        ("bert", AutoModelForMaskedLM),
    ],
)
def test_contracted_with_an_output_row_the_parts_are_the_pull_back(name: str, auto: Any) -> None:
    analyzer = double(name, auto)
    parts = propagated(traces(analyzer))[-1].parts
    scale = parts.norm(dim=-1).max()
    generator = torch.Generator().manual_seed(0)
    analysis = analyzer.analyze(IDS, method="propagated")
    for at in (0, 3, 5):
        along = torch.randn(24, generator=generator, dtype=torch.float64)
        explained = analyzer.explain(IDS, direction=along, at=at)
        assert_close(explained.attribution.values / float(scale), (parts[at] @ along / scale).numpy(), 1e-5)
        # All directions of space together are the norm itself.
        squares = sum(
            np.square(analyzer.explain(IDS, direction=axis, at=at).attribution.values)
            for axis in torch.eye(24, dtype=torch.float64)
        )
        norms = analysis.map(analysis.scopes[0]).isel(layer=-1, query=at).fillna(0).values
        np.testing.assert_allclose(np.sqrt(squares), norms, rtol=1e-4, atol=1e-6)


def test_a_bias_that_is_forgotten_is_found_by_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagate, "_constant", lambda step: None)
    with pytest.raises(ns.CompletenessError, match=r"after AttnResLnFfResLn of layer 1"):
        double("bert").analyze(IDS, method="propagated")


def test_what_acts_between_two_blocks_is_refused() -> None:
    analyzer = ns.load(tiny("deberta-v2", conv_kernel_size=3))
    with pytest.raises(ns.UnsupportedArchitectureError, match="What enters layer 2 is not what leaves layer 1"):
        analyzer.analyze(IDS, method="propagated")


def test_the_rollout_of_propagated_maps_is_their_shares() -> None:
    analysis = double("bert").analyze(IDS, method="propagated")
    scope = analysis.scopes[0]
    np.testing.assert_allclose(analysis.rollout().values, analysis.normalised(scope).values, rtol=1e-9)
    np.testing.assert_array_equal(analysis.rollout(normalise=False).values, analysis.map(scope).values)
    with pytest.raises(ns.InputError, match="no identity is added"):
        analysis.rollout(add_identity=0.5)


def test_progress_counts_the_layers_of_all_inputs() -> None:
    told: list[tuple[int, int]] = []
    double("bert").analyze(
        {"input_ids": [[5, 6, 7], [8, 9, 10]]},
        method="propagated",
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]
