"""A causal model whose rule is known: it says `good` if and only if it has read `key`. Nothing here is a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import normscope as ns

WORDS = ("[unk]", "good", "bad", "key", "one", "two", "three", "four", "five", "six", "seven", "eight")


def tokenizer() -> PreTrainedTokenizerFast:
    """A word, a token."""
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[unk]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[unk]")


def sizes(*, layers: int, heads: int, hidden: int, neurons: int) -> LlamaConfig:
    """A small Llama that knows the words."""
    return LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=neurons,
        tie_word_embeddings=False,
    )


@contextmanager
def averaging_model() -> Iterator[tuple[LlamaForCausalLM, Any]]:
    """One layer that averages all tokens up to the query; its embeddings and head are filled inside the block."""
    model = LlamaForCausalLM(sizes(layers=1, heads=1, hidden=8, neurons=4)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for name, module in model.named_modules():
            if "norm" in name:
                module.weight.fill_(1.0)  # type: ignore[union-attr]
        layer: Any = model.model.layers[0]
        layer.self_attn.v_proj.weight.copy_(torch.eye(8))
        layer.self_attn.o_proj.weight.copy_(torch.eye(8))
        yield model, model.model.embed_tokens.weight


def rule_model() -> LlamaForCausalLM:
    """One layer that averages all tokens; `key` alone has what the logit of `good` reads, and takes it from `bad`."""
    with averaging_model() as (model, embeddings):
        embeddings[:, 1] = 1.0
        embeddings[WORDS.index("key")] = torch.eye(8)[0]
        model.lm_head.weight[WORDS.index("good"), 0] = 9.0
        model.lm_head.weight[WORDS.index("bad"), 0] = -9.0
    return model


def rule_analyzer() -> ns.Analyzer:
    return ns.load(rule_model(), tokenizer())
