"""What a model says next is the most probable token at each step, whatever its own settings of generation say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny_architectures import BART, GPT2, tiny
from support.tiny_models import shaken
from transformers import AutoModelForSeq2SeqLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import normscope as ns

IDS = {"input_ids": [[5, 9, 7, 30]]}
SETTINGS: dict[str, Any] = dict(
    **dict(do_sample=True, temperature=5.0, repetition_penalty=50.0, no_repeat_ngram_size=1, num_beams=4),
    **dict(min_new_tokens=3, num_return_sequences=2, suppress_tokens=list(range(0, 40, 2)), max_length=5),
)


def causal(**settings: Any) -> ns.Analyzer:
    model = shaken(GPT2LMHeadModel(GPT2Config(**{**GPT2, "vocab_size": 40, "eos_token_id": 39})))
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    return ns.load(model)


def argmaxes(model: Any, ids: list[int], count: int) -> list[int]:
    read = list(ids)
    for _ in range(count):
        with torch.no_grad():
            read.append(int(model(torch.tensor([read])).logits[0, -1].argmax()))
        if read[-1] == 39:
            break
    return read[len(ids) :]


def test_a_continuation_is_the_plain_argmax_whatever_the_models_settings() -> None:
    analyzer = causal(**SETTINGS)
    expected = argmaxes(analyzer.model, IDS["input_ids"][0], 6)
    assert analyzer.explain(IDS, continue_for=6).targets == [str(number) for number in expected]
    assert analyzer.model.generation_config.repetition_penalty == 50.0  # type: ignore[union-attr]


def test_a_continuation_has_no_dropout_where_the_model_is_in_training() -> None:
    analyzer = causal()
    expected = argmaxes(analyzer.model, IDS["input_ids"][0], 5)
    analyzer.model.train()
    assert analyzer.explain(IDS, continue_for=5).targets == [str(number) for number in expected]
    assert analyzer.model.training


def test_a_generated_target_has_no_penalties_but_the_tokens_that_its_settings_force() -> None:
    model: Any = tiny("bart", AutoModelForSeq2SeqLM, **BART).eval()
    analyzer = ns.load(model)
    plain: Any = analyzer.analyze(IDS, scopes="AttnW")
    for name, value in dict(do_sample=True, temperature=9.0, repetition_penalty=50.0, num_beams=3).items():
        setattr(model.generation_config, name, value)
    assert analyzer.analyze(IDS, scopes="AttnW").tokens == plain.tokens  # type: ignore[union-attr]
    model.generation_config.forced_bos_token_id = 17
    forced: Any = analyzer.analyze(IDS, scopes="AttnW")
    assert forced.dataset["query_output_token"].values[0] == "17"


def test_a_continuation_that_the_model_has_no_room_for_is_refused() -> None:
    analyzer = causal()
    with pytest.raises(
        ns.InputError, match="takes at most 32: it cannot be continued for 30 tokens, but for 29 at most"
    ):
        analyzer.explain(IDS, continue_for=30)
    assert len(analyzer.explain(IDS, continue_for=29).targets) <= 29


def test_a_model_without_a_table_of_positions_is_continued_as_far_as_it_was_made_for() -> None:
    size: dict[str, Any] = dict(hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20)
    config = LlamaConfig(vocab_size=40, num_key_value_heads=3, max_position_embeddings=16, **size)
    with pytest.raises(ns.InputError, match="cannot be continued for 1000000000000 tokens, but for 13 at most"):
        ns.load(shaken(LlamaForCausalLM(config))).explain(IDS, continue_for=10**12)


def test_ids_that_the_model_does_not_know_are_refused_before_it_continues_them() -> None:
    bart = ns.load(tiny("bart", AutoModelForSeq2SeqLM, **BART).eval())
    for ask in (
        lambda: causal().explain({"input_ids": [[5, 99]]}, continue_for=2),
        lambda: bart.analyze({"input_ids": [[99]]}),
    ):
        with pytest.raises(ns.InputError, match="'input_ids' has 99, but the model knows 0 to"):
            ask()


def test_positions_of_the_users_own_go_on_with_the_text() -> None:
    analyzer = causal()
    placed = {**IDS, "position_ids": [[3, 4, 5, 6]]}
    explanation = analyzer.explain(placed, target=[8, 9], objective="logit")
    read = {"input_ids": torch.tensor([[5, 9, 7, 30, 8]]), "position_ids": torch.tensor([[3, 4, 5, 6, 7]])}
    with torch.no_grad():
        logits = analyzer.model(**read).logits[0]
    assert explanation.values == pytest.approx([float(logits[3, 8]), float(logits[4, 9])], abs=1e-4)
    with pytest.raises(ns.InputError, match="leave out the encoding's position_ids"):
        analyzer.explain(placed, continue_for=2)
