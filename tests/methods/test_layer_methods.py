"""Methods of layers against their definitions, computed from the oracle's parts in float64, for every topology."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import normscope as ns
from methods.samples import IDS, SIGNED_WEIGHTS, asked, assert_close, double, every_model, traces
from normscope.chain.trace import Attention, CrossAttention, LayerNorm, LayerTrace, Normalise, OwnFeedForward
from normscope.explorer.payload import build_payload
from normscope.methods import available_methods
from normscope.output.export import export_map
from normscope.testing.oracle import OracleResult, oracle

AFTER_ATTENTIONS = {
    "bert": "AttnResLn",
    "bart": "AttnResLnCrossResLn",
    "t5": "AttnResLnCrossRes",
    "gptj": "AttnFfRes",
    "gpt_neox": "AttnFfRes",
    "gemma2": "AttnLnRes",
    "olmo2": "AttnLnRes",
}
"""Where ALTI looks; in all other models at `AttnRes`."""

WITHOUT_FEED_FORWARD = {
    "bert": "AttnResLnResLn",
    "bart": "AttnResLnCrossResLnResLn",
    "t5": "AttnResLnCrossResRes",
    "gptj": "AttnRes",
    "gpt_neox": "AttnRes",
    "gemma2": "AttnLnResRes",
    "olmo2": "AttnLnResRes",
}
"""How GlobEnc's scope is called; in all other models `AttnResRes`."""


def _rows(values: Tensor, truth: OracleResult) -> Tensor:
    """Rows that add up to 1, missing where a key does not exist."""
    return (values / values.sum(-1, keepdim=True)).masked_fill(~truth.present, torch.nan)


@every_model
def test_alti_is_how_much_closer_a_part_brings_the_state(name: str) -> None:
    analyzer, scope = double(name), AFTER_ATTENTIONS.get(name, "AttnRes")
    analysis = analyzer.analyze(IDS, method="alti", **asked(analyzer))
    assert analysis.scopes == [scope]
    for layer, trace in enumerate(traces(analyzer), start=1):
        truth = oracle(trace)[scope]
        state = truth.state
        distance = (state[:, None] - truth.parts).abs().sum(-1)
        closer = (state.abs().sum(-1)[:, None] - distance).clamp(min=0)
        assert_close(analysis.map(scope).sel(layer=layer), _rows(closer, truth))


@every_model
def test_globenc_is_the_norm_of_the_parts_without_the_feed_forward(name: str) -> None:
    analyzer, scope = double(name), WITHOUT_FEED_FORWARD.get(name, "AttnResRes")
    analysis = analyzer.analyze(IDS, method="globenc", **asked(analyzer))
    assert analysis.scopes == [scope]
    for layer, trace in enumerate(traces(analyzer), start=1):
        truth = _without_feed_forward(trace, AFTER_ATTENTIONS.get(name, "AttnRes"))
        assert_close(analysis.map(scope).sel(layer=layer), truth)


def test_globenc_multiplies_norms_as_they_are_as_its_authors_do_or_shares_of_rows_by_name() -> None:
    analyzer = double("bert")
    plain = analyzer.analyze(IDS, method="globenc")
    shares = analyzer.analyze(IDS, method=ns.method("globenc", normalise=True))
    maps = plain.map("AttnResLnResLn").values
    scaled = maps / maps.sum(-1, keepdims=True)
    assert_close(plain.rollout().values[-1], _product(maps))
    assert_close(shares.rollout().values[-1], _product(scaled))
    assert_close(plain.rollout(normalise=True).values[-1], _product(scaled))
    assert_close(plain.rollout().values[0], maps[0])
    assert abs(plain.rollout().values[-1].sum(-1) - 1).min() > 0.1


def _product(maps: np.ndarray) -> np.ndarray:
    """The map of the last layer times those below it."""
    product = maps[0]
    for each in maps[1:]:
        product = each @ product
    return product


def _without_feed_forward(trace: LayerTrace, scope: str) -> Tensor:
    """`[query, key]`: with the second norm of a post-norm block, by the deviation of the whole state before it."""
    results = oracle(trace)
    if any(isinstance(step, OwnFeedForward) for step in trace.steps):
        truth = results["Attn"]
        parts = truth.parts.clone()
        parts[range(trace.length), range(trace.length)] += trace.hidden.double()
        return parts.norm(dim=-1).masked_fill(~truth.present, torch.nan)
    truth = results[scope]
    last = trace.steps[-1]
    if not isinstance(last, Normalise):
        return truth.map
    assert isinstance(last.norm, LayerNorm)
    before = list(results.values())[-2].state
    deviation = (before.var(-1, correction=0) + last.norm.epsilon).sqrt()
    centred = truth.parts - truth.parts.mean(-1, keepdim=True)
    norms = (centred * last.norm.weight.double()).norm(dim=-1) / deviation[:, None]
    return norms.masked_fill(~truth.present, torch.nan)


@every_model
def test_contribution_weights_are_weight_times_size_times_alignment(name: str) -> None:
    analyzer = double(name)
    analysis = analyzer.analyze(IDS, method="contribution-weights", heads=True, **asked(analyzer))
    for layer, trace in enumerate(traces(analyzer), start=1):
        results = oracle(trace)
        attentions = [step for step in trace.steps if isinstance(step, Attention)]
        assert len(analysis.dataset["scope"]) == len(attentions)
        for scope, step in zip(map(str, analysis.dataset["scope"].values), attentions, strict=True):
            by_head = _aligned(step, results[scope].state)
            columns = slice(trace.length, None) if isinstance(step, CrossAttention) else slice(0, trace.length)
            heads = analysis.map(scope, heads=True).sel(layer=layer).values
            present = results[scope].present.numpy()
            assert np.isnan(heads[len(by_head) :]).all()  # another layer may have more heads
            heads = heads[: len(by_head)]
            assert_close(heads[..., columns], by_head.masked_fill(~results[scope].present[:, columns], torch.nan))
            whole = analysis.map(scope).sel(layer=layer).values
            assert_close(np.nan_to_num(whole), np.nan_to_num(heads).sum(0))
            assert (np.isnan(whole) == ~present).all()


def _aligned(step: Attention, state: Tensor) -> Tensor:
    """One head after another: the parts of a trace that has no other."""
    heads = len(step.output)
    by_head: list[Tensor] = []
    for head in range(heads):
        weights, values = (
            each.double() * (torch.arange(len(each)) % heads == head)[:, None, None]
            for each in (step.weights, step.values)
        )
        contexts = torch.einsum("thik,thke->ikhe", *(each.unflatten(0, (-1, heads)) for each in (weights, values)))
        factors = 1 if step.factors is None else step.factors.double().transpose(0, 1)[:, None]
        vectors = torch.einsum("ikhe,hed->ikd", contexts * factors, step.output.double())
        by_head.append(vectors.norm(dim=-1) * torch.nn.functional.cosine_similarity(vectors, state[:, None], dim=-1))
    return torch.stack(by_head)


def test_contribution_weights_add_up_to_the_size_of_the_output_without_its_bias() -> None:
    analyzer = double("llama", attention_bias=False)
    analysis = analyzer.analyze(IDS, method="contribution-weights")
    sizes = np.stack([oracle(trace)["Attn"].state.norm(dim=-1).numpy() for trace in traces(analyzer)])
    np.testing.assert_allclose(analysis.map("Attn").sum("key").values, sizes, rtol=1e-6)


@every_model
def test_attention_rollout_is_the_product_of_half_attention_half_identity(name: str) -> None:
    analyzer = double(name)
    analysis = analyzer.analyze(IDS, method="attention-rollout", **asked(analyzer))
    truth: Tensor | None = None
    for layer, trace in enumerate(traces(analyzer), start=1):
        attention = next(step for step in trace.steps if isinstance(step, Attention))
        weights = attention.mixing_weights.double().mean(0)
        both = 0.5 * weights + 0.5 * torch.eye(trace.length)
        both = both / both.abs().sum(-1, keepdim=True)
        truth = both if truth is None else both @ truth
        rolled = analysis.rollout().sel(layer=layer).values[:, : trace.length]
        assert_close(np.nan_to_num(rolled), truth)


@every_model
def test_every_method_is_proved_and_rolls_out(name: str) -> None:
    analyzer = double(name)
    for each in available_methods("layer maps"):
        analysis = analyzer.analyze(IDS, method=each.name, **asked(analyzer))
        assert float(analysis.completeness.max()) < analyzer.tolerance
        whole = analysis.rollout(analysis.scopes[-1] if each.name in ("norms", "projections") else None)
        assert whole.dims == ("layer", "query", "key")
        assert np.isfinite(whole.sum("key").values).all()
        if not each.signed and each.name != "globenc":  # whose norms are multiplied as they are
            signed = (
                each.name in ("attention-rollout", "norms") and name in SIGNED_WEIGHTS
            )  # half weights, half identity
            sums = (abs(whole) if signed else whole).sum("key").values
            assert (sums <= 1 + 1e-6).all() if signed else np.allclose(sums, 1, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["llama", "bart"])
def test_some_layers_and_queries_are_those_of_the_whole(name: str) -> None:
    analyzer = double(name)
    for each in available_methods("layer maps"):
        options = {**asked(analyzer), "method": each.name}
        whole = analyzer.analyze(IDS, **options)
        row = analyzer.analyze(IDS, layers=[2], queries=[-1, 0], **options)
        scope = whole.scopes[0]
        assert row.layers == [2]
        last = whole.map(scope).sizes["query"] - 1
        assert row.map(scope)["query"].values.tolist() == [last, 0]
        np.testing.assert_allclose(
            row.map(scope).values[0], whole.map(scope).sel(layer=2).values[[last, 0]], rtol=1e-6, atol=1e-9
        )


def test_a_list_gives_what_each_gives_alone() -> None:
    analyzer = double("bert")
    sequences = [[5, 6, 7, 8], [9, 10, 11]]
    padded = {"input_ids": [[5, 6, 7, 8], [9, 10, 11, 1]], "attention_mask": [[1, 1, 1, 1], [1, 1, 1, 0]]}
    for each in available_methods("layer maps"):
        together = analyzer.analyze(padded, method=each.name)
        assert isinstance(together, list)
        for analysis, ids in zip(together, sequences, strict=True):
            alone = analyzer.analyze({"input_ids": [ids]}, method=each.name)
            scope = alone.scopes[0]
            np.testing.assert_allclose(analysis.map(scope).values, alone.map(scope).values, rtol=1e-6, atol=1e-9)


def test_every_method_goes_to_files_pictures_and_the_explorer(analyzer: ns.Analyzer, tmp_path: Path) -> None:
    for each in available_methods("layer maps"):
        analysis = analyzer.analyze("The cat sat on the unaffable mat.", method=each.name)
        scope = analysis.scopes[0]
        analysis.save(tmp_path / f"{each.name}.nc")
        assert ns.open(tmp_path / f"{each.name}.nc").dataset.identical(analysis.dataset)
        export_map(analysis, tmp_path / f"{each.name}.csv", scope)
        assert analysis.plot(scope, layer=2).axes
        (content,) = build_payload(analysis)["analyses"]
        assert (content["method"], content["quantity"]) == (each.name, _quantity(analysis))
        words = analysis.words()
        assert words.map(scope).sizes["key"] == len(words.tokens) < len(analysis.tokens)
        assert words.rollout(scope).sizes["query"] == len(words.tokens)


def _quantity(analysis: ns.Analysis) -> str:
    return str(analysis.dataset["map"].attrs["quantity"])


def test_maps_of_other_methods_have_no_mixing_ratios() -> None:
    with pytest.raises(ns.SelectionError, match="maps of the method 'alti' have none"):
        double("bert").analyze(IDS, method="alti").mixing_ratio("AttnResLn")
