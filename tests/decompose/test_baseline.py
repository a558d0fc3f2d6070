"""Integrated gradients that start from the bias: against the oracle, which integrates along that path itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from methods.samples import IDS, asked, assert_close, double, every_model, traces
from support.traces import Shape, make_trace
from transformers import AutoModelForCausalLM, BertConfig, BertModel

import normscope as ns
from normscope.chain.baseline import BiasBaseline, baseline
from normscope.chain.linear import linearised
from normscope.chain.trace import FeedForward, LayerTrace, Plain
from normscope.decompose import LayerRequest, decompose, decomposed
from normscope.errors import InputError
from normscope.testing.oracle import oracle

from .truth import BOTH_DIRECTIONS, EVERY_TOPOLOGY, FLOAT32, FLOAT64, SHAPES, all_scopes, assert_correct


def has_biases(analyzer: ns.Analyzer) -> bool:
    """Whether there are biases that belong to no token: those of values do, and those of step sizes are in the weights."""
    names = [name for name, _ in analyzer.model.named_parameters() if not name.endswith(("dt_bias", "conv1d.bias"))]
    return any(name.endswith("bias") for name in names)


def started(trace: LayerTrace, value_bias: str = "token") -> LayerTrace:
    assert value_bias in ("token", "bias")
    return BiasBaseline("bias" if value_bias == "bias" else "token").applied(trace)


@EVERY_TOPOLOGY
@BOTH_DIRECTIONS
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=["float32", "float64"])
@pytest.mark.parametrize("value_bias", ["token", "bias"])
def test_maps_ratios_and_completeness_are_those_of_the_oracle(
    topology: str, causal: bool, dtype: torch.dtype, value_bias: str
) -> None:
    trace = make_trace(topology, Shape(causal=causal, dtype=dtype, value_bias=value_bias))
    truth = oracle(trace, value_bias=value_bias, ff_baseline="bias")
    result = decompose(started(trace, value_bias), all_scopes(trace), value_bias=value_bias)
    assert_correct(result, trace, truth)
    ratios = decomposed(
        started(trace, value_bias), LayerRequest(ratios=tuple(all_scopes(trace)), value_bias=value_bias)
    )
    last = list(truth)[-1]
    assert_close(ratios.mixing[last], truth[last].mixing_ratio, 1e-5 if dtype == FLOAT32 else 1e-10)


@EVERY_TOPOLOGY
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape_is_followed(topology: str, shape: Shape) -> None:
    trace = make_trace(topology, shape)
    result = decompose(started(trace, shape.value_bias), all_scopes(trace), value_bias=shape.value_bias)
    assert_correct(result, trace, oracle(trace, value_bias=shape.value_bias, ff_baseline="bias"))


@EVERY_TOPOLOGY
def test_the_bias_keeps_what_the_network_makes_of_it_alone(topology: str) -> None:
    """`g(z) W2 + b2` of the state without any token, by the model's own function, written out."""
    trace = started(make_trace(topology, Shape(dtype=FLOAT64)))
    for step in (step for step in trace.steps if isinstance(step, FeedForward)):
        for expert, made in zip(step.experts, linearised(step), strict=True):
            assert expert.baselines is not None
            network = expert.network
            if isinstance(network, Plain):
                (z,) = expert.baselines
                alone = network.activation.function(z)
            else:
                a, u = expert.baselines
                alone = network.activation.function(a) * (
                    u.clamp(-network.up_limit, network.up_limit) + network.up_offset
                )
            neurons = made.constant.clone()
            for slope, start in zip(made.slopes, expert.baselines, strict=True):
                neurons += slope * start
            torch.testing.assert_close(neurons, expert.weights[:, None] * alone)


def test_rows_of_a_trace_keep_their_baselines() -> None:
    trace, rows = started(make_trace("mixture", Shape())), torch.tensor([3, 1])
    (whole,) = (step for step in trace.steps if isinstance(step, FeedForward))
    (some,) = (step for step in trace.select(rows).steps if isinstance(step, FeedForward))
    serving = [expert for expert in whole.experts if 3 in expert.rows.tolist()]
    selected = [expert for expert in some.experts if 0 in expert.rows.tolist()]
    for before, after in zip(serving, selected, strict=True):
        assert before.baselines is not None and after.baselines is not None
        place, new = before.rows.tolist().index(3), after.rows.tolist().index(0)
        for full, chosen in zip(before.baselines, after.baselines, strict=True):
            assert torch.equal(full[place], chosen[new])


# ---- real topologies, from the analyzer --------------------------------------------------------------------------------


@every_model
def test_an_analysis_from_the_bias_is_the_oracles_and_says_so(name: str) -> None:
    analyzer = double(name)
    options = asked(analyzer)
    analysis = analyzer.analyze(IDS, ff_baseline="bias", **options)
    assert analysis.attrs["ff_baseline"] == "bias"
    scope = str(analyzer.scopes[-1])
    zero = analyzer.analyze(IDS, scopes=[scope], **options)
    assert zero.attrs["ff_baseline"] == "zero"
    for layer, trace in enumerate(traces(analyzer), start=1):
        truth = oracle(trace, ff_baseline="bias")[scope].map
        assert_close(analysis.map(scope).sel(layer=layer), truth)
    same = np.allclose(np.nan_to_num(analysis.map(scope).values), np.nan_to_num(zero.map(scope).values), rtol=1e-9)
    assert same != has_biases(analyzer)
    ratios = analyzer.mixing_ratios(IDS, scopes=[scope], ff_baseline="bias", **options)
    assert_close(ratios.values[0], analysis.mixing_ratio(scope).values)
    assert ratios.attrs["ff_baseline"] == "bias"


def test_projections_from_the_bias_are_those_of_the_parts() -> None:
    analyzer = double("bert")
    analysis = analyzer.analyze(IDS, method="projections", ff_baseline="bias")
    for layer, trace in enumerate(traces(analyzer), start=1):
        truth = oracle(trace, ff_baseline="bias")["AttnResLnFfResLn"]
        state = truth.state
        shares = (truth.parts * state[:, None]).sum(-1) / state.square().sum(-1, keepdim=True)
        assert_close(analysis.map("AttnResLnFfResLn").sel(layer=layer), shares)


@every_model
def test_a_pull_back_from_the_bias_adds_up_and_is_what_decompx_carries(name: str) -> None:
    analyzer = double(name)
    if analyzer.family.encoder is not None:
        pytest.skip("DecompX carries parts through one stack of layers")
    options: dict[str, Any] = {"direction": "state", "at": -1, "ff_baseline": "bias", "dtype": torch.float64}
    pulled = analyzer.explain(IDS, **options)
    carried = analyzer.explain(IDS, method=ns.method("decompx", bias="apart"), **options)
    assert pulled.adds_up and pulled.dataset.attrs["ff_baseline"] == "bias"
    assert_close(pulled.attribution.values, carried.attribution.values)
    if has_biases(analyzer):
        zero = analyzer.explain(IDS, **{**options, "ff_baseline": "zero"})
        assert not np.allclose(pulled.attribution.values, zero.attribution.values, rtol=1e-6)


def test_the_pull_back_through_one_layer_is_that_of_the_oracles_parts() -> None:
    """In a post-norm block all that is not linear in the states is the bias, with that of the values."""
    config = BertConfig(vocab_size=40, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20)
    torch.manual_seed(0)
    model = BertModel(config).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    analyzer = ns.load(model)
    direction = torch.randn(12, dtype=torch.float64)
    explained = analyzer.explain(IDS, direction=direction, at=2, ff_baseline="bias")
    (trace,) = analyzer.traces(IDS)
    truth = oracle(trace, value_bias="bias", ff_baseline="bias")["AttnResLnFfResLn"]
    assert_close(explained.attribution.values, truth.parts[2] @ direction, 1e-9)


def test_propagated_parts_have_the_same_baseline_as_the_pull_back() -> None:
    analyzer = double("bert")
    maps = analyzer.analyze(IDS, method="propagated", ff_baseline="bias")
    zero = analyzer.analyze(IDS, method="propagated")
    assert maps.attrs["ff_baseline"] == "bias"
    scope = str(maps.scopes[-1])
    assert not np.allclose(maps.map(scope).values, zero.map(scope).values, rtol=1e-6)


# ---- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unchecked_types")
def test_another_baseline_and_methods_without_one_are_refused() -> None:
    analyzer = double("bert")
    with pytest.raises(InputError, match=r"\(ff_baseline\) start at zero, bias, not at 'mean'"):
        analyzer.analyze(IDS, ff_baseline="mean")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="does not take ff_baseline"):
        analyzer.analyze(IDS, method="alti", ff_baseline="bias")
    with pytest.raises(InputError, match="no baseline of feed-forwards"):
        analyzer.explain(IDS, direction="state", at=0, method="gradient-norm", ff_baseline="bias")
    assert baseline("zero", "token") is None


def test_a_bias_free_causal_model_is_the_same_from_both() -> None:
    analyzer = double("llama", AutoModelForCausalLM, attention_bias=False, mlp_bias=False)
    options: dict[str, Any] = {"dtype": torch.float64}
    one, other = (analyzer.explain(IDS, ff_baseline=each, **options) for each in ("zero", "bias"))
    assert_close(one.attribution.values, other.attribution.values)
