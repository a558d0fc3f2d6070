"""Causal models: keys that do not exist, padding, cached generation, sinks, weights of low precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.tiny_architectures import (
    EXPERTS,
    GPT2,
    GROUPED,
    ids,
    tiny,
)

import normscope as ns


def test_keys_after_the_query_are_missing(llama: ns.Analyzer) -> None:
    analysis = llama.analyze(ids(5, 6, 7, 8), heads=True)
    for scope in llama.scopes:
        missing = np.isnan(analysis.map(scope).values)
        assert (missing == np.triu(np.ones((4, 4), bool), 1)).all(), scope
    assert np.isnan(analysis.map("Attn", heads=True).values[..., 0, 1]).all()


def test_one_query_costs_one_row_and_equals_that_of_the_whole(llama: ns.Analyzer) -> None:
    whole, row = llama.analyze(ids(5, 6, 7, 8)), llama.analyze(ids(5, 6, 7, 8), queries=-1)
    assert row.map("Attn").sizes["query"] == 1
    for scope in llama.scopes:
        np.testing.assert_allclose(row.map(scope).values[:, 0], whole.map(scope).values[:, -1], rtol=1e-4, atol=1e-6)


def test_left_and_right_padding_give_the_same(llama: ns.Analyzer) -> None:
    left = llama.analyze({"input_ids": [[1, 1, 5, 6, 7]], "attention_mask": [[0, 0, 1, 1, 1]]})
    right = llama.analyze({"input_ids": [[5, 6, 7, 1, 1]], "attention_mask": [[1, 1, 1, 0, 0]]})
    np.testing.assert_array_equal(left.map("AttnResLnFfRes").values, right.map("AttnResLnFfRes").values)


def test_cached_generation_is_unaffected_by_an_analysis(llama: ns.Analyzer) -> None:
    prompt = torch.tensor([[5, 6, 7]])
    generate = lambda: llama.model.generate(prompt, max_new_tokens=5, do_sample=False, use_cache=True)  # noqa: E731  # type: ignore[operator]
    before = generate()
    llama.analyze(ids(5, 6, 7, 8))
    assert torch.equal(generate(), before)


def test_attention_sinks_keep_their_lost_mass_visible() -> None:
    analyzer = ns.load(tiny("gpt_oss", **GROUPED, **EXPERTS))
    sums = analyzer.analyze(ids(5, 6, 7, 8), scopes="AttnW").map("AttnW").sum("key").values
    assert (sums < 0.999).all()


def test_a_target_for_a_decoder_only_model_is_refused(llama: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="no encoder"):
        llama.analyze(ids(5, 6), decoder_text=ids(5, 6))


def test_a_scope_that_the_topology_lacks_is_refused_with_those_it_has() -> None:
    analyzer = ns.load(tiny("gptj", **GPT2, rotary_dim=4))
    with pytest.raises(ns.ScopeError, match="AttnW, Attn, AttnFf, AttnFfRes"):
        analyzer.analyze(ids(5, 6), scopes="AttnResLnFf")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_analysed_in_float32(dtype: torch.dtype) -> None:
    model = tiny("llama", **GROUPED).to(dtype)
    analysis = ns.load(model).analyze(ids(5, 6, 7, 8, 9))
    assert analysis.map("Attn").dtype == np.float32
    assert float(analysis.completeness.max()) < analysis.attrs["tolerance"]


def test_a_quantised_model_is_probed_for_its_hidden_matrices() -> None:
    model = tiny("llama", **GROUPED)
    expected = ns.load(model).analyze(ids(5, 6, 7), scopes="AttnRes").map("AttnRes").values
    for layer in model.layers:  # type: ignore[union-attr]
        layer.self_attn.o_proj = _HiddenLinear(layer.self_attn.o_proj)
    found = ns.load(model).analyze(ids(5, 6, 7), scopes="AttnRes").map("AttnRes").values
    np.testing.assert_allclose(found, expected, rtol=1e-4)


class _HiddenLinear(torch.nn.Module):
    """A linear layer that does not show its matrix, as packed and quantised ones do not."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.packed = torch.nn.Parameter(linear.weight.detach().flatten())

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states @ self.packed.view(-1, self.in_features).T
