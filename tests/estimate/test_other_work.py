"""The planner for what is not a map of one stack of text: encoder-decoders, images, explanations, approximations."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    ViTConfig,
    ViTModel,
)
from typer.testing import CliRunner

import normscope as ns
from normscope.cli.application import application
from normscope.options import Products

PIXELS = {"pixel_values": torch.zeros(1, 3, 64, 64)}


def counted(task: Callable[[], object]) -> float:
    """The operations of matrix products, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        task()
    return float(counter.get_total_flops())


def ids(length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(10, 10 + length)[None]}


@pytest.fixture(scope="module")
def translator() -> ns.Analyzer:
    torch.manual_seed(0)
    sizes = dict(encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4)
    wide = dict(d_model=96, encoder_ffn_dim=384, decoder_ffn_dim=384, max_position_embeddings=128)
    special = dict(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=1)
    return ns.load(MarianMTModel(MarianConfig(vocab_size=300, **sizes, **wide, **special)).double().eval())


@pytest.fixture(scope="module")
def seer() -> ns.Analyzer:
    torch.manual_seed(0)
    sizes = dict(hidden_size=96, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4)
    return ns.load(ViTModel(ViTConfig(**sizes, image_size=64, patch_size=8), add_pooling_layer=False).eval())


@pytest.mark.parametrize("scopes", [None, "attention"])
def test_both_stacks_of_an_encoder_decoder_are_counted(translator: ns.Analyzer, scopes: str | None) -> None:
    asked = None if scopes is None else [scope for scope in translator.scopes if "Ff" not in scope]
    expected = counted(lambda: translator.analyze(ids(60), decoder_text=ids(40), scopes=asked))
    foretold = translator.estimate(60, decoder_text=40, scopes=asked, timed=False)
    assert foretold.flops == pytest.approx(expected, rel=0.15)
    assert any(step.startswith("encoder's") for step in foretold.work)


def test_the_encoder_runs_for_mixing_ratios_of_the_decoder_too(translator: ns.Analyzer) -> None:
    expected = counted(lambda: translator.mixing_ratios(ids(60), decoder_text=ids(40)))
    assert translator.estimate(60, decoder_text=40, maps=False, timed=False).flops == pytest.approx(expected, rel=0.15)


def test_a_target_that_is_not_given_is_as_long_as_its_source(translator: ns.Analyzer) -> None:
    assert translator.estimate(30, timed=False) == translator.estimate(30, decoder_text=30, timed=False)
    with pytest.raises(ns.InputError, match="2 inputs, but 1 texts of the decoder"):
        translator.estimate([30, 30], decoder_text=30, timed=False)
    with pytest.raises(ns.InputError, match="at most 128"):
        translator.estimate(200, decoder_text=20, timed=False)


def test_results_of_a_decoder_have_the_size_that_is_foretold(translator: ns.Analyzer) -> None:
    analysis = translator.analyze(ids(30), decoder_text=ids(19))  # the decoder reads the start token too
    parts = [each.dataset[name].nbytes for each in (analysis, analysis.encoder) for name in ("map", "mixing_ratio")]
    assert translator.estimate(30, decoder_text=20, timed=False).result == sum(parts)


def test_an_image_is_as_long_as_its_patches(seer: ns.Analyzer) -> None:
    expected = counted(lambda: seer.analyze(PIXELS))
    foretold = seer.estimate(PIXELS, timed=False)
    assert foretold.flops == pytest.approx(expected, rel=0.12)
    assert foretold.lengths == (65,)


def test_memory_above_the_limit_is_refused_for_images_and_decoders_too(
    seer: ns.Analyzer, translator: ns.Analyzer
) -> None:
    with pytest.raises(ns.InputError, match="max_memory is 100 kB"):
        seer.analyze(PIXELS, max_memory=100_000)
    with pytest.raises(ns.InputError, match="max_memory is 100 kB"):
        translator.analyze(ids(30), decoder_text=ids(20), max_memory=100_000)
    assert translator.analyze(ids(8), decoder_text=ids(8), max_memory=2**30).layers == translator.layers


EXPLAINED: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=96, n_layer=2, n_head=4, vocab_size=500, bos_token_id=0)),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(vocab_size=500, hidden_size=96, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
    ),
}


@pytest.mark.parametrize("kind", EXPLAINED)
def test_an_explanation_is_counted(kind: str) -> None:
    torch.manual_seed(0)
    analyzer = ns.load(EXPLAINED[kind]().eval())
    expected = counted(lambda: analyzer.explain(ids(60), target=5))
    assert analyzer.estimate_explanation(60, timed=False).flops == pytest.approx(expected, rel=0.1)
    expected = counted(lambda: analyzer.explain(ids(60), target=[5, 6, 7]))
    assert analyzer.estimate_explanation(62, values=3, timed=False).flops == pytest.approx(expected, rel=0.1)


def test_an_explanation_of_images_and_of_decoders_is_counted(seer: ns.Analyzer, translator: ns.Analyzer) -> None:
    expected = counted(lambda: seer.explain(PIXELS, direction="state", at=0))
    assert seer.estimate_explanation(PIXELS, timed=False).flops == pytest.approx(expected, rel=0.1)
    expected = counted(lambda: translator.explain(ids(40), target=list(range(10, 30))))
    foretold = translator.estimate_explanation(40, decoder_text=20, values=20, timed=False)
    assert foretold.flops == pytest.approx(expected, rel=0.1)


def test_a_search_for_an_approximation_is_foretold_as_the_most_it_takes() -> None:
    torch.manual_seed(0)
    sizes = dict(hidden_size=96, intermediate_size=384, num_hidden_layers=1, num_attention_heads=4)
    analyzer = ns.load(BertModel(BertConfig(**sizes), add_pooling_layer=False).eval())
    fast = analyzer.estimate(100, approximate="fast", timed=False)
    assert fast.at_most
    assert fast.flops >= analyzer.estimate(100, timed=False).flops
    sketch = analyzer.estimate(100, approximate="sketch", timed=False)
    assert not sketch.at_most
    assert sketch.flops != fast.flops
    timed = analyzer.estimate(100, approximate="fast")
    assert "at most about" in str(timed)


def test_every_kind_of_work_is_timed(seer: ns.Analyzer, translator: ns.Analyzer) -> None:
    assert (seer.estimate(PIXELS, maps=False).seconds or 0) > 0
    assert (seer.estimate_explanation(PIXELS).seconds or 0) > 0
    assert (translator.estimate(20, decoder_text=10).seconds or 0) > 0
    assert (translator.estimate_explanation(20, decoder_text=10).seconds or 0) > 0


@pytest.mark.slow
@pytest.mark.parametrize("length", [32, 128])
def test_the_time_of_an_explanation_is_right_within_thirty_percent(analyzer: ns.Analyzer, length: int) -> None:
    foretold: list[float] = []
    spent: list[float] = []
    for _ in range(3):
        foretold.append(analyzer.estimate_explanation(length, clock=time.process_time).seconds or 0.0)
        started = time.process_time()
        analyzer.explain(ids(length), direction="state", at=1)
        spent.append(time.process_time() - started)
    assert 0.7 < sorted(foretold)[1] / sorted(spent)[1] < 1.3


@pytest.mark.slow
@pytest.mark.parametrize("products", ["tf32", "bf16"])
def test_the_time_of_less_precise_products_is_right_within_thirty_percent(
    analyzer: ns.Analyzer, products: Products
) -> None:
    foretold: list[float] = []
    spent: list[float] = []
    for _ in range(3):
        foretold.append(analyzer.estimate(64, products=products, clock=time.process_time).seconds or 0.0)
        started = time.process_time()
        analyzer.analyze(ids(64), products=products)
        spent.append(time.process_time() - started)
    assert 0.7 < sorted(foretold)[1] / sorted(spent)[1] < 1.3


def test_a_pair_is_counted_as_one_input_and_a_long_text_as_what_is_left_of_it() -> None:
    def flops(*line: str) -> float:
        outcome = CliRunner().invoke(application(), ["estimate", *line, "--no-time", "--json"])
        return json.loads(outcome.stdout)["flops"]

    assert flops("A soap bubble.", "--pair", "It burst.") == flops("--tokens", "10")
    assert flops("bubble " * 600, "--truncate") == flops("--tokens", "512")


def test_the_command_line_counts_explanations_and_approximations() -> None:
    outcome = CliRunner().invoke(application(), ["estimate", "--tokens", "64", "--no-time", "--json", "--explain"])
    numbers = json.loads(outcome.stdout)
    assert set(numbers["steps"]) == {"forward pass", "proof", "way back"}
    line = ["estimate", "--tokens", "64", "--no-time", "--json", "--approximate", "fast", "--layer", "2"]
    assert json.loads(CliRunner().invoke(application(), line).stdout)["at_most"] is True


def test_a_long_answer_is_streamed_and_so_takes_no_memory_for_pairs_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = dict(vocab_size=40, hidden_size=16, num_hidden_layers=6, num_attention_heads=2, intermediate_size=32)
    model = ns.load(LlamaForCausalLM(LlamaConfig(**sizes)))
    kept, streamed = (model.estimate_answer(tokens, timed=False) for tokens in (1000, 2000))
    whole = model.estimate_explanation(2000, timed=False, heads=True)  # edges and heads keep all pairs of tokens
    assert streamed.memory < 0.5 * whole.memory
    assert streamed.flops == whole.flops  # of so small a model all layers are kept
    monkeypatch.setattr("normscope.estimate.sizes._BYTES_KEPT", 0)
    again = model.estimate_answer(2000, timed=False)
    assert again.memory < streamed.memory and again.flops > whole.flops
    assert kept.result == 4000 and streamed.result == 8000
    with pytest.raises(ns.InputError, match="At least one value"):
        model.estimate_answer(0, timed=False)
