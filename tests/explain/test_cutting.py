"""Edges cut in the real model: the same as attention functions whose weights are zero there, which share no code with it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from support.tiny_architectures import BART, GROUPED, ids, tiny
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)
from transformers.masking_utils import eager_mask

import normscope as ns
from normscope.explain.cutting import Edge
from normscope.output.explanation_terminal import verification_view
from normscope.results.verification import Verification

IDS: Any = ids(5, 9, 7, 30, 12, 8)


def without_value_biases(model: nn.Module) -> nn.Module:
    """What belongs to no token is not cut: without biases of values, an edge is all that a weight lets through."""
    for name, parameter in model.named_parameters():
        if name.endswith(("value.bias", "v_proj.bias")):
            nn.init.zeros_(parameter)
    return model.double().eval()


@contextmanager
def not_looking(model: Any, cuts: dict[int, list[tuple[int, int]]], module: Callable[[str], bool]) -> Generator[None]:
    """Attention of the calls (from 1) of some modules does not look along some edges."""
    chosen = {id(each): 0 for name, each in model.named_modules() if module(name)}
    calls = 0

    def attend(own: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float, **_: Any) -> Any:
        nonlocal calls
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = query @ key.mT * scaling
        weights = (scores if mask is None else scores + mask[..., : key.shape[-2]]).softmax(-1)
        if id(own) in chosen:
            calls += 1
            for row, column in cuts.get(calls, []):
                weights[:, :, row, column] = 0
        return (weights @ value).transpose(1, 2).contiguous(), weights

    AttentionInterface.register("not_looking", attend)
    AttentionMaskInterface.register("not_looking", eager_mask)
    before = model.config._attn_implementation
    model.config._attn_implementation = "not_looking"
    try:
        yield
    finally:
        model.config._attn_implementation = before


def llama() -> Any:
    return without_value_biases(tiny("llama", AutoModelForCausalLM, **{**GROUPED, "num_hidden_layers": 3}))


@torch.no_grad()
def test_an_edge_is_cut_as_by_a_weight_of_zero() -> None:
    model = llama()
    numbers = torch.tensor(IDS["input_ids"])
    explanation = ns.load(model).explain(IDS, target=[11], objective="logit")
    verified = explanation.verify(edges=[(2, 5, 1), (3, 5, 0), (1, 3, 2)])
    for edge, observed in zip(verified.edges, verified.observed, strict=True):
        cuts = {edge.layer: [(edge.query, edge.key)]}
        with not_looking(model, cuts, lambda name: name.endswith("self_attn")):
            changed = model(numbers).logits[0, -1, 11]
        assert observed == pytest.approx(float(changed) - float(explanation.value), rel=1e-6, abs=1e-12)
    every = {2: [(5, 1)], 3: [(5, 0)], 1: [(3, 2)]}
    with not_looking(model, every, lambda name: name.endswith("self_attn")):
        changed = model(numbers).logits[0, -1, 11]
    assert verified.together[1] == pytest.approx(float(changed) - float(explanation.value), rel=1e-6, abs=1e-12)


@torch.no_grad()
def test_layers_that_share_a_module_are_cut_one_by_one() -> None:
    sizes = dict(hidden_size=12, num_attention_heads=3, intermediate_size=20, num_hidden_layers=3, embedding_size=6)
    model: Any = without_value_biases(tiny("albert", AutoModelForMaskedLM, **sizes))
    explanation = ns.load(model).explain(IDS, target=11, at=2, objective="logit")
    verified = explanation.verify(edges=[(2, 2, 4), (1, 3, 0)])
    for edge, observed in zip(verified.edges, verified.observed, strict=True):
        cuts = {edge.layer: [(edge.query, edge.key)]}
        with not_looking(model, cuts, lambda name: name.endswith(".attention")):
            changed = model(torch.tensor(IDS["input_ids"])).logits[0, 2, 11]
        assert observed == pytest.approx(float(changed) - float(explanation.value), rel=1e-6, abs=1e-12)


@torch.no_grad()
def test_a_decoder_is_cut_off_from_a_token_of_the_encoder() -> None:
    model: Any = without_value_biases(tiny("bart", AutoModelForSeq2SeqLM, **BART))
    explanation = ns.load(model).explain(IDS, decoder_text=[6, 9, 4], target=11, at=2, objective="logit")
    length = explanation.relevance.sizes["token"]
    verified = explanation.verify(edges=[(1, 2, length + 3)])
    start = model.config.decoder_start_token_id
    read = torch.tensor([[start, 6, 9, 4][:length]])
    with not_looking(model, {1: [(2, 3)]}, lambda name: name.endswith("encoder_attn")):
        changed = model(torch.tensor(IDS["input_ids"]), decoder_input_ids=read).logits[0, 2, 11]
    assert verified.observed[0] == pytest.approx(float(changed) - float(explanation.value), rel=1e-6, abs=1e-12)
    assert verified.to_pandas()["key_token"].tolist() == [explanation.tokens[length + 3]]


def test_what_is_predicted_is_what_flows_along_the_edge() -> None:
    explanation = ns.load(llama()).explain(IDS, target=[11])
    verified = explanation.verify(4)
    edges = np.stack([explanation.edges(layer).values for layer in (1, 2, 3)])
    sizes = np.abs(edges) * (1 - np.eye(edges.shape[1]))
    assert [abs(each) for each in verified.predicted] == pytest.approx(np.sort(sizes.ravel())[::-1][:4])
    for edge, predicted in zip(verified.edges, verified.predicted, strict=True):
        assert predicted == pytest.approx(-edges[edge.layer - 1, edge.query, edge.key])


@pytest.mark.parametrize("weights", ["half", "players", "joint"])
def test_what_is_predicted_keeps_weights_as_they_were_by_whichever_rule_they_are_counted(weights: Any) -> None:
    analyzer, edges = ns.load(llama()), [(3, 5, 2), (2, 2, 1), (1, 3, 0)]
    constant = analyzer.explain(IDS, target=[11]).verify(edges=edges)
    explanation = analyzer.explain(IDS, target=[11], weights=weights)
    counted = explanation.verify(edges=edges)
    np.testing.assert_allclose(counted.predicted, constant.predicted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(counted.observed, constant.observed, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(constant.explained.shares, -np.asarray(constant.predicted), rtol=1e-9, atol=1e-12)
    flows = [float(explanation.edges(layer).values[query, key]) for layer, query, key in edges]
    assert counted.explained.shares == pytest.approx(flows) and counted.explained.weights == weights
    assert not np.allclose(counted.explained.shares, constant.explained.shares, rtol=1e-3)


def test_the_terminal_says_that_counted_weights_were_kept() -> None:
    analyzer = ns.load(llama())
    constant, counted = (analyzer.explain(IDS, target=[11], weights=each).verify(3) for each in ("constant", "half"))
    assert "share" not in shown(constant) and "as they were" not in shown(constant)
    assert "share" not in constant.to_pandas() and counted.to_pandas()["share"].tolist() == list(
        counted.explained.shares
    )
    assert "share" in shown(counted) and "weights=half" in shown(counted)


def shown(verified: Verification) -> str:
    console = Console(width=120, record=True, file=StringIO())
    console.print(verification_view(verified))
    return console.export_text()


def test_what_flows_through_two_edges_counts_once() -> None:
    explanation = ns.load(llama()).explain(IDS, target=[11])
    assert explanation.cuts is not None
    upper, lower = Edge(3, 5, 2), Edge(2, 2, 1)  # after layer 2, token 2 is read along the upper edge alone
    both, alone = (explanation.cuts.predicted(edges) for edges in ([upper, lower], [upper]))
    torch.testing.assert_close(both.together, alone.together, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(both.alone[:1], alone.alone, rtol=1e-9, atol=1e-12)
    beside = Edge(3, 5, 0)
    torch.testing.assert_close(
        explanation.cuts.predicted([upper, beside]).together,
        alone.together + explanation.cuts.predicted([beside]).together,
        rtol=1e-9,
        atol=1e-12,
    )


def test_a_model_that_is_linear_from_there_on_does_what_is_predicted() -> None:
    model = tiny("llama", AutoModelForCausalLM, **{**GROUPED, "num_hidden_layers": 2}).double()
    with torch.no_grad():
        for block in model.model.layers:
            nn.init.zeros_(block.mlp.down_proj.weight)
    explanation = ns.load(model).explain(IDS, direction=torch.randn(model.config.hidden_size).double(), at=5)
    verified = explanation.verify(edges=[(2, 5, key) for key in range(5)])
    np.testing.assert_allclose(verified.observed, verified.predicted, rtol=1e-9, atol=1e-12)
    assert verified.correlation == pytest.approx(1)
    assert verified.together[0] == pytest.approx(verified.together[1])


def test_the_model_is_afterwards_as_it_was() -> None:
    model = llama()
    before = model(torch.tensor(IDS["input_ids"])).logits
    ns.load(model).explain(IDS, target=[11]).verify(3)
    assert torch.equal(model(torch.tensor(IDS["input_ids"])).logits, before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_edges_that_are_not_there_are_refused(tmp_path: Path) -> None:
    explanation = ns.load(llama()).explain(IDS, target=[11])
    for edges in ([(4, 1, 0)], [(1, 6, 0)], [(1, 2, 2)], []):
        with pytest.raises(ns.SelectionError, match="edge"):
            explanation.verify(edges=edges)
    with pytest.raises(ns.SelectionError, match="no edge to cut"):
        explanation.verify(0)
    with pytest.raises(ns.SelectionError, match="read from a file"):
        ns.Explanation.open(explanation.save(tmp_path / "why.nc")).verify()
    with pytest.raises(ns.SelectionError, match="does not follow"):
        ns.load(llama()).explain(IDS, target=[11], method="gradient-x-input").verify()


def test_a_model_that_has_changed_since_is_refused() -> None:
    model = llama()
    explanation = ns.load(model).explain(IDS, target=[11])
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.mul_(1.5)
    with pytest.raises(ns.CompletenessError, match="has changed since"):
        explanation.verify(3)
