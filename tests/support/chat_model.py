"""Tiny models that put out text: one with a byte-level tokenizer and a chat template, and one whose two steps are known.

Nothing here is a test.
"""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaForCausalLM, PreTrainedTokenizerFast

import normscope as ns
from support import rule_model
from support.tiny_models import shaken

TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
"""Like those of real models: it trims messages, and has the names of roles as plain text."""

_SPECIAL = ["<|start|>", "<|end|>"]
_CORPUS = [
    "Marta lives in Lisbon. Tomas works as a surgeon. Where does Marta live? Noor was born in Oslo.",
    "user assistant system Context: Question: Answer: the cat sat on the mat and the dog ran.",
]


def byte_tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """Byte pairs of a few sentences: any text can be read, and some characters are several tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=_SPECIAL,
        show_progress=False,
    )
    made.train_from_iterator(_CORPUS, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=_SPECIAL[1], additional_special_tokens=_SPECIAL[:1]
    )
    tokenizer.chat_template = template
    return tokenizer


def chat_model(seed: int = 0, **changes: Any) -> GPT2LMHeadModel:
    """A random model with biases and norms, whose most probable tokens come without an end."""
    sizes = dict(n_embd=12, n_layer=3, n_head=3, n_inner=20, n_positions=600)
    config = GPT2Config(vocab_size=330, eos_token_id=1, bos_token_id=0, **{**sizes, **changes})
    return shaken(GPT2LMHeadModel(config), seed=seed)


def chat_analyzer(
    template: str | None = TEMPLATE, *, dtype: torch.dtype = torch.float32, **changes: Any
) -> ns.Analyzer:
    return ns.load(chat_model(**changes).to(dtype), byte_tokenizer(template))


def two_step_model() -> LlamaForCausalLM:
    """One layer that averages all tokens before: after `key` it says `one`, and after `one` it says `two`.

    `two` is said because of `one` alone, which was said because of `key` alone.
    """
    key, one, two = (rule_model.WORDS.index(word) for word in ("key", "one", "two"))
    with rule_model.averaging_model() as (model, embeddings):
        embeddings[:, 7] = 1.0
        for token, feature in ((key, 0), (one, 1)):
            embeddings[token] = torch.eye(8)[feature]
        model.lm_head.weight[one, 0] = 9.0
        model.lm_head.weight[two, 1] = 30.0
    return model


def two_step_analyzer() -> ns.Analyzer:
    return ns.load(two_step_model(), rule_model.tokenizer())
