"""The planner against what the engine really does: operations as torch counts them, sizes as modules have them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import torch
from support.tiny_architectures import BART
from support.tiny_architectures import tiny as tiny_architecture
from support.tiny_models import tiny
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    MixtralConfig,
    PreTrainedTokenizerFast,
)
from typer.testing import CliRunner

import normscope as ns
from normscope.cli.application import application
from normscope.errors import InputError

MODELS = {
    "bert": lambda: BertModel(
        BertConfig(hidden_size=96, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4),
        add_pooling_layer=False,
    ),
    "gpt2": lambda: GPT2Model(GPT2Config(n_embd=96, n_layer=2, n_head=4)),
    "llama": lambda: LlamaModel(
        LlamaConfig(vocab_size=1000, hidden_size=96, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
    ),
}


@pytest.fixture(scope="module", params=list(MODELS))
def analyzer_of_kind(request: pytest.FixtureRequest) -> ns.Analyzer:
    torch.manual_seed(0)
    return ns.load(MODELS[request.param]().eval())


def counted(task: Any) -> float:
    """The operations of matrix products, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        task()
    return float(counter.get_total_flops())


def ids(length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(10, 10 + length)[None]}


@pytest.mark.parametrize("length", [40, 150])
def test_operations_are_those_that_torch_counts(analyzer_of_kind: ns.Analyzer, length: int) -> None:
    expected = counted(lambda: analyzer_of_kind.analyze(ids(length)))
    assert analyzer_of_kind.estimate(length, timed=False).flops == pytest.approx(expected, rel=0.12)


def test_attention_scopes_and_mixing_ratios_are_counted_too(analyzer_of_kind: ns.Analyzer) -> None:
    scopes = [scope for scope in analyzer_of_kind.scopes if "Ff" not in scope]
    expected = counted(lambda: analyzer_of_kind.analyze(ids(60), scopes=scopes))
    assert analyzer_of_kind.estimate(60, scopes=scopes, timed=False).flops == pytest.approx(expected, rel=0.15)
    expected = counted(lambda: analyzer_of_kind.mixing_ratios(ids(60)))
    assert analyzer_of_kind.estimate(60, maps=False, timed=False).flops == pytest.approx(expected, rel=0.15)


def test_selected_queries_and_layers_are_all_that_is_paid_for(analyzer_of_kind: ns.Analyzer) -> None:
    expected = counted(lambda: analyzer_of_kind.analyze(ids(80), queries=[5, 40, 70], layers=1))
    few = analyzer_of_kind.estimate(80, queries=[5, 40, 70], layers=1, timed=False)
    assert few.flops == pytest.approx(expected, rel=0.3)
    assert few.flops < analyzer_of_kind.estimate(80, timed=False).flops / 4


def test_a_list_of_texts_or_of_lengths_adds_up(analyzer: ns.Analyzer) -> None:
    single = analyzer.estimate(30, timed=False)
    assert analyzer.estimate([30, 30, 30], timed=False).flops == pytest.approx(3 * single.flops)
    text = "The opera singer caught a soap bubble."
    length = len(analyzer.analyze(text, scopes="AttnW").tokens)
    assert analyzer.estimate(text, timed=False).flops == analyzer.estimate(length, timed=False).flops


def test_results_have_the_size_that_is_foretold(analyzer: ns.Analyzer) -> None:
    analysis = analyzer.analyze(ids(50))
    dataset = analysis.dataset
    really = dataset["map"].nbytes + dataset["mixing_ratio"].nbytes
    assert analyzer.estimate(50, timed=False).result == really


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["all maps", "attention maps", "mixing ratios", "queries"])
@pytest.mark.parametrize("length", [32, 128, 384])
def test_the_time_is_right_within_thirty_percent(analyzer: ns.Analyzer, kind: str, length: int) -> None:
    if kind == "all maps" and length > 128:
        pytest.skip("The same products as at 128 tokens, for minutes.")
    options: dict[str, dict[str, Any]] = {
        "all maps": {},
        "attention maps": {"scopes": [scope for scope in analyzer.scopes if "Ff" not in scope]},
        "mixing ratios": {"maps": False},
        "queries": {"queries": [0, length // 2, length - 1]},
    }
    asked = {name: value for name, value in options[kind].items() if name != "maps"}
    task = analyzer.analyze if "maps" not in options[kind] else analyzer.mixing_ratios
    foretold: list[float] = []
    spent: list[float] = []
    for _ in range(3):
        foretold.append(analyzer.estimate(length, clock=time.process_time, **options[kind]).seconds or 0.0)
        started = time.process_time()
        task(ids(length), **asked)
        spent.append(time.process_time() - started)
    assert 0.7 < sorted(foretold)[1] / sorted(spent)[1] < 1.3


def test_a_model_without_numbers_is_counted_but_not_timed() -> None:
    """A 7B model on the meta device: weights have shapes and no values."""
    with torch.device("meta"):
        model = AutoModel.from_config(LlamaConfig())
    analyzer = ns.load(model)
    counted_only = analyzer.estimate(2000, timed=False)
    floor = 32 * 2 * (2000 * 2001 / 2) * 11008 * 4096
    assert counted_only.flops == pytest.approx(floor, rel=0.25)
    assert counted_only.seconds is None
    with pytest.raises(InputError, match="meta device"):
        analyzer.estimate(2000)


def test_a_mixture_counts_the_experts_that_act_on_a_token() -> None:
    sizes = dict(vocab_size=100, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4)
    torch.manual_seed(0)
    analyzer = ns.load(
        AutoModel.from_config(
            MixtralConfig(**sizes, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
        ).eval()
    )
    expected = counted(lambda: analyzer.analyze(ids(60)))
    assert analyzer.estimate(60, timed=False).flops == pytest.approx(expected, rel=0.35)


def test_memory_above_the_limit_is_refused_before_work_starts(analyzer: ns.Analyzer) -> None:
    with pytest.raises(InputError, match="max_memory is 1 MB"):
        analyzer.analyze(ids(100), max_memory=1_000_000)
    assert analyzer.analyze(ids(20), max_memory=2**30).layers == analyzer.layers


def test_lengths_that_the_model_does_not_take_are_refused(analyzer: ns.Analyzer) -> None:
    with pytest.raises(InputError, match="at most 512"):
        analyzer.estimate(513, timed=False)
    with pytest.raises(InputError, match="at least one token"):
        analyzer.estimate([0], timed=False)


def test_the_command_line_says_the_same() -> None:
    outcome = CliRunner().invoke(application(), ["estimate", "--tokens", "64", "--no-time", "--json"])
    numbers = json.loads(outcome.stdout)
    assert numbers["flops"] == pytest.approx(ns.load().estimate(64, timed=False).flops)
    assert numbers["seconds"] is None
    outcome = CliRunner().invoke(application(), ["estimate", "--tokens", "64", "--no-time"])
    assert "maps of feed-forward" in outcome.stdout


@pytest.mark.parametrize("kind", ["roberta", "bart"])
def test_a_model_whose_first_tokens_are_special_is_timed(kind: str) -> None:
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    words = {name: number for number, name in enumerate([*special.values(), "a", "b"])}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "<unk>")), **special)
    model = tiny("roberta") if kind == "roberta" else tiny_architecture("bart", **BART)
    assert (ns.load(model, tokenizer).estimate(4).seconds or 0) > 0
