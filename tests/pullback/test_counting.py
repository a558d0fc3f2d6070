"""Counted attention weights: against Shapley values and quadrature in float64, against matrices, and the model's logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import normscope as ns
from normscope.capture import Side
from normscope.chain.proof import Proof
from normscope.chain.trace import Attention, LayerTrace
from normscope.errors import CompletenessError, UnsupportedArchitectureError
from normscope.inputs import read_ids
from normscope.pullback import FlowPullBack, pull_back_layer
from normscope.pullback.block import PulledAttention
from normscope.testing.counting import oracle_split

IDS = [3, 5, 7, 9, 11, 4]
INPUT = {"input_ids": torch.tensor([IDS])}
COUNTED = ["half", "players", "joint"]
_SIZE: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 50,
}
_GROUPED: dict[str, Any] = {**_SIZE, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
MODELS: dict[str, Any] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_GROUPED)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_GROUPED)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**_GROUPED, head_dim=8)),
    "bert": lambda: BertForMaskedLM(BertConfig(**_SIZE)),
    "neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**_SIZE, bos_token_id=1, eos_token_id=2)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(n_embd=24, n_layer=2, n_head=4, vocab_size=50, bos_token_id=1, eos_token_id=2)
    ),
}
EVERY_MODEL = pytest.mark.parametrize("name", MODELS)


def model_of(name: str) -> PreTrainedModel:
    """A random model whose attentions choose: its weights are far from uniform, and its biases are not zero."""
    torch.manual_seed(4)
    model = MODELS[name]().double().eval()
    for parameter in model.parameters():
        parameter.data.normal_(0.0 if parameter.dim() > 1 else 0.5, 0.3)
    return model


def traces_of(analyzer: ns.Analyzer) -> list[LayerTrace]:
    (batch,) = analyzer.batches([read_ids(IDS, None)])
    traces: list[LayerTrace] = []
    side = Side(
        analyzer.family.stack, batch.lengths, [1, 2], lambda _, __, trace: traces.append(trace), scores="required"
    )
    analyzer.capture(batch, [side], dtype=torch.float64)
    return traces


def attention_of(trace: LayerTrace) -> Attention:
    return next(step for step in trace.steps if isinstance(step, Attention))


@pytest.mark.parametrize("weights", ["constant", *COUNTED])
@pytest.mark.parametrize("name", ["qwen3", "bert"])
def test_the_split_is_that_of_shapley_values_and_of_a_fine_quadrature(name: str, weights: Any) -> None:
    for trace in traces_of(ns.load(model_of(name)))[1:]:
        attention = attention_of(trace)
        assert attention.scores is not None
        covector = torch.randn(1, *attention.values.shape[:1], len(IDS), attention.values.shape[2], dtype=torch.float64)
        pulled = PulledAttention(attention, covector, weights)
        truth, split = oracle_split(attention, covector[0], weights), pulled.counted
        torch.testing.assert_close(pulled.scores(attention.values)[0], truth.values, rtol=0, atol=2e-5)
        if split is None:
            continue
        torch.testing.assert_close(split.routing[0], truth.routing, rtol=0, atol=4e-5)
        for own, expected in ((split.to_queries, truth.queries), (split.to_keys, truth.keys)):
            given = torch.zeros_like(expected) if own is None else (own * attention.scores.products())[0]
            torch.testing.assert_close(given, expected, rtol=0, atol=2e-5)


@EVERY_MODEL
def test_scores_make_the_models_own_weights_and_are_affine_in_its_states(name: str) -> None:
    torch.manual_seed(1)
    for trace in traces_of(ns.load(model_of(name))):
        attention = attention_of(trace)
        scores = attention.scores
        assert scores is not None
        torch.testing.assert_close(scores.softmax(scores.products()), attention.weights, rtol=0, atol=1e-6)
        at_queries, at_keys = (
            torch.randn(2, *scores.queries.shape).double(),
            torch.randn(2, *scores.keys.shape).double(),
        )
        own = (scores.back(at_queries, at_keys) * trace.hidden).sum((1, 2))
        queries, keys = scores.queries, scores.keys
        if scores.constant_queries is not None and scores.constant_keys is not None:
            queries, keys = queries - scores.constant_queries, keys - scores.constant_keys
        expected = (at_queries * queries).sum((1, 2, 3)) + (at_keys * keys).sum((1, 2, 3))
        torch.testing.assert_close(own, expected, rtol=1e-6, atol=1e-5)


def test_the_way_through_rotations_and_norms_is_their_matrices_written_out() -> None:
    model = model_of("qwen3")
    trace = traces_of(ns.load(model))[1]
    scores = attention_of(trace).scores
    assert scores is not None
    block, head, position = model.model.layers[1], 3, 4
    matrix = _from_state(trace, block, block.self_attn.q_proj, block.self_attn.q_norm, head, position)
    keys = _from_state(trace, block, block.self_attn.k_proj, block.self_attn.k_norm, head // 2, position)
    torch.testing.assert_close(matrix @ trace.hidden[position], scores.queries[head, position], rtol=0, atol=1e-5)
    torch.testing.assert_close(keys @ trace.hidden[position], scores.keys[head, position], rtol=0, atol=1e-5)
    zero, unit = torch.zeros(1, *scores.queries.shape).double(), torch.randn(8).double()
    at_queries, at_keys = zero.clone(), zero.clone()
    at_queries[0, head, position], at_keys[0, head, position] = unit, unit
    torch.testing.assert_close(scores.back(at_queries, zero)[0, position], unit @ matrix, rtol=0, atol=1e-5)
    torch.testing.assert_close(scores.back(zero, at_keys)[0, position], unit @ keys, rtol=0, atol=1e-5)


def _from_state(trace: LayerTrace, block: Any, projection: Any, norm: Any, head: int, position: int) -> Tensor:
    """The matrix from a state to a query or key of one head: norm, projection, norm of the head, rotation."""
    state, entering = trace.hidden[position], block.input_layernorm
    first = torch.diag(entering.weight / (state.square().mean() + entering.variance_epsilon).sqrt())
    rows = projection.weight.unflatten(0, (-1, 8))[head]
    projected = rows @ first @ state
    second = torch.diag(norm.weight / (projected.square().mean() + norm.variance_epsilon).sqrt())
    angles = position / 10000 ** (torch.arange(4) / 4)
    cosine, sine = torch.diag(angles.cos()).double(), torch.diag(angles.sin()).double()
    rotation = torch.cat([torch.cat([cosine, -sine], 1), torch.cat([sine, cosine], 1)], 0)
    return rotation @ second @ rows @ first


@pytest.mark.parametrize("weights", COUNTED)
@EVERY_MODEL
def test_edges_bias_and_account_are_conserved_in_every_layer(name: str, weights: Any) -> None:
    analyzer = ns.load(model_of(name))
    explanation: Any = analyzer.explain(INPUT, target=3, at=2, weights=weights, heads=True, objective="logit")
    data = explanation.dataset.isel(target=0)
    after = data["edges"].sum("key") + data["bias"] + data["routing"].sum("key")
    size = float(abs(data["relevance"]).max())
    for layer in (1, 2):
        own = data["relevance"].isel(depth=layer).values
        assert abs(after.sel(layer=layer).values - own).max() <= 1e-6 * size
        before = data["relevance"].isel(depth=layer - 1).values
        assert abs(data["edges"].sel(layer=layer).sum("query").values - before).max() <= 1e-6 * size
    assert abs(explanation.head_routing.sum("head") - explanation.routing).max() <= 1e-9 * size
    assert abs(data["head_edges"].sum("query") - data["heads"]).max() <= 1e-9 * size
    total = float(explanation.attribution.sum() + explanation.bias + explanation.routed)
    assert abs(total - float(explanation.value)) <= 1e-6 * size
    with torch.no_grad():
        logits = analyzer.model(torch.tensor([IDS])).logits[0]
    assert abs(float(logits[2, 3]) - float(explanation.value)) <= 1e-6 * size
    assert explanation.completeness < 1e-6


@pytest.mark.parametrize("weights", COUNTED)
def test_blocks_of_query_rows_give_what_the_whole_layer_gives(weights: Any) -> None:
    torch.manual_seed(2)
    trace = traces_of(ns.load(model_of("qwen2")))[1]
    covector = torch.randn(2, len(IDS), 24).double()
    whole, blocks = pull_back_layer(trace, covector, weights=weights), FlowPullBack(covector, weights)
    for rows in torch.arange(len(IDS)).split(4):
        blocks.add(trace.select(rows))
    parts = blocks.finish_layer()
    torch.testing.assert_close(parts.covector, whole.covector, rtol=0, atol=1e-9)
    for name in ("relevance", "heads", "bias", "feed_forward", "looked_at", "routed"):
        torch.testing.assert_close(getattr(parts.flow, name), getattr(whole.flow, name), rtol=0, atol=1e-9)


def test_a_weight_that_is_no_choice_gives_all_to_its_value() -> None:
    trace = traces_of(ns.load(model_of("llama")))[0]
    pulled = pull_back_layer(trace, torch.randn(1, len(IDS), 24).double(), weights="players")
    assert pulled.flow.routing is not None
    assert pulled.flow.routing[0, 0].abs().max() == 0  # the first token sees itself alone
    assert pulled.flow.routing[0, 1].abs().max() > 0


def test_a_model_whose_scores_are_more_than_queries_and_keys_is_refused_or_keeps_the_account() -> None:
    config = Gemma2Config(**_GROUPED, head_dim=8, attn_logit_softcapping=3.0, final_logit_softcapping=None)
    torch.manual_seed(0)
    capped: Any = ns.load(Gemma2ForCausalLM(config).eval())
    with pytest.raises(UnsupportedArchitectureError, match="soft-capped"):
        capped.explain(INPUT, target=3, weights="joint")
    kept, halves = (capped.explain(INPUT, target=3, weights=weights) for weights in ("players", "half"))
    assert kept.handed_on == "nowhere" and halves.counts_weights
    assert kept.completeness < 1e-4


def test_a_changed_softmax_is_seen() -> None:
    model = model_of("llama")
    trace = traces_of(ns.load(model))[0]
    attention = attention_of(trace)
    assert attention.scores is not None
    proof = Proof("a model", "llama", torch.float32)
    proof.layer(trace, "layer 1")
    wrong = replace(attention.scores, scale=1.01 * attention.scores.scale)
    steps = tuple(replace(step, scores=wrong) if step is attention else step for step in trace.steps)
    with pytest.raises(CompletenessError, match="the softmax of queries and keys"):
        proof.layer(replace(trace, steps=steps), "layer 1")
