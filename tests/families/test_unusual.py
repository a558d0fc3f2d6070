"""Components that few decoders have: numbers of a block, layers that lack components, weights by channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import (
    AFMOE,
    CONVOLUTIONS,
    GEMMA4,
    GROUPED,
    KIMI_LINEAR,
    MAMBA,
    MINIMAX,
    NEMOTRON_H,
    QWEN3_5,
    STATE_SPACE,
    ids,
    tiny,
)
from transformers import AutoModelForCausalLM

import normscope as ns
from normscope.capture import scans
from normscope.chain.trace import Attention
from normscope.experiments.base import Observation
from normscope.experiments.expansion import ExpansionRate
from normscope.families import family_of
from normscope.options import gates_of
from normscope.testing import assert_explained, assert_family
from normscope.testing.oracle import oracle

ALL_METHODS = ("norms", "alti", "value-zeroing", "globenc", "attention-rollout")


def test_what_leaves_a_block_of_gemma_4_is_multiplied_by_its_number() -> None:
    model = tiny("gemma4_text", AutoModelForCausalLM, **GEMMA4)
    layers: Any = model.base_model.layers
    for number, block in enumerate(layers, start=1):
        block.layer_scalar.fill_(0.5 + number)
    assert_family(family_of("gemma4_text"), model)
    assert_explained(model, {"input_ids": torch.tensor([[5, 6, 7, 8]])})


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_kv_shared_layers", 1), ("hidden_size_per_layer_input", 8)],
)
def test_a_gemma_4_with_more_than_is_described_is_refused_in_a_sentence(field: str, value: int) -> None:
    with pytest.raises(ns.UnsupportedArchitectureError, match=rf"{field}={value}"):
        ns.load(tiny("gemma4_text", AutoModelForCausalLM, **{**GEMMA4, field: value}))


def test_a_layer_without_attention_brings_nothing_from_other_tokens() -> None:
    analyzer = ns.load(tiny("nemotron_h", AutoModelForCausalLM, **NEMOTRON_H))
    analysis = analyzer.analyze(ids(5, 6, 7, 8, 9))
    assert isinstance(analysis, ns.Analysis)
    experts = analysis.map("AttnRes").sel(layer=2).values
    assert np.all(np.tril(experts, -1) == 0)
    assert np.all(np.diag(experts) > 0)
    mixer = analysis.map("AttnResLnFfRes").sel(layer=1).values
    np.testing.assert_allclose(mixer, analysis.map("AttnRes").sel(layer=1).values)


@pytest.mark.parametrize(("name", "sizes"), [("nemotron_h", NEMOTRON_H), ("minimax", MINIMAX), ("doge", GROUPED)])
@pytest.mark.parametrize("method", ALL_METHODS)
def test_every_method_has_maps_or_refuses(name: str, sizes: dict[str, Any], method: str) -> None:
    analyzer = ns.load(tiny(name, AutoModelForCausalLM, **sizes))
    try:
        analysis = analyzer.analyze(ids(5, 6, 7, 8, 9), method=method)
    except ns.NormscopeError:
        return
    assert isinstance(analysis, ns.Analysis)
    for scope in analysis.scopes:
        assert not np.isinf(analysis.map(scope).values).any()


def test_a_selective_scan_has_the_weights_of_its_definition() -> None:
    """`A[c, i, j] = sum_n C[i, n] exp(sum of dt a from j + 1 to i) dt[j] B[j, n]`, and `D` more on the diagonal."""
    analyzer = ns.load(tiny("mamba", AutoModelForCausalLM, **MAMBA))
    trace = analyzer.traces(ids(5, 6, 7, 8, 9, 10))[0]
    (step,) = [step for step in trace.steps if isinstance(step, Attention)]
    bare: Any = analyzer.model.base_model
    block = bare.layers[0]
    net = block.mixer
    with torch.no_grad():
        mixed, _ = net.in_proj(block.norm(trace.hidden[None])).transpose(1, 2).chunk(2, dim=1)
        mixed = torch.nn.functional.silu(net.conv1d(mixed)[..., :6]).transpose(1, 2)
        low, b, c = (x[0].double() for x in net.x_proj(mixed).split([net.time_step_rank, 5, 5], -1))
        dt = torch.nn.functional.softplus(low @ net.dt_proj.weight.double().T + net.dt_proj.bias.double())
        passed = (dt[:, :, None] * -net.A_log.double().exp()).cumsum(0)
        decay = (passed[:, None] - passed).exp()
        truth = torch.einsum("in,ijcn,jc,jn->cij", c, decay, dt, b).tril()
        truth = truth + torch.diag_embed(net.D.double()[:, None].expand(-1, 6))
    torch.testing.assert_close(step.mixing_weights.double(), truth, rtol=1e-4, atol=1e-5)


GATED: dict[str, dict[str, Any]] = {
    "afmoe": AFMOE,
    "qwen3_5_text": QWEN3_5,
    "bamba": {**GROUPED, **STATE_SPACE, "num_hidden_layers": 3, "attn_layer_indices": [1]},
    "falcon_h1": {**GROUPED, **STATE_SPACE, "mamba_d_ssm": 48, "ssm_out_multiplier": 20.0},
    "lfm2": {**GROUPED, **CONVOLUTIONS, "block_auto_adjust_ff_dim": False},
    "bailing_hybrid": {**KIMI_LINEAR, "head_dim": 4},
    "minimax": MINIMAX,
    "mamba": MAMBA,
}


@pytest.mark.parametrize("name", list(GATED))
def test_the_share_of_a_gate_counts_with_the_querys_own_token(name: str) -> None:
    analyzer, numbers = ns.load(tiny(name, AutoModelForCausalLM, **GATED[name])), ids(5, 6, 7, 8, 9, 10)
    fixed, shared = (analyzer.analyze(numbers, gates=gates) for gates in ("fixed", "joint"))
    assert isinstance(fixed, ns.Analysis)
    assert isinstance(shared, ns.Analysis)
    assert shared.dataset.attrs["gates"] == "joint"
    assert float(shared.completeness.max()) < 1e-5
    ratios: Any = analyzer.mixing_ratios(numbers, gates="joint")
    differences = list[float]()
    for layer, trace in enumerate(analyzer.traces(numbers), start=1):
        gated = any(step.gating is not None for step in trace.steps if isinstance(step, Attention))
        for scope, truth in oracle(trace, gates="joint").items():
            own = shared.map(scope).sel(layer=layer).values
            scale = float(truth.map.nan_to_num().max())
            np.testing.assert_allclose(own / scale, truth.map.numpy() / scale, rtol=0, atol=1e-5)
            ratio = ratios.sel(scope=scope, layer=layer).values
            np.testing.assert_allclose(ratio, truth.mixing_ratio.numpy(), rtol=0, atol=1e-5)
            before = fixed.map(scope).sel(layer=layer).values
            differences += [float(np.nanmax(np.abs(own - before)) / scale)] if gated else []
    assert max(differences) > 1e-2


def test_gates_that_share_are_not_pulled_back() -> None:
    analyzer = ns.load(tiny("qwen3_5_text", AutoModelForCausalLM, **QWEN3_5))
    given: list[dict[str, Any]] = [{"heads": True}, {"projections": True}, {"method": "alti"}]
    for options in given:
        with pytest.raises(ns.NormscopeError, match="gates"):
            analyzer.analyze(ids(5, 6, 7), gates="joint", **options)
    with pytest.raises(ns.InputError, match="fixed, joint"):
        gates_of("both")


def test_an_input_with_too_many_weights_by_channel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "MOST_WEIGHTS", 48 * 16)
    analyzer = ns.load(tiny("mamba", AutoModelForCausalLM, **MAMBA))
    analyzer.analyze(ids(5, 6, 7, 8))
    with pytest.raises(ns.InputError, match="may have 4 tokens"):
        analyzer.analyze(ids(5, 6, 7, 8, 9))


def test_experiments_on_attention_weights_refuse_weights_of_either_sign() -> None:
    analysis = ns.load(tiny("minimax", AutoModelForCausalLM, **MINIMAX)).analyze(ids(5, 6, 7, 8), heads=True)
    assert isinstance(analysis, ns.Analysis)
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"layer 1, 3 .* without a softmax"):
        Observation(analysis, 0).attention_weights()


@pytest.mark.parametrize(("name", "sizes"), [("minimax", MINIMAX), ("nemotron_h", NEMOTRON_H)])
def test_the_expansion_rate_is_that_of_attention_alone(name: str, sizes: dict[str, Any]) -> None:
    with pytest.raises(ns.UnsupportedArchitectureError, match="attention alone"):
        ExpansionRate().from_model(ns.load(tiny(name, AutoModelForCausalLM, **sizes)))


def test_weights_of_yoso_are_divided_by_the_length_of_what_a_head_outputs() -> None:
    model = tiny("yoso").double().eval()
    analysis = ns.load(model).analyze(ids(5, 6, 7, 8))
    assert isinstance(analysis, ns.Analysis)
    attention: Any = model.get_submodule("encoder.layer.0.attention.self")
    with torch.no_grad():
        states = model.embeddings(torch.tensor([[5, 6, 7, 8]]))  # type: ignore[operator]
        parts = [
            getattr(attention, name)(states)[0].unflatten(-1, (3, -1)).transpose(0, 1) for name in ("query", "key")
        ]
        query, key = (torch.nn.functional.normalize(part, dim=-1) for part in parts)
        value = attention.value(states)[0].unflatten(-1, (3, -1)).transpose(0, 1)
        expected = (1 - torch.acos(query @ key.mT) / torch.pi) ** model.config.hash_code_len
        expected /= (expected @ value).norm(dim=-1, keepdim=True)
    np.testing.assert_allclose(analysis.map("AttnW").sel(layer=1).values, expected.mean(0).numpy(), rtol=1e-9)


@pytest.mark.parametrize("change", [{"use_expectation": False}, {"conv_window": 3}])
def test_a_yoso_with_hashes_or_a_convolution_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ns.UnsupportedArchitectureError, match="without a convolution is analysed"):
        ns.load(tiny("yoso", **change)).analyze(ids(5, 6, 7))
