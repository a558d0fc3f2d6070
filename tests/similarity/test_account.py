"""The table of two texts against vectors that are all written out, and against the model's own embeddings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import tiny_architectures
from support.tiny_models import tiny, token_ids
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageTextToText, T5EncoderModel

import normscope as ns
from normscope.chain.activations import recognise
from normscope.chain.trace import LayerNorm, Linear
from normscope.errors import CompletenessError
from normscope.families import family_of
from normscope.similarity import account
from normscope.similarity.account import Decomposed
from normscope.similarity.comparing import Comparison
from normscope.similarity.plain import embeddings
from normscope.similarity.spec import Centre, Dense, EmbeddingSpec, Pool, UnitLength, named_pooling
from normscope.similarity.spec import Reading as How

from .frozen import Parts, last_states, of, products, recorded_pair, table_of, text_of

FIRST, SECOND = "A man is playing a guitar on stage.", "Someone performs live music with a guitar."


def pooled(mode: str, states: Parts, own: Tensor) -> Parts:
    """A pooling written out."""
    count = len(own)
    if mode == "max":
        winners = own.argmax(0)
        columns = torch.arange(own.shape[-1])
        return Parts(states.parts[winners, :, columns].T[None], states.bias[winners, columns][None])
    weights = {
        "mean": torch.full((count,), 1 / count),
        "first": torch.eye(count)[0],
        "last": torch.eye(count)[-1],
        "mean-sqrt-len": torch.full((count,), count**-0.5),
        "weighted-mean": torch.arange(1.0, count + 1) / (count * (count + 1) / 2),
    }[mode].double()
    return Parts(
        (weights @ states.parts.flatten(1)).unflatten(0, states.parts.shape[1:])[None], (weights @ states.bias)[None]
    )


@pytest.mark.parametrize("mode", ["mean", "first", "last", "weighted-mean", "max", "mean-sqrt-len"])
@pytest.mark.parametrize("architecture", ["bert", "llama", "modernbert", "gpt_neox"])
def test_every_pooling_of_every_kind_of_block_is_the_product_of_vectors(architecture: str, mode: str) -> None:
    changes = dict(tiny_architectures.VARIANTS)[architecture] if architecture != "bert" else {}
    make = tiny if architecture == "bert" else tiny_architectures.tiny
    model = ns.load(make(architecture, **changes).double())
    texts = [text_of(ids) for ids in token_ids(7, 5)]
    spec = named_pooling(mode, How())
    found = table_of(Comparison(model, of(model, spec), "dot"), *texts)
    parts = []
    for recorded in recorded_pair(model, spec, *texts):
        states = last_states(recorded)
        parts.append(pooled(mode, states, states.parts.sum(1) + states.bias))
    expected = products(*parts, 1.0)  # the oracle integrates gated feed-forwards numerically
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7 * float(expected.abs().max()))
    own = embeddings(model, spec, texts)
    # Some models take a softmax, rotations or norms in float32 whatever their weights are, by two kinds of attention.
    torch.testing.assert_close(found.sum(), (own[0] * own[1]).sum(), rtol=1e-5, atol=1e-6)


def test_dense_layers_norms_and_several_poolings_are_the_product_of_vectors() -> None:
    model = ns.load(tiny("bert").double())
    size = model.config.hidden_size
    random = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).double()

    dense = Dense(Linear(drawn(11, 2 * size), drawn(11)), recognise(torch.nn.Tanh()), Linear(drawn(11, 2 * size)))
    norm = LayerNorm(drawn(11), drawn(11), 1e-5)
    spec = EmbeddingSpec((Pool(("mean", "max")), UnitLength(), dense, Centre(norm), UnitLength()), "here")
    texts = [text_of(ids) for ids in token_ids(6, 9)]
    sides = []
    for recorded in recorded_pair(model, spec, *texts):
        states = last_states(recorded)
        own = states.parts.sum(1) + states.bias
        one, other = pooled("mean", states, own), pooled("max", states, own)
        both = Parts(torch.cat([one.parts, other.parts], -1), torch.cat([one.bias, other.bias], -1))
        length = (both.parts.sum(1) + both.bias).norm()
        both = both.through(lambda vectors, length=length: vectors / length)
        entering = both.parts.sum(1) + both.bias
        neurons = entering @ dense.linear.weight.T + dense.linear.bias
        slopes = neurons.tanh() / neurons
        matrix = slopes[0, :, None] * dense.linear.weight + dense.residual.weight  # type: ignore[union-attr]
        hidden = both.through(lambda vectors, m=matrix: vectors @ m.T, (slopes * dense.linear.bias)[0])
        row = hidden.parts.sum(1) + hidden.bias
        deviation = (row.var(correction=0) + norm.epsilon).sqrt()
        sides.append(
            hidden.through(
                lambda vectors, s=deviation: (vectors - vectors.mean(-1, keepdim=True)) * norm.weight / s, norm.bias
            )
        )
    lengths = [float((side.parts.sum(1) + side.bias).norm()) for side in sides]
    found = table_of(Comparison(model, of(model, spec), "cosine"), *texts)
    torch.testing.assert_close(found, products(*sides, 1 / (lengths[0] * lengths[1])), rtol=1e-7, atol=1e-9)


def test_late_interaction_is_the_sum_of_the_products_that_were_matched() -> None:
    model = ns.load(tiny("bert").double())
    spec = named_pooling("late-interaction", How())
    scored = [True, False, True, True, True, False]
    texts = [text_of(token_ids(7)[0]), text_of(token_ids(6, seed=3)[0], scored=scored)]
    recorded = recorded_pair(model, spec, *texts)
    rows = []
    for each in recorded:
        states = last_states(each)
        lengths = (states.parts.sum(1) + states.bias).norm(dim=-1)
        rows.append(
            states.through(lambda vectors, lengths=lengths: vectors / lengths.reshape(-1, *[1] * (vectors.dim() - 1)))
        )
    whole = [each.parts.sum(1) + each.bias for each in rows]
    scores = whole[0] @ whole[1].T
    scores[:, ~torch.tensor(scored)] = -9
    best = scores.argmax(-1)
    expected = products(rows[0], Parts(rows[1].parts[best], rows[1].bias[best]), 1.0)
    comparison = Comparison(model, of(model, spec), "late-interaction")
    torch.testing.assert_close(table_of(comparison, *texts), expected, rtol=1e-7, atol=1e-9)
    (dataset,) = comparison.datasets(texts[0], [texts[1]])
    assert dataset["first_match"].values.tolist() == best.tolist()
    assert float(dataset["value"]) == pytest.approx(float(scores.max(-1).values.sum()), rel=1e-9)


def test_dimensions_are_pulled_back_where_they_are_fewer_than_tokens() -> None:
    model = ns.load(tiny("bert").double())
    random = torch.Generator().manual_seed(1)
    few = Dense(Linear(torch.randn(3, model.config.hidden_size, generator=random).double()), None)
    spec = EmbeddingSpec((Pool(("mean",)), few), "here")
    texts = [text_of(ids) for ids in token_ids(9, 8)]
    one, other = (Decomposed(each) for each in recorded_pair(model, spec, *texts))
    assert one.width == 4
    torch.testing.assert_close(one.parts, one.parts_by_dimension)
    sides = []
    for recorded in (one.recorded, other.recorded):
        states = last_states(recorded)
        mean = pooled("mean", states, states.bias)
        sides.append(mean.through(lambda vectors: vectors @ few.linear.weight.T))
    found = table_of(Comparison(model, of(model, spec), "dot"), *texts)
    torch.testing.assert_close(found, products(*sides, 1.0), rtol=1e-7, atol=1e-9)


def test_tiles_do_not_change_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ns.load(tiny_architectures.tiny("llama").double())
    comparison = Comparison(model, of(model, named_pooling("last", How())), "cosine")
    texts = [text_of(ids) for ids in token_ids(9, 8)]
    whole = table_of(comparison, *texts)
    monkeypatch.setattr(account, "TILE_ELEMENTS", 1)
    torch.testing.assert_close(table_of(comparison, *texts), whole)


NOT_BARE = ("gemma3", "llama4", "clip", "siglip", "metaclip_2")
"""Types whose tiny models are of a class with two towers."""


def _reads_one_text(name: str) -> bool:
    family = family_of(name)
    return family.reads == "text" and family.encoder is None and name not in NOT_BARE


ENCODERS = [(name, changes) for name, changes in tiny_architectures.VARIANTS if _reads_one_text(name)]


@pytest.mark.parametrize(
    ("name", "changes"), ENCODERS, ids=[f"{name}-{place}" for place, (name, _) in enumerate(ENCODERS)]
)
def test_every_architecture_adds_up_to_the_cosine_of_its_own_states(name: str, changes: dict[str, Any]) -> None:
    _assert_adds_up(ns.load(tiny_architectures.tiny(name, **changes)))


@pytest.mark.parametrize("name", ["gemma4", "gemma4_unified"])
def test_a_multimodal_gemma_4_that_reads_text_ends_as_its_text_tower(name: str) -> None:
    text = AutoConfig.for_model(f"{name}_text", **tiny_architectures.SIZE | tiny_architectures.GEMMA4).to_dict()
    towers = {"text_config": text, "vision_config": None, "audio_config": None}
    _assert_adds_up(ns.load(tiny_architectures.tiny(name, AutoModelForImageTextToText, **towers)))


def _assert_adds_up(model: ns.Analyzer) -> None:
    mode = "last" if model.family.stack.causal else "mean"
    texts = [text_of(ids) for ids in token_ids(6, 4)]
    (dataset,) = Comparison(model, of(model, named_pooling(mode, How())), "cosine").datasets(texts[0], [texts[1]])
    with torch.no_grad():
        ids = [torch.tensor([text.sequence.features["input_ids"]]) for text in texts]
        states = [model.model.eval().base_model(each).last_hidden_state[0] for each in ids]
    rows = [each[-1] if mode == "last" else each.mean(0) for each in states]
    own = torch.nn.functional.cosine_similarity(rows[0], rows[1], dim=0)
    assert float(dataset["value"]) == pytest.approx(float(own), abs=1e-5)
    assert float(dataset["completeness_error"]) < 1e-4


def test_the_encoder_of_an_encoder_decoder_is_compared_alone() -> None:
    settings = dict(tiny_architectures.VARIANTS)["t5"]
    model = ns.load(tiny_architectures.tiny("t5", T5EncoderModel, **settings))
    texts = [text_of(ids) for ids in token_ids(6, 4)]
    (dataset,) = Comparison(model, of(model, named_pooling("mean", How())), "cosine").datasets(texts[0], [texts[1]])
    assert float(dataset["completeness_error"]) < 1e-4
    whole = ns.load(tiny_architectures.tiny("t5", **settings))
    with pytest.raises(ns.InputError, match="load its encoder alone"):
        list(Comparison(whole, of(whole, named_pooling("mean", How())), "cosine").datasets(texts[0], [texts[1]]))


def test_the_example_of_the_documentation() -> None:
    similarity = ns.load(dtype=torch.float64).similarity(FIRST, SECOND)
    sums = [float(each.sum()) for each in (similarity.table, similarity.first_margin, similarity.second_margin)]
    assert [similarity.value, *sums, similarity.constant] == pytest.approx(
        [0.639, 0.903, -0.259, -0.210, 0.205], abs=5e-4
    )
    assert similarity.completeness < 1e-13
    cells = {(cell.first, cell.second): cell.value for cell in similarity.top(20)}
    published = {
        ("guitar", "guitar"): 0.248,
        ("stage", "performs"): 0.058,
        ("guitar", "music"): 0.037,
        ("playing", "performs"): 0.033,
        ("man", "someone"): 0.020,
    }
    for pair, value in published.items():
        assert cells[pair] == pytest.approx(value, abs=5e-4)


def test_in_float32_and_half_precision_it_adds_up_as_the_arithmetic_promises(analyzer: ns.Analyzer) -> None:
    assert analyzer.similarity(FIRST, SECOND).completeness < 1e-5
    half = ns.load(dtype=torch.bfloat16).similarity(FIRST, SECOND)
    assert half.completeness < 5e-2
    assert half.value == pytest.approx(0.639, abs=0.03)


def test_a_wrong_description_is_no_result(monkeypatch: pytest.MonkeyPatch, analyzer: ns.Analyzer) -> None:
    shares = account.pulled_shares
    monkeypatch.setattr("normscope.similarity.account.pulled_shares", lambda *given: 1.01 * shares(*given))
    with pytest.raises(CompletenessError, match="do not add up to the similarity that all-MiniLM-L6-v2 gives"):
        analyzer.similarity(FIRST, SECOND)


def test_without_a_table_the_shares_of_the_tokens_are_the_same(analyzer: ns.Analyzer) -> None:
    whole, short = analyzer.similarity(FIRST, SECOND), analyzer.similarity(FIRST, SECOND, table=False)
    for side in ("first", "second"):
        assert abs(getattr(whole, side) - getattr(short, side)).max() < 1e-5
        total = float(getattr(short, side).sum()) + getattr(short, f"{side}_bias")
        assert total == pytest.approx(whole.value, abs=1e-5)
    with pytest.raises(ns.SelectionError, match="was not computed"):
        _ = short.table


def test_texts_the_other_way_round_give_the_transposed_table(analyzer: ns.Analyzer) -> None:
    one, other = analyzer.similarity(FIRST, "A guitar."), analyzer.similarity("A guitar.", FIRST)
    assert abs(one.table.values - other.table.values.T).max() < 1e-6
    assert abs(one.first_margin.values - other.second_margin.values).max() < 1e-6
