"""Mixers without softmax, and gates: effective weights, lengths around kernels and chunks, signs, refusals."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import CONVOLUTIONS, FALCON_H1, GROUPED, QWEN3_5, STATE_SPACE, ids, tiny
from transformers import AutoModelForCausalLM
from transformers.models.qwen3_5 import modeling_qwen3_5

import normscope as ns
from normscope.chain.trace import Attention, LayerTrace
from normscope.decompose import decompose
from normscope.plots import plot_map
from normscope.testing import assert_explained
from normscope.testing.oracle import oracle

MODELS: dict[str, dict[str, Any]] = {
    "qwen3_5_text": QWEN3_5,
    "bamba": {**GROUPED, **STATE_SPACE, "num_hidden_layers": 3, "attn_layer_indices": [1]},
    "falcon_h1": FALCON_H1,
    "mamba2": dict(num_heads=4, head_dim=12, state_size=6, n_groups=2, chunk_size=4, conv_kernel=3),
    "lfm2": {**GROUPED, **CONVOLUTIONS, "block_auto_adjust_ff_dim": False},
}
every_mixer = pytest.mark.parametrize("name", list(MODELS))


@pytest.fixture(scope="module")
def analyzers() -> dict[str, ns.Analyzer]:
    return {name: ns.load(tiny(name, AutoModelForCausalLM, **sizes)) for name, sizes in MODELS.items()}


def mixer(trace: LayerTrace) -> Attention:
    return next(step for step in trace.steps if isinstance(step, Attention))


@every_mixer
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8])
def test_inputs_shorter_and_longer_than_kernel_and_chunk(
    name: str, length: int, analyzers: dict[str, ns.Analyzer]
) -> None:
    analyzer, numbers = analyzers[name], ids(*range(5, 5 + length))
    analysis = analyzer.analyze(numbers)
    for layer, trace in enumerate(analyzer.traces(numbers), start=1):
        for scope, truth in oracle(trace).items():
            own = analysis.map(scope).sel(layer=layer).values
            scale = float(truth.map.nan_to_num().max())
            np.testing.assert_allclose(own / scale, truth.map.numpy() / scale, rtol=0, atol=1e-5)
    if length > 1:  # otherwise no token is left to leave out
        assert_explained(analyzer.model, {"input_ids": torch.tensor(numbers["input_ids"])})


def test_an_input_longer_than_the_chunk_of_the_delta_rule(analyzers: dict[str, ns.Analyzer]) -> None:
    numbers = {"input_ids": torch.randint(3, 40, (1, 70), generator=torch.Generator().manual_seed(0))}
    analyzer = analyzers["qwen3_5_text"]
    analysis = analyzer.analyze(numbers, scopes=["AttnW", "AttnResLnFfRes"])
    assert float(analysis.completeness.max()) < 1e-4
    assert_explained(analyzer.model, numbers)


def test_effective_weights_and_values_make_what_the_models_own_function_gives_out(
    analyzers: dict[str, ns.Analyzer],
) -> None:
    """The state of the gated delta rule, token by token: `S <- e^g S`, `S <- S + k (beta (v - S^T k))^T`, `o = S^T q`."""
    analyzer, numbers = analyzers["qwen3_5_text"], ids(5, 6, 7, 8, 9, 10)
    trace = analyzer.traces(numbers)[0]
    step, block = mixer(trace), analyzer.model.base_model.layers[0]
    net, normed = block.linear_attn, block.input_layernorm(trace.hidden[None])
    with torch.no_grad():
        mixed = net.in_proj_qkv(normed).transpose(1, 2)
        mixed = torch.nn.functional.silu(net.conv1d(mixed)[..., :6]).transpose(1, 2)[0].double()
        query, key, value = mixed.split([net.key_dim, net.key_dim, net.value_dim], -1)
        beta = net.in_proj_b(normed)[0].sigmoid().double()
        decay = (-net.A_log.exp() * torch.nn.functional.softplus(net.in_proj_a(normed)[0] + net.dt_bias)).double()
    heads, repeats = net.num_v_heads, net.num_v_heads // net.num_k_heads
    query, key = (each.unflatten(-1, (net.num_k_heads, -1)).repeat_interleave(repeats, 1) for each in (query, key))
    query, key = (each * (each.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for each in (query, key))
    value = value.unflatten(-1, (heads, -1))
    state = torch.zeros(heads, query.shape[-1], value.shape[-1], dtype=torch.float64)
    outputs: list[torch.Tensor] = []
    for q, k, v, b, g in zip(query, key, value, beta, decay, strict=True):
        state = state * g.exp()[:, None, None]
        read = torch.einsum("hkv,hk->hv", state, k)
        state = state + torch.einsum("hk,hv->hkv", k, b[:, None] * (v - read))
        outputs.append(torch.einsum("hkv,hk->hv", state, q * q.shape[-1] ** -0.5))
    context = step.summed_taps(step.weights @ step.values).transpose(0, 1)
    torch.testing.assert_close(context.double(), torch.stack(outputs), rtol=1e-4, atol=1e-5)
    assert bool((step.mixing_weights < 0).any())


def test_a_state_space_has_the_weights_of_its_definition(analyzers: dict[str, ns.Analyzer]) -> None:
    """`A[i, j] = C_i . B_j dt_j exp(sum of dt a from j + 1 to i)`, and `D` more on the diagonal."""
    analyzer, numbers = analyzers["mamba2"], ids(5, 6, 7, 8, 9, 10)
    trace = analyzer.traces(numbers)[0]
    block = analyzer.model.base_model.layers[0]
    net = block.mixer
    with torch.no_grad():
        _, mixed, steps = net.in_proj(block.norm(trace.hidden[None])).split(
            [net.intermediate_size, net.conv_dim, net.num_heads], -1
        )
        mixed = torch.nn.functional.silu(net.conv1d(mixed.transpose(1, 2))[..., :6]).transpose(1, 2)[0].double()
        dt = torch.nn.functional.softplus(steps[0] + net.dt_bias).clamp(*net.time_step_limit).double()
    width = net.n_groups * net.ssm_state_size
    _, b, c = mixed.split([net.intermediate_size, width, width], -1)
    each = net.num_heads // net.n_groups
    b, c = (part.unflatten(-1, (net.n_groups, -1)).repeat_interleave(each, 1) for part in (b, c))
    passed = (dt * -net.A_log.detach().double().exp()).cumsum(0)
    decay = (passed[:, None] - passed).exp()
    truth = torch.einsum("ihn,jhn,ijh,jh->hij", c, b, decay, dt).tril()
    truth = truth + torch.diag_embed(net.D.detach().double()[:, None].expand(-1, 6))
    torch.testing.assert_close(mixer(trace).mixing_weights.double(), truth, rtol=1e-4, atol=1e-5)


@every_mixer
def test_left_and_right_padding_give_the_same(name: str, analyzers: dict[str, ns.Analyzer]) -> None:
    left = analyzers[name].analyze({"input_ids": [[1, 1, 5, 6, 7]], "attention_mask": [[0, 0, 1, 1, 1]]})
    right = analyzers[name].analyze({"input_ids": [[5, 6, 7, 1, 1]], "attention_mask": [[1, 1, 1, 0, 0]]})
    for scope in analyzers[name].scopes:
        np.testing.assert_array_equal(left.map(scope).values, right.map(scope).values)


@every_mixer
def test_cached_generation_is_unaffected_by_an_analysis(name: str, analyzers: dict[str, ns.Analyzer]) -> None:
    model: Any = analyzers[name].model
    prompt = torch.tensor([[5, 6, 7]])
    before = model.generate(prompt, max_new_tokens=4, do_sample=False, use_cache=True)
    analyzers[name].analyze(ids(5, 6, 7, 8))
    assert torch.equal(model.generate(prompt, max_new_tokens=4, do_sample=False, use_cache=True), before)


def test_the_functions_of_the_modelling_file_are_put_back(analyzers: dict[str, ns.Analyzer]) -> None:
    from transformers.models.qwen3_5 import modeling_qwen3_5  # noqa: PLC0415  (named here alone)

    before = modeling_qwen3_5.torch_chunk_gated_delta_rule
    analyzers["qwen3_5_text"].analyze(ids(5, 6, 7))
    assert modeling_qwen3_5.torch_chunk_gated_delta_rule is before
    with pytest.raises(ns.InputError):
        analyzers["qwen3_5_text"].analyze({"input_ids": [[10**6]]})
    assert modeling_qwen3_5.torch_chunk_gated_delta_rule is before


def test_signed_weights_still_have_mixing_ratios_between_zero_and_one(analyzers: dict[str, ns.Analyzer]) -> None:
    analysis = analyzers["bamba"].analyze(ids(5, 6, 7, 8, 9), scopes=["AttnW", "Attn"])
    assert (analysis.map("AttnW").values[0] < 0).any()
    ratios = analysis.dataset["mixing_ratio"].values
    assert ((ratios >= 0) & (ratios <= 1)).all()


def test_signed_weights_are_drawn_around_zero(analyzers: dict[str, ns.Analyzer]) -> None:
    analysis = analyzers["bamba"].analyze(ids(5, 6, 7, 8, 9), scopes=["AttnW", "Attn"])
    for scope, signed in (("AttnW", True), ("Attn", False)):
        axes = plot_map(analysis, scope, 1).axes[0]
        drawn = [each for each in (*axes.images, *axes.collections) if each.get_array() is not None]
        low, high = drawn[0].get_clim()
        assert (low == -high) if signed else (low == 0)


@every_mixer
def test_the_bias_of_a_convolution_can_count_with_the_bias(name: str, analyzers: dict[str, ns.Analyzer]) -> None:
    analyzer, numbers = analyzers[name], ids(5, 6, 7, 8, 9)
    for trace in analyzer.traces(numbers):
        result = decompose(trace, [scope for scope in analyzer.scopes if scope != "AttnW"], value_bias="bias")
        for scope, truth in oracle(trace, value_bias="bias").items():
            torch.testing.assert_close(result.maps[scope].double(), truth.map, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_the_heads_of_an_attention_and_of_a_mixer_beside_it_make_what_each_outputs(
    analyzers: dict[str, ns.Analyzer],
) -> None:
    analyzer, numbers = analyzers["falcon_h1"], ids(5, 6, 7, 8, 9)
    block, outputs = analyzer.model.base_model.layers[0], dict[str, torch.Tensor]()
    for path in ("self_attn.o_proj", "mamba.out_proj"):
        note = functools.partial(lambda path, _, __, output: outputs.update({path: output[0]}), path)
        block.get_submodule(path).register_forward_hook(note)
    step = mixer(analyzer.traces(numbers)[0])
    context = step.summed_taps(step.weights @ step.values)
    assert step.factors is not None
    by_head = torch.einsum("hqe,hed->hqd", context * step.factors, step.output)
    torch.testing.assert_close(by_head[:4].sum(0), 0.94 * outputs["self_attn.o_proj"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(by_head[4:].sum(0), 0.4 * outputs["mamba.out_proj"], rtol=1e-4, atol=1e-5)


def test_a_norm_in_a_mixer_beside_an_attention_is_refused() -> None:
    with pytest.raises(ns.UnsupportedArchitectureError, match="mamba_rms_norm"):
        ns.load(tiny("falcon_h1", AutoModelForCausalLM, **FALCON_H1, mamba_rms_norm=True)).traces(ids(5, 6, 7))


@every_mixer
def test_the_maps_of_heads_are_those_of_the_definition(name: str, analyzers: dict[str, ns.Analyzer]) -> None:
    analyzer, numbers = analyzers[name], ids(5, 6, 7, 8, 9)
    heads = analyzer.analyze(numbers, scopes=["AttnW", "Attn"], heads=True).map("Attn", heads=True)
    for layer, trace in enumerate(analyzer.traces(numbers), start=1):
        step = mixer(trace)
        weights, values = (each.double().unflatten(0, (step.taps, -1)) for each in (step.weights, step.values))
        contexts = torch.einsum("thik,thke->hike", weights, values)
        if step.factors is not None:
            contexts = contexts * step.factors.double()[:, :, None]
        truth = torch.einsum("hike,hed->hikd", contexts, step.output.double()).norm(dim=-1)
        own = torch.from_numpy(heads.sel(layer=layer).values)
        seen = torch.ones(5, 5).tril().bool()
        torch.testing.assert_close(own[: len(truth)][:, seen].double(), truth[:, seen], rtol=1e-4, atol=1e-6)
        assert bool(own[len(truth) :].isnan().all())


def test_approximate_maps_of_gated_parts_are_refused_with_the_reason(analyzers: dict[str, ns.Analyzer]) -> None:
    with pytest.raises(ns.UnsupportedArchitectureError, match="compute them exactly"):
        analyzers["qwen3_5_text"].analyze(ids(5, 6, 7, 8, 9), approximate="sketch")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_proved(dtype: torch.dtype) -> None:
    for name in ("qwen3_5_text", "bamba", "falcon_h1"):
        analyzer = ns.load(tiny(name, AutoModelForCausalLM, **MODELS[name]).to(dtype))
        analysis = analyzer.analyze(ids(5, 6, 7, 8, 9))
        assert float(analysis.completeness.max()) < analyzer.tolerance


def not_linear(function: Any) -> Any:
    """The same function of values that go through a tanh first."""

    @functools.wraps(function)
    def mix(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        return function(query, key, torch.tanh(3 * value), *args, **kwargs)

    return mix


def without_names(function: Any) -> Any:
    """The same function, whose arguments have no names."""

    def mix(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return mix


@pytest.mark.parametrize(
    ("other", "reason"), [(not_linear, "is not what Attn makes of"), (without_names, "without an argument 'value'")]
)
def test_a_mixing_function_that_was_replaced_is_refused(
    other: Callable[[Any], Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "torch_chunk_gated_delta_rule"
    monkeypatch.setattr(modeling_qwen3_5, name, other(getattr(modeling_qwen3_5, name)))
    analyzer = ns.load(tiny("qwen3_5_text", AutoModelForCausalLM, **QWEN3_5))
    for call in (analyzer.analyze, analyzer.explain):
        with pytest.raises(ns.NormscopeError, match=reason):
            call(ids(5, 6, 7, 8))
