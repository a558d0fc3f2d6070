"""Attentions that are run again to see their weights, and blocks that are no modules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.tiny_architectures import ids, tiny
from transformers import AutoModelForCausalLM, LongformerForSequenceClassification

import normscope as ns
from normscope.capture import blocks_of
from normscope.families import family_of
from normscope.families.spec import PostNorm, ProbedAttention, SplitHeads
from normscope.testing import assert_family, assert_head
from normscope.testing.tiny import model_of, shrunk


def test_the_weights_seen_by_running_again_are_those_that_the_interface_shows() -> None:
    model, shown = tiny("bert"), family_of("bert")
    topology = shown.stack.topology
    assert isinstance(topology, PostNorm)
    probed = ProbedAttention("attention", SplitHeads("attention.self.value"), "attention.output.dense")
    again = replace(shown, stack=replace(shown.stack, topology=replace(topology, attention=probed)))
    assert_family(again, model)
    maps = []
    for family in (shown, again):
        ns.register_family(family)
        analysis = ns.load(model).analyze(ids(5, 6, 7, 8, 9))
        assert isinstance(analysis, ns.Analysis)
        maps.append(analysis.map("AttnW").values)
    ns.register_family(shown)
    np.testing.assert_allclose(maps[0], maps[1], atol=1e-6)


def test_a_window_hides_all_that_lies_outside_of_it() -> None:
    analysis = ns.load(tiny("longformer", attention_window=4)).analyze(ids(*range(5, 15)))
    assert isinstance(analysis, ns.Analysis)
    weights = analysis.map("AttnW", layer=1).values
    far = abs(np.subtract.outer(np.arange(10), np.arange(10))) > 2
    assert weights[far].max() < 1e-12
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_global_attention_is_refused_by_the_class_that_uses_it() -> None:
    model = LongformerForSequenceClassification(shrunk("longformer"))
    with pytest.raises(ns.UnsupportedArchitectureError, match="global attention"):
        ns.load(model)


def test_sequences_of_different_lengths_run_alone_where_padding_would_change_them() -> None:
    analyzer = ns.load(tiny("nystromformer", conv_kernel_size=3, num_landmarks=8, segment_means_seq_len=8))
    padded = {"input_ids": [[5, 6, 7, 8, 9], [5, 6, 7, 1, 1]], "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]}
    both, single = analyzer.analyze(padded), analyzer.analyze(ids(5, 6, 7))
    assert isinstance(both, list) and isinstance(single, ns.Analysis)
    np.testing.assert_allclose(both[1].map().values, single.map().values, rtol=1e-4)


def test_blocks_whose_parts_lie_in_lists_are_the_same_whenever_they_are_looked_up() -> None:
    model, stack = tiny("xlm", emb_dim=24, n_layers=2, n_heads=3), family_of("xlm").stack
    assert blocks_of(model, stack) == blocks_of(model, stack)
    assert len(set(blocks_of(model, stack) + blocks_of(model, stack))) == 2


def test_states_of_blocks_that_are_no_modules_cannot_be_replaced() -> None:
    analyzer = ns.load(model_of("XLMWithLMHeadModel", shrunk("xlm")))
    with pytest.raises(ns.UnsupportedArchitectureError, match="cannot be replaced"):
        analyzer.explain(ids(5, 6, 7), at=1, method="gradient-norm")


@pytest.mark.parametrize(
    "name", ["LongformerForMaskedLM", "ConvBertForMaskedLM", "FlaubertWithLMHeadModel", "SqueezeBertForMaskedLM"]
)
def test_the_heads_of_such_models_pass_the_battery(name: str) -> None:
    model_type = name.removesuffix("ForMaskedLM").removesuffix("WithLMHeadModel").lower()
    assert_head(model_of(name, shrunk(model_type)))


def test_a_prompt_of_no_token_is_refused() -> None:
    with pytest.raises(ns.UnsupportedArchitectureError, match="prompts"):
        ns.load(AutoModelForCausalLM.from_config(shrunk("mvp", use_prompt=True)))


def test_a_model_probed_in_half_precision_is_proved() -> None:
    model = model_of("MvpModel", shrunk("mvp"), torch.bfloat16)
    analysis = ns.load(model).analyze(ids(5, 6, 7), decoder_text=ids(8, 9))
    assert isinstance(analysis, ns.Analysis)
    assert float(analysis.dataset["component_error"].max()) < 5e-2
