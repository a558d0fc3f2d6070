"""Components that few decoders have: numbers of a block, layers that lack components, weights by channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import GEMMA4, GROUPED, MAMBA, MINIMAX, NEMOTRON_H, ids, tiny
from transformers import AutoModelForCausalLM

import normscope as ns
from normscope.capture import scans
from normscope.chain.trace import Attention
from normscope.families import family_of
from normscope.testing import assert_explained, assert_family

ALL_METHODS = ("norms", "alti", "value-zeroing", "globenc", "attention-rollout")


def test_what_leaves_a_block_of_gemma_4_is_multiplied_by_its_number() -> None:
    model = tiny("gemma4_text", AutoModelForCausalLM, **GEMMA4)
    for number, block in enumerate(model.base_model.layers, start=1):
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
    for scope in analysis.scopes:
        assert not np.isinf(analysis.map(scope).values).any()


def test_a_selective_scan_has_the_weights_of_its_definition() -> None:
    """`A[c, i, j] = sum_n C[i, n] exp(sum of dt a from j + 1 to i) dt[j] B[j, n]`, and `D` more on the diagonal."""
    analyzer = ns.load(tiny("mamba", AutoModelForCausalLM, **MAMBA))
    trace = analyzer.traces(ids(5, 6, 7, 8, 9, 10))[0]
    (step,) = [step for step in trace.steps if isinstance(step, Attention)]
    block = analyzer.model.base_model.layers[0]
    net: Any = block.mixer
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


def test_an_input_with_too_many_weights_by_channel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "MOST_WEIGHTS", 48 * 16)
    analyzer = ns.load(tiny("mamba", AutoModelForCausalLM, **MAMBA))
    analyzer.analyze(ids(5, 6, 7, 8))
    with pytest.raises(ns.InputError, match="may have 4 tokens"):
        analyzer.analyze(ids(5, 6, 7, 8, 9))
